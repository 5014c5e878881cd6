"""Grades <-> v1. Text in them can come from models: what UTF-8 cannot encode becomes U+FFFD."""

from __future__ import annotations

from crucible_bridge.codec.fields import each_decoded
from crucible_bridge.codec.generated import (
    extracted_answer_from_v1,
    extracted_answer_to_v1,
    extracted_program_from_v1,
    extracted_program_to_v1,
    grade_from_v1,
    grade_to_v1,
    math_grades_from_v1,
    math_grades_to_v1,
)
from crucible_bridge.types import ExtractedAnswer, ExtractedProgram, Grade
from crucible_bridge.v1 import grading_pb2 as pb

__all__ = [
    "extracted_answers_from_v1",
    "extracted_answers_to_v1",
    "extracted_programs_from_v1",
    "extracted_programs_to_v1",
    "grade_from_v1",
    "grade_to_v1",
    "math_grades_from_v1",
    "math_grades_to_v1",
    "scores_from_v1",
    "scores_to_v1",
]


def scores_to_v1(grades: tuple[Grade, ...]) -> pb.ScoreResponse:
    """Encode grades of scored answers."""
    return pb.ScoreResponse(grades=map(grade_to_v1, grades))


def scores_from_v1(message: pb.ScoreResponse) -> tuple[Grade, ...]:
    """Decode grades of scored answers."""
    return each_decoded(grade_from_v1, message.grades, "grades")


def extracted_answers_to_v1(answers: tuple[ExtractedAnswer, ...]) -> pb.ExtractAnswerResponse:
    """Encode the answers inside responses."""
    return pb.ExtractAnswerResponse(answers=map(extracted_answer_to_v1, answers))


def extracted_answers_from_v1(message: pb.ExtractAnswerResponse) -> tuple[ExtractedAnswer, ...]:
    """Decode the answers inside responses."""
    return each_decoded(extracted_answer_from_v1, message.answers, "answers")


def extracted_programs_to_v1(programs: tuple[ExtractedProgram, ...]) -> pb.ExtractCodeResponse:
    """Encode the programs inside responses."""
    return pb.ExtractCodeResponse(programs=map(extracted_program_to_v1, programs))


def extracted_programs_from_v1(message: pb.ExtractCodeResponse) -> tuple[ExtractedProgram, ...]:
    """Decode the programs inside responses."""
    return each_decoded(extracted_program_from_v1, message.programs, "programs")
