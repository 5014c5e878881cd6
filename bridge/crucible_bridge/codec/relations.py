"""Checks of several fields of a message together, which no bound of one field can express."""

from __future__ import annotations

from crucible_bridge.codec.fields import child
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import bounds
from crucible_bridge.v1 import evaluation_pb2 as pb
from crucible_bridge.v1 import grading_pb2, types_pb2

__all__ = ["call_test", "compared", "criteria", "followed", "gate_policy", "input_output_tests", "openai_model", "plan"]


def plan(message: pb.EvaluationPlan, field: str) -> None:
    """Refuse a plan without evaluations, with too many evaluators together, or with a file but no metric for it.

    Raises:
        InvalidField: it is one of these.
    """
    path = child(field, "evaluations")
    if not message.evaluations and not message.infrequent_evaluations:
        raise InvalidField(path, "is empty, and infrequent_evaluations too: one is needed")
    count = sum(len(planned.evaluators) for planned in (*message.evaluations, *message.infrequent_evaluations))
    most = bounds.EVALUATE_REQUEST_EVALUATORS_MAX_COUNT
    if count > most:
        raise InvalidField(path, f"has {count} evaluators with infrequent ones, at most {most} may be")
    if message.best_file and not message.HasField("patience"):
        raise InvalidField(child(field, "best_file"), "is only allowed with patience, whose metric tells the best")


def compared(message: pb.CompareEvaluationsRequest, field: str) -> None:
    """Refuse evaluations that are named twice, or by both ids and run; one of the two is needed.

    Raises:
        InvalidField: they are.
    """
    path, by_run = child(field, "evaluation_ids"), message.HasField("run_id")
    if by_run == bool(message.evaluation_ids):
        raise InvalidField(path, "or run_id must be given, and not both")
    if message.dataset_fingerprint and not by_run:
        raise InvalidField(child(field, "dataset_fingerprint"), "is only allowed with run_id")
    seen: set[str] = set()
    for index, evaluation_id in enumerate(message.evaluation_ids):
        if evaluation_id in seen:
            raise InvalidField(f"{path}[{index}]", "comes twice")
        seen.add(evaluation_id)


def gate_policy(message: pb.GatePolicy, field: str) -> None:
    """Refuse a metric with two limits or none, and a key that comes twice.

    Raises:
        InvalidField: one of them is.
    """
    path, places = child(field, "metrics"), dict[str, int]()
    for index, metric in enumerate(message.metrics):
        place = f"{path}[{index}]"
        if metric.HasField("max_drop") and metric.HasField("max_relative_drop"):
            raise InvalidField(f"{place}.max_relative_drop", "is given alongside max_drop: give one of them")
        if not metric.HasField("max_drop") and not metric.HasField("max_relative_drop"):
            raise InvalidField(f"{place}.max_drop", "is missing, and max_relative_drop too: one of them is needed")
        if places.setdefault(metric.key, index) != index:
            raise InvalidField(f"{place}.key", f"is also the key of {path}[{places[metric.key]}]")


def followed(message: pb.FollowRunRequest, field: str) -> None:
    """Refuse a run without a plan or with two, with the plan of another run, or whose policy and interval do not fit.

    Raises:
        InvalidField: it is one of these.
    """
    path, has_plan = child(field, "plan"), message.HasField("plan")
    if has_plan == bool(message.plan_id):
        raise InvalidField(path, "or plan_id must be given, and not both")
    if has_plan and message.plan.run_id != message.run_id:
        raise InvalidField(f"{path}.run_id", f"is {message.plan.run_id!r}, must be run_id, {message.run_id!r}")
    by_count = message.policy == pb.FOLLOW_POLICY_EVERY
    if by_count and not message.every:
        raise InvalidField(child(field, "every"), "is needed with the policy EVERY, at least 1")
    if message.every and not by_count:
        raise InvalidField(child(field, "every"), "is only allowed with the policy EVERY")


def call_test(message: grading_pb2.CallTest, field: str) -> None:
    """Refuse a call without a function, or without the expected value.

    Raises:
        InvalidField: one of them is blank.
    """
    for name, text in (("function", message.function), ("expected_json", message.expected_json)):
        _not_blank(text, child(field, name))


def input_output_tests(message: grading_pb2.InputOutputTests, field: str) -> None:
    """Refuse an item without tests.

    Raises:
        InvalidField: the text is blank.
    """
    _not_blank(message.json, child(field, "json"))


def criteria(message: grading_pb2.GradeRubricRequest, field: str) -> None:
    """Refuse criteria that a judge could not distinguish.

    Raises:
        InvalidField: two have the same name.
    """
    path, seen = child(field, "criteria"), set[str]()
    for index, criterion in enumerate(message.criteria):
        if criterion.name in seen:
            raise InvalidField(f"{path}[{index}].name", f"is {criterion.name!r}, which another criterion has too")
        seen.add(criterion.name)


def openai_model(message: types_pb2.OpenAIModel, field: str) -> None:
    """Refuse a server whose name has what separates server and model in the text form.

    Raises:
        InvalidField: it has.
    """
    if "/" in message.server:
        raise InvalidField(child(field, "server"), 'holds "/"')


def _not_blank(text: str, field: str) -> None:
    if not text.strip():
        raise InvalidField(field, "is empty")
