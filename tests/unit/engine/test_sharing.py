"""Several workers run one evaluation: what comes out is what one worker makes of it, whoever leaves in the middle."""

import asyncio
import contextlib
import dataclasses

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.codec.events import event_from_record, event_to_record
from crucible_bridge.errors import BackendError
from crucible_bridge.events import EventKind
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EmbeddedModel, EvaluationState, EvaluatorSpec, Limits, Record, Sample, SamplingParams
from crucible_worker.engine import helping
from crucible_worker.engine.preparation import Sources
from crucible_worker.evaluations import Evaluations
from crucible_worker.journal import part_samples, parts, queries
from crucible_worker.testing import ScriptedBackend, ScriptedModel
from crucible_worker.util.limits import WorkerLimits
from tests.unit.journal.journals import request

SAMPLES = [Sample(id=f"s{index}", input=f"q{index}", targets=(f"q{index % 3}",)) for index in range(150)]
RUNS = 2 * len(SAMPLES)
WAIT = 60.0


CHUNKS = st.lists(
    st.builds(
        Sample,
        id=st.text(max_size=5),
        input=st.text(max_size=30),
        targets=st.lists(st.text(max_size=5), max_size=3).map(tuple),
        choices=st.lists(st.text(max_size=5), max_size=3).map(tuple),
        metadata=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
    ),
    max_size=30,
)


@given(CHUNKS, st.integers(1, 400))
def test_inline_samples_come_back_as_they_were(samples, chunk_bytes):
    """What helpers read is what the lead was given, in the same order, however it is cut."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(part_samples, "CHUNK_BYTES", chunk_bytes)
        assert list(part_samples.unpacked(part_samples.packed(samples))) == samples


@contextlib.asynccontextmanager
async def worker(state_dir, database, model, *, share_work=True, name="m", **limits):
    """The evaluations of one worker with one model, without a server."""
    state_dir.mkdir(exist_ok=True)
    sources = Sources(backends={EmbeddedModel: ScriptedBackend({name: model})}, data_roots=(), builtins={})
    evaluations = await Evaluations.open(
        state_dir,
        event_to_record,
        journal_url=database,
        sources=sources,
        limits=WorkerLimits(**limits),
        share_work=share_work,
    )
    try:
        yield evaluations
    finally:
        await evaluations.aclose()


@contextlib.asynccontextmanager
async def workers(tmp_path, database, count, **fields):
    """So many workers of one journal, each with a model of its own."""
    async with contextlib.AsyncExitStack() as opened:
        made = []
        for index in range(count):
            folder = tmp_path if database is None else tmp_path / str(index)
            model = ScriptedModel(**{"latency": 0.01, "answer": lambda prompt: "q1", **fields})
            made.append((await opened.enter_async_context(worker(folder, database, model)), model))
        yield made


def asked(evaluation_id="e", **fields):
    """Two evaluators on a hundred and fifty samples."""
    defaults = {
        "evaluators": ["accuracy", EvaluatorSpec(kind="accuracy", name="again")],
        "dataset": SAMPLES,
        "sampling": SamplingParams(max_tokens=4),
        "limits": Limits(concurrency=4),
        "record": Record.FULL,
    }
    return request(evaluation_id, **{**defaults, **fields})


async def until(condition):
    """Wait until a condition holds."""
    async with asyncio.timeout(WAIT):
        while True:
            found = condition()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.005)


async def ended(evaluations, evaluation_id="e"):
    """The evaluation, once it has ended."""

    async def is_over():
        return (await evaluations.get(evaluation_id)).state.terminal

    await until(is_over)
    return await evaluations.get(evaluation_id)


def outcome(evaluation):
    """What has to be the same, whoever ran it."""
    return (
        evaluation.state,
        evaluation.metrics,
        [dataclasses.replace(result) for result in evaluation.results],
        evaluation.usage,
        (evaluation.done, evaluation.total, evaluation.problem),
        (evaluation.dataset_fingerprint, evaluation.model_fingerprint),
    )


async def samples_of(evaluations, evaluation_id="e"):
    """All results without the times that they took."""
    found, token = [], ""
    while True:
        page, token = await evaluations.samples(evaluation_id, page_size=1000, page_token=token)
        found += [dataclasses.replace(sample, duration_ns=0) for sample in page]
        if not token:
            return found


async def events_of(evaluations, evaluation_id="e"):
    """The evaluation's events."""
    rows, _ = await evaluations._journal.read(
        queries.read_events, after=0, through=10**9, limit=10**6, new_kinds=True, page_bytes=10**9
    )
    events = [event_from_record(*row) for row in rows]
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    return [event for event in events if event.evaluation_id == evaluation_id]


