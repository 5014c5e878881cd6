"""Every grader that can be asked for by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_worker.grading import entry_points
from crucible_worker.grading.base import Grader, GraderType
from crucible_worker.grading.choice import MULTIPLE_CHOICE_SCHEMA, MultipleChoice
from crucible_worker.grading.code.options import CODE_SCHEMA
from crucible_worker.grading.format import FORMAT_SCHEMA, format_of
from crucible_worker.grading.judge.options import RUBRIC_SCHEMA
from crucible_worker.grading.math.grader import MATH_SCHEMA, math_grader_of
from crucible_worker.grading.needs import handed
from crucible_worker.grading.normalize import Normalization
from crucible_worker.grading.numeric import NUMERIC_SCHEMA, Numeric
from crucible_worker.grading.options import checked_options
from crucible_worker.grading.overlap import F1, OVERLAP_SCHEMA, Bleu, Rouge
from crucible_worker.grading.parts import NO_GRADING_PARTS, GradingParts
from crucible_worker.grading.regex import REGEX_SCHEMA, Regex
from crucible_worker.grading.text import CONTAINS_SCHEMA, EXACT_MATCH_SCHEMA, Contains, exact_match_of

if TYPE_CHECKING:
    from crucible_worker.grading.code.places import Places
    from crucible_worker.grading.pool import GradingPool

__all__ = ["GRADERS", "GraderType", "create"]


def _code(options: Mapping[str, Any], *, places: Places | None) -> Grader:
    from crucible_worker.grading.code.by_name import code_of  # 20 ms that a worker need not spend at start

    return code_of(options, places=places)


def _rubric(options: Mapping[str, Any], *, pool: GradingPool | None, places: Places | None) -> Grader:
    from crucible_worker.grading.judge.grader import rubric_of  # which needs graders itself

    return rubric_of(options, pool=pool, places=places)


GRADERS: Mapping[str, GraderType] = MappingProxyType(
    {
        grader.name: grader
        for grader in (
            GraderType(
                name="exact_match",
                description="The whole response equals a target, as a text, a number or a list.",
                options_schema=EXACT_MATCH_SCHEMA,
                make=exact_match_of,
            ),
            GraderType(
                name="contains",
                description="The response holds a target as whole words and numbers.",
                options_schema=CONTAINS_SCHEMA,
                make=lambda options: Contains(normalization=Normalization(**options)),
            ),
            GraderType(
                name="numeric",
                description="The last number of the response equals a target's, exactly or within a tolerance.",
                options_schema=NUMERIC_SCHEMA,
                make=lambda options: Numeric(**options),
            ),
            GraderType(
                name="multiple_choice",
                description="The response names the choice that a target names, by letter or text.",
                options_schema=MULTIPLE_CHOICE_SCHEMA,
                make=lambda options: MultipleChoice(**options),
            ),
            GraderType(
                name="math",
                description="The answer found in the response equals a target as mathematics.",
                options_schema=MATH_SCHEMA,
                make=math_grader_of,
            ),
            GraderType(
                name="regex",
                description="A target, as a regular expression of RE2, matches in the response.",
                options_schema=REGEX_SCHEMA,
                make=lambda options: Regex(**options),
            ),
            GraderType(
                name="f1",
                description="The F1 of the words that response and target share.",
                options_schema=OVERLAP_SCHEMA,
                make=lambda options: F1(**options),
            ),
            GraderType(
                name="bleu",
                description="The sentence BLEU of the response with the targets as references.",
                options_schema=OVERLAP_SCHEMA,
                make=lambda options: Bleu(**options),
            ),
            GraderType(
                name="rouge",
                description="The F of ROUGE-L of response and target.",
                options_schema=OVERLAP_SCHEMA,
                make=lambda options: Rouge(**options),
            ),
            GraderType(
                name="format",
                description="The response has a form: a boxed answer, marks in order, or JSON that fits a schema.",
                options_schema=FORMAT_SCHEMA,
                make=format_of,
            ),
            GraderType(
                name="code",
                description="The program in the response passes every target, which are tests, in a sandbox.",
                options_schema=CODE_SCHEMA,
                make=_code,
            ),
            GraderType(
                name="rubric",
                description="A judge, any model of the worker, holds the response for right by criteria.",
                options_schema=RUBRIC_SCHEMA,
                make=_rubric,
            ),
        )
    }
)
"""Those that come with the worker, by name."""


def create(
    name: str,
    options: Mapping[str, Any],
    parts: GradingParts = NO_GRADING_PARTS,
    *,
    name_field: str,
    options_field: str,
) -> Grader:
    """Make the grader of a name: one of `GRADERS`, otherwise one that an installed distribution announces.

    Args:
        name: what it is asked for by.
        options: JSON values, checked against the grader's schema.
        parts: those of the worker that grades.
        name_field: path of the name, for errors.
        options_field: path of the options, for errors.

    Raises:
        InvalidField: there is no such grader (reason UNKNOWN_GRADER), or an option is wrong.
        FailedPrecondition: it needs a library that is not installed (EXTRA_NOT_INSTALLED), or a part that this worker
            lacks (NO_GRADING_POOL, NO_SANDBOX); or a user's grader cannot be used (BAD_GRADER).
    """
    own = GRADERS.get(name)
    grader = own or entry_points.find(name)
    if grader is None:
        known = ", ".join([*GRADERS, *(other for other in entry_points.names() if other not in GRADERS)])
        raise InvalidField(name_field, f"is {name[:60]!r}, known are: {known}", reason=Reason.UNKNOWN_GRADER)
    checked = checked_options(options, grader.options_schema, options_field)
    try:
        return grader.make(checked, **(handed(own.make, parts) if own else {}))
    except InvalidField as error:
        raise InvalidField(options_field + error.field, error.message, reason=error.reason) from error
