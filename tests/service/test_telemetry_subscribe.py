"""TelemetryService.Subscribe: positions, filters, what is refused, and when batches come."""

import asyncio
import collections
import sqlite3
import threading
from typing import Any

import grpc.aio
import pytest

from crucible_bridge.errors import Code
from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import EvaluationState
from crucible_bridge.v1 import evaluation_pb2, evaluation_pb2_grpc, events_pb2, events_pb2_grpc
from crucible_worker.journal.journal import STREAM_READERS
from crucible_worker.journal.schema import JOURNAL_FILE
from crucible_worker.rpc import telemetry
from tests.service.evaluation_kit import HeldModel, asked, log_of, numbered, refused, rig
from tests.tables import rows

pytestmark = pytest.mark.core

START, SAMPLE, STOP = EventKind.EVALUATION_START, EventKind.SAMPLE_COMPLETE, EventKind.EVALUATION_STOP


async def first_batch(stream):
    """The first batch of a stream that is then left."""
    async with stream:
        return await anext(stream.batches())


async def test_subscribe_from_the_beginning():
    """From 0: every event of every evaluation, in order, gap-free from 1."""
    async with rig() as r:
        for name in ("one", "two"):
            await r.evaluation.evaluate(asked(evaluation_id=name))
        events = await log_of(r.worker.bridge)

    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert [event.evaluation_id for event in events if event.kind is STOP] == ["one", "two"]


async def test_subscribe_after_any_sequence():
    """after_sequence gives exactly what comes later, for every position of the log, its end included."""
    async with rig() as r:
        await r.evaluation.evaluate(asked())
        log = await log_of(r.worker.bridge)
        for position in range(len(log) + 1):
            later = await log_of(r.worker.bridge, after_sequence=position)
            assert later == log[position:]


async def test_new_events_arrive_as_they_are_committed():
    """A subscriber at the end waits, and gets what is committed from then on."""
    async with rig(HeldModel()) as r:
        await r.evaluation.start_evaluation(asked())
        await r.model.asked.wait()
        async with r.worker.bridge.telemetry.subscribe() as stream:
            assert (await anext(stream)).kind is START
            r.model.let_go.set()
            rest = [await anext(stream) for _ in range(6)]
        assert [event.kind for event in rest][-1] is STOP


@pytest.mark.parametrize("filters", [{}, {"kinds": [STOP]}, {"run_id": "x"}])
async def test_first_batch_comes_at_once_even_when_empty(filters):
    """A new log's first batch is empty and says which log it is and that 0 is examined."""
    async with rig() as r:
        info = await r.worker.bridge.worker.get_info()
        batch = await first_batch(r.worker.bridge.telemetry.subscribe(**filters))

    assert (batch.events, batch.log_id, batch.through_sequence) == ((), info.log_id, 0)


async def test_kinds_and_runs_are_filtered_while_the_position_advances():
    """A filter lets its events through alone; through_sequence counts those left out, so that resuming skips them."""
    async with rig() as r:
        for run_id in ("x", "y"):
            await r.evaluation.evaluate(asked(evaluation_id=run_id, run_id=run_id))
        log = await log_of(r.worker.bridge)
        subscribe = r.worker.bridge.telemetry.subscribe

        cases: list[tuple[dict[str, Any], list[Event]]] = [
            ({"run_id": "x"}, [event for event in log if event.run_id == "x"]),
            ({"kinds": [STOP, START]}, [event for event in log if event.kind in (STOP, START)]),
            ({"kinds": [SAMPLE], "run_id": "y"}, [e for e in log if e.kind is SAMPLE and e.run_id == "y"]),
            ({"run_id": "nobody's"}, []),
            ({"kinds": [EventKind.EVALUATION_RESUME]}, []),
        ]
        for filters, wanted in cases:
            batch = await first_batch(subscribe(**filters))
            assert list(batch.events) == wanted
            assert batch.through_sequence == log[-1].sequence
            assert await log_of(r.worker.bridge, **filters) == wanted


async def test_position_of_a_quiet_stream_advances_by_itself():
    """A stream whose filter lets nothing through says from time to time how far it has looked."""
    async with rig() as r, r.worker.bridge.telemetry.subscribe(kinds=[EventKind.EVALUATION_RESUME]) as stream:
        batches = stream.batches()
        first = await anext(batches)
        evaluation = await r.evaluation.evaluate(asked())
        seen = first.through_sequence
        while seen < evaluation.last_sequence:
            batch = await anext(batches)
            assert batch.events == ()
            seen = batch.through_sequence


async def test_until_now_ends_at_the_end_of_the_log():
    """until_now ends at the log's end as it was asked, whether anything came through or not."""
    async with rig(HeldModel()) as r:
        assert await log_of(r.worker.bridge) == []
        await r.evaluation.start_evaluation(asked())
        await r.model.asked.wait()
        assert [event.kind for event in await log_of(r.worker.bridge)] == [START, EventKind.EVALUATOR_START]
        assert await log_of(r.worker.bridge, kinds=[STOP]) == []
        assert await log_of(r.worker.bridge, after_sequence=2) == []
        assert (await r.evaluation.get_evaluation("e")).state is not EvaluationState.COMPLETED


async def test_log_id_of_another_log_is_refused():
    """Sequences of one log mean nothing in another: FAILED_PRECONDITION with the present log's id."""
    async with rig() as r:
        await r.evaluation.evaluate(asked())
        stream = r.worker.bridge.telemetry.subscribe(after_sequence=1, log_id="0" * 32)
        error = await refused(anext(stream), Code.FAILED_PRECONDITION, "OTHER_LOG", "log_id")

        assert error.metadata["log_id"] == (await r.worker.bridge.worker.get_info()).log_id
        right = r.worker.bridge.telemetry.subscribe(after_sequence=1, log_id=error.metadata["log_id"])
        assert (await first_batch(right)).events[0].sequence == 2


