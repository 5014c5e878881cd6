"""Child processes: what one starts ends with it, and it ends with whoever started it."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crucible_worker.children import process
from crucible_worker.children.frames import receive
from crucible_worker.children.process import Process, ending_of
from tests.processes import children_of, is_alive

ROOT = Path(__file__).parents[3]
GONE_SECONDS = 10.0
"""For the kernel to take a killed process away; a bound, no expectation."""

LEAVES_ANOTHER = """
import os, signal, subprocess, sys
from crucible_worker.children.lifetime import begin
from crucible_worker.children.frames import frame
_, end = begin("leaves_another", None)
left = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], pass_fds=(end.fileno(),))
end.sendall(frame(str(left.pid).encode()))
end.recv(1)
os._exit(3)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """One in which children find modules of a folder."""
    (tmp_path / "leaves_another.py").write_text(LEAVES_ANOTHER)
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def gone(pid: int) -> bool:
    """Whether a process ends in time."""
    until = time.monotonic() + GONE_SECONDS
    while is_alive(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.005)
    return True


def left_by(end: socket.socket) -> int:
    """What the child says that it has started."""
    return int(receive(end) or b"0")


def test_a_child_is_killed_with_what_it_has_started(environment):
    """Its whole group is, and its status is known."""
    process, end = Process.start("leaves_another", environment=environment, logs=True)
    with end:
        left = left_by(end)
        assert process.reap() == -signal.SIGKILL
        assert gone(left)
    assert process.reap() == -signal.SIGKILL


def test_what_a_child_leaves_ends_when_it_is_reaped(environment):
    """Also where the child has ended by itself."""
    process, end = Process.start("leaves_another", environment=environment, logs=True)
    with end:
        left = left_by(end)
        assert not process.ends(time.monotonic())
        end.shutdown(socket.SHUT_WR)
        assert process.ends(time.monotonic() + GONE_SECONDS)
        assert is_alive(left)
        assert process.reap() == 3
        assert gone(left)


async def test_an_end_is_waited_for(environment):
    """By any number of callers; afterwards nobody waits."""
    process, end = Process.start("leaves_another", environment=environment, logs=True)
    with end:
        left_by(end)
        waiting = [asyncio.create_task(process.ended()) for _ in range(2)]
        await asyncio.sleep(0)
        end.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(GONE_SECONDS):
            await asyncio.gather(*waiting)
        assert await process.end() == 3
        await process.ended()


def test_a_child_ends_with_the_process_that_started_it(environment):
    """However that ends."""
    starts = (
        "import os, time\nfrom crucible_worker.children.process import Process\n"
        "process, end = Process.start('leaves_another', environment=os.environ)\n"
        "end.recv(1)\nprint(process.pid, flush=True)\ntime.sleep(600)\n"
    )
    command = [sys.executable, "-c", starts]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    assert gone(child)
    os.killpg(child, signal.SIGKILL)  # what it has started is left: nothing has reaped its group


def test_a_child_that_was_not_reaped_is_so_at_a_later_start(environment):
    """No zombie stays behind once its owner is gone; one with an owner is left to that."""
    first, end = Process.start("leaves_another", environment=environment)
    pid = first.pid
    with end:
        left_by(end)
        first.kill()
        assert first.ends(time.monotonic() + GONE_SECONDS)
    second, end = Process.start("leaves_another", environment=environment)
    end.close()
    assert Path(f"/proc/{pid}").exists()
    del first
    third, end = Process.start("leaves_another", environment=environment)
    end.close()
    assert not Path(f"/proc/{pid}").exists()
    second.reap()
    third.reap()


def test_a_program_that_is_not_there_cannot_be_started(monkeypatch):
    """And leaves no descriptor."""
    monkeypatch.setattr(sys, "executable", "/no/python")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(FileNotFoundError):
        Process.start("leaves_another", environment={})
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(("code", "words"), [(-9, "signal 9"), (0, "exit status 0"), (3, "exit status 3")])
def test_endings_have_words(code, words):
    """Which error messages hold."""
    assert ending_of(code) == words


ANSWERS = """
import os, sys
from crucible_worker.children.process import answer_once

def answer(question):
    if question == b"die":
        os._exit(0)
    if question == b"much":
        return bytes(1 << 30)
    if question == b"long":
        while True:
            pass
    return question.upper()

answer_once("answers", answer, cpu_seconds=1, memory_bytes=512 << 20)
"""


async def test_a_question_has_one_answer(tmp_path, environment):
    """Or none: the child ended, or exceeds its memory or its processor time."""
    (tmp_path / "answers.py").write_text(ANSWERS)

    assert await process.ask_once("answers", b"question", environment=environment) == b"QUESTION"
    for question in (b"die", b"much", b"long"):
        with pytest.raises(process.Unanswered):
            await process.ask_once("answers", question, environment=environment)


async def test_a_question_that_is_not_waited_for_leaves_no_child(tmp_path, environment):
    """Whatever the child does."""
    (tmp_path / "answers.py").write_text(
        ANSWERS.replace(
            "while True:", f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n        while True:"
        )
    )
    asking = asyncio.create_task(process.ask_once("answers", b"long", environment=environment))
    async with asyncio.timeout(60):
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            await asyncio.sleep(0.005)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert gone(int((tmp_path / "pid").read_text()))


def _refused(*arguments):
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def test_a_child_that_no_descriptor_is_free_for_is_not_left(monkeypatch):
    """The error is the system's, and the command that was started already is gone."""
    monkeypatch.setattr(os, "pidfd_open", _refused)
    before = children_of(os.getpid())
    with pytest.raises(OSError, match="Too many open files"):
        Process.spawn([sys.executable, "-c", "import signal; signal.pause()"], None, ())
    assert children_of(os.getpid()) == before


async def test_the_end_of_a_child_is_awaited_without_a_free_descriptor(monkeypatch):
    """It is killed and reaped as ever."""
    process = Process.spawn([sys.executable, "-c", "import signal; signal.pause()"], None, ())
    monkeypatch.setattr(os, "dup", _refused)
    assert await process.end() == -signal.SIGKILL
