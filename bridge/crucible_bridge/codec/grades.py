"""What graders answer <-> v1. Text in it can come from models: what UTF-8 cannot carry becomes U+FFFD."""

from __future__ import annotations

import math

from crucible_bridge.codec.fields import child, unicode_text
from crucible_bridge.codec.results import problem_from_v1, problem_to_v1, verdict_from_v1, verdict_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import ExtractedAnswer, Grade, MathGrades
from crucible_bridge.v1 import grading_pb2 as pb

__all__ = [
    "extracted_answers_from_v1",
    "extracted_answers_to_v1",
    "grade_from_v1",
    "grade_to_v1",
    "math_grades_from_v1",
    "math_grades_to_v1",
    "scores_from_v1",
    "scores_to_v1",
]


def grade_to_v1(grade: Grade) -> pb.Grade:
    """Encode the grade of an item."""
    return pb.Grade(
        id=unicode_text(grade.id),
        verdict=verdict_to_v1(grade.verdict),
        score=grade.score,
        extracted=unicode_text(grade.extracted),
        extraction=grade.extraction,
        method=grade.method,
        reason=unicode_text(grade.reason),
        duration_ns=grade.duration_ns,
        problem=problem_to_v1(grade.problem),
    )


def grade_from_v1(message: pb.Grade, field: str) -> Grade:
    """Decode the grade of an item: a verdict, a finite score where there is one."""
    score = message.score if message.HasField("score") else None
    if score is not None and not math.isfinite(score):
        raise InvalidField(child(field, "score"), f"is {score}, must be finite")
    return Grade(
        id=message.id,
        verdict=verdict_from_v1(message.verdict, child(field, "verdict")),
        score=score,
        extracted=message.extracted,
        extraction=message.extraction,
        method=message.method,
        reason=message.reason,
        duration_ns=message.duration_ns,
        problem=problem_from_v1(message.problem) if message.HasField("problem") else None,
    )


def math_grades_to_v1(grades: MathGrades) -> pb.GradeMathResponse:
    """Encode grades of math answers."""
    return pb.GradeMathResponse(grades=map(grade_to_v1, grades.grades), policy_version=grades.policy_version)


def math_grades_from_v1(message: pb.GradeMathResponse) -> MathGrades:
    """Decode grades of math answers."""
    return MathGrades(grades=_grades_from_v1(message), policy_version=message.policy_version)


def scores_to_v1(grades: tuple[Grade, ...]) -> pb.ScoreResponse:
    """Encode grades of scored answers."""
    return pb.ScoreResponse(grades=map(grade_to_v1, grades))


def scores_from_v1(message: pb.ScoreResponse) -> tuple[Grade, ...]:
    """Decode grades of scored answers."""
    return _grades_from_v1(message)


def extracted_answers_to_v1(answers: tuple[ExtractedAnswer, ...]) -> pb.ExtractAnswerResponse:
    """Encode the answers inside responses."""
    return pb.ExtractAnswerResponse(
        answers=[
            pb.ExtractedAnswer(
                answer=unicode_text(answer.answer),
                extraction=answer.extraction,
                reason=unicode_text(answer.reason),
                problem=problem_to_v1(answer.problem),
            )
            for answer in answers
        ]
    )


def extracted_answers_from_v1(message: pb.ExtractAnswerResponse) -> tuple[ExtractedAnswer, ...]:
    """Decode the answers inside responses."""
    return tuple(
        ExtractedAnswer(
            answer=answer.answer,
            extraction=answer.extraction,
            reason=answer.reason,
            problem=problem_from_v1(answer.problem) if answer.HasField("problem") else None,
        )
        for answer in message.answers
    )


def _grades_from_v1(message: pb.GradeMathResponse | pb.ScoreResponse) -> tuple[Grade, ...]:
    return tuple(grade_from_v1(grade, f"grades[{index}]") for index, grade in enumerate(message.grades))
