"""A worker that is killed while it logs: what was acknowledged is there, once, and every line parses."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import children_of

ROOT = Path(__file__).parents[2]
MANY = 100_000_000
"""More rows than a process feeds before it is killed."""
OVERLAP = 500
"""Rows that a journal still has although the logger acknowledged them: fed again."""


def feeding(folder: Path, first: int, last: int) -> subprocess.Popen[str]:
    """A process that feeds rows."""
    command = [sys.executable, "-m", "tests.robustness.feeding", str(folder), str(first), str(last)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def written(folder: Path) -> list[int]:
    """The sequences in the file; each line has to end and to parse."""
    data = (folder / "run" / "metrics.jsonl").read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line)["_sequence"] for line in data.splitlines()]


def killed_at(folder: Path, first: int, seconds: float, *, logger: bool) -> int:
    """Kill the process, or its logger's first, so long after its first acknowledgement; the last acknowledged one."""
    process = feeding(folder, first, MANY)
    with process:
        assert process.stdout is not None
        acknowledged = int(process.stdout.readline())
        time.sleep(seconds)
        if logger:
            for child in children_of(process.pid):
                os.kill(child, signal.SIGKILL)
        process.kill()
        rest = process.stdout.read().split("\n")
    # The last line may be there in part.
    return max([acknowledged, *map(int, filter(None, rest[:-1]))])


def kill_again_and_again(folder: Path, rounds: int) -> None:
    """Each round repeats some of the last acknowledged entries."""
    chosen, acknowledged = random.Random(rounds), 0
    for number in range(rounds):
        first = max(1, acknowledged + 1 - OVERLAP)
        seconds = chosen.uniform(0.0, 0.2)
        acknowledged = max(acknowledged, killed_at(folder, first, seconds, logger=number % 2 == 1))
        found = written(folder)
        assert found == list(range(1, len(found) + 1))
        assert len(found) >= acknowledged
    last = len(written(folder)) + 1_000
    with feeding(folder, max(1, acknowledged + 1 - OVERLAP), last) as process:
        assert process.stdout is not None
        assert process.stdout.read().split()[-1] == "done"
    assert written(folder) == list(range(1, last + 1))


def test_what_was_acknowledged_survives_kills(tmp_path: Path) -> None:
    """Of the worker, and of the logger's own process."""
    kill_again_and_again(tmp_path, rounds=6)


@pytest.mark.torture
def test_what_was_acknowledged_survives_kills_at_a_hundred_instants(tmp_path: Path) -> None:
    """The same, a hundred times."""
    kill_again_and_again(tmp_path, rounds=100)
