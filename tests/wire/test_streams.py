"""Streams of events: order, position, and their end."""

from __future__ import annotations

import asyncio
import gc

import pytest

import crucible_bridge
from crucible_bridge.codec import event_to_record
from crucible_bridge.errors import Cancelled, FailedPrecondition, InternalError, OutOfRange
from crucible_bridge.events import Event, EventKind
from tests.wire.conftest import CannedWorker


def records(*sequences: int) -> list[tuple[int, bytes]]:
    """Journal records of sample events."""
    return [
        (sequence, event_to_record(Event(kind=EventKind.SAMPLE_COMPLETE, measurements={"score": sequence / 2})))
        for sequence in sequences
    ]


async def test_events_come_in_order_with_a_position(worker: CannedWorker, address: str):
    """The position is that of the event in hand; once its batch is passed, that of everything examined."""
    worker.pages = [(records(3, 5), "log", 7), ([], "log", 9), (records(11), "log", 11)]

    async with crucible_bridge.connect(address) as bridge:
        stream = bridge.telemetry.subscribe(
            after_sequence=2, log_id="log", kinds=[EventKind.SAMPLE_COMPLETE], run_id="r"
        )
        assert (stream.through_sequence, stream.log_id) == (2, "log")
        seen = [(event.sequence, stream.through_sequence, event.measurements) async for event in stream]

    assert seen == [(3, 3, {"score": 1.5}), (5, 5, {"score": 2.5}), (11, 11, {"score": 5.5})]
    ((name, request),) = worker.requests
    assert (name, request.after_sequence, request.log_id, request.run_id, list(request.kinds)) == (
        "Subscribe",
        2,
        "log",
        "r",
        [3],
    )


async def test_filtered_events_move_the_position(worker: CannedWorker, address: str):
    """At its end a stream has passed everything that was examined, and resuming asks for none of it."""
    worker.pages = [(records(3), "log", 7), ([], "log", 9)]

    async with crucible_bridge.connect(address) as bridge:
        stream = bridge.evaluation.watch_evaluation("e-1", without_samples=True)
        async for _ in stream:
            pass
        resumed = bridge.evaluation.watch_evaluation("e-1", stream.through_sequence, stream.log_id)
        await anext(resumed)

    assert (stream.through_sequence, stream.log_id) == (9, "log")
    (_, first), (_, second) = worker.requests
    assert (first.evaluation_id, first.after_sequence, first.log_id, first.without_samples) == ("e-1", 0, "", True)
    assert (second.after_sequence, second.log_id) == (9, "log")


async def test_batches_carry_the_same(worker: CannedWorker, address: str):
    """Batch by batch: events, log and position, empty ones included."""
    worker.pages = [(records(3, 5), "log", 7), ([], "log", 9)]

    async with crucible_bridge.connect(address) as bridge:
        stream = bridge.telemetry.subscribe(until_now=True)
        batches = [
            ([event.sequence for event in batch.events], batch.log_id, batch.through_sequence, stream.through_sequence)
            async for batch in stream.batches()
        ]

    assert batches == [([3, 5], "log", 7, 7), ([], "log", 9, 9)]
    assert worker.requests[0][1].until_now


async def test_batches_go_on_where_events_stopped(worker: CannedWorker, address: str):
    """What is left of a batch whose events were partly taken comes as a batch of its own: nothing is lost."""
    worker.pages = [(records(1, 2, 3), "log", 4), (records(5), "log", 5)]

    async with crucible_bridge.connect(address) as bridge:
        stream = bridge.telemetry.subscribe()
        await anext(stream)
        batches = [([event.sequence for event in b.events], b.through_sequence) async for b in stream.batches()]

    assert batches == [([2, 3], 4), ([5], 5)]


@pytest.mark.parametrize(
    "error",
    [OutOfRange("the oldest is 40", metadata={"oldest_sequence": "40"}), FailedPrecondition("the log is another")],
)
async def test_an_error_ends_the_stream_after_its_events(
    error: OutOfRange | FailedPrecondition, worker: CannedWorker, address: str
):
    """What was sent before an error is handed out; the error comes as itself."""
    worker.pages = [(records(1), "log", 1), error]

    async with crucible_bridge.connect(address) as bridge:
        stream = bridge.telemetry.subscribe()
        assert (await anext(stream)).sequence == 1
        with pytest.raises(type(error)) as caught:
            await anext(stream)

    assert caught.value.metadata == error.metadata


