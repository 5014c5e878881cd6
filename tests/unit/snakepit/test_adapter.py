"""The adapter class, in a process that calls it as Snakepit's own Python server does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HOST = Path(__file__).with_name("adapter_host.py")
ADAPTER = "crucible_worker.snakepit.adapter.CrucibleAdapter"
SECONDS = 60.0
"""For the process, on a loaded machine."""


def run(folder: Path, **variables: str) -> dict[str, Any]:
    """What the process answered, call by call, what else it wrote, and where it worked."""
    environment = {
        **os.environ,
        "CRUCIBLE_GRADING_PROCESSES": "0",
        "CRUCIBLE_STATE_DIR": str(folder / "state"),
        "TMPDIR": str(folder),
        **variables,
    }
    ended = subprocess.run(
        [sys.executable, str(HOST), ADAPTER], env=environment, capture_output=True, timeout=SECONDS, check=False
    )
    assert ended.returncode == 0, ended.stderr.decode()
    lines = [json.loads(line) for line in ended.stdout.decode().splitlines()]
    return {"answers": lines[:-1], "together": lines[-1], "errors": ended.stderr, "folder": folder}


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A process whose worker starts."""
    return run(tmp_path_factory.mktemp("adapter"))


def test_tools_answer_with_plain_values(host: dict[str, Any]):
    """A tool's answer is plain, whether arrays came as lists or as bytes among the arguments."""
    lists, binary = host["answers"][:2]

    assert lists["metrics"]["nll"] == 1.5
    assert binary["metrics"]["nll"] == 1.0
    assert host["answers"][7]["evaluators"]


def test_streams_are_asynchronous_generators(host: dict[str, Any]):
    """A tool that streams gives an asynchronous generator of plain values, which fails as the tool does."""
    events, failed = host["answers"][2:4]

    assert [event["kind"] for event in events] == ["metrics_computed"] * 2
    assert failed["error"] == "KeyError"
    assert failed["message"].startswith("UNKNOWN_EVALUATION: evaluation_id is 'nope'")


def test_a_reader_that_is_cancelled_is_cancelled(host: dict[str, Any]):
    """A stream whose reader is cancelled while it waits ends with that alone, and not with an error."""
    assert host["answers"][10] == {"cancelled": True, "said": ""}


def test_errors_are_pythons_own(host: dict[str, Any]):
    """An error is an exception that Snakepit knows, and its text begins with our reason."""
    wrong, unknown, binary = host["answers"][4:7]
    drained, packed = host["answers"][8:10]

    assert wrong == {"error": "TypeError", "message": "WRONG_TYPE: weights[0][0] is text; a number is needed"}
    assert unknown["error"] == "KeyError"
    assert unknown["message"].startswith("UNKNOWN_TOOL: ")
    assert (drained["error"], drained["message"][:13]) == ("NotImplementedError", "UNIMPLEMENTED")
    assert binary["message"].startswith("INVALID_FIELD: result_format is 'binary'")
    assert packed["message"].startswith("INVALID_FIELD: result_format is 'msgpack'")


def test_one_worker_serves_every_loop(host: dict[str, Any]):
    """Requests at once, and on loops of other threads, are answered alike by one worker."""
    assert host["together"] == [host["answers"][0]] * 12


def test_the_process_ends_without_a_word(host: dict[str, Any]):
    """The process exits with 0 though nobody ended the worker, says nothing, and leaves nothing but the journal."""
    assert host["errors"] == b""
    assert [path.name for path in host["folder"].iterdir()] == ["state"]


def test_a_worker_that_cannot_start_says_why(tmp_path: Path):
    """Each tool is refused for what the worker cannot start for, and the process lives."""
    ended = run(tmp_path, CRUCIBLE_LIMITLESS="1")

    drained = ended["answers"].pop(8)

    assert drained["error"] == "NotImplementedError"
    for answer in (*ended["answers"], *ended["together"]):
        assert answer["error"] == "RuntimeError"
        assert answer["message"].startswith("NOT_STARTED: the worker cannot start: ")
        assert "CRUCIBLE_LIMITLESS" in answer["message"]
