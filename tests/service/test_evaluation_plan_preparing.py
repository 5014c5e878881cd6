"""Steps of a plan are answered before their data is read: what that finds is told afterwards, whatever happens."""

from __future__ import annotations

import asyncio

import pytest

from crucible_bridge.errors import BackendError, Code, NotFound, Unavailable
from crucible_bridge.events import EventKind
from crucible_bridge.types import Dataset, EvaluationPlan, EvaluationState, InlineDataset, Limits
from crucible_worker.engine import preparation
from crucible_worker.testing import ScriptedBackend, ScriptedModel
from tests.service.evaluation_kit import (
    HeldModel,
    accuracy,
    asked,
    held_loading,
    kinds_of,
    log_of,
    nll,
    refused,
    rig,
    state_of,
)
from tests.service.plans_kit import plan, planned

START, STOP, EXCEPTION = EventKind.EVALUATION_START, EventKind.EVALUATION_STOP, EventKind.EVALUATION_EXCEPTION
INTERRUPT, RESUME = EventKind.EVALUATION_INTERRUPT, EventKind.EVALUATION_RESUME
NAME = "p-step-3-0"
"""The evaluation of step 3."""
LINES = '{"input": "a", "target": "A"}\n{"input": "b", "target": "B"}\n'


@pytest.fixture
def slow_loading(monkeypatch):
    """Data sets whose loading waits until it is let go."""
    with held_loading(monkeypatch) as events:
        yield events


def small(*evaluators, **fields) -> EvaluationPlan:
    """A plan of one part."""
    return plan(evaluations=(planned(*evaluators, **fields),), infrequent_evaluations=())


async def registered(r, slow_loading, made: EvaluationPlan) -> None:
    """Register a plan; what is loaded from then on waits."""
    begun, let_go = slow_loading
    let_go.set()
    await r.evaluation.register_plan(made)
    let_go.clear()
    begun.clear()


async def recorded_spans(r, slow_loading, step: int = 3) -> None:
    """Tell of a step, and wait until its data set is being read."""
    begun, _ = slow_loading
    (started,) = await r.evaluation.notify_step("p", step, "embedded:m")
    assert (started.evaluation.state, started.evaluation.total) == (EvaluationState.QUEUED, 0)
    await asyncio.to_thread(begun.wait)


async def test_a_step_is_answered_before_its_data_is_read(slow_loading):
    """It waits in the queue without a total; START tells it once it is known, with what the samples are."""
    _, let_go = slow_loading
    async with rig() as r:
        await registered(r, slow_loading, small())
        await recorded_spans(r, slow_loading)
        (queued,) = await r.evaluation.notify_step("p", 3, "embedded:m")
        assert queued.existed
        assert (queued.evaluation.dataset_fingerprint, queued.evaluation.model_fingerprint) == ("", "")
        assert queued.evaluation.last_sequence == 0
        assert await log_of(r.worker.bridge) == []
        assert (await r.worker.bridge.worker.get_info()).queued == 1

        let_go.set()
        ended = await r.ended(NAME)
        other = await r.evaluation.evaluate(asked(evaluators=[nll()]))

        start = await r.told(START, NAME)
        assert start.measurements == {"total": 2.0, "done": 0.0}
        assert start.metadata["worker_id"] == (await r.worker.bridge.worker.get_info()).worker_id
        assert (ended.state, ended.done, ended.total) == (EvaluationState.COMPLETED, 2, 2)
        assert ended.dataset_fingerprint == other.dataset_fingerprint
        assert ended.model_fingerprint == other.model_fingerprint


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "NO_SUCH_FILE"), ("", "EMPTY_DATASET"), ('{"input": 1}\n', "MALFORMED_LINE")]
)
async def test_data_that_is_refused_fails_the_evaluation(tmp_path, content, reason):
    """What was right when the plan was registered: START without a total, one EXCEPTION; the step begins it again."""
    data = tmp_path / "data.jsonl"
    data.write_text(LINES)
    async with rig(data_roots=(tmp_path,)) as r:
        other = planned(nll("file"), dataset=Dataset.of("jsonl:data.jsonl"))
        await r.evaluation.register_plan(plan(evaluations=(planned(), other)))
        data.unlink()
        if content is not None:
            data.write_text(content)

        first, second = await r.evaluation.notify_step("p", 3, "embedded:m")
        assert (await r.ended(first.evaluation.evaluation_id)).state is EvaluationState.COMPLETED
        failed = await r.ended(second.evaluation.evaluation_id)

        assert failed.problem is not None
        assert (failed.state, failed.problem.reason) == (EvaluationState.FAILED, reason)
        assert failed.problem.field == "dataset.jsonl_path"
        assert await kinds_of(r.worker.bridge, failed.evaluation_id) == [START, EXCEPTION]
        start = await r.told(START, failed.evaluation_id)
        assert start.measurements == {"done": 0.0}
        assert "| results |" not in await r.evaluation.generate_report([failed.evaluation_id])
        both = [one.evaluation.evaluation_id for one in (first, second)]
        compared = await r.evaluation.compare_evaluations(both)
        assert [one.evaluation_id for one in compared.evaluations] == both
        assert compared.comparisons == ()

        data.write_text(LINES)
        await r.evaluation.notify_step("p", 3, "embedded:m")
        await r.told(EventKind.EVALUATION_STOP, failed.evaluation_id)
        again = await r.evaluation.get_evaluation(failed.evaluation_id)
        assert (again.state, again.attempt, again.problem) == (EvaluationState.COMPLETED, 2, None)


