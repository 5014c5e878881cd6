"""Scores of a request's items, by a grader that the request names or by a scorer of the protos.

A scorer is a grader under another name for its options. Both read a response as a whole, like an answer, because
these graders read the wording; the grader of numbers uses the last number.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from crucible_bridge.errors import BridgeError, InvalidField, clipped
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    BoxedForm,
    ChoiceScorer,
    FormatScorer,
    Grade,
    GradeItem,
    JsonSchemaForm,
    MarksForm,
    NumericScorer,
    Problem,
    RegexScorer,
    ScoreOptions,
    Scorer,
    TextScorer,
    Verdict,
)
from crucible_worker.grading import base, registry
from crucible_worker.grading.base import AsksJudge, DirectGrader, Grader, excerpt
from crucible_worker.grading.caller import CallerGrader
from crucible_worker.grading.registry import GRADERS, NO_GRADING_PARTS, GradingParts, handed
from crucible_worker.util.error_reporter import logged, with_id

__all__ = ["ItemScorer", "decides_at_once", "score"]

_log = structlog.get_logger(__name__)
_PATHS = {
    '["choices"]': "options.multiple_choice.choices",
    '["json_schema"]': "options.format.json_schema",
    '["marks"]': "options.format.marks.marks",
}
"""Where a scorer has what its grader has as an option."""


def score(items: Sequence[GradeItem], options: ScoreOptions) -> list[Grade]:
    """Score items, in their order, by a grader that decides at once; see `ItemScorer`."""
    return list(map(ItemScorer(options), items))


def decides_at_once(name: str) -> bool:
    """Whether it is a built-in grader that needs no other process and no part of a worker."""
    return name in GRADERS and not handed(GRADERS[name].make, NO_GRADING_PARTS)


class ItemScorer:
    """Scores the items of one call, one by one. Calling it is for a thread: the time of an item has no limit.

    An item that cannot be judged is UNDECIDED, with the reason; one on which a grader fails is ERROR.
    """

    def __init__(self, options: ScoreOptions, parts: GradingParts = NO_GRADING_PARTS) -> None:
        """Make the grader, with what the worker has for it.

        Raises:
            InvalidField: there is no such grader, it queries a model or the caller, or an option cannot be used. The
                path begins at the request: `options.format.json_schema`.
            FailedPrecondition: the grader needs a library that is not installed (reason EXTRA_NOT_INSTALLED), or a
                part that the worker lacks.
        """
        self._threshold = options.threshold
        self._name, grader = _named(options, parts) if options.scorer is None else _of_scorer(options)
        self._grader = grader.for_call() if isinstance(grader, DirectGrader) else grader

    def __call__(self, item: GradeItem) -> Grade:
        """Score an item, see `decides_at_once`."""
        assert isinstance(self._grader, DirectGrader)
        began = time.perf_counter_ns()
        try:
            return self._graded(item, self._grader.grade_now(item.text, item.targets), began)
        except Exception as error:  # our bug or a library's affects one item, not the batch
            return self._failed(item, error, began)

    async def grade(self, item: GradeItem) -> Grade:
        """Score an item by any grader.

        Raises:
            BridgeError: what the grader uses is gone: the worker's pool, or its cluster.
        """
        began = time.perf_counter_ns()
        try:
            return self._graded(item, await self._grader.grade(item.text, item.targets), began)
        except BridgeError:
            raise
        except Exception as error:
            return self._failed(item, error, began)

    def _graded(self, item: GradeItem, grade: base.Grade, began: int) -> Grade:
        extraction = "whole"
        if isinstance(self._grader, DirectGrader) and grade.extracted:
            extraction = self._grader.extraction
        return Grade(
            id=item.id,
            verdict=_verdict(grade, self._threshold),
            score=grade.score,
            extracted=excerpt(grade.extracted),
            extraction=grade.extraction or extraction,
            method=self._name,
            reason=grade.reason,
            duration_ns=time.perf_counter_ns() - began,
            problem=grade.problem,
        )

    def _failed(self, item: GradeItem, error: Exception, began: int) -> Grade:
        error_id = logged(_log, "grader_failed", error, scorer=self._name)
        message = with_id(f"{type(error).__name__} in the scorer", error_id)
        return Grade(
            id=item.id,
            verdict=Verdict.ERROR,
            reason=message,
            duration_ns=time.perf_counter_ns() - began,
            problem=Problem(reason=Reason.GRADER_FAILED, message=message),
        )


def _named(options: ScoreOptions, parts: GradingParts) -> tuple[str, Grader]:
    fields = {"name_field": "options.grader", "options_field": "options.grader_options"}
    grader = registry.create(options.grader, options.grader_options, parts, **fields)
    if isinstance(grader, AsksJudge | CallerGrader):
        raise InvalidField("options.grader", f"is {clipped(options.grader)}, which queries a model or the caller")
    return options.grader, grader


def _of_scorer(options: ScoreOptions) -> tuple[str, Grader]:
    """The grader that a scorer is; the codec has checked its options."""
    assert options.scorer is not None
    name, given = _as_grader(options.scorer, options.threshold)
    try:
        return name, GRADERS[name].make(given)
    except InvalidField as error:
        option, _, rest = error.field.partition("]")
        raise InvalidField(_PATHS[f"{option}]"] + rest, error.message, reason=error.reason) from error


def _as_grader(scorer: Scorer, threshold: float | None) -> tuple[str, Mapping[str, Any]]:
    """A scorer as the name of its grader and its options."""
    match scorer:
        case TextScorer(kind="exact_match" | "contains" as kind):
            options: dict[str, Any] = {
                "fold_case": not scorer.case_sensitive,
                "strip_punctuation": scorer.strip_punctuation,
            }
            if kind == "exact_match":  # for the other one, white space never counts
                options["collapse_whitespace"] = scorer.normalize_whitespace
                options |= {"compare": scorer.compare, "ordered_lists": scorer.ordered_lists}
            return kind, options
        case TextScorer(kind=kind):
            options = {
                "case_sensitive": scorer.case_sensitive,
                "collapse_whitespace": scorer.normalize_whitespace,
                "strip_punctuation": scorer.strip_punctuation,
            }
            return kind, options if threshold is None else {**options, "threshold": threshold}
        case RegexScorer(full=full):
            return "regex", {"full": full}
        case NumericScorer(absolute_tolerance=absolute, relative_tolerance=relative):
            return "numeric", {"absolute_tolerance": absolute, "relative_tolerance": relative}
        case ChoiceScorer(choices=choices):
            return "multiple_choice", {"choices": choices}
        case FormatScorer(form=form):
            return "format", _of_form(form)


def _of_form(form: BoxedForm | MarksForm | JsonSchemaForm) -> Mapping[str, Any]:
    match form:
        case BoxedForm():
            return {"form": "boxed"}
        case MarksForm(marks=marks):
            return {"form": "marks", "marks": marks}
        case JsonSchemaForm(schema=schema):
            return {"form": "json_schema", "json_schema": schema}


def _verdict(grade: base.Grade, threshold: float | None) -> Verdict:
    """Apply a given threshold to the scores of every grader."""
    if grade.score is None or threshold is None:
        return grade.verdict
    if grade.score >= threshold:
        return Verdict.CORRECT
    return Verdict.PARTIAL if grade.score > 0 else Verdict.INCORRECT
