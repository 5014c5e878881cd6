"""Answers that mean harm, among honest ones, in real children: they cost nobody anything but their own grade."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Sequence

import pytest

from crucible_bridge.types import Grade, GradeItem, Verdict
from crucible_worker.grading.math.grader import MathGrader
from crucible_worker.grading.pool import GradingPool
from tests.cases.hostile import Hostile, hostile_pairs
from tests.processes import grading_children, rss_of

CHILDREN = 2
ITEM_SECONDS = 0.8
"""Processor time that an item may take."""
NEIGHBOUR_SECONDS = 0.050
"""The 99th percentile of the processor time that honest items take beside them."""
BUSY_FACTOR = 4
"""On a machine so busy that they take long by themselves, they may take so many times as long beside others."""
RSS_BYTES = 64 * 2**20
"""What the worker may grow by."""
ROUNDS = 3
"""In which neighbours are timed; the median of their percentiles counts, as the machine does other things, too."""
ITEMS, KILLS = 10_000, 4
"""Of the batch whose children are killed one by one, or all at once."""
HONEST = 100
"""Honest items beside each hostile batch."""


@contextlib.asynccontextmanager
async def running_grader() -> AsyncIterator[MathGrader]:
    """A grader with children of its own."""
    pool = GradingPool(CHILDREN)
    try:
        await pool.start()
        yield MathGrader(pool)
    finally:
        await pool.aclose()


def honest(number: int, seed: int = 0) -> GradeItem:
    """An answer that is right, that no two items share, and that has to be read."""
    a, b = number + 2, 10_000 * seed + number + 3
    return GradeItem(id=f"honest {number}", answer=rf"\frac{{{a}x + {a * b}}}{{{a}}}", targets=(f"x + {b}",))


def as_item(pair: Hostile) -> GradeItem:
    """The pair as it is sent."""
    return GradeItem(id=pair.name, answer=pair.answer, targets=(pair.target,))


def mixed(pairs: Sequence[Hostile], seed: int = 0) -> list[GradeItem]:
    """Hostile items with honest ones between them."""
    items: list[GradeItem] = []
    for number, pair in enumerate(pairs):
        share = range(number * HONEST // len(pairs), (number + 1) * HONEST // len(pairs))
        items += [*(honest(each, seed) for each in share), as_item(pair)]
    return items


def percentile_99(values: Sequence[float]) -> float:
    """The smallest value that 99 % of them do not exceed."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def seconds(grade: Grade) -> float:
    """The processor time that it took."""
    return grade.duration_ns / 1e9


@pytest.mark.parametrize("turned", [False, True], ids=["as answers", "as targets"])
async def test_hostile_items_cost_only_themselves(tmp_path, turned):
    """In one batch with honest items: nothing is run, each has a verdict that it may have, all in time."""
    marker = tmp_path / "executed"
    pairs = hostile_pairs(marker)
    verdicts = {pair.name: pair.verdicts for pair in pairs}
    if turned:
        pairs = [Hostile(pair.name, pair.target, pair.answer) for pair in pairs]
        verdicts = dict.fromkeys(verdicts, frozenset(Verdict) - {Verdict.ERROR})
    async with running_grader() as grader:
        grades = await grader.grade_batch(mixed(pairs))

    neighbours = [grade for grade in grades if grade.id.startswith("honest")]
    hostile = [grade for grade in grades if not grade.id.startswith("honest")]
    assert [grade.verdict for grade in neighbours] == [Verdict.CORRECT] * HONEST
    assert {grade.id: grade.verdict for grade in hostile if grade.verdict not in verdicts[grade.id]} == {}
    assert {grade.id: seconds(grade) for grade in hostile if seconds(grade) > ITEM_SECONDS} == {}
    assert percentile_99([seconds(grade) for grade in neighbours]) < NEIGHBOUR_SECONDS
    assert not marker.exists()
    assert not grading_children(os.getpid())


