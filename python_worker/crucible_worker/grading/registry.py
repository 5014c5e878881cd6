"""Every grader that can be asked for by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from crucible_bridge.errors import InvalidField
from crucible_worker.grading.base import Grader
from crucible_worker.grading.choice import MULTIPLE_CHOICE_SCHEMA, MultipleChoice
from crucible_worker.grading.normalize import Normalization
from crucible_worker.grading.numeric import NUMERIC_SCHEMA, Numeric
from crucible_worker.grading.options import checked_options
from crucible_worker.grading.text import CONTAINS_SCHEMA, EXACT_MATCH_SCHEMA, Contains, ExactMatch

__all__ = ["GRADERS", "GraderType", "create"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GraderType:
    """A grader that can be made."""

    name: str
    """What it is asked for by."""
    description: str
    """One sentence."""
    options_schema: Mapping[str, Any]
    """JSON schema of its options."""
    make: Callable[[Mapping[str, Any]], Grader]
    """Makes one of options that passed the schema and bear its defaults."""


GRADERS: Mapping[str, GraderType] = MappingProxyType(
    {
        grader.name: grader
        for grader in (
            GraderType(
                name="exact_match",
                description="The whole response equals a target.",
                options_schema=EXACT_MATCH_SCHEMA,
                make=lambda options: ExactMatch(normalization=Normalization(**options)),
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
        )
    }
)
"""By name."""


def create(name: str, options: Mapping[str, Any], *, name_field: str, options_field: str) -> Grader:
    """Make the grader of a name.

    Args:
        name: a key of `GRADERS`.
        options: JSON values, checked against the grader's schema.
        name_field: path of the name, for errors.
        options_field: path of the options, for errors.

    Raises:
        InvalidField: there is no such grader (reason UNKNOWN_GRADER), or an option is wrong.
    """
    grader = GRADERS.get(name)
    if grader is None:
        raise InvalidField(name_field, f"is {name[:60]!r}, known are: {', '.join(GRADERS)}", reason="UNKNOWN_GRADER")
    return grader.make(checked_options(options, grader.options_schema, options_field))
