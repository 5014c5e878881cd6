"""Commands whose standard output cannot be written to."""

import os
import subprocess
import sys
from pathlib import Path

from tests.tables import rows

COMMANDS = [("suites", "math"), ("suites",), ("suites", "--json"), ("--help",), ("--version",)]
"""Text, a table, JSON, and what the library of the command line writes by itself."""


def _run(command: tuple[str, ...], stdout: int) -> "subprocess.CompletedProcess[bytes]":
    # Buffered, as people have it: what is left in the buffer must not be complained of at the end.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, "-m", "crucible_worker", *command],
        stdout=stdout,
        stderr=subprocess.PIPE,
        timeout=60,
        env=environment,
    )


@rows("command", COMMANDS, ids=" ".join)
def test_a_full_disk_is_told_in_a_line(command: tuple[str, ...]):
    """No traceback, and no success."""
    with Path("/dev/full").open("wb") as full:
        done = _run(command, full.fileno())

    assert done.returncode == 1
    assert done.stderr == b"crucible-worker: cannot write to standard output: No space left on device\n"


@rows("command", COMMANDS, ids=" ".join)
def test_of_a_closed_pipe_nothing_is_said(command: tuple[str, ...]):
    """Whoever closed it, as `head` does, has read enough."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = _run(command, writing)
    finally:
        os.close(writing)

    assert (done.returncode, done.stderr) == (1, b"")


def test_an_output_that_was_closed_before_is_none():
    """As of other commands, what would be written is dropped."""
    command = f"{sys.executable} -m crucible_worker suites math >&-"
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, timeout=60)

    assert (done.returncode, done.stderr) == (0, b"")
