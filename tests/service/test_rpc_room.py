"""The bytes of requests in work: what is refused, and what waits for its turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest

from crucible_bridge.codec.evaluation import evaluate_request_to_v1
from crucible_bridge.errors import BridgeError, Code, ResourceExhausted
from crucible_bridge.types import EvaluationState, SampledSequence
from crucible_bridge.v1 import evaluation_pb2 as pb
from crucible_bridge.v1 import grading_pb2, grading_pb2_grpc
from crucible_worker.rpc.byte_budget import RETRY_AFTER_SECONDS, SMALL_BYTES, ByteBudget
from crucible_worker.testing import STALL, ScriptedModel
from crucible_worker.util.tasks import TimeoutQueue
from tests.robustness.harness import until
from tests.service.evaluation_kit import Rig, rig, samples_of
from tests.service.evaluation_kit import asked as evaluations_to_run
from tests.service.orchestrator_kit import Stream, asked, ended_with, opened, stands, start_of

pytestmark = pytest.mark.core

UNIT = SMALL_BYTES
MEBIBYTE = 1024 * 1024
LONG_SECONDS = 60.0
LONG_TEXT = "A" * 100_000
EVALUATE = "/crucible_bridge.v1.EvaluationService/Evaluate"


class Message:
    """A message of a stream, from when it is received to when the next one is wanted."""

    def __init__(self, room: ByteBudget, size: int, seconds: float = LONG_SECONDS) -> None:
        self.in_work = False
        self._done = asyncio.Event()
        self.task = asyncio.create_task(self._run(room, size, seconds))

    async def _run(self, room: ByteBudget, size: int, seconds: float) -> None:
        with await room.working_on_in_turn(size, TimeoutQueue(), seconds):
            self.in_work = True
            await self._done.wait()

    async def end(self) -> None:
        """Have it done."""
        self._done.set()
        await self.task


async def settle() -> None:
    """Let every task run as far as it gets."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_messages_wait_for_room_in_their_order():
    """The first that waits is the first in, also before a smaller one that would fit; small ones do not wait."""
    room = ByteBudget(5 * UNIT)
    with room.working_on(4 * UNIT):
        large, fitting, small = Message(room, 3 * UNIT), Message(room, UNIT + 1), Message(room, UNIT)
        await settle()
        assert [each.in_work for each in (large, fitting, small)] == [False, False, True]
    await settle()
    assert [large.in_work, fitting.in_work] == [True, False]  # what is small counts too

    await small.end()
    await settle()
    assert fitting.in_work
    await large.end()
    await fitting.end()
    with room.working_on(5 * UNIT):  # everything was given back
        pass


async def test_a_message_larger_than_the_room_waits_until_it_is_alone():
    """So that each has its turn."""
    room = ByteBudget(2 * UNIT)
    first = Message(room, 50 * UNIT)
    await settle()
    second = Message(room, 50 * UNIT)
    await settle()
    assert (first.in_work, second.in_work) == (True, False)
    await first.end()
    await settle()
    assert second.in_work
    await second.end()


async def test_what_waits_counts_for_new_requests_and_is_bounded():
    """A new request does not overtake; more than the room may hold does not wait either."""
    room = ByteBudget(5 * UNIT)
    with room.working_on(4 * UNIT):
        waiting = Message(room, 4 * UNIT)
        await settle()
        with pytest.raises(ResourceExhausted), room.working_on(UNIT + 1):
            pass
        beyond = Message(room, UNIT + 1)
        with pytest.raises(ResourceExhausted) as caught:
            await beyond.task
        assert (caught.value.reason, caught.value.retry_after) == ("TOO_MANY_REQUEST_BYTES", RETRY_AFTER_SECONDS)
    await settle()
    await waiting.end()