def check_events(events, attempts=1):
    """Every sample once, each evaluator begins and ends once; INTERRUPT as often as another attempt began."""
    places = [
        (event.evaluator, event.metadata["sample_id"]) for event in events if event.kind is EventKind.SAMPLE_COMPLETE
    ]
    assert len(places) == len(set(places)) == RUNS
    kinds = [event.kind for event in events]
    for kind, count in (
        (EventKind.EVALUATION_START, 1),
        (EventKind.EVALUATOR_START, 2),
        (EventKind.EVALUATOR_COMPLETE, 2),
        (EventKind.EVALUATION_COMPLETE, 1),
        (EventKind.EVALUATION_STOP, 1),
        (EventKind.EVALUATION_INTERRUPT, attempts - 1),
    ):
        assert kinds.count(kind) == count, (kind, kinds.count(kind))


async def test_an_evaluation_of_three_workers_is_that_of_one(tmp_path, database):
    """Metrics, results, usage and samples are the same; each worker has run some, and every event is there once."""
    async with workers(tmp_path, database, 3) as ((one, first), (two, second), (_, third)):
        shared = await one.evaluate(asked())
        found, events = await samples_of(one), await events_of(two)
        assert await one._journal.read(parts.offered) == []
    alone_dir = tmp_path / "alone"
    async with worker(alone_dir, None, ScriptedModel(answer=lambda prompt: "q1"), share_work=False) as alone:
        assert outcome(await alone.evaluate(asked())) == outcome(shared)
        assert await samples_of(alone) == found
    check_events(events)
    assert shared.done == RUNS
    assert [model.calls > 0 for model in (first, second, third)] == [True] * 3
    assert first.calls + second.calls + third.calls == RUNS


async def test_a_worker_that_shares_with_nobody_runs_its_parts(tmp_path, database):
    """With --share-work and no other worker an evaluation ends as without it, and is resumed like any other."""
    async with worker(tmp_path, database, ScriptedModel(latency=0.01)) as one:
        await one.start(asked())

        async def some_are_done():
            return (await one.get("e")).done > 20

        await until(some_are_done)
        assert await one.drain() == ["e"]
    async with worker(tmp_path, database, model := ScriptedModel()) as one:
        evaluation = await one.evaluate(asked())
        check_events(await events_of(one), attempts=2)
    assert (evaluation.state, evaluation.attempt) == (EvaluationState.COMPLETED, 2)
    assert model.calls < RUNS - 20


async def test_small_evaluations_are_not_shared(tmp_path):
    """An evaluation below the bound has no parts."""
    async with workers(tmp_path, None, 2) as ((one, _), (_, other)):
        await one.evaluate(asked(dataset=SAMPLES[:10]))
    assert other.calls == 0


async def test_the_lead_that_drains_hands_over(tmp_path, database):
    """A helper becomes the lead: no INTERRUPT, no second attempt, no sample twice."""
    async with workers(tmp_path, database, 2) as ((one, first), (two, second)):
        await one.start(asked())
        await until(lambda: second.calls > 20)
        assert await one.drain() == []
        calls = first.calls
        evaluation = await ended(two)
        events = await events_of(two)
        assert first.calls == calls
    check_events(events)
    assert (evaluation.state, evaluation.attempt, evaluation.done) == (EvaluationState.COMPLETED, 1, RUNS)