async def test_leaving_the_block_ends_the_call(worker: CannedWorker, address: str):
    """The worker sees its caller go; a later read ends."""
    worker.pages, worker.hold_streams = [(records(1, 2), "log", 2)], True

    async with crucible_bridge.connect(address) as bridge:
        async with bridge.telemetry.subscribe() as stream:
            assert (await anext(stream)).sequence == 1
        await asyncio.wait_for(worker.streams_ended.wait(), 5)

        assert [event async for event in stream] == []
        assert stream.through_sequence == 1


async def test_closing_wakes_a_pending_read(worker: CannedWorker, address: str):
    """Another task may close a stream that somebody waits on: it ends there as any stream does."""
    worker.hold_streams = True

    async with crucible_bridge.connect(address) as bridge:
        stream = bridge.telemetry.subscribe()
        reader = asyncio.create_task(anext(stream, None))  # type: ignore[arg-type]
        await worker.stream_arrived.wait()
        await stream.aclose()
        await stream.aclose()

        assert await asyncio.wait_for(reader, 5) is None


async def test_cancelling_a_read_ends_the_call(worker: CannedWorker, address: str):
    """A cancelled task gets its CancelledError, and the worker is told."""
    worker.hold_streams = True

    async with crucible_bridge.connect(address) as bridge:
        stream = bridge.telemetry.subscribe()
        reader = asyncio.ensure_future(anext(stream))
        await worker.stream_arrived.wait()
        reader.cancel()

        with pytest.raises(asyncio.CancelledError):
            await reader
        await asyncio.wait_for(worker.streams_ended.wait(), 5)


async def test_dropping_the_stream_ends_the_call(worker: CannedWorker, address: str):
    """Breaking out of a loop over an unnamed stream leaves nothing behind at the worker."""
    worker.pages, worker.hold_streams = [(records(1, 2), "log", 2)], True

    async with crucible_bridge.connect(address) as bridge:
        async for _ in bridge.telemetry.subscribe():
            break
        gc.collect()

        await asyncio.wait_for(worker.streams_ended.wait(), 5)


async def test_closing_the_client_ends_its_streams(worker: CannedWorker, address: str):
    """Who still reads is told that the client closed."""
    worker.hold_streams = True

    async with crucible_bridge.connect(address) as bridge:
        stream = bridge.telemetry.subscribe()
        reader = asyncio.ensure_future(anext(stream))
        await worker.stream_arrived.wait()

    with pytest.raises(Cancelled) as caught:
        await reader
    assert caught.value.reason == "CLIENT_CLOSED"


KIND_99 = b"\x08\x63"


async def test_events_of_unknown_kinds_are_skipped(worker: CannedWorker, address: str):
    """A newer worker may send kinds that this client does not know: the rest comes, and the position passes them."""
    worker.pages = [
        ([(1, KIND_99), *records(2), (3, KIND_99), (4, KIND_99)], "log", 4),
        ([(5, KIND_99)], "log", 6),
        (records(7), "log", 7),
    ]

    async with crucible_bridge.connect(address) as bridge:
        one_by_one = bridge.telemetry.subscribe()
        seen = [(event.sequence, one_by_one.through_sequence) async for event in one_by_one]
        by_batch = bridge.evaluation.watch_evaluation("e-1")
        batches = [
            ([event.sequence for event in batch.events], batch.through_sequence) async for batch in by_batch.batches()
        ]

    assert seen == [(2, 2), (7, 7)]
    assert batches == [([2], 4), ([], 6), ([7], 7)]


async def test_both_streams_ask_for_new_kinds(worker: CannedWorker, address: str):
    """A worker sends kinds that joined the catalogue later only where its caller skips what it does not know."""
    async with crucible_bridge.connect(address) as bridge:
        for stream in (bridge.telemetry.subscribe(), bridge.evaluation.watch_evaluation("e-1")):
            assert [event async for event in stream] == []

    # Both calls are under way at once: either may arrive first.
    assert {name: request.new_kinds for name, request in worker.requests} == {
        "Subscribe": True,
        "WatchEvaluation": True,
    }


async def test_an_event_without_a_kind_is_refused(worker: CannedWorker, address: str):
    """No worker sends one: the reply is malformed, and that is said."""
    worker.pages = [([(1, b"")], "log", 1)]

    async with crucible_bridge.connect(address) as bridge:
        with pytest.raises(InternalError, match=r"event\.kind is not given"):
            await anext(bridge.telemetry.subscribe())
