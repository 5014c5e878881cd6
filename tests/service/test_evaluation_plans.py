"""Plans: what is registered, what a step starts, and what telling it again does not."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter

import pytest

import crucible_bridge
from crucible_bridge.errors import AlreadyExists, Code, ResourceExhausted
from crucible_bridge.types import (
    Dataset,
    EmbeddedModel,
    EvaluationPlan,
    EvaluationState,
    Limits,
)
from crucible_worker.datasets import identity
from crucible_worker.engine.admission import QUEUE_RETRY_SECONDS
from crucible_worker.planning.plans import MAX_PLANS_AT_HAND, TOUCH_SECONDS
from crucible_worker.testing import ScriptedModel, run_worker
from tests.service.evaluation_kit import HeldModel, accuracy, asked, log_of, nll, numbered, refused, rig
from tests.service.plans_kit import plan, planned
from tests.unit.journal.journals import open_journal

pytestmark = pytest.mark.core

STEPS = 10


def apart() -> EvaluationPlan:
    """A plan whose two parts are evaluations of their own, due at every step."""
    other = planned(nll("other"), metric_prefix="x/")
    return plan(eval_every=1, evaluations=(planned(), other), infrequent_evaluations=())


class SlowToLoad(HeldModel):
    """A model that is loaded once it is let go."""

    async def load(self) -> None:
        """Wait."""
        await self.let_go.wait()
        await super().load()


async def test_ten_steps_get_what_is_due():
    """Each step starts what its intervals say, in one evaluation, on the step's model; the last one everything."""
    async with rig() as r:
        await r.evaluation.register_plan(plan(correlation_id="c"))
        found = {}
        for step in range(STEPS):
            started = await r.evaluation.notify_step("p", step, "embedded:m", last=step == STEPS - 1)
            found[step] = [
                (one.evaluation.evaluation_id, [spec.kind for spec in one.evaluation.request.evaluators], one.existed)
                for one in started
            ]
            for one in started:
                ended = await r.ended(one.evaluation.evaluation_id)
                assert ended.state is EvaluationState.COMPLETED
                assert (ended.request.run_id, ended.request.step) == ("run", step)
                assert ended.request.correlation_id == "c"

        assert found == {
            0: [("p-step-0-0", ["nll", "accuracy"], False)],
            3: [("p-step-3-0", ["nll"], False)],
            4: [("p-step-4-1", ["accuracy"], False)],
            6: [("p-step-6-0", ["nll"], False)],
            8: [("p-step-8-1", ["accuracy"], False)],
            9: [("p-step-9-0", ["nll", "accuracy"], False)],
            **{step: [] for step in (1, 2, 5, 7)},
        }
        listed = await r.evaluation.list_evaluations(run_id="run")
        assert len(listed.items) == 6
        assert set(listed.items[0].metrics.values) >= {"nll", "accuracy"}
        # The model was opened and asked by both sides: nll of its training client, accuracy of its sampling one.
        assert (r.model.counts["forward"], r.model.counts["sample"]) == (8, 8)


async def test_sampling_evaluators_alone_need_no_training_client():
    """Every evaluator takes the client that it needs: nll samples' log-probabilities where nothing is trained."""
    async with rig(ScriptedModel(trained=False)) as r:
        await r.evaluation.register_plan(plan())
        (started,) = await r.evaluation.notify_step("p", 0, "embedded:m")

        assert (await r.ended(started.evaluation.evaluation_id)).state is EvaluationState.COMPLETED
        assert (r.model.counts["forward"], r.model.counts["compute_logprobs"], r.model.counts["sample"]) == (0, 2, 2)


async def test_a_step_that_is_told_again_starts_nothing():
    """The same evaluations are answered, and neither a model call nor an event comes of it."""
    async with rig() as r:
        await r.evaluation.register_plan(apart())
        first = await r.evaluation.notify_step("p", 1, "embedded:m")
        ended = [await r.ended(one.evaluation.evaluation_id) for one in first]
        calls, log = r.model.calls, await log_of(r.worker.bridge)

        again = await r.evaluation.notify_step("p", 1, "embedded:m")

        assert [one.existed for one in first] == [False, False]
        assert [one.existed for one in again] == [True, True]
        assert [one.evaluation for one in again] == ended
        assert (r.model.calls, await log_of(r.worker.bridge)) == (calls, log)


async def test_a_step_that_turns_out_to_be_the_last_gets_the_rest():
    """`last` may come with a second call: what was there stays as it is, what was not due is started."""
    async with rig() as r:
        await r.evaluation.register_plan(plan())
        (first,) = await r.evaluation.notify_step("p", 3, "embedded:m")
        last = await r.evaluation.notify_step("p", 3, "embedded:m", last=True)
        again = await r.evaluation.notify_step("p", 3, "embedded:m", last=True)

        ids = [one.evaluation.evaluation_id for one in last]
        assert ids == [first.evaluation.evaluation_id, "p-step-3-1"]
        assert [one.existed for one in last] == [True, False]
        assert [(one.evaluation.evaluation_id, one.existed) for one in again] == [(name, True) for name in ids]


