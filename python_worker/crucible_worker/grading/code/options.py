"""What a program may take, and how it counts, as options of a grader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crucible_bridge.types import CodeLimits

__all__ = ["CODE_SCHEMA", "LIMITS_SCHEMA", "limits_of"]

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
        "description": "Of what it writes, and of each value that it returns.",
    },
}

LIMITS_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": _LIMITS, "additionalProperties": False}
"""What a program may take, as options."""

CODE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        **_LIMITS,
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