async def test_what_was_never_read_stands_in_no_comparison(tmp_path):
    """It has no scores: the others are compared with each other, and it is told why it is with none of them."""
    data = tmp_path / "data.jsonl"
    data.write_text(LINES)
    async with rig(data_roots=(tmp_path,)) as r:
        await r.evaluation.register_plan(small(accuracy(), dataset=Dataset.of("jsonl:data.jsonl")))
        data.unlink()
        await r.evaluation.notify_step("p", 3, "embedded:m")
        unread = await r.ended(NAME)
        data.write_text(LINES)
        for step in (6, 9):
            await r.evaluation.notify_step("p", step, "embedded:m")
            await r.ended(f"p-step-{step}-0")

        found = await r.evaluation.compare_evaluations([NAME, "p-step-6-0", "p-step-9-0"])
        told = {pair.evaluation_id: pair.problem and pair.problem.reason for pair in found.comparisons}
        named = await r.evaluation.compare_evaluations([NAME, "p-step-6-0"], baseline_id=NAME)

    assert unread.state is EvaluationState.FAILED
    assert {pair.baseline_id for pair in found.comparisons} == {"p-step-6-0"}
    assert told == {NAME: "DATASET_NOT_READ", "p-step-9-0": None}
    (pair,) = named.comparisons
    assert pair.problem is not None
    assert (pair.problem.reason, pair.n_evaluation_only) == ("DATASET_NOT_READ", 0)


async def test_a_model_that_goes_away_meanwhile_fails_the_evaluation(monkeypatch, slow_loading):
    """It was there when the step was told; there is no such model when its turn to be opened comes."""
    _, let_go = slow_loading
    async with rig() as r:
        await registered(r, slow_loading, small())
        await recorded_spans(r, slow_loading)

        async def gone(self, model):
            raise NotFound("was here", reason="UNKNOWN_MODEL", field="model")

        monkeypatch.setattr(ScriptedBackend, "open", gone)
        let_go.set()
        failed = await r.ended(NAME)
        assert failed.problem is not None
        assert (failed.state, failed.problem.reason) == (EvaluationState.FAILED, "UNKNOWN_MODEL")
        assert failed.problem.field == "model"
        assert await kinds_of(r.worker.bridge, NAME) == [START, EXCEPTION]


@pytest.mark.parametrize("error", [Unavailable("the hub is away"), BackendError("the disk is slow", retryable=True)])
async def test_data_that_cannot_be_read_just_now_is_read_again(monkeypatch, error):
    """An error that may go away fails nothing before it was tried again."""
    load, tries = preparation.load, []

    def unreliable(dataset, **sources):
        tries.append(dataset)
        if len(tries) == 2:
            raise error
        return load(dataset, **sources)

    monkeypatch.setattr(preparation, "load", unreliable)
    async with rig() as r:
        await r.evaluation.register_plan(small())
        await r.evaluation.notify_step("p", 3, "embedded:m")
        assert (await r.ended(NAME)).state is EvaluationState.COMPLETED
        assert len(tries) == 3


