"""The watchdog: it kills a process that no thread of it can end, ends with that process, and harms nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from crucible_bridge.errors import BridgeError
from crucible_bridge.types import EvaluationState
from crucible_worker.server.exit_guard import FORCE_SECONDS
from crucible_worker.util.limits import WorkerLimits
from tests.processes import children_of, is_alive
from tests.robustness.evidence import request
from tests.robustness.harness import count_lines, until, workshop

DRAIN_SECONDS = 5.5
"""The contract's: from SIGTERM to the end of the process, whatever runs."""
HOLD_THE_GIL = (
    "import ctypes\n"
    "mutex, lock = ctypes.create_string_buffer(64), ctypes.PyDLL(None).pthread_mutex_lock\n"
    "lock(mutex)\n"
    "print(hex(ctypes.addressof(mutex)), flush=True)\n"
    "lock(mutex)\n"
)
"""Waits for ever in C, without releasing the GIL; prints for which address."""
GUARDED = "from crucible_worker.server.exit_guard import ExitGuard\nguard = ExitGuard({seconds})\nguard.install()\n"
WAIT = "import time\nprint('held', flush=True)\nwhile True:\n    time.sleep(60)\n"


class Guard(Protocol):
    """Starts a process that has a guard with so many seconds, then runs a program; returns when that waits.

    The program prints for what: an address that its main thread is to wait for in the kernel, or "held".
    """

    def __call__(self, program: str, seconds: float = 0.5) -> subprocess.Popen[str]:
        """Start it."""
        ...


@pytest.fixture
def guard() -> Iterator[Guard]:
    """Starts guarded processes, and kills those that are left."""
    started = []

    def start(program: str, seconds: float = 0.5) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", GUARDED.format(seconds=seconds) + program]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        started.append(process)
        assert process.stdout is not None
        waits_for = process.stdout.readline().strip()
        while waits_for != "held" and waits_for not in Path(f"/proc/{process.pid}/syscall").read_text().split():
            assert process.poll() is None
            time.sleep(0.005)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def _wait_for_end(pid: int) -> None:
    """Wait until a process that is not a child of this one has ended."""
    while is_alive(pid):
        time.sleep(0.005)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_process_whose_gil_is_held_for_ever_is_killed(guard: Guard, number: signal.Signals):
    """The first signal starts the clock although no thread of Python can run."""
    process = guard(HOLD_THE_GIL)
    (watchdog,) = children_of(process.pid)

    process.send_signal(number)

    assert process.wait(DRAIN_SECONDS) == -signal.SIGKILL
    _wait_for_end(watchdog)


def test_a_signal_to_the_group_leaves_the_watchdog_its_work(guard: Guard):
    """Ctrl-C and a supervisor's kill reach every process of the group: the watchdog is not in it."""
    process = guard(HOLD_THE_GIL)

    os.killpg(process.pid, signal.SIGTERM)

    assert process.wait(DRAIN_SECONDS) == -signal.SIGKILL


def test_a_process_that_can_end_by_itself_is_not_killed(guard: Guard):
    """The guard's thread comes first: the exit code is 0, and the watchdog has ended too."""
    process = guard(WAIT)
    (watchdog,) = children_of(process.pid)

    process.terminate()

    assert process.wait(DRAIN_SECONDS) == 0
    _wait_for_end(watchdog)


def test_no_watchdog_outlives_its_process(guard: Guard):
    """After SIGKILL of the process its watchdog ends, and so does the clock that it had started."""
    process = guard(HOLD_THE_GIL, seconds=3600.0)
    (watchdog,) = children_of(process.pid)
    process.terminate()
    while not (clock := children_of(watchdog)):
        time.sleep(0.005)

    process.kill()
    process.wait()

    for pid in (watchdog, *clock):
        _wait_for_end(pid)


def test_without_a_shell_the_guard_still_ends_the_process(guard: Guard):
    """Where no watchdog can be started, the guard says so and its thread does what it can."""
    missing = "import crucible_worker.server.exit_guard as module\nmodule._SHELL = '/nonexistent/sh'\n"
    program = missing + GUARDED.format(seconds=0.5) + "assert not guard.watched\n" + WAIT

    process = guard(program)
    process.terminate()

    assert process.wait(DRAIN_SECONDS) == 0


async def test_a_worker_ends_in_time_while_the_gil_is_held(tmp_path: Path):
    """SIGTERM ends a worker and its children within 5.5 s even then, and the next worker takes its evaluation over."""
    calls, wanted = tmp_path / "calls", request("stopped", evaluators=("accuracy",))
    async with workshop(tmp_path, {"m": {"hold_gil": True, "call_file": str(calls)}}) as shop:
        worker = await shop.start()
        assert WorkerLimits().drain_seconds + FORCE_SECONDS < DRAIN_SECONDS
        with contextlib.suppress(BridgeError):  # the event loop may stop before the answer has left
            await worker.bridge.evaluation.start_evaluation(wanted, timeout=1.0)
        await until(lambda: count_lines(calls) > 0)
        children = children_of(worker.pid)

        worker.terminate()

        assert await worker.exit_code(DRAIN_SECONDS) == -signal.SIGKILL
        for child in children:
            _wait_for_end(child)
        shop.models = {"m": {"call_file": str(calls)}}
        other = await shop.start()
        ended = await other.bridge.evaluation.evaluate(wanted)
        assert (ended.state, ended.attempt) == (EvaluationState.COMPLETED, 2)