async def test_a_message_that_waits_too_long_or_is_cancelled_leaves_its_place():
    """It is refused, or cancelled, and the next one has its turn."""
    room = ByteBudget(4 * UNIT)
    with room.working_on(4 * UNIT):
        late, cancelled = Message(room, UNIT + 1, seconds=0.01), Message(room, UNIT + 2)
        await settle()
        with pytest.raises(ResourceExhausted) as caught:
            await late.task
        assert caught.value.reason == "TOO_MANY_REQUEST_BYTES"
        last = Message(room, UNIT + 2)
        await asyncio.sleep(0)
        cancelled.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled.task
    await settle()
    assert last.in_work
    await last.end()
    with room.working_on(4 * UNIT):
        pass


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the messages of streams that have come to the endpoint, as they come."""
    sizes: list[int] = []
    come_in = ByteBudget.working_on_in_turn

    async def noted(self: ByteBudget, size: int, *arguments: Any) -> Any:
        sizes.append(size)
        return await come_in(self, size, *arguments)

    monkeypatch.setattr(ByteBudget, "working_on_in_turn", noted)
    return sizes


@contextlib.asynccontextmanager
async def held(it: Rig) -> AsyncIterator[Any]:
    """A call of 100 kB that is in work until it is cancelled: its evaluation waits for a model."""
    message = evaluate_request_to_v1(evaluations_to_run(evaluation_id="held"))
    # A field that no version has: what is unknown is received as well.
    data = message.SerializeToString() + b"\xc2\x3e\xa0\x8d\x06" + b"x" * 100_000
    async with grpc.aio.insecure_channel(it.worker.address) as channel:
        opened: Any = channel
        call = opened.unary_unary(EVALUATE)(data)
        await until(lambda: it.model.calls > 0)
        yield call
        call.cancel()


async def error_of(stream: Stream) -> BridgeError:
    """What a stream ends with; what comes before is read past."""
    try:
        while await stream.read() is not None:
            pass
    except BridgeError as error:
        return error
    raise AssertionError("the stream ended with OK")


async def test_the_elements_of_a_request_take_room_too():
    """A megabyte of empty items is 50 MB once it is parsed; a megabyte of text stays one."""
    items = grading_pb2.GradeMathRequest(items=[grading_pb2.GradeItem()] * (MEBIBYTE // 2))
    text = grading_pb2.GradeMathRequest(items=[grading_pb2.GradeItem(answer=b"x" * MEBIBYTE)])
    model = ScriptedModel(fault=lambda call: STALL)
    async with (
        rig(model, max_request_bytes_in_flight=10_000_000) as it,
        held(it),
        grpc.aio.insecure_channel(it.worker.address) as channel,
    ):
        grade = grading_pb2_grpc.GradingServiceStub(channel).GradeMath
        with pytest.raises(grpc.aio.AioRpcError, match="the message has 53,477,376 bytes") as refused:
            await grade(items)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await grade(text)
        assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION  # this worker grades nothing


async def test_a_long_answer_of_an_orchestrator_waits_for_room(received: list[int]):
    """It is neither refused nor lost, however much other requests have in work when it comes."""
    model = ScriptedModel(fault=lambda call: STALL)
    async with rig(model, max_request_bytes_in_flight=150_000) as it, held(it) as holding:
        async with opened(it.worker.address, start_of(asked())) as stream:
            await stream.accepted()
            (one, _), (two, _) = await stream.question(), await stream.question()
            await stream.answer(one, (SampledSequence(text=LONG_TEXT, tokens=()),))
            await until(lambda: bool(received))
            assert not stream.call.done()

            await it.worker.bridge.evaluation.cancel_evaluation("held")
            await holding
            await stream.answer(two, (SampledSequence(text="B", tokens=()),))
            ended = await stream.ended()
        outputs = [sample.output for sample in await samples_of(it.worker.bridge)]
    assert ended.evaluation.state == pb.EVALUATION_STATE_COMPLETED
    assert outputs == [LONG_TEXT, "B"]


async def test_an_answer_that_finds_no_room_in_time_interrupts_the_evaluation(received: list[int]):
    """As long as a message may take to arrive, it waits; then the stream ends, and the evaluation can be resumed."""
    model = ScriptedModel(fault=lambda call: STALL)
    limits = {"max_request_bytes_in_flight": 150_000, "request_seconds": 0.2}
    async with rig(model, **limits) as it, held(it):
        async with opened(it.worker.address, start_of(asked())) as stream:
            await stream.accepted()
            one, _ = await stream.question()
            await stream.answer(one, (SampledSequence(text=LONG_TEXT, tokens=()),))
            ended_with(await error_of(stream), Code.RESOURCE_EXHAUSTED, "TOO_MANY_REQUEST_BYTES")
        await stands(it.worker.bridge, EvaluationState.INTERRUPTED)


async def test_a_waiting_answer_ends_with_its_caller_or_the_worker(received: list[int]):
    """A caller that leaves, and a drain, are not held up by an answer that waits for room."""
    model = ScriptedModel(fault=lambda call: STALL)
    async with rig(model, max_request_bytes_in_flight=150_000) as it, held(it):
        for number in range(2):
            async with opened(it.worker.address, start_of(asked(evaluation_id=f"e{number}"))) as stream:
                await stream.accepted()
                one, _ = await stream.question()
                await stream.answer(one, (SampledSequence(text=LONG_TEXT, tokens=()),))
                await until(lambda: len(received) == number + 1)  # noqa: B023 - awaited here
                if number == 0:
                    stream.call.cancel()
                    await stands(it.worker.bridge, EvaluationState.INTERRUPTED, "e0")
                else:
                    await it.worker.bridge.worker.drain()
                    ended_with(await error_of(stream), Code.UNAVAILABLE, "DRAINING", "e1")
