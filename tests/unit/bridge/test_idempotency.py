"""Which calls are repeated and logged quietly: the protos say it once."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from crucible_bridge.channel import channel_options
from crucible_bridge.idempotency import repeatable, service_modules, without_side_effects
from crucible_worker.rpc.calls import Method

ROOT = Path(__file__).parents[3]
PROTOS = sorted((ROOT / "protos" / "crucible_bridge" / "v1").glob("*.proto"))
GENERATED = re.compile(r"/v1/|/wire/")


def levels() -> Iterator[tuple[str, bool, str]]:
    """Of each call in the protos' text: its path, whether it answers with a stream, its level."""
    rpc = re.compile(r"rpc (\w+)\([^)]*\)\s+returns \((stream )?\w+\) \{\s+option idempotency_level = (\w+);")
    for proto in PROTOS:
        for service, body in re.findall(r"^service (\w+) \{(.*?)^\}", proto.read_text(), re.MULTILINE | re.DOTALL):
            found = rpc.findall(body)
            assert len(found) == len(re.findall(r"^  rpc ", body, re.MULTILINE)), service
            for name, stream, level in found:
                yield f"/crucible_bridge.v1.{service}/{name}", bool(stream), level


def test_calls_without_side_effects_are_repeated_and_no_others():
    """The channel's service configuration is that of the protos."""
    (config,) = json.loads(dict(channel_options())["grpc.service_config"])["methodConfig"]
    wanted = {path for path, _, level in levels() if level == "NO_SIDE_EFFECTS"}

    assert len(wanted) > 10
    assert {f"/{name['service']}/{name['method']}" for name in config["name"]} == wanted == without_side_effects()


def test_single_answers_without_side_effects_are_logged_quietly():
    """A read or a computation that went well is of no interest; a stream that ends is."""
    for path, streams, level in levels():
        assert Method(path=path, streams=streams).quiet == (level == "NO_SIDE_EFFECTS" and not streams), path


def test_every_service_is_looked_at():
    """The modules of services are all there are."""
    found = {service for module in service_modules() for service in module.DESCRIPTOR.services_by_name}

    assert found == {
        name for proto in PROTOS for name in re.findall(r"^service (\w+)", proto.read_text(), re.MULTILINE)
    }


def texts_of(node: ast.AST) -> set[object]:
    """The constants of a tuple, list or set, and of tuples in it."""
    found: set[object] = set()
    for element in getattr(node, "elts", ()):
        found |= {element.value} if isinstance(element, ast.Constant) else texts_of(element)
    return found


def test_no_second_list_of_calls_is_kept():
    """No tuple, list or set of our code names calls; a mapping registers them."""
    calls = {path.rpartition("/")[2] for path, _, _ in levels()}
    lists = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for package in ("bridge", "python_worker")
        for path in sorted((ROOT / package).rglob("*.py"))
        if not GENERATED.search(path.as_posix())
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Tuple | ast.List | ast.Set) and len(calls & texts_of(node)) > 1
    ]

    assert lists == []


def test_a_pool_repeats_idempotent_calls_of_any_worker():
    """Those that mean one worker are excepted: repeated at another one, a drain would drain that, too."""
    config = json.loads(dict(channel_options(pool=True))["grpc.service_config"])
    wanted = {path for path, _, level in levels() if level in ("NO_SIDE_EFFECTS", "IDEMPOTENT")}
    wanted.remove("/crucible_bridge.v1.WorkerService/Drain")

    (method,) = config["methodConfig"]
    assert {f"/{name['service']}/{name['method']}" for name in method["name"]} == wanted == repeatable()
    assert config["loadBalancingConfig"] == [{"round_robin": {}}]
    assert config["healthCheckConfig"] == {"serviceName": ""}