async def test_a_helper_that_drains_gives_its_parts_back(tmp_path, database):
    """What it has done stands; the others run the rest."""
    async with workers(tmp_path, database, 2) as ((one, _), (two, second)):
        await one.start(asked())
        await until(lambda: second.calls > 20)
        assert await two.drain() == []
        evaluation = await ended(one)
        check_events(await events_of(one))
    assert (evaluation.state, evaluation.attempt, evaluation.done) == (EvaluationState.COMPLETED, 1, RUNS)


async def test_a_cancel_ends_it_at_every_worker(tmp_path, database):
    """After the STOP no worker writes a result, whichever worker was asked."""
    async with workers(tmp_path, database, 3, latency=0.03) as ((one, _), (two, second), (three, third)):
        await one.start(asked())
        await until(lambda: second.calls > 5 and third.calls > 5)
        await three.cancel("e", "enough")
        evaluation = await ended(two)
        assert evaluation.state is EvaluationState.CANCELLED
        await until(lambda: not two.load[0] and not three.load[0])
        events = await events_of(one)
        assert events[-1].kind is EventKind.EVALUATION_STOP
        assert (await one.get("e")).done == len(await samples_of(one)) < RUNS


async def test_all_that_drain_interrupt_it_once(tmp_path, database):
    """The last worker that leaves writes the INTERRUPT; any worker resumes it."""
    async with workers(tmp_path, database, 2) as ((one, _), (two, second)):
        await one.start(asked())
        await until(lambda: second.calls > 20)
        await asyncio.gather(one.drain(), two.drain())
        assert (await one.get("e")).state is EvaluationState.INTERRUPTED
        before = (await one.get("e")).done
    async with worker(tmp_path if database is None else tmp_path / "0", database, model := ScriptedModel()) as again:
        evaluation = await again.evaluate(asked())
        check_events(await events_of(again), attempts=2)
    assert (evaluation.state, evaluation.attempt) == (EvaluationState.COMPLETED, 2)
    assert model.calls == RUNS - before


async def test_a_helper_leaves_for_an_evaluation_of_its_own(tmp_path, database):
    """Work for others takes no turn from what callers have asked this worker for."""
    async with contextlib.AsyncExitStack() as opened:
        made = []
        for index in range(2):
            folder = tmp_path if database is None else tmp_path / str(index)
            model = ScriptedModel(latency=0.02)
            at = worker(folder, database, model, max_running_evaluations=1)
            made.append((await opened.enter_async_context(at), model))
        (one, _), (two, second) = made
        await one.start(asked())
        await until(lambda: second.calls > 5)
        own = await two.evaluate(asked("own", dataset=SAMPLES[:20]))
        assert own.state is EvaluationState.COMPLETED
        await ended(one)
        check_events(await events_of(one))


async def test_a_worker_with_another_model_does_not_help(tmp_path):
    """Results of one evaluation are those of one checkpoint."""
    async with (
        worker(tmp_path, None, ScriptedModel(latency=0.005)) as one,
        worker(tmp_path, None, other := ScriptedModel(fingerprint="another")) as _,
    ):
        evaluation = await one.evaluate(asked())
    assert evaluation.state is EvaluationState.COMPLETED
    assert other.calls == 0


async def test_a_worker_without_the_model_says_so_once(tmp_path):
    """What it lacks is in its log, with the field of the request; it does not try again and again."""
    with structlog.testing.capture_logs() as lines:
        async with (
            worker(tmp_path, None, ScriptedModel(latency=0.005)) as one,
            worker(tmp_path, None, ScriptedModel(), name="other") as _,
        ):
            assert (await one.evaluate(asked())).state is EvaluationState.COMPLETED
    (line,) = [line for line in lines if line["event"] == "cannot_help"]
    assert line["reason"] == "UNKNOWN_MODEL"
    assert line["message"].startswith("model is ")


