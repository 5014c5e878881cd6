"""Plans on the wire and in a journal: refused with the path of the field, kept as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crucible_bridge import codec
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Dataset, EvaluationPlan, EvaluatorSpec, Limits, PlannedEvaluation, Sample
from crucible_bridge.v1 import evaluation_pb2
from tests.tables import rows
from tests.unit.bridge import strategies as some

LAST_STEP = 2**63 - 1


def a_plan() -> evaluation_pb2.EvaluationPlan:
    """A plan that is right."""
    nll = PlannedEvaluation(evaluators=(EvaluatorSpec(kind="nll"),), dataset=Dataset.of([Sample(input="x")]))
    rest = PlannedEvaluation(
        evaluators=(EvaluatorSpec(kind="nll", name="a"), EvaluatorSpec(kind="nll", name="b")),
        dataset=Dataset.of("builtin:arithmetic"),
        limits=Limits(concurrency=2),
        labels={"k": "v"},
    )
    return codec.evaluation_plan_to_v1(
        EvaluationPlan(
            plan_id="p",
            run_id="r",
            eval_every=1,
            evaluations=(nll,),
            infrequent_eval_every=2,
            infrequent_evaluations=(rest,),
        )
    )


def _many_evaluators(plan: Any) -> None:
    plan.infrequent_evaluations[0].evaluators.extend([plan.evaluations[0].evaluators[0]] * (codec.MAX_EVALUATORS - 2))


CASES: list[tuple[str, Callable[[Any], Any]]] = [
    ("plan_id", lambda m: m.ClearField("plan_id")),
    ("plan_id", lambda m: setattr(m, "plan_id", "x" * (codec.MAX_PLAN_ID_BYTES + 1))),
    ("run_id", lambda m: m.ClearField("run_id")),
    ("run_id", lambda m: setattr(m, "run_id", "x" * (codec.MAX_ID_BYTES + 1))),
    ("correlation_id", lambda m: setattr(m, "correlation_id", "x" * (codec.MAX_ID_BYTES + 1))),
    ("eval_every", lambda m: setattr(m, "eval_every", -1)),
    ("infrequent_eval_every", lambda m: setattr(m, "infrequent_eval_every", -1)),
    ("evaluations", lambda m: (m.ClearField("evaluations"), m.ClearField("infrequent_evaluations"))),
    ("evaluations", _many_evaluators),
    ("evaluations[0].dataset", lambda m: m.evaluations[0].ClearField("dataset")),
    ("evaluations[0].evaluators", lambda m: m.evaluations[0].ClearField("evaluators")),
    ("infrequent_evaluations[0].evaluators[1].kind", lambda m: m.infrequent_evaluations[0].evaluators[1].Clear()),
    (
        "infrequent_evaluations[0].limits.concurrency",
        lambda m: setattr(m.infrequent_evaluations[0].limits, "concurrency", 0),
    ),
    ("evaluations[0].sampling.max_tokens", lambda m: m.evaluations[0].sampling.SetInParent()),
    ("evaluations[0].metric_prefix", lambda m: setattr(m.evaluations[0], "metric_prefix", "x" * 201)),
    (
        'infrequent_evaluations[0].labels["k"]',
        lambda m: m.infrequent_evaluations[0].labels.update({"k": "v" * (codec.MAX_LABEL_BYTES + 1)}),
    ),
]


@rows(("path", "change"), CASES, ids=[f"{index}-{path}" for index, (path, _) in enumerate(CASES)])
def test_what_is_wrong_is_refused_with_its_path(path: str, change: Callable[[Any], Any]):
    """The path begins at the plan."""
    message = a_plan()
    codec.evaluation_plan_from_v1(message)
    change(message)

    with pytest.raises(InvalidField) as caught:
        codec.evaluation_plan_from_v1(message)

    assert caught.value.field == path


def test_as_many_evaluators_as_are_accepted():
    """The bound itself is accepted, over both kinds together."""
    message = a_plan()
    _many_evaluators(message)
    del message.infrequent_evaluations[0].evaluators[-1]

    assert len(codec.evaluation_plan_from_v1(message).infrequent_evaluations[0].evaluators) == codec.MAX_EVALUATORS - 1


def test_the_longest_plan_id_leaves_room_for_step_and_place():
    """Every evaluation_id of a plan is within the bound of an evaluation_id."""
    longest = f"{'x' * codec.MAX_PLAN_ID_BYTES}-step-{LAST_STEP}-{codec.MAX_EVALUATORS - 1}"

    assert len(longest) <= codec.MAX_ID_BYTES


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(values=st.data())
def test_a_record_is_the_plan_it_was_made_of(values: st.DataObject):
    """What a journal keeps of a plan gives it back, tensors bit by bit."""
    plan = values.draw(some.plans)

    assert some.plain(codec.plan_from_record(codec.plan_to_record(plan))) == some.plain(plan)


def test_options_that_are_no_json_are_refused_with_their_path():
    """What cannot be sent is refused before it is."""
    plan = codec.evaluation_plan_from_v1(a_plan())
    spec = EvaluatorSpec(kind="nll", options={"x": object()})
    wrong = PlannedEvaluation(evaluators=(spec,), dataset=Dataset.of([]))
    with pytest.raises(InvalidField) as caught:
        codec.evaluation_plan_to_v1(
            EvaluationPlan(plan_id="p", run_id="r", evaluations=(*plan.evaluations, wrong)), "plan"
        )

    assert caught.value.field.startswith("plan.evaluations[1].evaluators[0].options")
