"""The end of a worker, and workers that share a journal: interrupted, attached to, cancelled, taken over."""

import asyncio
import contextlib
import dataclasses
import time

import pytest

from crucible_bridge.errors import BackendError, Code
from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState, Limits, Verdict
from crucible_worker.testing import STALL, ScriptedModel, run_worker
from tests.service.evaluation_kit import (
    HeldModel,
    accuracy,
    asked,
    by_evaluator,
    drained_at,
    kinds_of,
    log_of,
    nll,
    numbered,
    refused,
    rig,
    samples_of,
    state_of,
)

START, SAMPLE, STOP = EventKind.EVALUATION_START, EventKind.SAMPLE_COMPLETE, EventKind.EVALUATION_STOP
INTERRUPT, RESUME = EventKind.EVALUATION_INTERRUPT, EventKind.EVALUATION_RESUME
BEGIN = EventKind.EVALUATOR_START


@contextlib.asynccontextmanager
async def two(tmp_path, owner=None, other=None):
    """Two workers of one machine: the first owns evaluation `e`, whose model has been asked."""
    owner = HeldModel() if owner is None else owner
    async with rig(owner, state_dir=tmp_path) as first, rig(other, state_dir=tmp_path) as second:
        await first.evaluation.start_evaluation(asked())
        if isinstance(owner, HeldModel):
            await owner.asked.wait()
        yield first, second


async def stream_to_the_end(stream, seen):
    """Collect a stream's events until it ends or raises."""
    async with stream:
        async for event in stream:
            seen.append(event)


async def test_drain_ends_waiters_and_streams_after_the_interrupt_was_delivered():
    """Evaluate's waiter gets UNAVAILABLE, DRAINING with the id; streams too, and both saw the INTERRUPT before."""
    async with run_worker({"m": (model := HeldModel())}) as worker:
        waiter = asyncio.create_task(worker.bridge.evaluation.evaluate(asked()))
        await model.asked.wait()
        watched, subscribed = [], []
        streams = (
            asyncio.create_task(stream_to_the_end(worker.bridge.evaluation.watch_evaluation("e"), watched)),
            asyncio.create_task(stream_to_the_end(worker.bridge.telemetry.subscribe(), subscribed)),
        )
        report = await worker.bridge.worker.drain()

        await drained_at(waiter, "e")
        for stream in streams:
            error = await refused(stream, Code.UNAVAILABLE, "DRAINING")
            assert error.retryable
    assert report.interrupted == ("e",)
    assert [event.kind for event in watched] == [event.kind for event in subscribed] == [START, BEGIN, INTERRUPT]
    assert watched[-1].measurements == {"total": 2.0, "done": 0.0}
    assert watched[-1].metadata["attempt"] == "1"
    assert watched[-1].duration_ns > 0


async def test_drain_interrupts_those_that_wait_for_their_turn():
    """A queued evaluation is interrupted like a running one."""
    async with run_worker({"m": (model := HeldModel())}) as worker:
        for index in range(6):
            await worker.bridge.evaluation.start_evaluation(asked(evaluation_id=f"e{index}"))
        await model.asked.wait()
        report = await worker.bridge.worker.drain()

    assert sorted(report.interrupted) == [f"e{index}" for index in range(6)]