async def test_a_step_has_one_model():
    """Another model for the same step is ALREADY_EXISTS with both fingerprints; for another step it is welcome."""
    async with run_worker({"m": ScriptedModel(), "n": ScriptedModel()}) as worker:
        calls = worker.bridge.evaluation
        await calls.register_plan(apart())
        await calls.notify_step("p", 1, "embedded:m")

        error = await refused(calls.notify_step("p", 1, "embedded:n"), Code.ALREADY_EXISTS, "OTHER_MODEL", "model")
        prints = {error.metadata["fingerprint"], error.metadata["requested_fingerprint"]}
        assert len(prints) == 2
        assert all(found in str(error) for found in prints)
        assert len((await calls.list_evaluations()).items) == 2
        assert len(await calls.notify_step("p", 2, "embedded:n")) == 2


async def test_a_model_that_is_not_there_leaves_the_step_free():
    """A step of which nothing could be started is not bound to the model that was told."""
    async with rig() as r:
        await r.evaluation.register_plan(plan())
        await refused(r.evaluation.notify_step("p", 0, "embedded:x"), Code.NOT_FOUND, "UNKNOWN_MODEL", "model")

        (started,) = await r.evaluation.notify_step("p", 0, "embedded:m")

        assert not started.existed


async def test_two_models_told_at_once_do_not_share_a_step():
    """One of the calls starts everything, the other one nothing."""
    async with run_worker({"m": ScriptedModel(), "n": ScriptedModel()}) as worker:
        calls = worker.bridge.evaluation
        await calls.register_plan(apart())
        for step in range(5):
            answers = await asyncio.gather(
                *(calls.notify_step("p", step, f"embedded:{name}") for name in ("m", "n")), return_exceptions=True
            )
            assert sorted(isinstance(answer, AlreadyExists) for answer in answers) == [False, True], answers
            page = await calls.list_evaluations(from_step=step, to_step=step)
            assert len(page.items) == 2
            assert len({evaluation.request.model for evaluation in page.items}) == 1


async def test_training_is_not_held_up():
    """The answer comes before the model is loaded, and before an earlier step's evaluations have ended."""
    async with rig(SlowToLoad(), max_running_evaluations=1) as r:
        await r.evaluation.register_plan(apart())
        for step in range(3):
            started = await r.evaluation.notify_step("p", step, "embedded:m")
            assert [one.evaluation.state for one in started] == [EvaluationState.QUEUED] * 2
        assert r.model.loads == 0

        r.model.let_go.set()
        for step in range(3):
            for part in range(2):
                assert (await r.ended(f"p-step-{step}-{part}")).state is EvaluationState.COMPLETED


async def test_a_full_queue_names_what_was_not_started():
    """RESOURCE_EXHAUSTED with the ids; the rest runs, and the same call later starts what is missing."""
    async with rig(HeldModel(), max_running_evaluations=1, max_queued_evaluations=1) as r:
        # The fourth is part of the first one's evaluation.
        parts = tuple(planned(accuracy(str(index)), metric_prefix="abca"[index]) for index in range(4))
        await r.evaluation.register_plan(plan(eval_every=1, evaluations=parts, infrequent_evaluations=()))
        error = await refused(r.evaluation.notify_step("p", 7, "embedded:m"), Code.RESOURCE_EXHAUSTED, "QUEUE_FULL")
        assert isinstance(error, ResourceExhausted)
        least, most = QUEUE_RETRY_SECONDS
        assert least <= (error.retry_after or 0.0) <= most
        assert error.metadata["not_started"] == "p-step-7-2"
        assert "p-step-7-2" in str(error)
        assert "1 of this step's 3 evaluations" in str(error)
        for part in (0, 1):
            assert (await r.evaluation.get_evaluation(f"p-step-7-{part}")).state is not EvaluationState.FAILED

        r.model.let_go.set()
        await r.ended("p-step-7-0")
        await r.ended("p-step-7-1")
        again = await r.evaluation.notify_step("p", 7, "embedded:m")
        assert [one.existed for one in again] == [True, True, False]


async def test_names_of_what_was_not_started_fit_into_an_error():
    """Long ids are named as far as there is room, and the rest is counted."""
    async with rig(HeldModel(), max_running_evaluations=1, max_queued_evaluations=1) as r:
        parts = tuple(planned(accuracy(f"n{index}"), labels={"index": str(index)}) for index in range(12))
        long = plan(plan_id="p" * 160, eval_every=1, evaluations=parts, infrequent_evaluations=())
        await r.evaluation.register_plan(long)

        call = r.evaluation.notify_step(long.plan_id, 1, "embedded:m")
        error = await refused(call, Code.RESOURCE_EXHAUSTED, "QUEUE_FULL")

        assert error.metadata["not_started"].split(",") == [f"{long.plan_id}-step-1-{index}" for index in (2, 3)]
        assert str(error).endswith("and 8 more")


