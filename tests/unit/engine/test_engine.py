"""An attempt at its edges: what is told last, what is kept after a stop, and that nothing is left behind."""

import asyncio
import contextlib
import threading
import time

import pytest

from crucible_bridge.codec.events import event_from_record, event_to_record
from crucible_bridge.errors import Unavailable
from crucible_bridge.events import EventKind
from crucible_bridge.types import EmbeddedModel, EvaluationState, Limits, Sample, SamplingParams
from crucible_worker.engine import engine, recording, scheduler
from crucible_worker.engine.preparation import Sources
from crucible_worker.evaluations import Evaluations
from crucible_worker.events import streams
from crucible_worker.history import lifecycle
from crucible_worker.journal import queries
from crucible_worker.testing import STALL, ScriptedBackend, ScriptedModel
from crucible_worker.util.limits import WorkerLimits
from tests.unit.journal.journals import request

SAMPLES = [Sample(input=f"q{index}", targets=(f"Q{index}",)) for index in range(20)]


@contextlib.asynccontextmanager
async def evaluations_of(state_dir, model, **limits):
    """The evaluations of one worker, without a server."""
    sources = Sources(backends={EmbeddedModel: ScriptedBackend({"m": model})}, data_roots=(), builtins={})
    evaluations = await Evaluations.open(state_dir, event_to_record, sources=sources, limits=WorkerLimits(**limits))
    try:
        yield evaluations
    finally:
        await evaluations.aclose()


def asked(**fields):
    """Twenty samples by accuracy, one at a time."""
    defaults = {
        "evaluators": "accuracy",
        "dataset": SAMPLES,
        "sampling": SamplingParams(max_tokens=4),
        "limits": Limits(concurrency=1),
    }
    return request(**{**defaults, **fields})


async def events_of(evaluations):
    """Every event of the log."""
    journal = evaluations._journal
    rows, _ = await journal.read(queries.read_events, after=0, through=10**9, limit=10**6)
    return [event_from_record(*row) for row in rows]


async def test_nothing_is_told_after_the_end(tmp_path, monkeypatch):
    """While the end waits to be committed the clock goes on: no PROGRESS comes behind STOP."""
    monkeypatch.setattr(engine, "PROGRESS_SECONDS", 0.005)
    complete = lifecycle.complete

    def slowly(*arguments, **named):
        time.sleep(0.1)  # a disk that takes its time, in the writer's thread
        complete(*arguments, **named)

    monkeypatch.setattr(lifecycle, "complete", slowly)
    async with evaluations_of(tmp_path, ScriptedModel(latency=0.002)) as evaluations:
        await evaluations.evaluate(asked())
        events = await events_of(evaluations)
        evaluation = await evaluations.get("e")

    assert EventKind.EVALUATION_PROGRESS in [event.kind for event in events]
    assert events[-1].kind is EventKind.EVALUATION_STOP
    assert evaluation.last_sequence == events[-1].sequence
    assert evaluation.duration_ns == events[-1].duration_ns


async def test_no_result_is_kept_after_a_stop(tmp_path):
    """Calls that finish after a cancel are thrown away: the log ends with STOP."""
    release, asked_for = asyncio.Event(), asyncio.Event()

    class Stubborn(ScriptedModel):
        async def sample(self, prompt, params, num_samples=1):
            asked_for.set()
            # As a backend that cannot be stopped in the middle of a step.
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
            return await super().sample(prompt, params, num_samples)

    async with evaluations_of(tmp_path, Stubborn()) as evaluations:
        await evaluations.start(asked())
        await asked_for.wait()
        cancelled = await evaluations.cancel("e", "")
        release.set()
        events = await events_of(evaluations)

        assert cancelled.state is EvaluationState.CANCELLED
        assert [event.kind for event in events] == [EventKind.EVALUATION_START, EventKind.EVALUATION_STOP]
        assert (await evaluations.samples("e", page_size=10))[0] == []


async def test_results_that_wait_for_the_writer_are_bounded(tmp_path, monkeypatch):
    """A writer that stands still holds the samples back, not the memory; all are there in the end."""
    monkeypatch.setattr(scheduler, "MAX_UNWRITTEN", 3)
    model = ScriptedModel()
    async with evaluations_of(tmp_path, model) as evaluations:
        standing, go = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()
        commit = recording.commit_samples

        def stand_still(*arguments):
            loop.call_soon_threadsafe(standing.set)
            go.wait(10)
            commit(*arguments)

        monkeypatch.setattr(recording, "commit_samples", stand_still)
        running = asyncio.create_task(evaluations.evaluate(asked(limits=Limits(concurrency=2))))
        await standing.wait()
        for _ in range(200):
            await asyncio.sleep(0)
        # Three wait, and each of the two takers may have had one in hand.
        assert model.calls <= 5
        go.set()
        evaluation = await running
    assert (evaluation.state, evaluation.done) == (EvaluationState.COMPLETED, 20)


