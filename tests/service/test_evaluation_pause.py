"""Pauses, their end, and changes of concurrency, by calls at the owner of an evaluation and at another worker."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import Code
from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState, Limits, ModelInput, SampledSequence, SamplingParams
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker
from crucible_worker.util.limits import WorkerLimits
from tests.service.evaluation_kit import asked, log_of, numbered, refused, rig, samples_of
from tests.service.plans_kit import plan

SAMPLES = 12
MANY = 300
"""Samples of an evaluation that another worker pauses before they are done."""
LIMIT_SECONDS = 3.0
"""A deadline, or a time without progress."""
PAUSE_SECONDS = 4.0
"""A pause that is longer."""
CALM_SECONDS = 0.1
"""Long enough for a sample that should not begin to be seen."""
LONG = 60.0
"""A bound, not an expectation."""
PAUSES = (EventKind.EVALUATION_PAUSED, EventKind.EVALUATION_RESUMED)


@dataclasses.dataclass(kw_only=True)
class SteppedModel(ScriptedModel):
    """Answers one question for each permit, so that a test knows how many samples are under way."""

    permits: asyncio.Semaphore = dataclasses.field(default_factory=lambda: asyncio.Semaphore(0))
    waiting: int = 0
    """Samples under way."""

    @property
    def sampling(self) -> SteppedModel:
        return self

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> Sequence[SampledSequence]:
        answers = await super().sample(prompt, params, num_samples)
        self.waiting += 1
        try:
            await self.permits.acquire()
        finally:
            self.waiting -= 1
        return answers

    def permit(self, count: int) -> None:
        """Let so many questions be answered."""
        for _ in range(count):
            self.permits.release()


async def until(check, seconds=LONG):
    """Wait until a condition holds."""
    async with asyncio.timeout(seconds):
        while not check():
            await asyncio.sleep(0.002)


async def done(bridge: Bridge, count: int, evaluation_id: str = "e") -> None:
    """Wait until so many samples are recorded."""
    async with asyncio.timeout(LONG):
        while (await bridge.evaluation.get_evaluation(evaluation_id)).done < count:
            await asyncio.sleep(0.005)


def steps(**fields):
    """Evaluation `e` of twelve samples, three at a time."""
    return asked(**{"dataset": numbered(SAMPLES), "limits": Limits(concurrency=3), **fields})


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[RunningWorker, RunningWorker, SteppedModel]]:
    """Two workers of one journal, and the model of both."""
    model = SteppedModel()
    async with (
        run_worker({"m": model}, state_dir=tmp_path) as one,
        run_worker({"m": model}, state_dir=tmp_path) as other,
    ):
        yield one, other, model


async def test_samples_under_way_finish_and_no_other_begins(pair):
    """By a call at another worker: the state stays RUNNING, and ResumeEvaluation lets the rest begin."""
    one, other, model = pair
    request = steps(dataset=numbered(MANY))
    await one.bridge.evaluation.start_evaluation(request)
    await until(lambda: model.waiting == 3)

    paused = await other.bridge.evaluation.pause_evaluation("e")
    assert (paused.state, paused.paused) == (EvaluationState.RUNNING, True)
    finished = 0
    while model.waiting:  # until news of the pause has come, others begin
        model.permit(1)
        finished += 1
        await done(one.bridge, finished)
    await asyncio.sleep(CALM_SECONDS)
    assert (model.waiting, model.calls) == (0, finished)
    assert finished < MANY
    assert (await one.bridge.evaluation.get_evaluation("e")).paused

    resumed = await other.bridge.evaluation.resume_evaluation("e")
    assert not resumed.paused
    await until(lambda: model.waiting == 3)
    model.permit(MANY)
    ended = await one.bridge.evaluation.evaluate(request)
    assert (ended.state, ended.done, ended.attempt, ended.paused) == (EvaluationState.COMPLETED, MANY, 1, False)


async def test_each_change_is_told_once(pair):
    """A second pause, and a second end of it, change nothing; calls of both workers at once make one event."""
    one, other, model = pair
    await one.bridge.evaluation.start_evaluation(steps())
    await until(lambda: model.waiting == 3)
    calls = [worker.bridge.evaluation for worker in (one, other)]
    answers = await asyncio.gather(*(call.pause_evaluation("e") for call in calls * 3))
    assert all(answer.paused for answer in answers)
    answers = await asyncio.gather(*(call.resume_evaluation("e") for call in calls * 3))
    assert not any(answer.paused for answer in answers)
    answers = await asyncio.gather(*(call.set_evaluation_concurrency("e", 5) for call in calls * 3))
    assert all(answer.concurrency == 5 for answer in answers)
    model.permit(SAMPLES)
    await one.bridge.evaluation.evaluate(steps())

    log = await log_of(other.bridge, "e")
    told = [event for event in log if event.kind in (*PAUSES, EventKind.EVALUATION_CONCURRENCY)]
    assert [event.kind for event in told] == [*PAUSES, EventKind.EVALUATION_CONCURRENCY]
    assert told[0].measurements == {"total": SAMPLES, "done": 0}
    assert told[2].measurements == {"concurrency": 5, "previous_concurrency": 3}
    assert log[-1].kind is EventKind.EVALUATION_STOP


@pytest.mark.parametrize("limit", ["deadline_ms", "stall_timeout_ms"])
async def test_the_time_of_a_pause_does_not_count(limit):
    """Neither the deadline nor the stall time-out ends a paused evaluation, and its duration has no pause in it."""
    limits = Limits(concurrency=1, **{limit: round(LIMIT_SECONDS * 1000)})
    async with rig(SteppedModel()) as r:
        await r.evaluation.start_evaluation(steps(limits=limits))
        await until(lambda: r.model.waiting == 1)
        await r.evaluation.pause_evaluation("e")
        r.model.permit(1)
        await done(r.worker.bridge, 1)
        await asyncio.sleep(PAUSE_SECONDS)
        assert (await r.evaluation.get_evaluation("e")).state is EvaluationState.RUNNING
        await r.evaluation.resume_evaluation("e")
        r.model.permit(SAMPLES)
        ended = await r.ended("e")
    assert ended.state is EvaluationState.COMPLETED
    assert ended.duration_ns < PAUSE_SECONDS * 1e9


async def test_a_deadline_counts_on_after_a_pause():
    """What was left of it before the pause is left afterwards."""
    async with rig(SteppedModel()) as r:
        limits = Limits(concurrency=1, deadline_ms=round(LIMIT_SECONDS * 1000))
        await r.evaluation.start_evaluation(steps(limits=limits))
        await r.evaluation.pause_evaluation("e")
        await asyncio.sleep(PAUSE_SECONDS)
        paused = await r.evaluation.get_evaluation("e")
        await r.evaluation.resume_evaluation("e")
        ended = await r.ended("e")
    assert (paused.state.terminal, paused.paused) == (False, True)
    assert ended.problem is not None
    assert ended.problem.reason == "DEADLINE_EXCEEDED"
    assert ended.duration_ns >= LIMIT_SECONDS * 1e9


async def test_cancel_ends_a_paused_one(pair):
    """At once, and nothing follows its STOP."""
    one, other, model = pair
    await one.bridge.evaluation.start_evaluation(steps())
    await until(lambda: model.waiting == 3)
    await other.bridge.evaluation.pause_evaluation("e")
    ended = await other.bridge.evaluation.cancel_evaluation("e", "enough")
    assert (ended.state, ended.paused) == (EvaluationState.CANCELLED, False)
    log = await log_of(other.bridge, "e")
    assert [event.kind for event in log][-2:] == [EventKind.EVALUATION_PAUSED, EventKind.EVALUATION_STOP]


async def test_what_has_ended_is_refused(pair):
    """With a reason; ids that nobody knows are NOT_FOUND, and limits out of bounds name the field."""
    one, other, model = pair
    model.permit(SAMPLES)
    await one.bridge.evaluation.evaluate(steps())
    for worker in (one, other):
        calls = worker.bridge.evaluation
        for call in (
            calls.pause_evaluation,
            calls.resume_evaluation,
            lambda name, calls=calls: calls.set_evaluation_concurrency(name, 2),
        ):
            error = await refused(call("e"), Code.FAILED_PRECONDITION, "EVALUATION_ENDED", "evaluation_id")
            assert "it is completed" in error.message
            await refused(call("f"), Code.NOT_FOUND, "UNKNOWN_EVALUATION", "evaluation_id")
            await refused(call(""), Code.INVALID_ARGUMENT, "INVALID_FIELD", "evaluation_id")
        most = WorkerLimits().max_concurrency
        for wrong in (0, -1, most + 1):
            call = calls.set_evaluation_concurrency("e", wrong)
            await refused(call, Code.INVALID_ARGUMENT, "INVALID_FIELD", "concurrency")


async def test_a_queued_one_waits_and_takes_no_turn(tmp_path: Path):
    """While it is paused, one that came later gets the turn."""
    model = SteppedModel()
    limits = WorkerLimits(max_running_evaluations=1)
    async with run_worker({"m": model}, state_dir=tmp_path, limits=limits) as worker:
        calls = worker.bridge.evaluation
        await calls.start_evaluation(steps(evaluation_id="first"))
        await until(lambda: model.waiting == 3)
        await calls.start_evaluation(steps(evaluation_id="second"))
        paused = await calls.pause_evaluation("second")
        assert (paused.state, paused.paused) == (EvaluationState.QUEUED, True)
        await calls.start_evaluation(steps(evaluation_id="third"))
        model.permit(2 * SAMPLES)
        assert (await calls.evaluate(steps(evaluation_id="third"))).state is EvaluationState.COMPLETED
        assert (await calls.get_evaluation("second")).state is EvaluationState.QUEUED
        await calls.resume_evaluation("second")
        model.permit(SAMPLES)
        assert (await calls.evaluate(steps(evaluation_id="second"))).state is EvaluationState.COMPLETED


async def test_the_limit_goes_up_and_down(pair):
    """For the samples that begin from now on, by a call at either worker; results and fingerprint stay the same."""
    one, other, model = pair
    await one.bridge.evaluation.start_evaluation(steps())
    await until(lambda: model.waiting == 3)
    await other.bridge.evaluation.set_evaluation_concurrency("e", 5)
    await until(lambda: model.waiting == 5)
    await other.bridge.evaluation.set_evaluation_concurrency("e", 2)
    await one.bridge.evaluation.set_evaluation_concurrency("e", 2)  # the owner has heeded it once it answers
    for finished in (1, 2, 3):
        model.permit(1)
        await done(one.bridge, finished)
        await asyncio.sleep(CALM_SECONDS / 2)
        assert model.waiting == 5 - finished
    model.permit(1)
    await done(one.bridge, 4)
    await until(lambda: model.waiting == 2)
    model.permit(SAMPLES)
    # The same request is the same specification: it waits for the evaluation, whatever its limit is now.
    ended = await other.bridge.evaluation.evaluate(steps())
    assert (ended.state, ended.concurrency) == (EvaluationState.COMPLETED, 2)

    model.permit(SAMPLES)
    whole = await one.bridge.evaluation.evaluate(steps(evaluation_id="whole"))
    assert whole.metrics == ended.metrics
    wanted, found = [await samples_of(one.bridge, name) for name in ("whole", "e")]
    assert [one.output for one in found] == [one.output for one in wanted]


async def test_a_limit_set_while_it_is_paused_counts_afterwards(pair):
    """It ends no pause."""
    one, _, model = pair
    calls = one.bridge.evaluation
    await calls.start_evaluation(steps())
    await until(lambda: model.waiting == 3)
    await calls.pause_evaluation("e")
    await calls.set_evaluation_concurrency("e", 4)
    model.permit(3)
    await done(one.bridge, 3)
    await asyncio.sleep(CALM_SECONDS)
    assert model.waiting == 0
    await calls.resume_evaluation("e")
    await until(lambda: model.waiting == 4)
    model.permit(SAMPLES)
    assert (await calls.evaluate(steps())).state is EvaluationState.COMPLETED


async def test_a_pause_with_the_last_samples_under_way_holds_up_nothing(pair):
    """There is nothing left to begin: it completes."""
    one, _, model = pair
    request = steps(dataset=numbered(3))
    await one.bridge.evaluation.start_evaluation(request)
    await until(lambda: model.waiting == 3)
    await one.bridge.evaluation.pause_evaluation("e")
    model.permit(3)
    assert (await one.bridge.evaluation.evaluate(request)).state is EvaluationState.COMPLETED


async def test_it_stays_paused_over_a_drain(tmp_path: Path):
    """A later attempt, which a new worker runs, starts paused; its concurrency is the one that was set."""
    model = SteppedModel()
    async with run_worker({"m": model}, state_dir=tmp_path) as first:
        await first.bridge.evaluation.start_evaluation(steps())
        await until(lambda: model.waiting == 3)
        await first.bridge.evaluation.pause_evaluation("e")
        await first.bridge.evaluation.set_evaluation_concurrency("e", 2)
    async with run_worker({"m": model}, state_dir=tmp_path) as second:
        calls = second.bridge.evaluation
        assert (await calls.get_evaluation("e")).paused
        calls_before = model.calls
        again = await calls.start_evaluation(steps())
        assert (again.evaluation.attempt, again.evaluation.paused) == (2, True)
        await asyncio.sleep(CALM_SECONDS)
        assert model.calls == calls_before
        await calls.resume_evaluation("e")
        await until(lambda: model.waiting == 2)
        model.permit(SAMPLES)
        assert (await calls.evaluate(steps())).state is EvaluationState.COMPLETED


async def test_an_interrupted_one_can_be_paused(tmp_path: Path):
    """It has no owner; the next attempt waits."""
    model = SteppedModel()
    async with run_worker({"m": model}, state_dir=tmp_path) as first:
        await first.bridge.evaluation.start_evaluation(steps())
        await until(lambda: model.waiting == 3)
    async with run_worker({"m": model}, state_dir=tmp_path) as second:
        calls = second.bridge.evaluation
        paused = await calls.pause_evaluation("e")
        assert (paused.state, paused.paused) == (EvaluationState.INTERRUPTED, True)
        await calls.start_evaluation(steps())
        await calls.resume_evaluation("e")
        model.permit(SAMPLES)
        assert (await calls.evaluate(steps())).state is EvaluationState.COMPLETED
        log = await log_of(second.bridge, "e")
        spans = [event.kind.value for event in log if event.kind in (*PAUSES, EventKind.EVALUATION_RESUME)]
        assert spans == ["EVALUATION_PAUSED", "EVALUATION_RESUME", "EVALUATION_RESUMED"]


async def test_an_evaluation_of_a_plan_has_start_before_its_pause(tmp_path: Path):
    """Also where its data set has not been read yet."""
    model = SteppedModel()
    async with run_worker({"m": model}, state_dir=tmp_path) as worker:
        calls = worker.bridge.evaluation
        await calls.register_plan(plan())
        started = (await calls.notify_step("p", 4, "embedded:m"))[0].evaluation
        await calls.pause_evaluation(started.evaluation_id)
        log = await log_of(worker.bridge, started.evaluation_id)
        kinds = [event.kind for event in log if event.kind in (EventKind.EVALUATION_START, *PAUSES)]
        assert kinds == [EventKind.EVALUATION_START, EventKind.EVALUATION_PAUSED]
        await calls.resume_evaluation(started.evaluation_id)
        model.permit(1000)
        await done(worker.bridge, 1, started.evaluation_id)


async def test_the_blocking_client_has_the_calls(pair):
    """With the same names."""
    one, other, model = pair
    await one.bridge.evaluation.start_evaluation(steps())

    def change() -> list[object]:
        with crucible_bridge.connect_sync(other.address) as bridge:
            calls = bridge.evaluation
            found = [
                calls.pause_evaluation("e"),
                calls.set_evaluation_concurrency("e", 7),
                calls.resume_evaluation("e"),
            ]
            return [(each.paused, each.concurrency) for each in found]

    assert await asyncio.to_thread(change) == [(True, None), (True, 7), (False, 7)]
    model.permit(SAMPLES)
    await one.bridge.evaluation.evaluate(steps())
