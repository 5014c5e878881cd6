"""Ctrl-C while a command is still being loaded: the command is gone, without a word and without a traceback.

The moment is given by the interpreter itself, which can say each module that it has imported: no clock is read, so that
a busy machine sends the signal at the same place.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

IMPORTED = "import time:"
"""Begins the lines that `-X importtime` writes."""
FIRST = "crucible_worker.util.interrupts"
"""With it a program begins to listen; before, the interpreter itself is being started."""


def _interrupted(number: signal.Signals, after: int, *arguments: str, cwd: Path) -> tuple[int, Sequence[str]]:
    """Signal a command once it has imported so many modules after the first, or has written a line of its own.

    Returns its exit code, and the lines that it wrote.
    """
    command = [sys.executable, "-X", "importtime", "-m", "crucible_worker", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CRUCIBLE_")}
    with subprocess.Popen(
        command,
        cwd=cwd,
        env={**environment, "TMPDIR": str(cwd)},
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        count, sent, written = None, False, []
        for line in process.stderr:
            imported = line.startswith(IMPORTED)
            if not imported:
                written.append(line)
            if count is None and not imported:
                continue
            count = 0 if line.rstrip().endswith(f" {FIRST}") else count if count is None else count + 1
            if not sent and count is not None and (count > after or not imported):
                process.send_signal(number)
                sent = True
        assert sent, "the command ended before it was signalled"
        return process.wait(timeout=60), written


@pytest.mark.parametrize("after", [0, 40, 120, 200, 300, 450, 10_000])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_that_is_told_to_go_while_it_starts_is_gone(number: signal.Signals, after: int, tmp_path: Path):
    """With 0, as at any later moment; what it may have said is its log."""
    code, written = _interrupted(number, after, "serve", "--port=0", "--state-dir=state", cwd=tmp_path)

    assert code == 0, written
    assert [line for line in written if not line.startswith("{")] == []


@pytest.mark.parametrize("after", [0, 40, 120, 250, 500, 800])
def test_an_evaluation_that_is_interrupted_while_it_starts_ends_as_interrupted(after: int, tmp_path: Path):
    """With 130 and at most the line that says so; no folder of a journal that was not asked for stays behind."""
    code, written = _interrupted(
        signal.SIGINT,
        after,
        *("evaluate", "--model=embedded:arithmetic@600", "--data=builtin:arithmetic", "--evaluator=nll", "--no-keep"),
        cwd=tmp_path,
    )

    assert code == 130, written
    said = [line for line in written if "arithmetic@600: " not in line]
    assert said in ([], ["crucible-worker: ended before all was evaluated\n"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("after", [0, 40, 120])
@pytest.mark.parametrize("command", ["suites", "doctor", "health", "demo"])
def test_every_command_ends_quietly_while_it_starts(command: str, after: int, tmp_path: Path):
    """With 130, as a shell tells of a command that Ctrl-C ended."""
    code, written = _interrupted(signal.SIGINT, after, command, "--help", cwd=tmp_path)

    assert (code, written) == (130, [])