@rows("beyond", [1, 2**31, 2**63 - 100, 2**64 - 100])
@rows("until_now", [True, False])
async def test_position_beyond_the_end_is_refused(beyond, until_now):
    """after_sequence beyond the log's end is OUT_OF_RANGE with the last sequence, however large it is."""
    async with rig() as r:
        last = (await r.evaluation.evaluate(asked())).last_sequence
        stream = r.worker.bridge.telemetry.subscribe(after_sequence=last + beyond, until_now=until_now)
        error = await refused(anext(stream), Code.OUT_OF_RANGE, "BEYOND_LOG", "after_sequence")

    assert error.metadata["last_sequence"] == str(last)


async def test_position_that_is_no_longer_retained_is_refused(tmp_path):
    """What was trimmed is OUT_OF_RANGE with the oldest sequence; from 0, or just before the oldest, it goes on."""
    async with rig(state_dir=tmp_path) as r:
        last = (await r.evaluation.evaluate(asked(dataset=numbered(20)))).last_sequence
    async with rig(state_dir=tmp_path, max_events_retained=5) as r:
        oldest = last - 4
        await _trimmed_to(tmp_path, oldest)
        subscribe = r.worker.bridge.telemetry.subscribe
        error = await refused(
            anext(subscribe(after_sequence=oldest - 2)), Code.OUT_OF_RANGE, "NO_LONGER_RETAINED", "after_sequence"
        )
        assert error.metadata["oldest_sequence"] == str(oldest)
        wanted = list(range(oldest, last + 1))
        for position in (0, oldest - 1):
            events = await log_of(r.worker.bridge, after_sequence=position)
            assert [event.sequence for event in events] == wanted
        # The evaluation itself is retained for longer than its events.
        assert (await r.evaluation.get_evaluation("e")).state is EvaluationState.COMPLETED
        assert (await r.evaluation.evaluate(asked(evaluation_id="next"))).last_sequence > last


async def _trimmed_to(state_dir, oldest):
    """Wait until the worker, which trims as it starts, has done so."""

    def now():
        connection = sqlite3.connect(state_dir / JOURNAL_FILE)
        try:
            return connection.execute("SELECT oldest FROM head").fetchone()[0]
        finally:
            connection.close()

    async with asyncio.timeout(5):
        while await asyncio.to_thread(now) < oldest:
            await asyncio.sleep(0.005)


async def test_subscribers_that_leave_are_forgotten():
    """Streams that were left at any time leave no call open at the worker."""
    async with rig() as r:
        await r.evaluation.evaluate(asked())
        for _ in range(20):
            async with r.worker.bridge.telemetry.subscribe() as stream:
                await anext(stream)
        async with asyncio.timeout(5):
            # One is that of the recorder.
            while (await r.worker.bridge.worker.get_info()).calls > 1:
                await asyncio.sleep(0)


async def test_evaluations_of_other_workers_are_in_the_stream(tmp_path):
    """One log for all workers of a machine: each one's subscribers see every evaluation."""
    async with rig(state_dir=tmp_path) as one, rig(state_dir=tmp_path) as other:
        await one.evaluation.evaluate(asked(evaluation_id="at one"))
        await other.evaluation.evaluate(asked(evaluation_id="at other"))

        assert await log_of(one.worker.bridge) == await log_of(other.worker.bridge)
        await one.told(STOP, "at other")
        await other.told(STOP, "at other")
        assert one.recorder.events == other.recorder.events


UNREAD = 50
"""Streams whose clients never read: with as many, probes waited for seconds, as the event loop encoded all pages."""


@pytest.mark.parametrize("call", ["Subscribe", "WatchEvaluation"])
async def test_pages_of_streams_that_are_not_read_cost_the_event_loop_nothing(monkeypatch, call):
    """Pages are encoded by the few threads of the streams, never on the loop that answers probes."""
    encode, lock = telemetry.page_to_v1, threading.Lock()
    threads: collections.Counter[threading.Thread] = collections.Counter()
    at_work: list[int] = []
    now = 0

    def counted(*arguments):
        nonlocal now
        with lock:
            now += 1
            at_work.append(now)
            threads[threading.current_thread()] += 1
        try:
            return encode(*arguments)
        finally:
            with lock:
                now -= 1

    monkeypatch.setattr(telemetry, "page_to_v1", counted)
    async with rig() as r:
        await r.evaluation.evaluate(asked(dataset=numbered(200)))
        async with grpc.aio.insecure_channel(r.worker.address) as channel:
            evaluations: Any = evaluation_pb2_grpc.EvaluationServiceStub(channel)
            start, request = {
                "Subscribe": (events_pb2_grpc.TelemetryServiceStub(channel).Subscribe, events_pb2.SubscribeRequest()),
                "WatchEvaluation": (
                    evaluations.WatchEvaluation,
                    evaluation_pb2.WatchEvaluationRequest(evaluation_id="e"),
                ),
            }[call]
            unread: list[Any] = [start(request) for _ in range(UNREAD)]
            async with asyncio.timeout(30):
                while threads.total() < UNREAD:
                    await asyncio.sleep(0.005)
            assert await r.worker.bridge.worker.health()
            assert len(unread) == UNREAD
    assert threading.main_thread() not in threads
    assert len(threads) <= STREAM_READERS
    assert max(at_work) <= STREAM_READERS
