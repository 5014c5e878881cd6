"""What is left of sandboxes: nothing, however they, their programs or their worker end."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from crucible_bridge.errors import Unavailable
from crucible_bridge.types import Assertions, CodeItem, CodeLimits, GradeCodeRequest, Verdict
from crucible_worker.grading.code import sandbox
from crucible_worker.grading.code.sandbox import Isolation
from tests import needs
from tests.processes import alive, read_of
from tests.service.code_kit import SMALL, code_grader, graded, needs_sandbox, sandboxed

pytestmark = needs_sandbox

TEST = Assertions("assert f(1) == 1")
PROXIED = Assertions("assert f(1) in (1,)")
GOOD, ENDLESS = "def f(x): return x", "while True: pass"
KILLED = CodeLimits(timeout_ms=30)
AMPLE = CodeLimits(timeout_ms=60_000)
# Long enough for it to be found at work, on a machine that has other things to do.
SLOW = """
import ctypes, time
def f(x):
    ctypes.CDLL(None).prctl(15, b"at work")
    time.sleep(5)
    return x
"""
GONE_SECONDS = 120.0
"""For what must come true, on any machine: a test that hangs fails."""
DEBIAN_PYTHON = Path("/usr/bin/python3")


def there(folder: Path) -> collections.Counter[str]:
    """What could be left beside processes: mounts, but not those of tests beside this one, cgroups, open files."""
    gc.collect()  # tests before this one leave files to be closed
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    of_others = f" {folder.parents[1]}/"
    found = collections.Counter(line for line in mounts if str(folder) in line or of_others not in line)
    found.update(Path("/proc/self/cgroup").read_text().splitlines())
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found[os.readlink(f"/proc/self/fd/{descriptor}").partition(":[")[0]] += 1
    found.update(os.listdir(folder))
    return found


async def until(said: Callable[[], bool]) -> None:
    """Wait for what must come true."""
    async with asyncio.timeout(GONE_SECONDS):
        while not said():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("kills", "runs"), [(4, 40), pytest.param(100, 1_000, marks=pytest.mark.torture)], ids=["short", "long"]
)
async def test_runs_and_kills_leave_nothing(kills: int, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """No process, mount, cgroup, descriptor or file; and every run after a kill is judged right."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = there(tmp_path)
    async with code_grader(2) as grader:
        stopped = await grader.grade_batch(
            GradeCodeRequest(items=(CodeItem(response=ENDLESS, tests=(TEST,)),) * kills, limits=KILLED)
        )
        passed = await grader.grade_batch(
            GradeCodeRequest(items=(CodeItem(response=GOOD, tests=(TEST, PROXIED)),) * (runs // 2), limits=SMALL)
        )

    assert {grade.verdict for grade in stopped.grades} == {Verdict.INCORRECT}
    assert {(grade.verdict, grade.reason) for grade in passed.grades} == {(Verdict.CORRECT, "")}
    await until(lambda: not sandboxed())
    assert there(tmp_path) - before == collections.Counter()


async def test_a_caller_that_leaves_takes_its_programs_along():
    """The place is free again at once, and fit for the next."""
    async with code_grader() as grader:
        for test in (TEST, PROXIED):
            task = asyncio.create_task(graded(grader, ENDLESS, test, limits=CodeLimits(timeout_ms=60_000)))
            await asyncio.sleep(0.3)
            task.cancel()
            assert (await graded(grader, GOOD, test)).verdict is Verdict.CORRECT
            assert task.cancelled()


async def test_what_waits_is_refused_once_all_is_closed():
    """With the reason that pools give."""
    async with code_grader() as grader:
        assert (await graded(grader, GOOD, TEST)).verdict is Verdict.CORRECT

    with pytest.raises(Unavailable) as caught:
        await graded(grader, GOOD, TEST)

    assert caught.value.reason == "GRADING_CLOSED"


@pytest.mark.parametrize("test", [TEST, PROXIED], ids=["calls", "tests"])
async def test_a_worker_that_ends_under_a_program_blames_nobody(test: Assertions):
    """The call is refused, whatever the program was about to show, and nothing is started any more."""
    async with code_grader() as grader:
        task = asyncio.create_task(graded(grader, SLOW, test, test, limits=AMPLE))
        await until(lambda: bool(at_work()))

    with pytest.raises(Unavailable) as caught:
        await task
    assert caught.value.reason == "GRADING_CLOSED"
    await until(lambda: not sandboxed())


async def test_a_sandbox_that_dies_between_runs_is_replaced():
    """Whoever killed it: the machine may be short of memory."""
    async with code_grader() as grader:
        assert (await graded(grader, GOOD, TEST)).verdict is Verdict.CORRECT
        for pid in sandboxed():
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not sandboxed())

        assert (await graded(grader, GOOD, TEST)).verdict is Verdict.CORRECT


def at_work() -> set[int]:
    """Processes of programs that have called themselves so."""
    return {pid for pid in sandboxed() if read_of(pid, "comm") == b"at work\n"}


def depth_of(pid: int) -> int:
    """How many ancestors a process has; 0 if it has ended."""
    depth = 0
    with contextlib.suppress(OSError):
        while pid > 1:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            depth += 1
    return depth


async def killed(times: int) -> None:
    """Kill whatever a sandbox holds, so often, each time when its program is at work."""
    for _ in range(times):
        await until(lambda: bool(at_work()))
        # Parents first: a sandbox that outlives its program for a moment reports how the program ended.
        for pid in sorted(doomed := sandboxed(), key=depth_of):
            with contextlib.suppress(ProcessLookupError):  # it went with another
                os.kill(pid, signal.SIGKILL)
        await until(lambda gone=doomed: not gone & sandboxed())


async def test_a_sandbox_that_dies_under_a_program_costs_it_nothing():
    """It is run again; where that happens twice nobody can tell, and the program is not wrong."""
    async with asyncio.timeout(4 * GONE_SECONDS):
        for kills, verdict in ((1, Verdict.CORRECT), (2, Verdict.ERROR)):
            async with code_grader() as grader:
                grade, _ = await asyncio.gather(graded(grader, SLOW, TEST, limits=AMPLE), killed(kills))
            assert grade.verdict is verdict, grade.reason
            assert (grade.problem.reason if grade.problem else "") == ("" if kills == 1 else "SANDBOX_LOST")


WORKER = """
import asyncio, sys
from crucible_bridge.types import Assertions, CodeItem, CodeLimits
from crucible_worker.grading.code.grader import CodeGrader
from crucible_worker.grading.code.sandbox import SandboxSlots

async def main():
    grader = CodeGrader(SandboxSlots(2))
    good = CodeItem(response="def f(x): return x", tests=(Assertions("assert f(1) == 1"),))
    await grader.grade(good, CodeLimits())
    print("running", flush=True)
    endless = CodeItem(response="while True: pass", tests=(Assertions("assert f(1) in (1,)"),))
    await asyncio.gather(*(grader.grade(endless, CodeLimits(timeout_ms=60_000)) for _ in range(2)))

asyncio.run(main())
"""


async def test_sandboxes_end_with_their_worker():
    """Though it is killed and can say nothing: idle ones, and those whose program runs for ever."""
    with subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"running\n"
        await until(lambda: len(sandboxed(worker.pid)) >= 8)  # bubblewrap and zygote, of programs and tests, twice
        held = sandboxed(worker.pid)
        worker.kill()

    await until(lambda: not alive(held))


@pytest.mark.skipif(not DEBIAN_PYTHON.exists(), reason=needs.MISSING["python3"])
@pytest.mark.skipif(os.geteuid() != 0, reason=needs.ROOT)
async def test_a_sandbox_in_a_user_namespace_is_as_good(monkeypatch: pytest.MonkeyPatch):
    """As a worker builds it that has not the right to mount."""
    monkeypatch.setattr(sandbox, "_may_mount", lambda: False)
    monkeypatch.setattr(sandbox, "_python", lambda: str(DEBIAN_PYTHON.resolve()))
    monkeypatch.setattr(sandbox, "_outside_usr", lambda folders: iter(()))
    assert Isolation.of_this_process().rootless
    stays = "import os\nos.chmod('/tmp', 0)\ndef f(x): return x"
    who = "import os\ndef f(x): return x if os.getuid() == 65534 and not os.path.exists('/proc') else os.getuid()"

    async with code_grader() as grader:
        for program in (GOOD, stays, "open('/tmp/a', 'w').close()\n" + who, who):
            for test in (TEST, PROXIED):
                grade = await graded(grader, program, test)
                assert grade.verdict is Verdict.CORRECT, grade.reason
        for program in (ENDLESS, "import os\nos.fork()", "import os\nos.kill(1, 9)", "open('/usr/x', 'w')"):
            assert (await graded(grader, program, TEST, limits=KILLED)).verdict is Verdict.INCORRECT

    await until(lambda: not sandboxed())
