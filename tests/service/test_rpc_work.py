"""The work in open calls of grading: what is refused, and when the caller may retry."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
import pytest

from crucible_bridge.codec import grading as codec
from crucible_bridge.errors import BridgeError, Code, ResourceExhausted
from crucible_bridge.types import GradeItem, GradeMathRequest, MathPolicy, Verdict
from crucible_bridge.v1 import grading_pb2 as pb
from crucible_worker.grading.pool import GradingPool
from crucible_worker.rpc.byte_budget import (
    LEAST_RETRY_SECONDS,
    MOST_OTHERS,
    MOST_RETRY_SECONDS,
    RETRY_AFTER_SECONDS,
    UNIT_BYTES,
    WorkBound,
    counted,
)
from crucible_worker.testing import RunningWorker
from tests.robustness.harness import until
from tests.service.grading_kit import GRADING, grading_worker

pytestmark = pytest.mark.core

MOST = 8
PAIRS = [(f"x+{number}", f"{number}+x") for number in range(MOST)]
"""As much work as may be open; none is decided without the pool."""


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def bound_of(most: int = MOST, clock: Clock | None = None) -> WorkBound:
    """A bound of requests in which each byte is a unit of work."""
    return WorkBound("GradeMath", most, len, clock or Clock())


def refused(bound: WorkBound, size: int) -> ResourceExhausted:
    """The error of a request that is too much."""
    with pytest.raises(ResourceExhausted) as caught, bound.taken(bytes(size)):
        pass
    return caught.value


def test_work_up_to_the_bound_is_taken_and_one_unit_more_is_refused():
    """What has ended, well or not, makes room."""
    bound = bound_of()
    with bound.taken(bytes(MOST - 1)):
        with bound.taken(bytes(1)):
            assert refused(bound, 1).reason == "TOO_MANY_CALLS"
        with pytest.raises(ZeroDivisionError), bound.taken(bytes(1)):
            _ = 1 / 0
        assert refused(bound, 2).retryable
        with bound.taken(bytes(1)):
            pass
    assert bound.open == 0


def test_a_call_that_is_alone_is_never_refused():
    """It may have more work than the bound; others come after it."""
    bound = bound_of()
    with bound.taken(bytes(50 * MOST)):
        assert refused(bound, 1).reason == "TOO_MANY_CALLS"
        with pytest.raises(ResourceExhausted):
            bound.refuse_if_full()
    bound.refuse_if_full()


def test_until_a_call_has_ended_there_is_a_fixed_time_to_wait():
    """Its rate is unknown; a call that fails or is cancelled has measured nothing."""
    bound, clock = bound_of(), Clock()
    with bound.taken(bytes(MOST)):
        clock.now += 5
        assert refused(bound, 1).retry_after == RETRY_AFTER_SECONDS
    bound = bound_of(clock=clock)
    with contextlib.suppress(asyncio.CancelledError), bound.taken(bytes(MOST)):
        clock.now += 5
        raise asyncio.CancelledError
    with bound.taken(bytes(MOST)):
        assert refused(bound, 1).retry_after == RETRY_AFTER_SECONDS


def test_the_time_to_wait_is_that_of_the_open_work_at_the_measured_rate():
    """From when there may be room, to when all open work is done: not every caller comes back at once."""
    clock = Clock()
    bound = bound_of(clock=clock)
    with bound.taken(bytes(4)):
        clock.now += 2.0  # half a second a unit
    with bound.taken(bytes(MOST)):
        times = [refused(bound, 2).retry_after or 0.0 for _ in range(50)]

    assert 1.0 <= min(times) < max(times) <= 4.0


def test_the_rate_is_right_if_calls_are_served_in_turns():
    """Two calls share what they wait for, and end together: a unit takes half of what one call alone would show."""
    clock = Clock()
    bound = bound_of(clock=clock)
    with bound.taken(bytes(4)), bound.taken(bytes(4)):
        clock.now += 4.0  # eight units: half a second each
    with bound.taken(bytes(MOST)):
        times = [refused(bound, MOST).retry_after or 0.0 for _ in range(50)]

    assert times == [pytest.approx(4.0)] * 50


@pytest.mark.parametrize(("seconds", "told"), [(1e-6, LEAST_RETRY_SECONDS), (1e6, MOST_RETRY_SECONDS)])
def test_the_time_to_wait_is_bounded(seconds: float, told: float):
    """However fast or slow work was done."""
    clock = Clock()
    bound = bound_of(clock=clock)
    with bound.taken(bytes(1)):
        clock.now += seconds
    with bound.taken(bytes(MOST)):
        assert refused(bound, MOST).retry_after == told


def test_the_rate_follows_what_ended_last():
    """Work that became slower is soon told as slower."""
    clock = Clock()
    bound = bound_of(clock=clock)
    for seconds in (0.001, 1.0):
        with bound.taken(bytes(MOST)):
            clock.now += MOST * seconds
    with bound.taken(bytes(MOST)):
        assert refused(bound, MOST).retry_after == pytest.approx(MOST)


def test_work_that_takes_longer_than_before_is_told_as_slower():
    """If no call has ended for a while, all open work takes at least as long again."""
    clock = Clock()
    bound = bound_of(clock=clock)
    with bound.taken(bytes(MOST)):
        clock.now += 0.001
    with bound.taken(bytes(MOST)):
        clock.now += 20.0
        assert refused(bound, MOST).retry_after == pytest.approx(20.0)


def math_request(*answers: str) -> bytes:
    """A request with these answers, each beside a target of one letter."""
    items = tuple(GradeItem(answer=answer, targets=("x",)) for answer in answers)
    message = codec.grade_math_request_to_v1(GradeMathRequest(items=items, policy=MathPolicy()))
    return message.SerializeToString()


@pytest.mark.parametrize("length", [1, 100, 150, 20_000])
def test_items_and_bytes_are_work(length: int):
    """An item counts by its weight, and each KiB once, however long the items are."""
    data = math_request(*["x" * length] * 7)

    assert counted(pb.GradeMathRequest, "items", 1, 100)(data) == 7 + len(data) // UNIT_BYTES
    assert counted(pb.GradeMathRequest, "items", 16, 100)(data) == 7 * 16 + len(data) // UNIT_BYTES
    assert counted(pb.GradeMathRequest, "items", 1, 5)(data) == 5 + len(data) // UNIT_BYTES


@pytest.mark.parametrize(
    "data", [b"", b"\x0a", b"\x0a\xff", b"\x00\x01", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"]
)
def test_what_is_no_request_is_little_work(data: bytes):
    """It is counted all the same; whatever reads it refuses it."""
    assert counted(pb.GradeMathRequest, "items", 1, 100)(data) == 1


def test_of_too_many_other_fields_few_are_read():
    """Ten million of them would hold the event loop for ten seconds: the request counts as a full one."""
    data = b"\x7a\x00" * (100 + MOST_OTHERS + 1)

    assert counted(pb.GradeMathRequest, "items", 1, 100)(data) == 100
    assert counted(pb.GradeMathRequest, "items", 1, 100)(data[: 2 * MOST_OTHERS]) == 1


def test_a_field_other_than_the_first_is_counted():
    """The items of GradeRubric come after its judge, and are its second field."""
    request = pb.GradeRubricRequest(items=[pb.RubricItem()] * 3)
    request.judge.embedded = "m"

    assert counted(pb.GradeRubricRequest, "items", 16, 100)(request.SerializeToString()) == 48


class Gate:
    """The pool of a worker, closed until a test opens it."""

    def __init__(self) -> None:
        self.open, self.waiting = asyncio.Event(), 0


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """All work of pools waits at it."""
    gate, work = Gate(), GradingPool.map

    async def waits(self: GradingPool, *order: Any) -> Any:
        gate.waiting += 1
        try:
            await gate.open.wait()
        finally:
            gate.waiting -= 1
        return await work(self, *order)

    monkeypatch.setattr(GradingPool, "map", waits)
    return gate


@contextlib.asynccontextmanager
async def worker_at(gate: Gate) -> AsyncIterator[RunningWorker]:
    """A worker with a small bound, whose processes are warm."""
    gate.open.set()
    async with grading_worker(max_grading_work=MOST) as worker:
        gate.open.clear()
        try:
            yield worker
        finally:
            gate.open.set()


async def error_of(call: Any) -> BridgeError:
    """The error that a call of the client ends with."""
    with pytest.raises(BridgeError) as caught:
        await call
    return caught.value


async def test_a_call_beyond_the_bound_is_refused_while_others_wait(gate: Gate):
    """The client learns why, and when to retry; other methods are answered, and so is the call once there is room."""
    async with worker_at(gate) as worker:
        grading = worker.bridge.grading
        waiting = asyncio.create_task(grading.grade_math(PAIRS))
        await until(lambda: gate.waiting == 1)

        error = await error_of(grading.grade_math(PAIRS[:1]))

        assert (error.code, error.reason, error.retryable) == (Code.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS", True)
        assert LEAST_RETRY_SECONDS <= (error.retry_after or 0.0) <= MOST_RETRY_SECONDS
        assert [grade.verdict for grade in await grading.score([("a", "a")], "exact_match")] == [Verdict.CORRECT]
        gate.open.set()
        assert {grade.verdict for grade in (await waiting).grades} == {Verdict.CORRECT}
        assert (await grading.grade_math(PAIRS[:1])).grades[0].verdict is Verdict.CORRECT


async def test_a_large_call_is_admitted_if_it_is_alone(gate: Gate):
    """Its work is beyond the bound, and no other work waits."""
    async with worker_at(gate) as worker:
        waiting = asyncio.create_task(worker.bridge.grading.grade_math([*PAIRS, *PAIRS]))
        await until(lambda: gate.waiting == 1)
        gate.open.set()

        assert len((await waiting).grades) == 2 * MOST


async def test_a_call_that_is_cancelled_makes_room(gate: Gate):
    """Its work no longer waits."""
    async with worker_at(gate) as worker:
        waiting = asyncio.create_task(worker.bridge.grading.grade_math(PAIRS))
        await until(lambda: gate.waiting == 1)
        waiting.cancel()
        await until(lambda: gate.waiting == 0)
        following = asyncio.create_task(worker.bridge.grading.grade_math(PAIRS))
        await until(lambda: gate.waiting == 1 or following.done())
        gate.open.set()

        assert len((await following).grades) == MOST


async def test_a_call_is_refused_before_its_message_if_the_bound_is_reached(gate: Gate):
    """No more of its message is received."""
    async with worker_at(gate) as worker:
        channel: Any  # the stubs want serializers
        async with grpc.aio.insecure_channel(worker.address) as channel:
            waiting = asyncio.create_task(worker.bridge.grading.grade_math(PAIRS))
            await until(lambda: gate.waiting == 1)

            call = channel.stream_unary(f"/{GRADING}/GradeMath")()

            assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            gate.open.set()
            await waiting
