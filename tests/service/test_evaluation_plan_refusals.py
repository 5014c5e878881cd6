"""Plans and steps that are refused, each with the path of what is wrong."""

from __future__ import annotations

import pytest

from crucible_bridge.errors import Code
from crucible_bridge.types import (
    Dataset,
    Datum,
    EvaluationPlan,
    EvaluatorSpec,
    Limits,
    OrchestratorModel,
    Sample,
)
from tests.service.evaluation_kit import accuracy, nll, refused, rig
from tests.service.plans_kit import plan, planned
from tests.tables import rows


async def test_what_is_no_plan_is_refused_before_it_is_sent():
    """A mapping with the right keys is none."""
    async with rig() as r:
        await refused(r.evaluation.register_plan({"plan_id": "p"}), Code.INVALID_ARGUMENT, "INVALID_FIELD", "plan")


@pytest.mark.parametrize(("plan_id", "step", "field"), [("", 1, "plan_id"), ("p", -1, "step"), ("p", 2**63, "step")])
async def test_a_call_of_the_wrong_form_is_refused(plan_id, step, field):
    """A plan and a step from 0 are needed."""
    async with rig() as r:
        await refused(
            r.evaluation.notify_step(plan_id, step, "embedded:m"), Code.INVALID_ARGUMENT, "INVALID_FIELD", field
        )


BAD = Datum(model_input=[1], loss_fn_inputs={"target_tokens": [1, 2], "weights": [1.0]})
WRONG_PLANS: list[tuple[EvaluationPlan, Code, str, str]] = [
    (
        plan(infrequent_evaluations=(planned(nll("a"), EvaluatorSpec(kind="nil")),)),
        Code.INVALID_ARGUMENT,
        "UNKNOWN_EVALUATOR",
        "infrequent_evaluations[0].evaluators[1].kind",
    ),
    (
        plan(evaluations=(planned(), planned(accuracy("a", grade="x")))),
        Code.INVALID_ARGUMENT,
        "UNKNOWN_OPTION",
        'evaluations[1].evaluators[0].options["grade"]',
    ),
    (
        plan(evaluations=(planned(accuracy("a", grader="x")),)),
        Code.INVALID_ARGUMENT,
        "UNKNOWN_GRADER",
        'evaluations[0].evaluators[0].options["grader"]',
    ),
    (
        plan(infrequent_evaluations=(planned(accuracy(), sampling=None),)),
        Code.INVALID_ARGUMENT,
        "INVALID_FIELD",
        "infrequent_evaluations[0].sampling",
    ),
    (
        plan(evaluations=(planned(nll(), nll()),)),
        Code.INVALID_ARGUMENT,
        "EQUAL_KEYS",
        "evaluations[0].evaluators[1].name",
    ),
    (
        plan(infrequent_evaluations=(planned(dataset=Dataset.of("builtin:arithmetic")),)),
        Code.INVALID_ARGUMENT,
        "EQUAL_KEYS",
        "infrequent_evaluations[0].evaluators[0].name",
    ),
    (
        plan(evaluations=(planned(limits=Limits(concurrency=2000)),)),
        Code.INVALID_ARGUMENT,
        "INVALID_FIELD",
        "evaluations[0].limits.concurrency",
    ),
    (
        plan(evaluations=(planned(dataset=Dataset.of([])),)),
        Code.INVALID_ARGUMENT,
        "EMPTY_DATASET",
        "evaluations[0].dataset.inline",
    ),
    (
        plan(infrequent_evaluations=(planned(accuracy(), dataset=Dataset.of("builtin:x")),)),
        Code.NOT_FOUND,
        "UNKNOWN_DATASET",
        "infrequent_evaluations[0].dataset.builtin",
    ),
    (
        plan(evaluations=(planned(dataset=Dataset.of([Sample(input=BAD)])),)),
        Code.INVALID_ARGUMENT,
        "INVALID_FIELD",
        'evaluations[0].dataset.inline.samples[0].datum.loss_fn_inputs["weights"]',
    ),
    (plan(plan_id=""), Code.INVALID_ARGUMENT, "INVALID_FIELD", "plan_id"),
    (plan(run_id=""), Code.INVALID_ARGUMENT, "INVALID_FIELD", "run_id"),
    (plan(evaluations=(), infrequent_evaluations=()), Code.INVALID_ARGUMENT, "INVALID_FIELD", "evaluations"),
]


@rows(
    ("wrong", "code", "reason", "field"), WRONG_PLANS, ids=[f"{reason}-{field}" for _, _, reason, field in WRONG_PLANS]
)
async def test_a_wrong_plan_is_refused_when_it_is_registered(wrong, code, reason, field):
    """With the field's path in the plan, and nothing is kept."""
    async with rig() as r:
        await refused(r.evaluation.register_plan(wrong), code, reason, field)
        if wrong.plan_id:
            await refused(
                r.evaluation.notify_step(wrong.plan_id, 0, "embedded:m"), Code.NOT_FOUND, "UNKNOWN_PLAN", "plan_id"
            )


@pytest.mark.parametrize(
    ("model", "code", "reason"),
    [
        ("embedded:x", Code.NOT_FOUND, "UNKNOWN_MODEL"),
        ("openai:s/m", Code.FAILED_PRECONDITION, "NO_BACKEND"),
        (OrchestratorModel("m"), Code.FAILED_PRECONDITION, "HELD_BY_ORCHESTRATOR"),
    ],
)
async def test_a_model_that_cannot_be_had_is_refused_in_the_call(model, code, reason):
    """That shows without reading anything: no evaluation is made, and the step stays free."""
    async with rig() as r:
        await r.evaluation.register_plan(plan())
        await refused(r.evaluation.notify_step("p", 3, model), code, reason, "model")
        assert (await r.evaluation.list_evaluations()).items == ()


async def test_a_judge_that_cannot_be_had_is_refused_in_the_call():
    """At its option's place in the plan."""
    judged = EvaluatorSpec(kind="comparison", options={"judge": "embedded:x"})
    async with rig() as r:
        await r.evaluation.register_plan(plan(evaluations=(planned(), planned(accuracy("a"), judged))))
        call = r.evaluation.notify_step("p", 3, "embedded:m")
        await refused(call, Code.NOT_FOUND, "UNKNOWN_MODEL", 'evaluations[1].evaluators[1].options["judge"]')