async def test_interrupted_evaluation_goes_on_where_it_was(tmp_path):
    """RESUME with what is done; scored samples are not asked again; the result is that of an undisturbed run."""
    samples, evaluators = numbered(12), [accuracy(), nll()]
    request = asked(dataset=samples, evaluators=evaluators)
    async with rig() as r:
        whole = await r.evaluation.evaluate(request)
        wanted = await samples_of(r.worker.bridge)
    half = ScriptedModel(fault=lambda call: STALL if int(call.text[1:2]) > 5 else None)
    async with rig(half, state_dir=tmp_path) as r:
        await r.evaluation.start_evaluation(request)
        await r.recorder.wait_for(lambda _: len(r.recorder.of(SAMPLE)) >= 14)
    rest = ScriptedModel()
    async with rig(rest, state_dir=tmp_path) as r:
        interrupted = await r.evaluation.get_evaluation("e")
        done = interrupted.done
        evaluation = await r.evaluation.evaluate(request)
        kinds = await kinds_of(r.worker.bridge)
        resume = await r.told(RESUME)
        found = await samples_of(r.worker.bridge)

    assert (interrupted.state, interrupted.attempt) == (EvaluationState.INTERRUPTED, 1)
    assert done >= 14
    assert rest.calls == 24 - done
    assert resume.measurements == {"total": 24.0, "done": float(done)}
    assert resume.metadata["attempt"] == "2"
    assert (evaluation.attempt, evaluation.metrics) == (2, whole.metrics)
    assert [(kinds.count(kind)) for kind in (START, INTERRUPT, RESUME, SAMPLE, STOP)] == [1, 1, 1, 24, 1]
    comparable = [(sample.sample_id, sample.evaluator, sample.score, sample.measurements) for sample in wanted]
    assert [(s.sample_id, s.evaluator, s.score, s.measurements) for s in found] == comparable


TENSORS, FULL, OTHER = (f"{kind}:{digit * 64}" for kind, digit in (("tensors", "a"), ("full", "b"), ("full", "c")))


@dataclasses.dataclass(kw_only=True)
class Checkpoint(HeldModel):
    """Has a digest of some bytes at its start, and one of every byte once that is computed."""

    fingerprint: str = TENSORS
    full: str = f",{FULL}"
    computed: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)

    async def full_fingerprint(self) -> str:
        await self.computed.wait()
        return f"{self.fingerprint}{self.full}"


@pytest.mark.parametrize(
    ("full", "ending", "recorded"),
    [
        (f",{FULL}", (EvaluationState.COMPLETED, None), f"{TENSORS},{FULL}"),
        (f",{OTHER}", (EvaluationState.FAILED, "MODEL_CHANGED"), f"{TENSORS},{FULL}"),
        ("", (EvaluationState.COMPLETED, None), TENSORS),
    ],
    ids=["same", "changed", "not computed"],
)
async def test_a_digest_of_every_byte_decides_when_it_is_there(tmp_path, full, ending, recorded):
    """It delays no start. What an attempt records, later ones are compared with, before they end."""
    first = Checkpoint()
    first.computed.set()
    async with rig(first, state_dir=tmp_path) as r:
        await r.evaluation.start_evaluation(asked())
        await first.asked.wait()
        async with asyncio.timeout(60):
            while (await r.evaluation.get_evaluation("e")).model_fingerprint != f"{TENSORS},{FULL}":
                await asyncio.sleep(0.01)
    later = Checkpoint(full=full)
    async with rig(later, state_dir=tmp_path) as r:
        waiter = asyncio.create_task(r.evaluation.evaluate(asked()))
        later.let_go.set()
        # All samples are done, and nothing is claimed about them yet.
        await r.recorder.wait_for(lambda _: len(r.recorder.of(SAMPLE)) == 2)
        assert (await r.evaluation.get_evaluation("e")).state is EvaluationState.RUNNING
        later.computed.set()
        ended = await waiter

    assert state_of(ended) == ending
    assert ended.model_fingerprint == recorded


async def test_an_evaluation_does_not_wait_for_its_first_digest_of_every_byte():
    """It ends with the digest that it has."""
    model = Checkpoint()
    model.let_go.set()
    async with rig(model) as r:
        ended = await r.evaluation.evaluate(asked())

    assert (ended.state, ended.model_fingerprint) == (EvaluationState.COMPLETED, TENSORS)


