"""kill -9 of a worker at any instant: no process that graded for it lives on."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

LATEST_SECONDS = 60.0
"""After the kill, nothing may be left."""
READY_SECONDS = 60.0
START_SECONDS = 1.5
"""Kills at its start happen within so many seconds: processes come into being, and modules are loaded."""
POLL_SECONDS = 0.01

_SCRIPT = Path(__file__).with_name("grading_process.py")
_MARK = "CRUCIBLE_TEST_ROUND"


def marked(mark: str) -> set[int]:
    """Every living process that was started with a mark in its environment, whoever its parent is by now."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{_MARK}={mark}\0".encode() in (path / "environ").read_bytes():
                found.add(int(path.name))
        except OSError:  # it ended, or is not ours
            continue
    return found


def wait(condition, seconds: float) -> bool:
    """Whether a condition comes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_SECONDS)
    return True


def killed(folder: Path, number: int, instant: float | None) -> set[int]:
    """Kill a worker after so many seconds, or at full work if None; what is left of it when nothing may be."""
    mark, ready = f"{os.getpid()}-{folder.name}-{number}", folder / f"ready-{number}"
    with (folder / "log").open("ab") as log:
        worker = subprocess.Popen(
            [sys.executable, _SCRIPT, str(ready)], env={**os.environ, _MARK: mark}, stdout=log, stderr=log
        )
    try:
        if instant is None:
            assert wait(ready.exists, READY_SECONDS), (folder / "log").read_text()[-2_000:]
            # The fork server, its three children, and the worker itself at least.
            assert len(marked(mark)) >= 5
        else:
            time.sleep(instant)
    finally:
        worker.kill()
        worker.wait()
    wait(lambda: not marked(mark), LATEST_SECONDS)
    return marked(mark)


@pytest.mark.parametrize(
    "rounds", [pytest.param(2, marks=pytest.mark.core), 5, pytest.param(100, marks=pytest.mark.torture)]
)
def test_no_process_outlives_a_killed_worker(tmp_path, rounds):
    """Whether its children compute, or only come into being: every process of it ends."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for number in range(rounds):
        # Every other kill hits the start, each a different part of it.
        instant = None if number % 2 == 0 else (number + rng.random()) / rounds * START_SECONDS
        assert killed(tmp_path, number, instant) == set(), f"round {number}, killed at {instant}"