async def test_hostile_items_alone_end_in_time(tmp_path):
    """Where nothing else is to be done, none takes longer than its own budgets."""
    async with running_grader() as grader:
        taken = {}
        for pair in hostile_pairs(tmp_path / "executed"):
            (grade,) = await grader.grade_batch([as_item(pair)])
            taken[pair.name] = seconds(grade)

    assert {name: took for name, took in taken.items() if took > ITEM_SECONDS} == {}


async def wait_beside(grader: MathGrader, pairs: Sequence[Hostile], seed: int) -> tuple[list[float], int]:
    """What calls of one honest item each wait while two hostile batches run, and the worker's largest RSS meanwhile."""
    batches = asyncio.gather(*(grader.grade_batch(mixed(pairs, seed=seed + number)) for number in range(2)))
    waited: list[float] = []
    peak = 0
    while not batches.done():
        started = time.perf_counter()
        (grade,) = await grader.grade_batch([honest(len(waited), seed=seed + 2)])
        waited.append(time.perf_counter() - started)
        assert grade.verdict is Verdict.CORRECT
        peak = max(peak, rss_of(os.getpid()))
        await asyncio.sleep(0.002)
    await batches
    return waited, peak


async def wait_alone(grader: MathGrader, seed: int) -> list[float]:
    """What such calls wait while nothing else is graded."""
    waited: list[float] = []
    for number in range(HONEST):
        started = time.perf_counter()
        await grader.grade_batch([honest(number, seed=seed)])
        waited.append(time.perf_counter() - started)
    return waited


async def test_callers_beside_hostile_batches_do_not_wait(tmp_path):
    """No call of one honest item waits for a hostile item of a batch to end, and the worker does not grow."""
    pairs = hostile_pairs(tmp_path / "executed")
    async with running_grader() as grader:
        # What is loaded once, and memory that the allocator keeps, is no growth.
        await grader.grade_batch(mixed(pairs, seed=1))
        before, peak, alone, beside = rss_of(os.getpid()), 0, [], []
        for number in range(ROUNDS):
            alone.append(percentile_99(await wait_alone(grader, seed=10 * number + 5)))
            waited, rss = await wait_beside(grader, pairs, seed=10 * number + 2)
            assert len(waited) >= HONEST
            beside.append(percentile_99(waited))
            peak = max(peak, rss)

    assert statistics.median(beside) < max(ITEM_SECONDS, BUSY_FACTOR * statistics.median(alone)), (alone, beside)
    assert peak - before < RSS_BYTES
    assert not grading_children(os.getpid())


async def test_hostile_responses_are_searched_in_time(tmp_path):
    """The same texts as whole responses: an answer is found, or none, and it is nobody's harm."""
    marker = tmp_path / "executed"
    async with running_grader() as grader:
        grades = await grader.grade_batch(
            [
                GradeItem(id=pair.name, response=f"So the answer is {pair.answer}", targets=("x+1",))
                for pair in hostile_pairs(marker)
            ]
        )

    assert {grade.id: grade.verdict for grade in grades if grade.verdict in (Verdict.CORRECT, Verdict.ERROR)} == {}
    assert {grade.id: seconds(grade) for grade in grades if seconds(grade) > ITEM_SECONDS} == {}
    assert not marker.exists()


async def test_children_killed_at_work_lose_nothing():
    """Whichever children are killed while a batch is graded, every item has its verdict."""
    async with running_grader() as grader:
        batch = asyncio.create_task(grader.grade_batch([honest(number, seed=5) for number in range(ITEMS)]))
        for number in range(KILLS):
            await asyncio.sleep(0.1)
            for child in grading_children(os.getpid())[: 1 + number % CHILDREN]:
                with contextlib.suppress(ProcessLookupError):  # it may end by itself where the pool breaks
                    os.kill(child, signal.SIGKILL)
        assert not batch.done()
        grades = await batch

    assert [grade.verdict for grade in grades] == [Verdict.CORRECT] * ITEMS
