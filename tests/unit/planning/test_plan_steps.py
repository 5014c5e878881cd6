"""What is due at a step, and which evaluations it makes."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import (
    Dataset,
    Datum,
    EmbeddedModel,
    EvaluationPlan,
    EvaluatorSpec,
    Limits,
    PlannedEvaluation,
    Sample,
    SamplingParams,
)
from crucible_worker.planning.plans import (
    StepEvaluation,
    due_parts,
    evaluations_at,
    parts_of,
    path_in_plan,
    request_of,
)
from tests.tables import rows

NLL = PlannedEvaluation(evaluators=(EvaluatorSpec(kind="nll"),), dataset=Dataset.of("builtin:arithmetic"))
NAMED = dataclasses.replace(NLL, evaluators=(EvaluatorSpec(kind="nll", name="a"), EvaluatorSpec(kind="nll", name="b")))


def plan(often=(NLL,), seldom=(NAMED,), **fields) -> EvaluationPlan:
    """A plan, of which one part is due at every second step and another at every third, but for what is given."""
    every = {"eval_every": 2, "infrequent_eval_every": 3, **fields}
    return EvaluationPlan(plan_id="p", run_id="r", evaluations=often, infrequent_evaluations=seldom, **every)


@rows(("step", "due"), [(0, (0, 1)), (1, ()), (2, (0,)), (3, (1,)), (4, (0,)), (5, ()), (6, (0, 1)), (7, ())])
def test_an_interval_divides_the_steps_of_what_is_due(step, due):
    """Step 0 is due for both, others by their intervals; at the last step everything is."""
    assert due_parts(plan(), step, last=False) == due
    assert due_parts(plan(), step, last=True) == (0, 1)


def test_an_interval_of_zero_is_the_last_step_alone():
    """Neither step 0 nor any other but the last one."""
    never = plan(eval_every=0, infrequent_eval_every=0)

    assert [due_parts(never, step, last=False) for step in range(3)] == [()] * 3
    assert due_parts(never, 2, last=True) == (0, 1)


def test_both_kinds_of_one_step_are_one_evaluation():
    """Parts that differ in their evaluators alone: one request with all of them, the frequent ones first."""
    both = evaluations_at(plan(), 6, (0, 1), {})

    assert both == (StepEvaluation("p-step-6-0", (0, 1)),)
    request = request_of(plan(), 6, EmbeddedModel("m"), both[0])
    assert request.evaluators == (*NLL.evaluators, *NAMED.evaluators)
    assert (request.evaluation_id, request.run_id, request.step) == ("p-step-6-0", "r", 6)


@rows(
    "change",
    [
        {"dataset": Dataset.of([Sample(input="x")])},
        {"sampling": SamplingParams(max_tokens=1)},
        {"limits": Limits(concurrency=1)},
        {"metric_prefix": "x/"},
        {"labels": {"a": "b"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_parts_that_differ_otherwise_are_evaluations_of_their_own(change):
    """Whatever an evaluation has once must be the same for all that it has."""
    other = plan(seldom=(dataclasses.replace(NAMED, **change),))

    found = evaluations_at(other, 6, (0, 1), {})

    assert found == (StepEvaluation("p-step-6-0", (0,)), StepEvaluation("p-step-6-1", (1,)))
    request = request_of(other, 6, EmbeddedModel("m"), found[1])
    assert {name: getattr(request, name) for name in change} == change


def test_inline_data_sets_are_compared_by_content():
    """Tensors of equal content are one data set, wherever they come from."""

    def part(name: str) -> PlannedEvaluation:
        datum = Datum(model_input=[1, 2], loss_fn_inputs={"weights": [1.0, 1.0], "target_tokens": [2, 3]})
        return dataclasses.replace(
            NLL, evaluators=(EvaluatorSpec(kind="nll", name=name),), dataset=Dataset.of([Sample(input=datum)])
        )

    assert len(evaluations_at(plan(often=(part("a"),), seldom=(part("b"),)), 6, (0, 1), {})) == 1


def test_a_step_that_turns_out_to_be_the_last_keeps_its_evaluations():
    """What a step has is not changed: the rest becomes an evaluation of its own, with an id of its own."""
    taken = {0: "p-step-2-0"}

    found = evaluations_at(plan(), 2, due_parts(plan(), 2, last=True), taken)

    assert found == (StepEvaluation("p-step-2-0", (0,)), StepEvaluation("p-step-2-1", (1,)))


def test_an_evaluation_is_told_whole():
    """One that has a part which is due is told with all of its parts."""
    found = evaluations_at(plan(), 2, due_parts(plan(), 2, last=False), dict.fromkeys((0, 1), "p-step-2-0"))

    assert found == (StepEvaluation("p-step-2-0", (0, 1)),)


parts = st.sampled_from([NLL, NAMED, dataclasses.replace(NLL, metric_prefix="x/")])
several = st.lists(parts, max_size=4).map(tuple)


@given(several, several, st.integers(0, 4), st.integers(0, 4), st.integers(0, 20), st.booleans())
def test_every_part_that_is_due_is_evaluated_once(often, seldom, every, seldom_every, step, first_last):
    """Told once or twice, with or without `last`: each part has one evaluation, and no id is given twice."""
    made = plan(often, seldom, eval_every=every, infrequent_eval_every=seldom_every)
    due = due_parts(made, step, last=first_last)
    first = evaluations_at(made, step, due, {})
    taken = {part: evaluation.evaluation_id for evaluation in first for part in evaluation.parts}
    assert sorted(taken) == list(due)
    assert evaluations_at(made, step, due, taken) == first

    everything = due_parts(made, step, last=True)
    again = evaluations_at(made, step, everything, taken)
    assert set(first) <= set(again)
    assert sorted(part for evaluation in again for part in evaluation.parts) == list(everything)
    assert list(everything) == list(range(len(parts_of(made))))
    assert len({evaluation.evaluation_id for evaluation in again}) == len(again)


@rows(
    ("field", "path"),
    [
        ('evaluators[0].options["x"]', 'evaluations[0].evaluators[0].options["x"]'),
        ("evaluators[1].kind", "infrequent_evaluations[0].evaluators[0].kind"),
        ("evaluators[2].name", "infrequent_evaluations[0].evaluators[1].name"),
        ("dataset.inline.samples[3].datum", "evaluations[0].dataset.inline.samples[3].datum"),
        ("dataset", "evaluations[0].dataset"),
        ("limits.concurrency", "evaluations[0].limits.concurrency"),
        ("sampling", "evaluations[0].sampling"),
        ("model", "model"),
        ("model.local.path", "model.local.path"),
        ("evaluation_id", "evaluation_id"),
        ("", ""),
    ],
)
def test_fields_of_a_request_are_told_by_their_place_in_the_plan(field, path):
    """What the plan has is told where it has it; what the step brings, as it is."""
    assert path_in_plan(plan(), (0, 1), field) == path
