"""What of an answer is graded: steps that cut it down, one after the other."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from crucible_bridge.errors import InvalidField
from crucible_worker.grading.direct import MAX_INLINE_CHARS, MAX_TEXT_BYTES, exceeds
from crucible_worker.grading.extract import extract
from crucible_worker.grading.numbers import last_numbers
from crucible_worker.grading.patterns import MAX_PATTERN_CHARS, BadPattern, TooMuchText, compiled

__all__ = ["CLEAN_OPTION", "MAX_MARK_CHARS", "MAX_STEPS", "NO_CLEANING", "Cleaning"]

MAX_STEPS = 8
"""Of the option `clean`."""
MAX_MARK_CHARS = 1_000
"""Of the text of a step."""

_MARK = {"type": "string", "minLength": 1, "maxLength": MAX_MARK_CHARS}
_EXTRACTS: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {
        "answer": lambda text: extract(text).answer,
        "box": lambda text: found.answer if (found := extract(text)).how == "box" else "",
        "number": lambda text: numbers[0].text if (numbers := last_numbers(text, 1)) else "",
    }
)

CLEAN_OPTION: Mapping[str, Any] = {
    "type": "array",
    "maxItems": MAX_STEPS,
    "default": [],
    "items": {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
        "properties": {
            "until": {**_MARK, "description": "What stands before this text's first place; all, where it has none."},
            "after": {**_MARK, "description": "What stands behind this text's last place; all, where it has none."},
            "regex": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_PATTERN_CHARS,
                "description": (
                    "What the first group of this expression of RE2 matches first, or the expression, where it has no "
                    "group; nothing, where it does not match."
                ),
            },
            "extract": {
                "type": "string",
                "enum": list(_EXTRACTS),
                "description": (
                    "answer: what ExtractAnswer finds; box: what stands in the last \\boxed{}; number: the last "
                    "number. Nothing, where there is none."
                ),
            },
            "strip": {
                "type": "string",
                "maxLength": MAX_MARK_CHARS,
                "description": "Without these characters at both ends; without white space there, where this is empty.",
            },
        },
    },
    "description": "What of an answer is graded: steps, one after the other, each with one of these.",
}
"""The rule of an option that says what is graded."""


@dataclasses.dataclass(frozen=True, slots=True)
class Cleaning:
    """Steps that cut an answer down."""

    steps: tuple[tuple[str, str], ...] = ()
    """What each does, and by what."""

    @classmethod
    def of(cls, options: Sequence[Mapping[str, str]], field: str) -> Cleaning:
        """Make one of what passed `CLEAN_OPTION`.

        Raises:
            InvalidField: an expression is none of RE2.
        """
        for index, option in enumerate(options):
            if "regex" in option:
                try:
                    compiled(option["regex"])
                except BadPattern as error:
                    raise InvalidField(f'{field}[{index}]["regex"]', str(error)) from error
        return cls(tuple(step for option in options for step in option.items()))

    async def cleaned(self, text: str) -> str:
        """What is left of a text.

        Raises:
            TooMuchText: it is too long for a step: nobody can say what would be left.
        """
        if self.steps and exceeds((text,)):
            raise TooMuchText(f"the answer is longer than {MAX_TEXT_BYTES:,} bytes")
        if self.steps and len(text) > MAX_INLINE_CHARS:
            return await asyncio.to_thread(self._cleaned, text)
        return self._cleaned(text)

    def _cleaned(self, text: str) -> str:
        for what, by in self.steps:
            text = _STEPS[what](text, by)
        return text


NO_CLEANING = Cleaning()
"""Leaves an answer as it is."""

_STEPS: Mapping[str, Callable[[str, str], str]] = MappingProxyType(
    {
        "until": lambda text, mark: text.partition(mark)[0],
        "after": lambda text, mark: text.rpartition(mark)[2],
        "regex": lambda text, pattern: compiled(pattern).capture(text) or "",
        "extract": lambda text, kind: _EXTRACTS[kind](text),
        "strip": lambda text, characters: text.strip(characters or None),
    }
)