async def test_a_bug_in_reading_fails_the_evaluation(monkeypatch):
    """Nothing hangs: INTERNAL, and the lock is given back."""
    load, broken = preparation.load, []

    def failing(dataset, **sources):
        if broken:
            raise ZeroDivisionError
        return load(dataset, **sources)

    monkeypatch.setattr(preparation, "load", failing)
    async with rig() as r:
        await r.evaluation.register_plan(small())
        broken.append(True)
        await r.evaluation.notify_step("p", 3, "embedded:m")
        assert state_of(await r.ended(NAME)) == (EvaluationState.FAILED, "INTERNAL")
        assert await kinds_of(r.worker.bridge, NAME) == [START, EXCEPTION]


async def test_what_is_being_read_can_be_cancelled(slow_loading):
    """CancelEvaluation ends it with one STOP, and stops the reading."""
    begun, _ = slow_loading
    async with rig() as r:
        await registered(r, slow_loading, small())
        await recorded_spans(r, slow_loading)
        ended = await r.evaluation.cancel_evaluation(NAME, "enough")

        assert state_of(ended) == (EvaluationState.CANCELLED, "CANCELLED")
        assert await kinds_of(r.worker.bridge, NAME) == [START, STOP]
        # Both threads are free: as many data sets are being read again.
        for step in (6, 9):
            begun.clear()
            await recorded_spans(r, slow_loading, step)


async def test_a_model_that_is_found_too_late_changes_nothing(monkeypatch):
    """A backend that does not heed its cancellation: what has ended stays as it ended."""
    open_model, opening, let_go = ScriptedBackend.open, asyncio.Event(), asyncio.Event()

    async def stubborn(self, model):
        opening.set()
        try:
            await let_go.wait()
        except asyncio.CancelledError:
            await let_go.wait()
        return await open_model(self, model)

    async with rig() as r:
        await r.evaluation.register_plan(small())
        monkeypatch.setattr(ScriptedBackend, "check", open_model)
        monkeypatch.setattr(ScriptedBackend, "open", stubborn)
        await r.evaluation.notify_step("p", 3, "embedded:m")
        await opening.wait()
        ended = await r.evaluation.cancel_evaluation(NAME, "enough")
        assert ended.state is EvaluationState.CANCELLED

        let_go.set()
        await r.evaluation.evaluate(asked())  # whatever the late one writes is written by now
        assert await r.evaluation.get_evaluation(NAME) == ended


async def test_deadline_holds_while_data_is_read(slow_loading):
    """deadline_ms counts from the call that told of the step."""
    async with rig() as r:
        await registered(r, slow_loading, small(limits=Limits(deadline_ms=50)))
        await r.evaluation.notify_step("p", 3, "embedded:m")
        assert state_of(await r.ended(NAME)) == (EvaluationState.CANCELLED, "DEADLINE_EXCEEDED")
        assert await kinds_of(r.worker.bridge, NAME) == [START, STOP]


@pytest.mark.parametrize("by_plan", [True, False])
async def test_what_is_being_read_is_interrupted_by_a_drain_and_gone_on_with(tmp_path, slow_loading, by_plan):
    """Another worker goes on, told of the step again or asked by StartEvaluation, which finds what it is made of."""
    _, let_go = slow_loading
    async with rig(state_dir=tmp_path) as first, rig(state_dir=tmp_path) as second:
        await registered(first, slow_loading, small())
        await recorded_spans(first, slow_loading)
        assert (await first.worker.bridge.worker.drain()).interrupted == (NAME,)
        interrupted = await second.evaluation.get_evaluation(NAME)
        assert (interrupted.state, interrupted.total) == (EvaluationState.INTERRUPTED, 0)

        let_go.set()
        if by_plan:
            (again,) = await second.evaluation.notify_step("p", 3, "embedded:m")
            assert again.existed
        else:
            same = asked(evaluation_id=NAME, run_id="run", step=3, evaluators=[nll()])
            assert (await second.evaluation.start_evaluation(same)).evaluation.total == 2
        ended = await second.ended(NAME)

        assert (ended.state, ended.attempt, ended.done, ended.total) == (EvaluationState.COMPLETED, 2, 2, 2)
        kinds = await kinds_of(second.worker.bridge, NAME)
        assert kinds[:3] == [START, INTERRUPT, RESUME]
        assert (kinds.count(START), kinds[-1]) == (1, STOP)


