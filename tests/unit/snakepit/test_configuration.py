"""The configuration of Snakepit that docs/snakepit.md shows: what it hands to a worker is what a worker reads."""

import json
import re
from pathlib import Path

from crucible_worker.config import load_settings
from crucible_worker.snakepit import SCRIPT_PATH
from crucible_worker.snakepit.launch import read_launch
from tests.unit.snakepit.examples import PAGE

APPENDED = ["--port", "0", "--elixir-address", "127.0.0.1:37835", "--snakepit-run-id", "4f2a91c"]


def pool(adapter: str) -> str:
    """The page's pool of an adapter."""
    (block,) = (each for each in re.findall(r"%\{\n.*?\n    \}", PAGE.read_text(), re.DOTALL) if adapter in each)
    return block


def arguments(adapter: str) -> list[str]:
    """The pool's `adapter_args`."""
    (listed,) = re.findall(r"adapter_args: (\[.*?\])", pool(adapter), re.DOTALL)
    return json.loads(listed)


def test_the_stand_alone_worker_reads_the_pages_arguments(tmp_path: Path):
    """State directory and model root are those of the page; a model root has to be there."""
    given = [str(tmp_path) if each == "/models" else each for each in arguments("CrucibleBridge.SnakepitAdapter")]
    settings = read_launch([*given, *APPENDED], {}, SCRIPT_PATH.parent)

    assert settings.state_dir == Path("/var/lib/crucible")
    assert settings.model_roots == (tmp_path,)


def test_the_adapter_class_is_the_pages_and_reads_its_variables():
    """Snakepit's server imports what `--adapter` names; its worker has the state directory of `adapter_env`."""
    option, name = arguments("Snakepit.Adapters.GRPCPython")
    variables = dict(re.findall(r'\{"(\w+)", "(.*?)"\}', pool("Snakepit.Adapters.GRPCPython")))

    assert option == "--adapter"
    assert name == "crucible_worker.snakepit.adapter.CrucibleAdapter"
    assert load_settings({}, variables, None).state_dir == Path("/var/lib/crucible")