async def test_the_same_plan_again_changes_nothing():
    """Registering is idempotent; another plan under the id is ALREADY_EXISTS with both fingerprints."""
    async with rig() as r:
        first = await r.evaluation.register_plan(plan())
        assert await r.evaluation.register_plan(plan()) == dataclasses.replace(first, existed=True)
        assert not first.existed

        for other in (plan(eval_every=2), plan(evaluations=(planned(limits=Limits(concurrency=1)),))):
            error = await refused(r.evaluation.register_plan(other), Code.ALREADY_EXISTS, "OTHER_PLAN", "plan_id")
            assert error.metadata["fingerprint"] == first.fingerprint
            assert error.metadata["requested_fingerprint"] not in ("", first.fingerprint)
        assert (await r.evaluation.register_plan(plan(plan_id="q"))).existed is False


async def test_a_plan_that_is_told_of_steps_is_in_use():
    """A step of which nothing is due keeps its plan too; that is written down now and then, not at each step."""
    async with rig() as r:
        await r.evaluation.register_plan(plan())
        async with open_journal(r.worker.state_dir) as journal:
            earlier = "UPDATE plans SET used_ns = used_ns - ?", (int((TOUCH_SECONDS + 1) * 1e9),)

            async def used() -> int:
                return await journal.read(lambda reads: reads.execute("SELECT used_ns FROM plans").fetchone()[0])

            registered = await used()
            assert await r.evaluation.notify_step("p", 1, "embedded:m") == ()
            assert await used() == registered
            await journal.submit(lambda transaction: transaction.execute(*earlier))
            await r.evaluation.notify_step("p", 1, "embedded:m")
            assert await used() > registered


async def test_more_plans_than_are_at_hand_are_all_told_of_steps():
    """A plan that others have pushed out of memory is read again, and starts what it asks for."""
    names = [f"plan-{number}" for number in range(MAX_PLANS_AT_HAND + 2)]
    async with rig() as r:
        for name in names:
            await r.evaluation.register_plan(plan(plan_id=name, evaluations=(planned(nll(name)),)))
        for step in (3, 6):
            started = await asyncio.gather(*(r.evaluation.notify_step(name, step, "embedded:m") for name in names))
            assert [[one.evaluation.request.evaluators[0].name for one in each] for each in started] == [
                [name] for name in names
            ]


async def test_samples_of_a_plan_are_read_through_once(monkeypatch):
    """Registering computes what identifies and orders them; steps are answered without, of either part, at any time."""
    counts = Counter()

    def counted(what, name):
        function = getattr(identity, name)

        def count(sample):
            counts[what] += 1
            return function(sample)

        monkeypatch.setattr(identity, name, count)

    counted("request", "_canonical_sample")
    counted("data set", "_listed")
    samples = Dataset.of(numbered(50))
    async with rig() as r:
        shuffled = dataclasses.replace(samples, shuffle_seed=7, limit=20)
        parts = (planned(dataset=samples), planned(nll("s"), dataset=shuffled))
        await r.evaluation.register_plan(plan(eval_every=1, evaluations=parts, infrequent_evaluations=()))
        registered = dict(counts)
        for step in range(3):
            for one in await r.evaluation.notify_step("p", step, "embedded:m"):
                assert (await r.ended(one.evaluation.evaluation_id)).state is EvaluationState.COMPLETED
        assert counts == registered == {"request": 100, "data set": 70}


async def test_an_unknown_plan_is_not_found():
    """NOT_FOUND with the reason, and nothing was started."""
    async with rig() as r:
        await refused(r.evaluation.notify_step("p", 1, "embedded:m"), Code.NOT_FOUND, "UNKNOWN_PLAN", "plan_id")
        assert (await r.evaluation.list_evaluations()).items == ()


async def test_an_id_that_somebody_else_has_taken_is_refused():
    """An evaluation of another specification under the id of a step's: ALREADY_EXISTS, as with StartEvaluation."""
    async with rig() as r:
        await r.evaluation.register_plan(plan())
        await r.evaluation.start_evaluation(asked(evaluation_id="p-step-3-0"))

        call = r.evaluation.notify_step("p", 3, "embedded:m")
        await refused(call, Code.ALREADY_EXISTS, "OTHER_SPECIFICATION", "evaluation_id")


async def test_the_blocking_client_has_plans_too():
    """The same calls, from a thread without an event loop; a model may be given as it is."""
    async with rig() as r:

        def train() -> list[bool]:
            with crucible_bridge.connect_sync(r.worker.address) as bridge:
                bridge.evaluation.register_plan(plan())
                told = [bridge.evaluation.notify_step("p", step, EmbeddedModel("m")) for step in (3, 3)]
                return [one.existed for started in told for one in started]

        assert await asyncio.to_thread(train) == [False, True]
