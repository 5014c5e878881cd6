"""Strict reading of TOML that people write: values by their type, each error with the path of what is wrong."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from crucible_bridge.codec.fields import child
from crucible_bridge.errors import InvalidField, clipped

__all__ = [
    "Reader",
    "document_of",
    "fields_of",
    "flag_of",
    "list_of",
    "number_of",
    "table_of",
    "text_of",
    "whole_of",
    "wrong",
]

Reader = Callable[[Any, str], Any]
"""Reads a TOML value at a path. InvalidField: it has the wrong type."""


def document_of(text: str, field: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        InvalidField: it is not TOML; the path is `field`.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InvalidField(field, "is not TOML: its lists or tables are nested too deeply") from None
    except ValueError as error:  # of tomllib, or of a number with thousands of digits
        raise InvalidField(field, f"is not TOML: {error}") from None


def fields_of(
    value: Any, path: str, readers: Mapping[str, Reader], needed: tuple[str, ...] = (), *, file: str = "the file"
) -> dict[str, Any]:
    """The values of a table's keys; absent keys are left out.

    Args:
        value: the table.
        path: its path; empty for the whole document.
        readers: of the values, by key.
        needed: keys that must be present.
        file: what the document is called in an error.

    Raises:
        InvalidField: it is no table, or a key is unknown or missing, or a value is wrong.
    """
    if not isinstance(value, dict):
        raise wrong(path, value, "a table")
    for key in value:
        if key not in readers:
            raise InvalidField(child(path, key[:60]), f"is unknown; there are {', '.join(readers)}")
    for key in needed:
        if key not in value:
            place = "" if path else f" at the top of {file}"
            raise InvalidField(child(path, key), f"is missing{place}")
    return {key: readers[key](item, child(path, key)) for key, item in value.items()}


def text_of(value: Any, path: str) -> str:
    """A text.

    Raises:
        InvalidField: it is none.
    """
    if not isinstance(value, str):
        raise wrong(path, value, "a text")
    return value


def whole_of(value: Any, path: str) -> int:
    """A whole number.

    Raises:
        InvalidField: it is none.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong(path, value, "a whole number")
    return value


def number_of(value: Any, path: str) -> float:
    """A number.

    Raises:
        InvalidField: it is none.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise wrong(path, value, "a number")
    try:
        return float(value)
    except OverflowError:  # a whole number with hundreds of digits
        raise wrong(path, value, "a number of float64") from None


def flag_of(value: Any, path: str) -> bool:
    """A truth value.

    Raises:
        InvalidField: it is none.
    """
    if not isinstance(value, bool):
        raise wrong(path, value, "true or false")
    return value


def list_of(value: Any, path: str) -> list[Any]:
    """A list.

    Raises:
        InvalidField: it is none.
    """
    if not isinstance(value, list):
        raise wrong(path, value, "a list")
    return value


def table_of(value: Any, path: str) -> dict[str, Any]:
    """A table.

    Raises:
        InvalidField: it is none.
    """
    if not isinstance(value, dict):
        raise wrong(path, value, "a table")
    return value


def wrong(path: str, value: Any, wanted: str) -> InvalidField:
    """The error of a value that is not what is wanted."""
    return InvalidField(path, f"is {clipped(value)}, not {wanted}")
