"""What evaluators with an option `grader` share: the option, who judges an answer, and what becomes of a grade."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crucible_bridge.errors import InternalError, InvalidField
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Datum, ModelRef, Problem, Sample, SampleResult, Verdict
from crucible_worker.backends.base import Model
from crucible_worker.evaluators.answering import Answer, check_sampling_client
from crucible_worker.evaluators.base import SampleContext
from crucible_worker.grading import registry as graders
from crucible_worker.grading.base import AsksJudge, Grade, Grader
from crucible_worker.grading.parts import GradingParts

__all__ = [
    "GRADER_DEFS",
    "GRADER_OPTIONS",
    "JUDGE",
    "NO_ANSWER",
    "NO_ANSWER_CUT",
    "check_judge",
    "check_question",
    "grade_answer",
    "grader_for",
    "grader_of",
    "judges_of",
    "needs_judge",
    "problem_of_grade",
    "scores_by_sample",
]

JUDGE = "grader_options.judge"
"""The option that names a grader's judge."""

NO_ANSWER = "no answer: nothing but thought"
"""How a verdict came about where thought is all there is."""
NO_ANSWER_CUT = "no answer: cut at max_tokens while thinking"
"""The same, where there might have been an answer later on."""

GRADER_OPTIONS: Mapping[str, Any] = {
    "grader": {
        "type": "string",
        "examples": list(graders.GRADERS),
        "default": "exact_match",
        "description": " ".join(f"{name}: {grader.description}" for name, grader in graders.GRADERS.items())
        + " Others may be installed with the worker.",
    },
    "grader_options": {
        "type": "object",
        "default": {},
        "description": "Options of the grader; their schema stands under its name in $defs.",
    },
}
"""The options that name a grader."""

GRADER_DEFS: Mapping[str, Any] = {name: dict(grader.options_schema) for name, grader in graders.GRADERS.items()}
"""The options of each grader, for a schema's `$defs`."""


def grader_of(options: Mapping[str, Any], grading: GradingParts) -> Grader:
    """The grader that options name.

    Raises:
        InvalidField: there is no such grader, or an option of it is unknown or wrong.
        FailedPrecondition: it needs a library that is not installed or a part that this worker lacks; or it is a user's
            and cannot be used.
    """
    return graders.create(
        options["grader"],
        options["grader_options"],
        grading,
        name_field='options["grader"]',
        options_field='options["grader_options"]',
    )


def judges_of(grader: Grader) -> Mapping[str, ModelRef]:
    """The further models of an evaluator with this grader, see `AsksOthers.others`."""
    return {JUDGE: grader.judge} if isinstance(grader, AsksJudge) else {}


def needs_judge(grader: Grader) -> bool:
    """Whether an evaluator with this grader `AsksOthers.needs_others`."""
    return isinstance(grader, AsksJudge) and grader.needs_judge


def check_judge(others: Mapping[str, Model], kind: str) -> None:
    """Refuse a judge that cannot generate, see `AsksOthers.check_others`.

    Raises:
        FailedPrecondition: it lacks a sampling client (reason MISSING_CLIENT).
    """
    if JUDGE in others:
        check_sampling_client(others[JUDGE], kind, "the judge")


def check_question(grader: Grader, sample: Sample) -> None:
    """Refuse a sample that a grader's judge cannot read.

    Raises:
        InvalidField: it is tokens.
    """
    # The protocol last: to look for its members takes 10 us, of each sample.
    if isinstance(sample.input, Datum) and isinstance(grader, AsksJudge):
        raise InvalidField("datum", "is tokens, and a judge reads text")


def grader_for(grader: Grader, sample: Sample, context: SampleContext) -> Grader:
    """The grader of answers to a sample: one that asks a judge is bound to it.

    Raises:
        InvalidField: as of `check_question`.
    """
    judge = context.others.get(JUDGE)
    if judge is None or not isinstance(grader, AsksJudge):
        return grader
    check_question(grader, sample)
    assert not isinstance(sample.input, Datum)
    return grader.bound(judge, sample.input)


async def grade_answer(grader: Grader, answer: Answer, sample: Sample, context: SampleContext) -> Grade:
    """Grade what a model answered; an answer that is nothing but thought is wrong, and no judge is asked about it.

    Raises:
        InvalidField: as of `check_question`.
        InternalError: the grader gave a score that is none (reason BAD_SCORE).
        BridgeError: its judge could not be asked.
    """
    grade = await grader_for(grader, sample, context).grade(answer.text, sample.targets, sample.choices)
    if grade.verdict.scored and not (grade.score is not None and 0 <= grade.score <= 1):
        raise InternalError(f"the grader said {grade.verdict} with score {grade.score}", reason=Reason.BAD_SCORE)
    if not answer.only_thought or not grade.verdict.scored:
        return grade
    method = NO_ANSWER_CUT if answer.sequence.stop_reason == "length" else NO_ANSWER
    return Grade(verdict=Verdict.INCORRECT, score=0.0, method=method)


def scores_by_sample(results: Iterable[SampleResult]) -> Sequence[Sequence[float | None]]:
    """The scores of results that come in the data set's order, by sample; None where unscored."""
    by_sample = itertools.groupby(results, key=operator.attrgetter("sample_id"))
    return [[result.score if result.verdict.scored else None for result in repeats] for _, repeats in by_sample]


def problem_of_grade(grade: Grade) -> Problem | None:
    """Why a sample with this grade is unscored, if it is."""
    if grade.verdict.scored:
        return None
    if grade.problem is not None:
        return grade.problem
    reason = Reason.GRADER_FAILED if grade.verdict is Verdict.ERROR else Reason.UNDECIDED
    return Problem(reason=reason, message=shorten(grade.reason or "the grader gave no reason", MAX_PROBLEM_BYTES))
