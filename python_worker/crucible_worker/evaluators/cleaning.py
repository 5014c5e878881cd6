"""Which part of a text counts, for instance of a graded answer: steps that shorten or normalize it, in order."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from crucible_bridge.errors import InvalidField
from crucible_worker.grading.base import MAX_INLINE_CHARS, MAX_TEXT_BYTES, exceeds
from crucible_worker.grading.extract import extract
from crucible_worker.grading.numbers import last_numbers
from crucible_worker.grading.patterns import MAX_PATTERN_CHARS, BadPattern, TooMuchText, compiled
from crucible_worker.grading.text import Normalization, Unnormalizable

__all__ = ["MAX_MARK_CHARS", "MAX_STEPS", "NO_CLEANING", "Cleaning", "CleaningSteps", "Uncleanable"]

MAX_STEPS = 8
"""Steps of the option `clean`."""
MAX_MARK_CHARS = 1_000
"""Characters of the text of a step."""

_MARK = {"type": "string", "minLength": 1, "maxLength": MAX_MARK_CHARS}
_EXTRACTS: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {
        "answer": lambda text: extract(text).answer,
        "box": lambda text: found.answer if (found := extract(text)).how == "box" else "",
        "number": lambda text: numbers[0].text if (numbers := last_numbers(text, 1)) else "",
    }
)

_NORMALIZATIONS = tuple(field.name for field in dataclasses.fields(Normalization))
_PLAIN: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {name: Normalization(**{each: each == name for each in _NORMALIZATIONS}) for name in _NORMALIZATIONS}
)
"""Steps that are given by their name alone: the grader exact_match has options of these names."""

_STEP: Mapping[str, Any] = {
    "type": ["object", "string"],
    "if": {"type": "string"},
    "then": {"enum": list(_PLAIN)},
    "minProperties": 1,
    "maxProperties": 1,
    "additionalProperties": False,
    "properties": {
        "until": {**_MARK, "description": "The part before the first occurrence of this text; all if it has none."},
        "after": {**_MARK, "description": "The part after the last occurrence of this text; all if it has none."},
        "regex": {
            "type": "string",
            "minLength": 1,
            "maxLength": MAX_PATTERN_CHARS,
            "description": (
                "The first match of this RE2 expression's first group, or of the whole expression if it has no "
                "group; nothing if it does not match."
            ),
        },
        "extract": {
            "type": "string",
            "enum": list(_EXTRACTS),
            "description": (
                "answer: what ExtractAnswer finds; box: the content of the last \\boxed{}; number: the last "
                "number. Nothing if there is none."
            ),
        },
        "strip": {
            "type": "string",
            "maxLength": MAX_MARK_CHARS,
            "description": "Removes these characters at both ends; if this is empty, white space.",
        },
    },
}

CleaningSteps: TypeAlias = Annotated[
    Sequence[Any],
    Meta(
        max_length=MAX_STEPS,
        description=(
            "Which part of a text counts: steps, applied in order. A step is an object with one of these entries, or "
            "the name of an option of the grader exact_match: strip, collapse_whitespace, fold_case, "
            "strip_punctuation, nfkc."
        ),
        extra_json_schema={"items": _STEP},
    ),
]
"""The type of an option that says which part of a text counts."""


class Uncleanable(ValueError):
    """Steps cannot be applied to a text; the message says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class Cleaning:
    """Steps that are applied to a text."""

    steps: tuple[tuple[str, str], ...] = ()
    """The name of each step and its text; the text is empty for steps that are names alone."""

    @classmethod
    def of(cls, options: Sequence[Mapping[str, str] | str], field: str) -> Cleaning:
        """Make one of options that passed the schema of `CleaningSteps`.

        Raises:
            InvalidField: an expression is not valid in RE2.
        """
        steps = [step for option in options for step in ({option: ""} if isinstance(option, str) else option).items()]
        for index, (what, by) in enumerate(steps):
            if what == "regex":
                try:
                    compiled(by)
                except BadPattern as error:
                    raise InvalidField(f'{field}[{index}]["regex"]', str(error)) from error
        return cls(tuple(steps))

    async def answer(self, text: str) -> str:
        """Clean an answer.

        Raises:
            Uncleanable: it is longer than answers that are graded, or `text` raises it.
        """
        if self.steps and exceeds((text,)):
            raise Uncleanable(f"the answer is longer than {MAX_TEXT_BYTES:,} bytes")
        return await self.text(text)

    async def text(self, text: str) -> str:
        """Clean a text of any length.

        Raises:
            Uncleanable: it is too long for a regular expression, or has too many combining marks in a row for nfkc.
        """
        try:
            if self.steps and len(text) > MAX_INLINE_CHARS:
                return await asyncio.to_thread(self._cleaned, text)
            return self._cleaned(text)
        except (TooMuchText, Unnormalizable) as error:
            raise Uncleanable(str(error)) from error

    def _cleaned(self, text: str) -> str:
        for what, by in self.steps:
            text = _STEPS[what](text, by)
        return text


NO_CLEANING = Cleaning()
"""Leaves an answer unchanged."""

_STEPS: Mapping[str, Callable[[str, str], str]] = MappingProxyType(
    {
        "until": lambda text, mark: text.partition(mark)[0],
        "after": lambda text, mark: text.rpartition(mark)[2],
        "regex": lambda text, pattern: compiled(pattern).capture(text) or "",
        "extract": lambda text, kind: _EXTRACTS[kind](text),
        **{name: lambda text, _, plain=plain: plain(text) for name, plain in _PLAIN.items()},
        # By its name, or by characters.
        "strip": lambda text, characters: text.strip(characters or None),
    }
)
