"""Calls to the system that fail, one after the other: what a worker does then, and that it recovers.

Each row counts the calls of a kind that a scenario makes, then has every one of them fail in turn, or some of them in
even steps. `make test-failpoints` has more of them fail than the daily tests do.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import errno
import itertools
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from crucible_bridge.errors import BridgeError
from crucible_bridge.events import EventKind
from crucible_bridge.types import Assertions, CodeItem, CodeLimits, EvaluationState, Verdict
from crucible_worker.journal.journal import READERS, STREAM_READERS
from tests.processes import children_of, processes_below
from tests.robustness.evidence import bits, check_events, check_interrupted_run, log_of, request, samples_of
from tests.robustness.failpoints import FIRST_PROCESS, NEVER, Calls, Failpoints
from tests.robustness.harness import WorkerProcess, Workshop, until, workshop
from tests.robustness.replicas_kit import replicas
from tests.service.code_kit import needs_sandbox
from tests.service.grading_kit import GRADING

SAMPLES = 12
"""Of an evaluation."""
ANSWER_SECONDS = 30.0
"""For a scenario whose call fails: one that hangs is a failure."""
SWEEP_SECONDS = 300.0
"""For all calls of a row: a bound, not an expectation."""
DAILY, WIDE, STARTS_EACH = 1, 40, 14
"""Calls that fail in a row."""
SPARE_FILES = 2 * (READERS + STREAM_READERS) + 4
"""Readers of the journal open their connections when they read; and a place for programs has two sandboxes at most."""
SPARE_CHILDREN = 6
"""Two sandboxes."""

_PROGRAM = "```python\ndef f(x):\n    return x + 1\nopen('left', 'w').write('x')\n```"
"""It leaves a file, so that the next program gets another sandbox."""
_numbers = itertools.count(2)


class _Interrupted(Exception):
    """The evaluation was interrupted."""


async def _evaluation(worker: WorkerProcess, name: str, **fields: Any) -> Any:
    """An evaluation from its start to its end, with a subscriber."""
    evaluation = worker.bridge.evaluation
    await evaluation.start_evaluation(request(name, samples=SAMPLES, **fields))
    async with evaluation.watch_evaluation(name) as events:
        async for event in events:
            if event.kind is EventKind.EVALUATION_INTERRUPT:
                found = await evaluation.get_evaluation(name)
                if found.state is EvaluationState.INTERRUPTED:
                    raise _Interrupted
    found = await evaluation.get_evaluation(name)
    assert found.state is EvaluationState.COMPLETED
    return bits(found.metrics)


async def _of_a_server(worker: WorkerProcess, name: str) -> Any:
    """An evaluation of a model behind a server, with a connection for each request."""
    return await _evaluation(worker, name, model="openai:s/m", evaluators=("accuracy",))


async def _reads(worker: WorkerProcess, name: str) -> Any:
    """What there is: evaluations, samples, and the log to its end."""
    page = await worker.bridge.evaluation.list_evaluations(run_id="run")
    return len(page.items) > 0, await samples_of(worker.bridge, "whole")


async def _programs(worker: WorkerProcess, name: str) -> Any:
    """A program that is graded in a new sandbox."""
    item = CodeItem(response=_PROGRAM, tests=(Assertions(source="assert f(1) == 2"),))
    graded = await worker.bridge.grading.grade_code([item], limits=CodeLimits(timeout_ms=20_000, memory_mb=128))
    (grade,) = graded.grades
    # An item may be undecided for a failure of the system, never wrong, and not for a bug.
    assert grade.verdict is Verdict.CORRECT, grade
    return grade.verdict


def _fork_server(worker: WorkerProcess) -> int:
    """The process that forks the children that grade mathematics."""
    (found,) = children_of(worker.pid, b"grading.pool_host")
    return found


async def _mathematics(worker: WorkerProcess, name: str) -> Any:
    """Answers whose children were killed: others take their place."""
    for child in processes_below(_fork_server(worker)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    number = next(_numbers)
    pairs = [("x", "y"), (f"(x+{number})^2", f"x^2+{2 * number}x+{number**2}")]
    return [grade.verdict for grade in (await worker.bridge.grading.grade_math(pairs)).grades]


Scenario: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sweep:
    """A row: which calls of which scenario fail, and how."""

    scenario: Scenario
    calls: Calls
    error: int
    in_a_row: int = 1
    of_server: bool = False
    """Whether they are calls of the fork server, not of the worker."""

    @property
    def name(self) -> str:
        """As pytest shows it."""
        whose = "server-" if self.of_server else ""
        return f"{self.scenario.__name__.strip('_')}-{whose}{self.calls.name}-{errno.errorcode[self.error]}"

    def arm(self, failpoints: Failpoints, worker: WorkerProcess, first: int) -> None:
        """Have a call fail from now on."""
        pid = _fork_server(worker) if self.of_server else worker.pid
        failpoints.arm(pid, self.calls, self.error, first, self.in_a_row)


SWEEPS = (
    Sweep(scenario=_evaluation, calls=Calls.WRITE, error=errno.ENOSPC),
    Sweep(scenario=_evaluation, calls=Calls.WRITE, error=errno.EIO),
    Sweep(scenario=_evaluation, calls=Calls.READ, error=errno.EIO),
    Sweep(scenario=_evaluation, calls=Calls.LOCK, error=errno.ENOLCK),
    Sweep(scenario=_of_a_server, calls=Calls.CONNECT, error=errno.ECONNREFUSED),
    Sweep(scenario=_of_a_server, calls=Calls.CONNECT, error=errno.ENETUNREACH, in_a_row=3),
    Sweep(scenario=_of_a_server, calls=Calls.DESCRIPTOR, error=errno.EMFILE),
    Sweep(scenario=_reads, calls=Calls.READ, error=errno.EIO),
    Sweep(scenario=_reads, calls=Calls.LOCK, error=errno.EIO),
    Sweep(scenario=_programs, calls=Calls.OPEN | Calls.DESCRIPTOR, error=errno.EMFILE),
    # Python tries vfork, then fork.
    Sweep(scenario=_programs, calls=Calls.FORK, error=errno.EAGAIN, in_a_row=2),
    Sweep(scenario=_mathematics, calls=Calls.OPEN | Calls.DESCRIPTOR, error=errno.EMFILE),
    Sweep(scenario=_mathematics, calls=Calls.DESCRIPTOR, error=errno.EMFILE, of_server=True),
    Sweep(scenario=_mathematics, calls=Calls.FORK, error=errno.EAGAIN, of_server=True),
)


def _held(worker: WorkerProcess) -> tuple[int, int]:
    """Its open files, and the processes below it."""
    return len(os.listdir(f"/proc/{worker.pid}/fd")), len(processes_below(worker.pid))


async def _serves(worker: WorkerProcess) -> None:
    for service in ("", GRADING, "crucible_bridge.v1.EvaluationService"):
        await until(lambda service=service: worker.is_serving(service))


async def _with_failure(worker: WorkerProcess, sweep: Sweep, name: str, expected: Any) -> None:
    """The scenario with a call that fails: it gives the same, or says why not."""
    result, refusal = expected, None
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            result = await sweep.scenario(worker, name)
    except _Interrupted:
        pass
    except BridgeError as error:
        refusal = error
    assert result == expected
    if refusal is not None:
        assert refusal.retryable, refusal
        assert refusal.reason not in ("", "INTERNAL", "UNKNOWN"), refusal
        assert refusal.message, refusal


async def _swept(folder: Path, sweeps: Sequence[Sweep], most: int) -> None:
    failpoints = Failpoints.built(folder)
    fields: dict[str, Any] = {"environment": failpoints.environment, "code_sandboxes": 1}
    async with replicas(folder, 0.0) as (server,):
        with server.closing():
            async with workshop(
                folder, {"m": {}}, seconds=SWEEP_SECONDS, servers={"s": server.url}, grading_processes=2, **fields
            ) as shop:
                await _all_swept(await shop.start(), failpoints, sweeps, most)


async def _all_swept(worker: WorkerProcess, failpoints: Failpoints, sweeps: Sequence[Sweep], most: int) -> None:
    await _serves(worker)
    await _evaluation(worker, "whole")
    for sweep in sweeps:
        await _sweep(worker, failpoints, sweep, most)
    log = await log_of(worker.bridge)
    check_events(log)
    page = await worker.bridge.evaluation.list_evaluations(run_id="run")
    for evaluation in page.items:
        check_interrupted_run(log, await worker.bridge.evaluation.get_evaluation(evaluation.evaluation_id), SAMPLES)


async def _sweep(worker: WorkerProcess, failpoints: Failpoints, sweep: Sweep, most: int) -> None:
    await sweep.scenario(worker, f"{sweep.name} warm")
    sweep.arm(failpoints, worker, NEVER)
    expected = await sweep.scenario(worker, f"{sweep.name} counted")
    calls = failpoints.disarm().seen
    assert calls, "the scenario makes no such call"
    before = _held(worker)
    for number in range(1, calls + 2, max(1, -(-calls // most))):
        name = f"{sweep.name} {number}"
        sweep.arm(failpoints, worker, number)
        try:
            await _with_failure(worker, sweep, name, expected)
            failpoints.disarm()
            await _serves(worker)
            async with asyncio.timeout(ANSWER_SECONDS):
                assert await sweep.scenario(worker, name) == expected
        except BaseException as error:
            error.add_note(f"{sweep.name}, call {number} of {calls}, {failpoints.disarm()}\n{worker.log_tail()}")
            raise

    def holds_no_more() -> bool:
        files, children = _held(worker)
        return files <= before[0] + SPARE_FILES and children <= before[1] + SPARE_CHILDREN

    await until(holds_no_more)


@needs_sandbox
async def test_calls_that_fail_are_survived(tmp_path):
    """The caller gets the same result, or a reason to retry; the same call succeeds later, and nothing is left."""
    await _swept(tmp_path, SWEEPS, DAILY)


@pytest.mark.failpoints
@pytest.mark.parametrize(
    "sweep",
    [
        pytest.param(sweep, id=sweep.name, marks=[needs_sandbox] if sweep.scenario is _programs else [])
        for sweep in SWEEPS
    ],
)
async def test_each_call_that_fails_is_survived(tmp_path, sweep):
    """As above, with each call of the scenario, or most of them."""
    await _swept(tmp_path, [sweep], WIDE)


async def _started(shop: Workshop, failpoints: Failpoints, calls: Calls, error: int, number: int) -> int:
    """Start a worker with a call that fails: it serves, or says why it cannot. Returns its calls of the kind."""
    failpoints.arm(FIRST_PROCESS, calls, error, number, under=shop.state_dir)
    worker = shop.launch()
    try:
        await until(lambda: worker.ready_file.exists() or not worker.alive)
        await (worker.ready() if worker.alive else asyncio.sleep(0))
        if not worker.alive:
            assert worker.process.returncode == 1
            assert '"event": "start_failed"' in worker.log_tail()
            return failpoints.disarm().seen

        async def completed() -> bool:
            ended = await worker.bridge.evaluation.evaluate(request(f"{calls.name} {number}", samples=SAMPLES))
            return ended.state is EvaluationState.COMPLETED

        await until(completed)
        await until(worker.is_serving)
        return failpoints.disarm().seen
    except BaseException as failure:
        failure.add_note(f"{calls.name}, call {number}, {failpoints.disarm()}\n{worker.log_tail()}")
        raise
    finally:
        await worker.close()


STARTS = {
    "OPEN-EMFILE": (Calls.OPEN, errno.EMFILE),
    "WRITE-ENOSPC": (Calls.WRITE, errno.ENOSPC),
    "LOCK-ENOLCK": (Calls.LOCK, errno.ENOLCK),
    "MAP-ENOMEM": (Calls.MAP, errno.ENOMEM),
}


async def _start_swept(folder: Path, calls: Calls, error: int, most: int) -> None:
    failpoints = Failpoints.built(folder)
    async with workshop(
        folder, {"m": {}}, seconds=SWEEP_SECONDS, grading_processes=2, environment=failpoints.environment
    ) as shop:
        # The first start of all makes the journal, and has other calls.
        for seen in (NEVER, NEVER):
            seen = await _started(shop, failpoints, calls, error, seen)
        assert seen
        for number in range(1, seen + 1, max(1, -(-seen // most))):
            await _started(shop, failpoints, calls, error, number)


@pytest.mark.failpoints
@pytest.mark.parametrize(("calls", "error"), STARTS.values(), ids=STARTS)
async def test_a_start_with_a_call_that_fails_serves_or_says_why_not(tmp_path, calls, error):
    """A worker that cannot start ends with the reason; one that has started recovers by itself."""
    await _start_swept(tmp_path, calls, error, STARTS_EACH)