async def test_what_ends_together_is_written_together(tmp_path, monkeypatch):
    """Results of one turn of the loop are one submission, each with its event, and each is kept once."""
    written = []
    commit = recording.commit_samples

    def counted(transaction, row, kept, active_ns, recorder):
        written.append(len(kept))
        commit(transaction, row, kept, active_ns, recorder)

    monkeypatch.setattr(recording, "commit_samples", counted)
    async with evaluations_of(tmp_path, ScriptedModel(latency=0.01)) as evaluations:
        evaluation = await evaluations.evaluate(asked(limits=Limits(concurrency=10)))
        events = await events_of(evaluations)
    ids = [str(index) for index in range(20)]
    assert sum(written) == 20
    assert len(written) < 20
    assert sorted((e.metadata["sample_id"] for e in events if e.kind is EventKind.SAMPLE_COMPLETE), key=int) == ids
    assert (evaluation.done, evaluation.metrics.values["accuracy"]) == (20, 1.0)


@pytest.mark.parametrize("ending", ["complete", "cancel", "stall", "deadline", "drain"])
async def test_an_attempt_leaves_nothing_behind(tmp_path, ending):
    """However it ends: no task, no owner's lock, no call in flight is left of it."""
    stalls = ending != "complete"
    model = ScriptedModel(fault=lambda call: STALL if stalls else None)
    limits = {
        "stall": Limits(stall_timeout_ms=20),
        # It counts from the request on: enough for the start on a machine that is busy.
        "deadline": Limits(deadline_ms=1_000),
    }.get(ending, Limits())
    async with evaluations_of(tmp_path, model) as evaluations:
        before = asyncio.all_tasks()
        await evaluations.start(asked(limits=limits))
        if ending == "cancel":
            await evaluations.cancel("e", "")
        if ending == "drain":
            await evaluations.drain()
        else:
            assert (await evaluations.evaluate(asked(limits=limits))).state.terminal
        await asyncio.sleep(0)

        assert asyncio.all_tasks() <= before
        assert evaluations.load == (0, 0)
        assert await evaluations._locks.looks_free(1)
        assert model.counts["in_flight"] == 0


@pytest.mark.parametrize("stream", ["watch", "subscribe"])
async def test_streams_carry_the_interrupt_before_they_end(tmp_path, monkeypatch, stream):
    """A page that was read just before the INTERRUPT was written is not the last: the stream ends behind it."""
    read_page, reading, go = streams._read_page, threading.Event(), threading.Event()

    def slowly(*arguments, **named):
        page = read_page(*arguments, **named)
        reading.set()
        go.wait(10)
        return page

    async with evaluations_of(tmp_path, ScriptedModel(fault=lambda call: STALL)) as evaluations:
        await evaluations.start(asked())
        monkeypatch.setattr(streams, "_read_page", slowly)

        def kinds(page):
            return [event_from_record(*record).kind for record in page.records]

        pages = evaluations.watch("e", pack=kinds) if stream == "watch" else evaluations.subscribe(pack=kinds)
        seen = []

        async def collect():
            async for page in pages:
                seen.extend(page)

        collecting = asyncio.create_task(collect())
        await asyncio.to_thread(reading.wait)
        await evaluations.drain()
        go.set()
        with pytest.raises(Unavailable, match="draining"):
            await collecting
    assert seen == [EventKind.EVALUATION_START, EventKind.EVALUATION_INTERRUPT]


async def test_a_journal_that_can_be_written_again_during_a_drain_is_no_failed_task(tmp_path):
    """Nothing is left to write then: the log has no traceback, and the worker's information no failed task."""
    async with evaluations_of(tmp_path, ScriptedModel()) as evaluations:
        journal, background = evaluations._journal, evaluations.background
    # The reading of a journal that is closed is refused from here on.
    with pytest.raises(Unavailable, match="draining"):
        await journal.read(queries.head)
    journal.on_writable_change(True)
    tasks = list(evaluations._tasks)
    assert [task.get_name() for task in tasks] == ["interruptions"]
    async with asyncio.timeout(30):
        await asyncio.gather(*tasks)
    assert background.failed == ()
