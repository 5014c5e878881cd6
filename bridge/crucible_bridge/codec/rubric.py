"""Requests to a judge and its judgements <-> v1."""

from __future__ import annotations

from crucible_bridge.codec import generated
from crucible_bridge.codec.generated import (
    grade_rubric_request_from_v1,
    grade_rubric_request_to_v1,
    rubric_grades_from_v1,
)
from crucible_bridge.types import RubricGrades
from crucible_bridge.v1 import grading_pb2 as pb

__all__ = [
    "grade_rubric_request_from_v1",
    "grade_rubric_request_to_v1",
    "rubric_grades_from_v1",
    "rubric_grades_to_v1",
]


def rubric_grades_to_v1(grades: RubricGrades, max_bytes: int) -> pb.GradeRubricResponse:
    """Encode a judgement; without its reasons if they would make it larger than so many bytes."""
    message = generated.rubric_grades_to_v1(grades)
    if message.ByteSize() > max_bytes:
        for grade in message.grades:
            for found in grade.criteria:
                found.ClearField("reason")
    return message
