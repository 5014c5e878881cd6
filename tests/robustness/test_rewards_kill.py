"""The processes behind rewards: killed at any place they come back, and none outlives the trainer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crucible_bridge.errors import Unavailable
from crucible_bridge.rewards import Reward
from crucible_bridge.rewards.process import IN_CHILDREN, GradingProcess, shared
from tests.cases.hostile import hostile_pairs
from tests.processes import alive, children_of, grading_children, processes_below

WAIT_SECONDS = 60.0
HOST = IN_CHILDREN.encode()
HANGING = next(pair for pair in hostile_pairs(Path("/none")) if pair.name == "an integral")


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for what other processes do."""
    until = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def program(folder: Path, source: str) -> subprocess.Popen[str]:
    """A trainer with this program."""
    path = folder / "trainer.py"
    path.write_text(source, encoding="utf-8")
    return subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True)


def test_a_killed_process_is_replaced(tmp_path: Path):
    """A child of the pool, the server of the children, or the process that has the pool: later calls are graded."""
    reward = Reward(processes=2)
    assert reward("4/8", "1/2") == 1.0
    host = shared(IN_CHILDREN, {"processes": 2}).pid
    assert host is not None
    (server,) = children_of(host, b"grading.pool_host")

    for number, pids in enumerate((grading_children(host), [server], [host])):
        assert pids
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        assert reward(f"{number + 3}/7", f"{2 * number + 6}/14") == 1.0

    assert shared(IN_CHILDREN, {"processes": 2}).pid != host
    assert alive([host, server]) == set()


def test_what_was_asked_is_graded_after_a_kill():
    """Callers that wait while their process is killed get their verdicts from the next one."""
    reward = Reward(processes=3)
    reward.start()
    found: list[float | None] = []
    threads = [
        threading.Thread(target=lambda: found.append(reward(HANGING.answer, HANGING.target))),
        threading.Thread(target=lambda: found.append(reward("3/6", "1/2"))),
    ]
    for thread in threads:
        thread.start()
    host = shared(IN_CHILDREN, {"processes": 3}).pid
    assert host is not None
    os.kill(host, signal.SIGKILL)
    for thread in threads:
        thread.join()

    assert sorted(found, key=str) == [1.0, None]


def test_a_process_that_always_dies_is_an_error():
    """Not an endless row of starts; what was asked raises."""
    dying = GradingProcess("crucible_bridge.reasons", b"{}")

    with pytest.raises(Unavailable, match="the process that grades has ended with status 0"):
        dying.ask({}).result(WAIT_SECONDS)


_KILLED = """
import os, sys, threading, time
from crucible_bridge.rewards import Reward
reward = Reward(processes=2)
thread = threading.Thread(target=reward, args=("3/6", "1/2"))
thread.start()
thread.join()
programs = Reward("code", {"timeout_ms": 60_000}, processes=2)
assert programs("print(1)", {"stdout": "1"}) == 1.0
threading.Thread(target=programs, args=("while True: pass", {"stdout": "1"}), daemon=True).start()
if not os.fork():
    time.sleep(600)
print("ready", flush=True)
while True:
    reward(*sys.argv[1:] or {pair!r})
"""


def test_nothing_outlives_a_killed_trainer(tmp_path: Path):
    """Also where a thread that has ended made the first call, and a fork of the trainer lives on."""
    trainer = program(tmp_path, _KILLED.replace("{pair!r}", repr((HANGING.answer, HANGING.target))))
    assert trainer.stdout is not None
    try:
        assert trainer.stdout.readline() == "ready\n"
        (host,) = children_of(trainer.pid, HOST)
        (fork,) = set(children_of(trainer.pid)) - {host}
        below = processes_below(host)
        assert len(below) >= 5  # the server of the children, two of them, and sandboxes
    finally:
        trainer.kill()
        trainer.wait()
        trainer.stdout.close()

    wait_until(lambda: not alive({host, *below}))
    assert alive([fork]) == {fork}
    os.kill(fork, signal.SIGKILL)


_ENDING = """
import multiprocessing, os, sys
from crucible_bridge.rewards import Reward, code_reward
reward = Reward(processes=2)
assert reward("3/6", "1/2") == 1.0

def graded(number):
    assert reward(f"{number}/7", f"{2 * number}/14") == 1.0
    return os.getpid()

if __name__ == "__main__":
    if not os.fork():
        graded(1)
        sys.exit()
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert os.getpid() not in pool.map(graded, range(2, 10))
    graded(10)
    code_reward("def f(): return 1", "assert f() == 1")
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_forks_and_processes_of_a_trainer_have_their_own_and_end_with_it(tmp_path: Path):
    """A reward that was used before a fork is used in the child; pools of processes inherit or unpickle it."""
    path = tmp_path / "trainer.py"
    path.write_text(_ENDING, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as trainer:
        assert trainer.stdin is not None
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == "ready\n"
        below = processes_below(trainer.pid)
        assert len(children_of(trainer.pid, HOST)) == 2  # of two rewards with different pools
        trainer.stdin.close()
        assert trainer.wait(WAIT_SECONDS) == 0

    wait_until(lambda: not alive(below))
