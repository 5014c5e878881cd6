"""The tests run alike in a terminal, in the background, and under nohup."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NUMBERS = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM)


def _ignore() -> None:
    for number in NUMBERS:
        signal.signal(number, signal.SIG_IGN)


def test_what_a_test_starts_ignores_no_signal():
    """A command that is sent Ctrl-C ends by it, whatever the program that started the tests ignores."""
    status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    (ignored,) = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigIgn:")]
    assert [number.name for number in NUMBERS if ignored >> (number - 1) & 1] == []


@pytest.mark.parametrize("processes", [("-p", "no:xdist"), ("-n", "1")], ids=["one-process", "xdist"])
def test_tests_that_are_started_with_ignored_signals_hold(processes: Sequence[str]):
    """Also those that a process of xdist runs."""
    node = f"{__file__}::{test_what_a_test_starts_ignores_no_signal.__name__}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *processes, node],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_ignore,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