async def test_whoever_waits_for_what_is_being_read_gets_its_end(slow_loading):
    """Evaluate attaches to the evaluation of a step, and Watch stays until it has ended."""
    _, let_go = slow_loading
    async with rig() as r:
        await registered(r, slow_loading, small())
        await recorded_spans(r, slow_loading)
        waiter = asyncio.create_task(
            r.evaluation.evaluate(asked(evaluation_id=NAME, run_id="run", step=3, evaluators=[nll()]))
        )
        async with r.evaluation.watch_evaluation(NAME) as stream:
            let_go.set()
            kinds = [event.kind async for event in stream]
        assert (kinds[0], kinds[-1]) == (START, STOP)
        assert (await waiter).state is EvaluationState.COMPLETED


@pytest.mark.parametrize("changed", ["data set", "checkpoint"])
async def test_what_has_changed_on_going_on_fails_the_evaluation(tmp_path, changed):
    """The call cannot know: FAILED with both fingerprints in the problem, where StartEvaluation refuses."""
    data = tmp_path / "data.jsonl"
    data.write_text(LINES)
    options = {"state_dir": tmp_path / "state", "data_roots": (tmp_path,)}
    model = ScriptedModel(fingerprint="another" if changed == "checkpoint" else "scripted")
    async with rig(HeldModel(), **options) as first, rig(model, **options) as second:
        await first.evaluation.register_plan(small(accuracy(), dataset=Dataset.of("jsonl:data.jsonl")))
        await first.evaluation.notify_step("p", 3, "embedded:m")
        before = await first.told(EventKind.EVALUATOR_START, NAME)
        assert before.measurements["total"] == 2
        await first.worker.bridge.worker.drain()
        if changed == "data set":
            data.write_text(LINES.replace("B", "C"))

        await second.evaluation.notify_step("p", 3, "embedded:m")
        failed = await second.ended(NAME)

        reason = "DATASET_CHANGED" if changed == "data set" else "MODEL_CHANGED"
        assert failed.problem is not None
        assert (failed.state, failed.problem.reason) == (EvaluationState.FAILED, reason)
        fingerprint = failed.dataset_fingerprint if changed == "data set" else failed.model_fingerprint
        assert fingerprint in failed.problem.message
        assert await kinds_of(second.worker.bridge, NAME) == [
            START,
            EventKind.EVALUATOR_START,
            INTERRUPT,
            RESUME,
            EXCEPTION,
        ]


async def test_what_is_being_read_has_its_place_in_the_queue(slow_loading):
    """QUEUE_FULL counts it: a step that starts nothing new waits for no data set."""
    _, let_go = slow_loading
    async with rig(max_running_evaluations=1, max_queued_evaluations=1) as r:
        await registered(r, slow_loading, small())
        for step in (3, 6):
            await r.evaluation.notify_step("p", step, "embedded:m")
        await refused(r.evaluation.notify_step("p", 9, "embedded:m"), Code.RESOURCE_EXHAUSTED, "QUEUE_FULL")
        let_go.set()
        for step in (3, 6):
            assert (await r.ended(f"p-step-{step}-0")).state is EvaluationState.COMPLETED


async def test_a_source_that_is_silent_holds_up_no_other(tmp_path, monkeypatch):
    """However many steps wait for it: what comes with a request is evaluated meanwhile."""
    (tmp_path / "data.jsonl").write_text(LINES)
    load = preparation.load
    async with rig(data_roots=(tmp_path,)) as r:
        await r.evaluation.register_plan(small(dataset=Dataset.of("jsonl:data.jsonl")))
        with held_loading(monkeypatch) as (begun, _):
            silent = preparation.load

            def either(dataset, **sources):
                return (load if isinstance(dataset.source, InlineDataset) else silent)(dataset, **sources)

            monkeypatch.setattr(preparation, "load", either)
            for step in (3, 6, 9):
                await r.evaluation.notify_step("p", step, "embedded:m")
            await asyncio.to_thread(begun.wait)

            async with asyncio.timeout(30):
                assert (await r.evaluation.evaluate(asked())).state is EvaluationState.COMPLETED
            assert (await r.worker.bridge.worker.get_info()).queued == 3


async def test_an_ordinary_start_is_refused_in_its_call(tmp_path):
    """StartEvaluation reads first, as its caller waits for what is wrong: nothing is left behind."""
    async with rig(data_roots=(tmp_path,)) as r:
        call = r.evaluation.start_evaluation(asked(dataset="jsonl:data.jsonl"))
        await refused(call, Code.NOT_FOUND, "NO_SUCH_FILE", "dataset.jsonl_path")
        with pytest.raises(NotFound):
            await r.evaluation.get_evaluation("e")
