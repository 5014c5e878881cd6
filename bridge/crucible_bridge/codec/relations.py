"""What several fields of a message are to each other, where no bound of one field can say it."""

from __future__ import annotations

from crucible_bridge.codec.fields import child
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import bounds
from crucible_bridge.v1 import evaluation_pb2 as pb

__all__ = ["compared", "plan"]


def plan(message: pb.EvaluationPlan, field: str) -> None:
    """Refuse a plan without evaluations, or with too many evaluators together.

    Raises:
        InvalidField: it is one.
    """
    path = child(field, "evaluations")
    if not message.evaluations and not message.infrequent_evaluations:
        raise InvalidField(path, "is empty, and infrequent_evaluations too: one is needed")
    count = sum(len(planned.evaluators) for planned in (*message.evaluations, *message.infrequent_evaluations))
    most = bounds.EVALUATE_REQUEST_EVALUATORS_MAX_COUNT
    if count > most:
        raise InvalidField(path, f"has {count} evaluators with infrequent ones, at most {most} may be")


def compared(message: pb.CompareEvaluationsRequest, field: str) -> None:
    """Refuse evaluations that are named twice, or by both ids and run, or by neither.

    Raises:
        InvalidField: they are.
    """
    path, by_run = child(field, "evaluation_ids"), message.HasField("run_id")
    if by_run == bool(message.evaluation_ids):
        raise InvalidField(path, "or run_id must be given, and not both")
    if message.dataset_fingerprint and not by_run:
        raise InvalidField(child(field, "dataset_fingerprint"), "goes with run_id alone")
    seen: set[str] = set()
    for index, evaluation_id in enumerate(message.evaluation_ids):
        if evaluation_id in seen:
            raise InvalidField(f"{path}[{index}]", "comes twice")
        seen.add(evaluation_id)
