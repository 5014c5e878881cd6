"""Results of graders in the form in which they are sent: short, and with a note about replaced bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeVar

from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    CodeItem,
    ExtractedAnswer,
    ExtractedProgram,
    Grade,
    GradeItem,
    Problem,
    RubricGrades,
    RubricItem,
)
from crucible_worker.grading.base import MAX_TEXT_BYTES, exceeds, excerpt
from crucible_worker.grading.code.extract import NO_PROGRAM, program_of
from crucible_worker.grading.extract import extract

__all__ = ["extracted", "extracted_program", "finished", "judged", "noted"]

_A = TypeVar("_A", Grade, ExtractedAnswer, ExtractedProgram)


_TOO_LONG = Problem(reason=Reason.RESPONSE_TOO_LONG, message=f"the response is longer than {MAX_TEXT_BYTES:,} bytes")


def extracted(response: str) -> ExtractedAnswer:
    """The answer in a response; a problem if the response is too long."""
    if exceeds((response,)):
        return ExtractedAnswer(problem=_TOO_LONG)
    found = extract(response)
    return ExtractedAnswer(answer=found.answer, extraction=found.how, reason=found.reason)


def extracted_program(response: str, names: frozenset[str]) -> ExtractedProgram:
    """The program in a response, which must define one of the names; a problem if the response is too long."""
    if exceeds((response,)):
        return ExtractedProgram(problem=_TOO_LONG)
    program, extraction = program_of(response, names)
    if not program.strip():
        return ExtractedProgram(reason=NO_PROGRAM)
    return ExtractedProgram(program=program, extraction=extraction)


def finished(items: Sequence[GradeItem | CodeItem | RubricItem], grades: Sequence[Grade]) -> tuple[Grade, ...]:
    """Grades in the form in which they are sent, for items in the same order."""
    return tuple(noted(_shortened(grade), item.replaced) for item, grade in zip(items, grades))


def judged(items: Sequence[RubricItem], found: RubricGrades) -> RubricGrades:
    """Results of a judge in the form in which they are sent, for items in the same order."""
    grades = finished(items, [one.grade for one in found.grades])
    whole = tuple(dataclasses.replace(one, grade=grade) for one, grade in zip(found.grades, grades))
    return dataclasses.replace(found, grades=whole)


def noted(found: _A, replaced: int) -> _A:
    """A result; its reason gets the number of U+FFFD that replace bytes which were not UTF-8, if there are any."""
    if not replaced:
        return found
    note = f"sequences of bytes that were not UTF-8 became U+FFFD: {replaced}"
    return dataclasses.replace(found, reason=f"{found.reason}; {note}" if found.reason else note)


def _shortened(grade: Grade) -> Grade:
    """A grade with its answer truncated; ExtractAnswer returns the whole answer."""
    told = excerpt(grade.extracted)
    return grade if told is grade.extracted else dataclasses.replace(grade, extracted=told)
