"""The lock of the worker that prepares the journal: who has to wait says for whom, and not without end."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from crucible_bridge.codec.events import event_to_record
from crucible_bridge.errors import FailedPrecondition
from crucible_worker.journal import Journal, locks
from crucible_worker.journal.schema import PREPARE_LOCK, prepare
from tests.robustness.harness import until

HOLD = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def _locked(state_dir: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process has the lock."""
    command = [sys.executable, "-c", HOLD, str(state_dir / PREPARE_LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def noticed() -> Iterator[tuple[list[structlog.types.EventDict], threading.Event]]:
    """The lines that are logged meanwhile, by any thread, and an event that each of them sets."""
    lines: list[structlog.types.EventDict] = []
    said, before = threading.Event(), structlog.get_config()

    def take(_: object, __: str, line: structlog.types.EventDict) -> structlog.types.EventDict:
        lines.append(line)
        said.set()
        raise structlog.DropEvent

    structlog.configure(processors=[take])
    try:
        yield lines, said
    finally:
        structlog.configure(**before)


def test_a_worker_that_waits_says_for_whom(tmp_path, monkeypatch):
    """One line with the process that has the lock, its command and the bound; then it starts as ever."""
    monkeypatch.setattr(locks, "NOTICE_SECONDS", 0.0)
    with _locked(tmp_path) as process, noticed() as (lines, said):
        done: list[Path] = []
        thread = threading.Thread(target=lambda: done.append(prepare(tmp_path)))
        thread.start()
        assert said.wait(30)
        assert done == []
        process.kill()
        thread.join(30)
    assert done == [tmp_path / "journal.sqlite3"]
    (line,) = lines
    assert (line["event"], line["path"]) == ("waiting_for_lock", str(tmp_path / PREPARE_LOCK))
    assert line["locked_by"].startswith(f"process {process.pid} ({sys.executable} -c")
    assert line["at_most_seconds"] == locks.WAIT_SECONDS


def test_a_lock_file_that_was_removed_meanwhile_is_made_again(tmp_path, monkeypatch):
    """The process that had it may not be the only one: a worker that waited for the old file locks the new one, too."""
    monkeypatch.setattr(locks, "NOTICE_SECONDS", 0.0)
    with _locked(tmp_path) as process, noticed() as (_, said):
        done: list[Path] = []
        thread = threading.Thread(target=lambda: done.append(prepare(tmp_path)))
        thread.start()
        assert said.wait(30)
        (tmp_path / PREPARE_LOCK).unlink()
        with _locked(tmp_path) as other:
            said.clear()
            process.kill()
            assert said.wait(30), "it waits for the new file"
            assert done == []
            other.kill()
            thread.join(30)
    assert done == [tmp_path / "journal.sqlite3"]


def test_a_lock_that_is_never_given_back_ends_the_start(tmp_path, monkeypatch):
    """FAILED_PRECONDITION, STATE_DIR_LOCKED, with the process that has the lock and what to do."""
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.0)
    with _locked(tmp_path) as process, pytest.raises(FailedPrecondition, match=f"by process {process.pid} ") as caught:
        prepare(tmp_path)
    assert caught.value.reason == "STATE_DIR_LOCKED"
    assert "--state-dir" in str(caught.value)


@pytest.mark.parametrize("listing", ["", "1: FLOCK  ADVISORY  WRITE 1 fe:00:1 0 EOF\n"])
def test_a_lock_of_whom_the_kernel_does_not_tell_is_said_all_the_same(tmp_path, monkeypatch, listing):
    """A container without the kernel's list, or whose list does not have the lock."""
    monkeypatch.setattr(locks, "WAIT_SECONDS", 0.0)
    listed = tmp_path / "locks"
    if listing:
        listed.write_text(listing)
    monkeypatch.setattr(locks, "_LOCKS", listed)
    (tmp_path / "state").mkdir()
    with _locked(tmp_path / "state"), pytest.raises(FailedPrecondition, match="by an unknown process"):
        prepare(tmp_path / "state")


async def test_a_start_that_is_given_up_leaves_no_thread_waiting(tmp_path, monkeypatch):
    """Ctrl-C and SIGTERM end a start that waits: the interpreter would wait for its thread."""
    monkeypatch.setattr(locks, "WAIT_SECONDS", float("inf"))
    with _locked(tmp_path) as process:
        opening = asyncio.create_task(Journal.open(tmp_path, event_to_record))
        await until(lambda: (tmp_path / PREPARE_LOCK).exists() and threads() > 0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        async with asyncio.timeout(30):  # for a thread that waits without end: a bound, not an expectation
            await asyncio.get_running_loop().shutdown_default_executor()
        assert process.poll() is None, "the lock was given back"


def threads() -> int:
    """Threads of the loop's executor."""
    return sum(thread.name.startswith("asyncio_") for thread in threading.enumerate())
