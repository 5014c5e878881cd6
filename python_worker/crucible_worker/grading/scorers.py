"""Scores of texts for a request: one scorer, many items.

A response is scored as a whole, like an answer, because these scorers read the wording. In both, the scorer of numbers
uses the last number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import structlog

from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    BoxedForm,
    ChoiceScorer,
    ExactComparison,
    FormatScorer,
    Grade,
    GradeItem,
    JsonSchemaForm,
    MarksForm,
    NumericScorer,
    Problem,
    RegexScorer,
    ScoreOptions,
    TextScorer,
    Verdict,
)
from crucible_worker.grading import base
from crucible_worker.grading.base import DirectGrader, excerpt
from crucible_worker.grading.choice import ChoiceGrader, check_choices
from crucible_worker.grading.format import Format, StepsLeft
from crucible_worker.grading.numbers import Numeric
from crucible_worker.grading.patterns import Regex
from crucible_worker.grading.text import F1, Bleu, Contains, ExactMatch, Normalization, Rouge
from crucible_worker.util.error_reporter import logged, with_id

__all__ = ["score", "scorer_of"]

_log = structlog.get_logger(__name__)
_PARTLY = {"f1": F1, "bleu": Bleu, "rouge": Rouge}
_FORM_FIELDS = {BoxedForm: "boxed", MarksForm: "marks.marks", JsonSchemaForm: "json_schema"}
_PARTLY_RIGHT = 0.5  # the default threshold of these scorers


def score(items: Sequence[GradeItem], options: ScoreOptions) -> list[Grade]:
    """Score items, in their order; see `scorer_of`."""
    return list(map(scorer_of(options), items))


def scorer_of(options: ScoreOptions) -> Callable[[GradeItem], Grade]:
    """A function that scores the items of one call, one by one. The time of an item has no limit: use a thread.

    An item that cannot be judged is UNDECIDED, with the reason; one on which a scorer fails is ERROR.

    Args:
        options: how to score.

    Raises:
        InvalidField: the JSON schema of a format, its marks, or the choices cannot be used; the path begins at the
            request: `options.format.json_schema`.
        FailedPrecondition: the scorer needs a library that is not installed (reason EXTRA_NOT_INSTALLED).
    """
    grader = _grader(options)
    choices = options.scorer.choices if isinstance(options.scorer, ChoiceScorer) else ()
    return lambda item: _scored(item, grader, choices, options)


def _grader(options: ScoreOptions) -> DirectGrader:
    match options.scorer:
        case TextScorer(kind="exact_match") as text:
            return ExactMatch(
                normalization=_normalization(text),
                compare=ExactComparison(text.compare),
                ordered_lists=text.ordered_lists,
            )
        case TextScorer(kind="contains") as text:
            return Contains(normalization=_normalization(text))
        case TextScorer(kind=kind) as text:
            threshold = _PARTLY_RIGHT if options.threshold is None else options.threshold
            normalization = _normalization(text, fold_case=False)
            return _PARTLY[kind](threshold=threshold, case_sensitive=text.case_sensitive, normalization=normalization)
        case RegexScorer(full=full):
            return Regex(full=full)
        case NumericScorer(absolute_tolerance=absolute, relative_tolerance=relative):
            return Numeric(absolute_tolerance=absolute, relative_tolerance=relative)
        case ChoiceScorer(choices=choices):
            check_choices(choices, "options.multiple_choice.choices")
            return ChoiceGrader()
        case FormatScorer(form=form):
            return Format(form=form, field=f"options.format.{_FORM_FIELDS[type(form)]}", left=StepsLeft())


def _normalization(text: TextScorer, *, fold_case: bool = True) -> Normalization:
    return Normalization(
        collapse_whitespace=text.normalize_whitespace,
        fold_case=fold_case and not text.case_sensitive,
        strip_punctuation=text.strip_punctuation,
    )


def _scored(item: GradeItem, grader: DirectGrader, choices: Sequence[str], options: ScoreOptions) -> Grade:
    start = time.perf_counter_ns()
    try:
        grade = grader.grade_now(item.text, item.targets, choices)
    except Exception as error:  # our bug or a library's affects one item, not the batch
        error_id = logged(_log, "grader_failed", error, scorer=_name(options))
        message = with_id(f"{type(error).__name__} in the scorer", error_id)
        problem = Problem(reason=Reason.GRADER_FAILED, message=message)
        return Grade(
            id=item.id,
            verdict=Verdict.ERROR,
            reason=problem.message,
            duration_ns=time.perf_counter_ns() - start,
            problem=problem,
        )
    return Grade(
        id=item.id,
        verdict=_verdict(grade, options.threshold),
        score=grade.score,
        extracted=excerpt(grade.extracted),
        extraction="number" if isinstance(options.scorer, NumericScorer) and grade.extracted else "whole",
        method=_name(options),
        reason=grade.reason,
        duration_ns=time.perf_counter_ns() - start,
        problem=grade.problem,
    )


def _verdict(grade: base.Grade, threshold: float | None) -> Verdict:
    """Apply a given threshold to the scores of every scorer."""
    if grade.score is None or threshold is None:
        return grade.verdict
    if grade.score >= threshold:
        return Verdict.CORRECT
    return Verdict.PARTIAL if grade.score > 0 else Verdict.INCORRECT


def _name(options: ScoreOptions) -> str:
    match options.scorer:
        case TextScorer(kind=kind):
            return kind
        case RegexScorer():
            return "regex"
        case NumericScorer():
            return "numeric"
        case ChoiceScorer():
            return "multiple_choice"
        case FormatScorer():
            return "format"