async def test_a_helper_that_cannot_reach_its_model_leaves(tmp_path, monkeypatch):
    """It makes no errors of samples that others can run, and comes back when its model does."""
    monkeypatch.setattr(helping, "RETURN_SECONDS", 0.1)
    away = asyncio.Event()

    def fault(call):
        return BackendError("no way there", reason=Reason.BACKEND_UNREACHABLE) if away.is_set() else None

    with structlog.testing.capture_logs() as lines:
        async with (
            worker(tmp_path, None, ScriptedModel(latency=0.05, answer=lambda prompt: "q1")) as one,
            worker(tmp_path, None, other := ScriptedModel(latency=0.01, answer=lambda prompt: "q1", fault=fault)) as _,
        ):
            await one.start(asked(limits=Limits(concurrency=2)))
            await until(lambda: other.calls > 20)
            away.set()
            await until(lambda: any(line["event"] == "cannot_help" for line in lines))
            away.clear()
            calls = other.calls
            await until(lambda: other.calls > calls + 20)
            evaluation = await ended(one)
            check_events(await events_of(one))
            found = await samples_of(one)
    assert evaluation.state is EvaluationState.COMPLETED
    assert [sample.problem for sample in found if sample.problem is not None] == []
    assert "BACKEND_UNREACHABLE" in {line.get("reason") for line in lines}


async def test_a_lead_records_that_it_cannot_reach_its_model(tmp_path):
    """As a single worker does: no other worker would."""
    error = BackendError("no way there", reason=Reason.BACKEND_UNREACHABLE, retryable=False)
    async with worker(tmp_path, None, ScriptedModel(fault=lambda call: error)) as one:
        evaluation = await one.evaluate(asked(limits=Limits(max_unscored_share=1.0)))
        found = await samples_of(one)
    assert (evaluation.state, evaluation.done) == (EvaluationState.COMPLETED, RUNS)
    assert {sample.problem.reason for sample in found} == {"BACKEND_UNREACHABLE"}


async def test_a_pause_holds_every_worker(tmp_path):
    """No sample begins anywhere while an evaluation is paused."""
    async with workers(tmp_path, None, 2) as ((one, first), (two, second)):
        await one.start(asked())
        await until(lambda: second.calls > 10)
        await two.pause("e")
        await until(lambda: one._journal.writable)
        await asyncio.sleep(0.3)
        calls = first.calls, second.calls
        await asyncio.sleep(0.3)
        assert (first.calls, second.calls) == calls
        await one.resume("e")
        await ended(one)
        check_events(await events_of(one))


async def test_a_pause_holds_a_worker_that_has_become_the_lead(tmp_path):
    """What callers set reaches the lead, whoever that is by now."""
    async with workers(tmp_path, None, 2) as ((one, _), (two, second)):
        await one.start(asked())
        await until(lambda: second.calls > 10)
        await one.drain()
        await until(lambda: two._admission.attempt(1) is not None)
        await two.pause("e")
        await asyncio.sleep(0.3)
        calls = second.calls
        await asyncio.sleep(0.3)
        assert second.calls == calls
        await two.resume("e")
        await ended(two)
        check_events(await events_of(two))


@pytest.mark.parametrize("cause", [["drain"], ["cancel"]], ids=str)
async def test_nothing_is_left_of_work_that_was_stopped(tmp_path, cause):
    """No part and no turn is kept by a worker that has left."""
    async with workers(tmp_path, None, 2) as ((one, _), (two, second)):
        await one.start(asked())
        await until(lambda: second.calls > 5)
        if cause == ["drain"]:
            await two.drain()
        else:
            await two.cancel("e", "")
        await until(lambda: not two._admission.turns.locked() and not two.load[0])
        await ended(one)
        assert await one._journal.read(parts.offered) == []
