"""Single values of JSON: their types, and the refusal of wrong ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import EnumDescriptor

from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason

__all__ = [
    "NON_FINITE",
    "enum_words",
    "read_boolean",
    "read_integer",
    "read_member",
    "read_number",
    "read_text",
    "wrong_type",
]

NON_FINITE: Mapping[str, float] = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""The texts in JSON for numbers that it lacks."""


def wrong_type(field: str, value: Any, needed: str) -> InvalidField:
    """The refusal of a value of the wrong type."""
    return InvalidField(field, f"is {_kind(value)}; {needed} is needed", reason=Reason.WRONG_TYPE)


def read_text(value: Any, field: str) -> str:
    """Text that a message can carry.

    Raises:
        InvalidField: it is not text, or not Unicode.
    """
    if not isinstance(value, str):
        raise wrong_type(field, value, "text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise InvalidField(field, "has half of a surrogate pair, which is not Unicode") from error
    return value


def enum_words(enum: EnumDescriptor | None) -> Mapping[str, int]:
    """Words for the values of an enum that can be sent: their names without the enum's name, in lower case.

    Args:
        enum: the type of a field that is an enum; only those of other fields are None.
    """
    assert enum is not None
    unspecified = next(value.name for value in enum.values if value.number == 0)
    prefix = unspecified.removesuffix("UNSPECIFIED")
    return {value.name.removeprefix(prefix).lower(): value.number for value in enum.values if value.number}


def read_member(value: Any, field: str, words: Mapping[str, int]) -> int:
    """An enum's number, by its word in any case; 0 for "unspecified", the word for an absent value in replies.

    Raises:
        InvalidField: it is none of the words.
    """
    word = read_text(value, field).lower()
    number = 0 if word == "unspecified" else words.get(word)
    if number is None:
        raise InvalidField(field, f"is {value[:60]!r}, not one of {', '.join(words)}")
    return number


def read_integer(value: Any, field: str, low: int, high: int) -> int:
    """A whole number within inclusive bounds; 3.0 counts as whole.

    Raises:
        InvalidField: it is not one, or out of bounds.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_type(field, value, "an integer")
    if not low <= value <= high:
        # It may have more digits than Python converts to text.
        raise InvalidField(field, f"is out of bounds, must be within {low} and {high}")
    return value


def read_number(value: Any, field: str) -> float:
    """A number, "NaN", "Infinity" or "-Infinity".

    Raises:
        InvalidField: it is none of them.
    """
    if isinstance(value, str) and value in NON_FINITE:
        return NON_FINITE[value]
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong_type(field, value, "a number")
    try:
        return float(value)
    except OverflowError as error:
        raise InvalidField(field, "is beyond the range of a 64-bit number") from error


def read_boolean(value: Any, field: str) -> bool:
    """True or false.

    Raises:
        InvalidField: it is neither.
    """
    if not isinstance(value, bool):
        raise wrong_type(field, value, "a boolean")
    return value


def _kind(value: Any) -> str:
    """What a JSON value is, for people."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a number"
        case str():
            return "text"
        case bytes():
            return "bytes"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "an object"
        case _:
            return f"a {type(value).__name__}"
