"""The limits of a program, and how its tests count, as options of a grader."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from crucible_bridge.types import CodeLimits, OutputComparison, bounds
from crucible_worker.util.options import Flat, schema_of

__all__ = ["CodeOptions", "limits_schema"]

_LIMITS: Mapping[str, Mapping[str, Any]] = {
    "timeout_ms": {"minimum": bounds.CODE_LIMITS_TIMEOUT_MS_LEAST, "maximum": bounds.CODE_LIMITS_TIMEOUT_MS_MOST},
    "memory_mb": {"minimum": bounds.CODE_LIMITS_MEMORY_MB_LEAST, "maximum": bounds.CODE_LIMITS_MEMORY_MB_MOST},
    "output_bytes": {"minimum": bounds.CODE_LIMITS_OUTPUT_BYTES_LEAST, "maximum": bounds.CODE_LIMITS_OUTPUT_BYTES_MOST},
}
_TOLERANCES: Mapping[str, Mapping[str, Any]] = {
    name: {"minimum": 0, "default": 0} for name in ("absolute_tolerance", "relative_tolerance")
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CodeOptions:
    """The program in the response passes every target, which are tests, in a sandbox."""

    limits: Annotated[CodeLimits, Flat(rules=_LIMITS)] = CodeLimits()
    """The limits of the program."""
    comparison: Annotated[OutputComparison, Flat(rules=_TOLERANCES)] = OutputComparison()
    """How tests without a comparison compare output, and numbers in the values of calls."""
    image: str = ""
    """Packages that programs and tests can import: a --code-image of the worker. None if empty."""
    partial: bool = False
    """A program that passes some of its tests scores their share; otherwise it is wrong."""


def limits_schema() -> Mapping[str, Any]:
    """The JSON schema of a program's limits, as options."""
    return schema_of(CodeLimits, _LIMITS)