async def test_errors_that_may_go_away_run_again_and_final_ones_do_not(tmp_path):
    """On going on, a retryable ERROR gets a second SAMPLE_COMPLETE with attempt 2, the last one counts; others none."""

    def fault(call):
        if call.text == "q3":
            return STALL
        if call.text in ("q0", "q1"):
            return BackendError("down", reason="BACKEND_DOWN", retryable=call.text == "q0", retry_after=0.0)
        return None

    request = asked(dataset=numbered(4))
    async with rig(ScriptedModel(fault=fault), state_dir=tmp_path) as r:
        await r.evaluation.start_evaluation(request)
        for sample in ("s0", "s1", "s2"):
            await r.recorder.wait_for(lambda event, sample=sample: event.metadata.get("sample_id") == sample)
    async with rig(ScriptedModel(), state_dir=tmp_path) as r:
        evaluation = await r.evaluation.evaluate(request)
        events = await log_of(r.worker.bridge, kinds=[SAMPLE])
        samples = await samples_of(r.worker.bridge)
        resume = await r.told(RESUME)

    told = [(event.metadata["sample_id"], event.metadata["attempt"]) for event in events]
    assert sorted(told) == [("s0", "1"), ("s0", "2"), ("s1", "1"), ("s2", "1"), ("s3", "1")]
    assert [sample.verdict for sample in samples] == [Verdict.CORRECT, Verdict.ERROR, Verdict.CORRECT, Verdict.CORRECT]
    assert resume.measurements["done"] == 2.0
    assert (evaluation.done, evaluation.results[0].n_errors) == (4, 1)
    assert r.model.counts["sample"] == 2


@pytest.mark.parametrize(
    ("changed", "field"),
    [("checkpoint", "model"), ("data set", "dataset")],
)
async def test_what_changed_since_the_start_is_refused_on_going_on(tmp_path, changed, field):
    """Another checkpoint, or another content of the same file: FAILED_PRECONDITION, with both fingerprints."""
    roots = (tmp_path,)
    (tmp_path / "data.jsonl").write_text('{"input": "a", "target": "A"}\n')
    request = asked(dataset="jsonl:data.jsonl")
    model = HeldModel(fingerprint="before")
    async with rig(model, state_dir=tmp_path / "state", data_roots=roots) as r:
        await r.evaluation.start_evaluation(request)
        await model.asked.wait()
        before = await r.evaluation.get_evaluation("e")
    if changed == "data set":
        (tmp_path / "data.jsonl").write_text('{"input": "b", "target": "B"}\n')
    other = ScriptedModel(fingerprint="after" if changed == "checkpoint" else "before")
    async with rig(other, state_dir=tmp_path / "state", data_roots=roots) as r:
        log = await log_of(r.worker.bridge)
        for call in (r.evaluation.start_evaluation, r.evaluation.evaluate):
            error = await refused(call(request), Code.FAILED_PRECONDITION, f"{field.upper()}_CHANGED", field)
        prints = {"checkpoint": before.model_fingerprint, "data set": before.dataset_fingerprint}
        assert error.metadata["fingerprint"] == prints[changed]
        assert error.metadata["present_fingerprint"] != prints[changed]
        assert await log_of(r.worker.bridge) == log
        assert other.calls == 0
        # It is not lost: with what it was, it goes on.
        (tmp_path / "data.jsonl").write_text('{"input": "a", "target": "A"}\n')
        other.fingerprint = "before"
        assert (await r.evaluation.evaluate(request)).state is EvaluationState.COMPLETED


async def test_another_worker_attaches(tmp_path):
    """StartEvaluation and Evaluate at the other worker attach to the one that runs; its model is not asked."""
    async with two(tmp_path) as (first, second):
        started = await second.evaluation.start_evaluation(asked())
        waiter = asyncio.create_task(second.evaluation.evaluate(asked()))
        first.model.let_go.set()

        evaluation = await waiter
        assert (started.existed, started.evaluation.state) == (True, EvaluationState.RUNNING)
        assert evaluation == await first.evaluation.get_evaluation("e")
        assert second.model.calls == 0
        assert (await kinds_of(second.worker.bridge)).count(START) == 1


async def test_cancel_at_another_worker(tmp_path):
    """It ends at its owner, once, and no model call starts 300 ms after the other worker's reply."""
    model = ScriptedModel(latency=0.01)
    async with two(tmp_path, model) as (first, second):
        request = asked(evaluation_id="long", dataset=numbered(3000), limits=Limits(concurrency=2))
        await first.evaluation.start_evaluation(request)
        await first.recorder.wait_for(lambda event: event.evaluation_id == "long" and event.kind is SAMPLE)

        cancelled = await second.evaluation.cancel_evaluation("long", "from afar")
        replied = time.time_ns()
        stop = await first.told(STOP, "long")

        assert state_of(cancelled) == (EvaluationState.CANCELLED, "CANCELLED")
        assert stop.unix_time_ns - replied < 300e6
        calls = model.calls
        assert await kinds_of(second.worker.bridge, "long") == await kinds_of(first.worker.bridge, "long")
        await first.evaluation.evaluate(asked(evaluation_id="after"))
        assert model.calls == calls + 2


