"""A training run on a Tinker service that tells of its steps: which clients that takes, and how many."""

from __future__ import annotations

import asyncio
from collections import Counter

from crucible_bridge.client import Bridge
from crucible_bridge.types import (
    Dataset,
    Evaluation,
    EvaluationPlan,
    EvaluationState,
    EvaluatorSpec,
    PlannedEvaluation,
    SamplingParams,
    TinkerModel,
)
from tests.service.evaluation_kit import SHOUT, accuracy, nll
from tests.service.tinker_kit import ScriptedLibrary, worker_on

PARTS = {"a/": accuracy(), "b/": nll(client="training"), "c/": accuracy(), "d/": nll(client="training")}
"""By metric prefix, so that each is an evaluation of its own."""


def plan(parts: dict[str, EvaluatorSpec]) -> EvaluationPlan:
    """A plan whose parts are due at every step."""
    planned = [
        PlannedEvaluation(
            evaluators=(spec,),
            dataset=Dataset.of(SHOUT),
            sampling=SamplingParams(max_tokens=8),
            metric_prefix=prefix,
        )
        for prefix, spec in parts.items()
    ]
    return EvaluationPlan(
        plan_id="p",
        run_id="run",
        eval_every=1,
        evaluations=tuple(planned),
        infrequent_eval_every=0,
        infrequent_evaluations=(),
    )


def saved(step: int) -> TinkerModel:
    """What a training run saves at a step: weights that sample, and its state."""
    return TinkerModel(model_path=f"tinker://run/sampler_weights/{step}", state_path=f"tinker://run/weights/{step}")


async def told(bridge: Bridge, step: int, model: TinkerModel) -> list[Evaluation]:
    """Tell of a step, and wait for what it started."""

    async def ended(evaluation_id: str) -> Evaluation:
        async with bridge.evaluation.watch_evaluation(evaluation_id, without_samples=True) as stream:
            async for _ in stream:
                pass
        return await bridge.evaluation.get_evaluation(evaluation_id)

    started = await bridge.evaluation.notify_step("p", step, model)
    return await asyncio.gather(*(ended(one.evaluation.evaluation_id) for one in started))


def opened(library: ScriptedLibrary) -> dict[str, int]:
    """How many clients of each kind were made."""
    counts = Counter(call.kind for call in library.calls)
    return {kind: counts[kind] for kind in ("session", "sampler", "trainer")}


async def test_a_step_makes_each_client_once(tmp_path):
    """Four evaluations of a step at a time share one client of each side; the next step has its own."""
    library = ScriptedLibrary()
    async with worker_on(library, tmp_path) as bridge:
        await bridge.evaluation.register_plan(plan(PARTS))
        for step in (1, 2):
            evaluations = await told(bridge, step, saved(step))
            assert [one.state for one in evaluations] == [EvaluationState.COMPLETED] * len(PARTS)
            assert opened(library) == {"session": 1, "sampler": step, "trainer": step}
    assert {call.asked["path"] for call in library.of("trainer")} == {f"tinker://run/weights/{step}" for step in (1, 2)}
    # Each side was asked by the evaluators that need it.
    assert len(library.of("forward")) == len(library.of("sample")) == 2 * 2 * len(SHOUT)


async def test_a_client_that_nobody_needs_is_not_made(tmp_path):
    """A training state occupies its service: evaluators that sample leave it where it is."""
    library = ScriptedLibrary()
    async with worker_on(library, tmp_path) as bridge:
        await bridge.evaluation.register_plan(plan({"": accuracy(), "x/": accuracy()}))
        evaluations = await told(bridge, 1, saved(1))
    assert [one.state for one in evaluations] == [EvaluationState.COMPLETED] * 2
    assert opened(library) == {"session": 1, "sampler": 1, "trainer": 0}


async def test_one_evaluation_has_both_sides(tmp_path):
    """Evaluators of one request take the side that they need, of the model that was named with both."""
    library = ScriptedLibrary()
    async with worker_on(library, tmp_path) as bridge:
        evaluation = await bridge.evaluation.evaluate(
            model="tinker://run/sampler_weights/7?state=tinker://run/weights/7",
            evaluators=[accuracy(), nll()],
            dataset=SHOUT,
            sampling=SamplingParams(max_tokens=8),
        )
    assert evaluation.metrics.values["accuracy"] == 1
    assert evaluation.results[1].n_scored == len(SHOUT)
    assert opened(library) == {"session": 1, "sampler": 1, "trainer": 1}
    assert (len(library.of("forward")), len(library.of("compute_logprobs"))) == (len(SHOUT), 0)
