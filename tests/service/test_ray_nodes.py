"""`crucible-worker ray up`: a worker on every node of a Ray cluster, on one journal, whatever dies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import needs

pytest.importorskip("ray", reason=needs.MISSING["ray"])

import crucible_bridge
from tests.service.fanout_kit import ray_cluster

SECONDS = 120.0


async def run(*arguments: str) -> tuple[int, str, str]:
    """Run a command; returns its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "crucible_worker", "ray", *arguments, stdout=-1, stderr=-1
    )
    out, err = await asyncio.wait_for(process.communicate(), SECONDS)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


async def ready(wanted: Callable[[dict[str, str]], bool]) -> dict[str, str]:
    """The addresses of workers by node, once they are as wanted."""
    async with asyncio.timeout(SECONDS):
        while True:
            _, out, err = await run("status", "--json")
            found = {one["node_id"]: one["address"] for one in json.loads(out or "[]") if one["state"] == "ready"}
            if wanted(found):
                return found
            assert not err, err


async def described(address: str) -> Any:
    """What a worker says of itself."""
    async with crucible_bridge.connect(address) as bridge:
        return await bridge.worker.get_info()


@pytest.mark.postgres
async def test_every_node_has_a_worker_on_one_journal_also_a_later_one_and_after_a_death(postgres_server, tmp_path):
    """Each is another process, and each knows what another has evaluated."""
    url = postgres_server.new_database()
    serve = ("--port=0", f"--state-dir={tmp_path}", "--grading-processes=0", "--code-sandboxes=0")
    with ray_cluster(1) as cluster:
        code, out, err = await run("up", "--journal", url, "--num-cpus", "1", "--", *serve)
        assert (code, "has 0 CPU" in " ".join(out.split())) == (0, True), out + err  # its first node has no processors
        (first,) = (await ready(lambda found: len(found) == 1)).values()
        code, _, err = await run("up", "--journal", url)
        assert (code, "up already" in err) == (1, True)

        cluster.add_node()  # in this thread: Ray handles signals
        both = await ready(lambda found: len(found) == 2)
        assert len({(await described(address)).worker_id for address in both.values()}) == 2
        async with crucible_bridge.connect(first) as bridge:
            await bridge.evaluation.evaluate(
                evaluation_id="e",
                model="embedded:arithmetic@320",
                dataset="builtin:arithmetic",
                evaluators="nll",
            )
        (second,) = set(both.values()) - {first}
        async with crucible_bridge.connect(second) as bridge:
            assert (await bridge.evaluation.get_evaluation("e")).done > 0

        os.kill(_pid_of_worker(first), signal.SIGKILL)
        again = await ready(lambda found: len(found) == 2 and first not in found.values())
        assert second in again.values()

        code, out, err = await run("down")
        assert (code, out.strip()) == (0, "workers that have ended: 2"), err
        assert (await run("status"))[0] == 1


HOG = """
import ray
ray.init(namespace="others", logging_level="ERROR")
class Hog:
    def there(self): return True
hog = ray.remote(Hog).options(name="hog", num_cpus=1, lifetime="detached").remote()
assert ray.get(hog.there.remote())
"""
"""Takes the processor of the only node that has one, as another user's job does."""


async def test_workers_that_cannot_start_say_why_and_are_ended(tmp_path):
    """Without their database, and on a node without a free processor; nothing waits for ever, no traceback is shown."""
    up = ("up", "--journal", "postgresql://user@127.0.0.1:1/none", "--wait", "1", "--", "--port=0")
    with ray_cluster(1):
        both = await asyncio.gather(*(run(*up, f"--state-dir={tmp_path}") for _ in range(2)))
        assert [code for code, _, _ in both] == [1, 1]
        assert [err.count("workers are up already") for _, _, err in both].count(1) == 1
        assert not any("Traceback" in err for _, _, err in both)

        async with asyncio.timeout(SECONDS):
            while True:
                code, out, err = await run("status", "--json")
                assert (code, err) == (1, "")
                if any("starting again: it ended with 1: --journal" in one["state"] for one in json.loads(out)):
                    break
        assert "Connection refused" in out

        code, out, err = await run("down")
        assert (code, err) == (0, "")
        assert out.startswith("workers that have ended: ")

        hog = await asyncio.create_subprocess_exec(sys.executable, "-c", HOG)
        assert await asyncio.wait_for(hog.wait(), SECONDS) == 0
        code, out, _ = await run(*up, f"--state-dir={tmp_path}")
        assert (code, "Ray has not started" in out) == (1, True), out
        code, out, err = await run("down")
        assert (code, err) == (0, "")
        assert out.split("\n")[:2] == [
            "workers that have ended: 0",
            "nodes whose worker was not started, or did not end in time: 1",
        ]


async def test_options_that_serve_would_refuse_are_refused_before_anything_starts():
    """On the machine of the one who typed them, with the words of `serve`."""
    code, _, err = await run("up", "--journal", "postgresql://me@host/lab", "--", "--prot", "0")
    assert (code, "--prot" in err) == (2, True)

    code, _, err = await run("up", "--journal", "postgresql://me@host/lab", "--", "--ready-file", "x")
    assert (code, "--ready-file is given by this command alone" in err) == (2, True)

    code, _, err = await run("up")
    assert (code, "--journal is needed" in err) == (2, True)


async def test_a_cluster_that_is_not_there_is_named_at_once():
    """Nothing listens at the port: the error says so, and does not wait for the end of all time limits."""
    for command in ("status", "down"):
        code, _, err = await run(command, "--address", "ray://127.0.0.1:1")
        assert (code, "--address ray://127.0.0.1:1: no Ray cluster answers: " in err) == (1, True)
        assert "Connection refused" in err


def _pid_of_worker(address: str) -> int:
    """The `serve` that wrote an address into its ready file."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended, or its worker is not ready
            for argument in command.read_text().split("\0"):
                option, _, path = argument.partition("=")
                if option == "--ready-file" and Path(path).read_text() == address:
                    return int(command.parent.name)
    raise LookupError(address)
