"""Values of a row as text, its choices with their labels, and which of them its answers name."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["MalformedRow", "RowChoices", "kind_of", "text_of", "two_readings"]

_LETTERS = string.ascii_uppercase
_AROUND = string.whitespace + string.punctuation
_LARGE = 1e16
"""Floats from here on are written with an exponent, as JSON has them: their last digits are not known."""
_INDEX = re.compile(r"\d{1,9}(?:\.0+)?")
_SHOWN_CHARS = 40
_LABEL_CURE = "name the column of the labels with labels=COLUMN, or that of the index, from 0, with index=COLUMN"


class MalformedRow(ValueError):
    """A row is not a sample; the message follows the row's number."""

    def __init__(self, message: str, more: str = "") -> None:
        super().__init__(message)
        self.more = more
        """The columns that were found, and those that are known."""


def kind_of(value: Any) -> str:
    """The type of a JSON value, in words."""
    kinds = {bool: "a boolean", type(None): "null", dict: "an object", list: "a list", str: "text"}
    return kinds.get(type(value), "a number")


def text_of(value: Any, key: str) -> str:
    """The text of an answer, a choice or a label: 42, 42.0 and 4.2e1 are "42", whatever the file's format is.

    A float of 1e16 and more keeps its exponent, "1e+22": it does not say what its last digits were.

    Raises:
        MalformedRow: it is no text, number or boolean, or a number that is not finite.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise MalformedRow(f'has "{key}" that is {value}, not a finite number')
        if value.is_integer() and abs(value) < _LARGE:
            return str(int(value))
    if isinstance(value, int | float):
        return json.dumps(value)
    shown = "null or NaN" if value is None else kind_of(value)
    raise MalformedRow(f'has "{key}" that holds {shown}, not text')


def two_readings(target: str, by_letter: int, by_text: int) -> str:
    """Why a target that is the letter of one choice and the text of another decides nothing, and the cure."""
    return (
        f"{target[:_SHOWN_CHARS]!r} is the letter of choice {by_letter} and the text of choice {by_text}: give the "
        "labels of the choices (labels=COLUMN), or the index of the choice as a number"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class RowChoices:
    """The choices of a row."""

    texts: tuple[str, ...] = ()
    """Their texts."""
    labels: tuple[str, ...] = ()
    """The labels that the row gives them, such as "A" or "1"; empty if it gives none."""
    typed: bool = True
    """Whether the file tells numbers from texts; CSV does not."""

    @classmethod
    def of(cls, value: Any, key: str, labels: Any = None, labels_key: str = "", *, typed: bool = True) -> RowChoices:
        """The choices of a column, and the labels of another, or of the column itself: {"text": [...], "label": [...]}.

        Raises:
            MalformedRow: one of them is no list of texts, or the labels do not fit the choices.
        """
        if isinstance(value, Mapping) and {"text", "label"} <= value.keys():
            labels, labels_key = (value["label"], f"{key}.label") if labels is None else (labels, labels_key)
            value, key = value["text"], f"{key}.text"
        texts, named = _texts(value, key), _texts(labels, labels_key)
        if named and len(named) != len(texts):
            raise MalformedRow(f'has {len(named):,} labels in "{labels_key}" for {len(texts):,} choices')
        for index, label in enumerate(named):
            if label in named[:index]:
                raise MalformedRow(f'has the label {label[:_SHOWN_CHARS]!r} twice in "{labels_key}"')
        return cls(texts, named, typed)

    def targets(self, items: Sequence[Any], key: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Answers as the targets of a sample, and the labels of its choices.

        A number is the index of a choice, from 0, unless it is a label. It becomes the label, or else the letter, of
        that choice; if this letter is also the text of another choice, the letters become the labels of all choices.

        Args:
            items: the answers.
            key: their column, for errors.

        Raises:
            MalformedRow: an answer is no text, or an index without a choice; or it has two readings, in CSV.
        """
        return self._made([self._named(item, key) for item in items])

    def indexed(self, items: Sequence[Any], key: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The same for a column of indices, which may also be texts of digits.

        Raises:
            MalformedRow: one is no index of a choice.
        """
        return self._made([self._index(item, key) for item in items])

    def _made(self, named: Sequence[str | int]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        labels = self.labels
        if not labels and any(isinstance(item, int) and self._is_ambiguous(item) for item in named):
            count = len(self.texts)
            labels = tuple(_LETTERS[:count] if count <= len(_LETTERS) else map(str, range(count)))
        return tuple(self._at(item, labels) if isinstance(item, int) else item for item in named), labels

    def _named(self, item: Any, key: str) -> str | int:
        if not self.texts:
            return text_of(item, key)
        if isinstance(item, bool):
            spelled = text_of(item, key)
            same = [text for text in self.texts if text.strip().casefold() == spelled]
            return same[0] if len(same) == 1 and spelled not in self.labels else spelled
        if isinstance(item, int | float) and (not isinstance(item, float) or item.is_integer()):
            spelled = text_of(item, key)
            return spelled if spelled in self.labels else self._checked(int(item), key)
        text = text_of(item, key)
        if not (self.typed or self.labels) and text in self.texts and _INDEX.fullmatch(text):
            index, place = int(float(text)), self.texts.index(text)
            if place != index < len(self.texts):
                raise MalformedRow(
                    f'has "{key}" that is {text}, the text of choice {place}, or the index of choice {index}: '
                    f"{_LABEL_CURE}"
                )
        return text

    def _index(self, item: Any, key: str) -> int:
        if isinstance(item, float) and item.is_integer():
            item = int(item)
        if isinstance(item, str) and _INDEX.fullmatch(item.strip()):
            item = int(float(item))
        if isinstance(item, bool) or not isinstance(item, int):
            shown = repr(item[:_SHOWN_CHARS]) if isinstance(item, str) else kind_of(item)
            raise MalformedRow(f'has "{key}" that is {shown}, not the index of a choice, from 0')
        return self._checked(item, key)

    def _checked(self, index: int, key: str) -> int:
        if not 0 <= index < len(self.texts):
            raise MalformedRow(
                f'has "{key}" that is {index}, the index of a choice, and there are {len(self.texts)} choices, from 0; '
                "if it is a label, name the column of the labels with labels=COLUMN"
            )
        return index

    def _at(self, index: int, labels: Sequence[str]) -> str:
        if labels:
            return labels[index]
        return _LETTERS[index] if len(self.texts) <= len(_LETTERS) else self.texts[index]

    def _is_ambiguous(self, index: int) -> bool:
        """Whether what stands for a choice without labels could also be another choice."""
        shown = self._at(index, ()).casefold()
        others = (text for place, text in enumerate(self.texts) if place != index)
        of_letter = _LETTERS.find(shown.upper()) if len(shown) == 1 else -1
        return of_letter not in (-1, index) or any(text.strip(_AROUND).casefold() == shown for text in others)


def _texts(value: Any, key: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise MalformedRow(f'has "{key}" that is {kind_of(value)}, not a list of texts')
    return tuple(text_of(item, key) for item in value)
