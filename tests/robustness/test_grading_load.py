"""Math verdicts on a machine that has little time for the children: they are those of an idle one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator

import pytest

from crucible_bridge.types import GradeItem, Verdict
from crucible_worker.grading import pool as pool_module
from crucible_worker.grading.math.grader import MathGrader
from crucible_worker.grading.pool import SLOW_SECONDS, GradingPool
from tests.processes import grading_children

STOPPED_SECONDS, RUNNING_SECONDS = 0.050, 0.005
"""For how long children are stopped, and may run, in turn: each item takes at least eleven times as long."""
ROUNDS = 3
CORRECT, INCORRECT = Verdict.CORRECT, Verdict.INCORRECT
PAIRS = (
    (r"y = \frac{3\pm\sqrt{16x+9}}{2}", r"y = \frac{3+\sqrt{16x+9}}{2}", INCORRECT),
    (r"y = \frac{3+\sqrt{16x+9}}{2}", r"y = \frac{3\pm\sqrt{16x+9}}{2}", INCORRECT),
    (r"\frac{\ln 2}{2}", r"\int_0^1 \frac{x dx}{1+x^2}", CORRECT),
    (r"\int_0^1 x^n dx", r"\int_0^1 x^m dx", INCORRECT),
    ("2", r"\sum_{k=0}^\infty \frac{1}{2^k}", CORRECT),
)
"""Pairs that take from 5 to 60 ms of processor time."""


def _signal_children(number: signal.Signals) -> None:
    for child in grading_children(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)


@contextlib.asynccontextmanager
async def slowed_children() -> AsyncIterator[None]:
    """Children get a small part of the time, as they do on a machine that many others use."""

    async def stop_and_go() -> None:
        while True:
            _signal_children(signal.SIGSTOP)
            await asyncio.sleep(STOPPED_SECONDS)
            _signal_children(signal.SIGCONT)
            await asyncio.sleep(RUNNING_SECONDS)

    task = asyncio.create_task(stop_and_go())
    try:
        yield
    finally:
        task.cancel()
        _signal_children(signal.SIGCONT)


async def test_verdicts_do_not_depend_on_the_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is decided within its processor time is decided however long that takes by the clock."""
    monkeypatch.setattr(pool_module, "CLOCK_FACTOR", 10_000)  # the backstop is not what is tried
    pool = GradingPool(2)
    found: list[list[Verdict]] = []
    times: list[float] = []
    try:
        await pool.start()
        async with slowed_children():
            for _ in range(ROUNDS):
                # Another grader has not been asked before.
                grades = await MathGrader(pool).grade_batch(
                    [GradeItem(answer=answer, targets=(target,)) for target, answer, _ in PAIRS]
                )
                found.append([grade.verdict for grade in grades])
                times += [grade.duration_ns / 1e9 for grade in grades]
    finally:
        await pool.aclose()

    assert found == [[verdict for _, _, verdict in PAIRS]] * ROUNDS
    assert max(times) < 2 * SLOW_SECONDS
