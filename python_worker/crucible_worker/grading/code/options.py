"""What a program may take, and how it counts, as options of a grader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crucible_bridge.types import CodeLimits, OutputComparison

__all__ = ["CODE_SCHEMA", "LIMITS_SCHEMA", "comparison_of", "limits_of"]

_DEFAULTS = CodeLimits()
_LIMITS: Mapping[str, Any] = {
    "timeout_ms": {
        "type": "integer",
        "minimum": 10,
        "maximum": 60_000,
        "default": _DEFAULTS.timeout_ms,
        "description": "Wall clock of one test.",
    },
    "memory_mb": {
        "type": "integer",
        "minimum": 16,
        "maximum": 4_096,
        "default": _DEFAULTS.memory_mb,
        "description": "Address space of the program beyond what Python takes, in MiB.",
    },
    "output_bytes": {
        "type": "integer",
        "minimum": 1_000,
        "maximum": 10_000_000,
        "default": _DEFAULTS.output_bytes,
        "description": "Of what it writes, and of each value that it returns, written as JSON in UTF-8.",
    },
}

LIMITS_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": _LIMITS, "additionalProperties": False}
"""What a program may take, as options."""

_IMAGE: Mapping[str, Any] = {
    "image": {
        "type": "string",
        "default": "",
        "description": "Packages that programs and tests can import: a --code-image of the worker. None if empty.",
    },
}

_COMPARISON: Mapping[str, Any] = {
    "by_token": {
        "type": "boolean",
        "default": False,
        "description": "Compare output token by token: blanks and line ends only divide.",
    },
    "absolute_tolerance": {
        "type": "number",
        "minimum": 0,
        "default": 0,
        "description": "Accept decimal numbers of the output within this distance, added to the other.",
    },
    "relative_tolerance": {
        "type": "number",
        "minimum": 0,
        "default": 0,
        "description": "Accept decimal numbers of the output within this share of the expected, added to the other.",
    },
}

CODE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        **_LIMITS,
        **_COMPARISON,
        **_IMAGE,
        "partial": {
            "type": "boolean",
            "default": False,
            "description": "A program that passes some of its tests scores their share; otherwise it is wrong.",
        },
    },
    "additionalProperties": False,
}
"""Options of the grader by name."""


def limits_of(options: Mapping[str, Any]) -> CodeLimits:
    """Bounds, as options that fit `LIMITS_SCHEMA` have them."""
    return CodeLimits(**{name: options[name] for name in _LIMITS})


def comparison_of(options: Mapping[str, Any]) -> OutputComparison:
    """How output is compared, as options that fit `CODE_SCHEMA` have it."""
    return OutputComparison(**{name: options[name] for name in _COMPARISON})