async def test_watch_at_another_worker(tmp_path):
    """The other worker streams the same events, to the same end."""
    async with two(tmp_path) as (first, second):
        watched = []
        watch = asyncio.create_task(stream_to_the_end(second.evaluation.watch_evaluation("e"), watched))
        first.model.let_go.set()
        await watch

        assert watched == await log_of(first.worker.bridge)
        assert watched[-1].kind is STOP


async def test_take_over_after_a_drain(tmp_path):
    """The owner drains: whoever waits at the other worker goes on with it there; a watch sees it all and stays open."""
    async with rig(state_dir=tmp_path) as second:
        watched = []
        async with run_worker({"m": (model := HeldModel())}, state_dir=tmp_path) as first:
            await first.bridge.evaluation.start_evaluation(asked())
            await model.asked.wait()
            watch = asyncio.create_task(stream_to_the_end(second.evaluation.watch_evaluation("e"), watched))
            waiter = asyncio.create_task(second.evaluation.evaluate(asked()))
            await second.evaluation.get_evaluation("e")
            await first.bridge.worker.drain()
        evaluation = await waiter
        await watch

    assert (evaluation.state, evaluation.attempt) == (EvaluationState.COMPLETED, 2)
    kinds = [event.kind for event in watched]
    assert kinds[:4] == [START, BEGIN, INTERRUPT, RESUME]
    assert kinds.count(BEGIN) == 1
    assert kinds[-1] is STOP
    assert [event.sequence for event in watched] == list(range(1, len(watched) + 1))


async def test_interrupted_evaluation_can_be_read_and_cancelled_anywhere(tmp_path):
    """Without an owner the worker that takes the cancel ends it: INTERRUPT, then one STOP; samples stay readable."""
    async with rig(HeldModel(), state_dir=tmp_path) as r:
        await r.evaluation.start_evaluation(asked(evaluators=[accuracy(), nll()]))
        await r.recorder.wait_for(lambda event: event.kind is EventKind.EVALUATOR_COMPLETE)
    async with rig(state_dir=tmp_path) as r:
        assert (await r.evaluation.get_evaluation("e")).state is EvaluationState.INTERRUPTED
        assert len(await samples_of(r.worker.bridge)) == 2
        cancelled = await r.evaluation.cancel_evaluation("e", "enough")

        assert state_of(cancelled) == (EvaluationState.CANCELLED, "CANCELLED")
        assert by_evaluator(await log_of(r.worker.bridge)) == {
            "": [START, INTERRUPT, STOP],
            "nll": [BEGIN, SAMPLE, SAMPLE, EventKind.EVALUATOR_COMPLETE],
            "accuracy": [BEGIN],
        }
        assert r.model.calls == 0
        assert await r.evaluation.evaluate(asked(evaluators=[accuracy(), nll()])) == cancelled


async def test_deadline_counts_time_with_an_owner_over_all_attempts(tmp_path):
    """What the first attempt used of deadline_ms is gone; the time without an owner costs nothing."""
    request = asked(limits=Limits(deadline_ms=2_500))
    async with rig(HeldModel(), state_dir=tmp_path) as r:
        await r.evaluation.start_evaluation(request)
        await r.evaluation.evaluate(asked(evaluation_id="clock", limits=Limits(deadline_ms=250)))
    async with rig(HeldModel(), state_dir=tmp_path) as r:
        between = await r.evaluation.get_evaluation("e")
        evaluation = await r.evaluation.evaluate(request)

    assert between.duration_ns >= 250e6
    assert state_of(evaluation) == (EvaluationState.CANCELLED, "DEADLINE_EXCEEDED")
    assert evaluation.attempt == 2
    assert evaluation.duration_ns >= 2_500e6
