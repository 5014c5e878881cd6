"""JSON in responses, and whether two values of JSON are equal.

Key order, blanks and the spelling of numbers and of characters do not count: `{"a": 1.0, "b": [1e2]}` equals
`{"b": [100], "a": 1}`. Everything else does: types, the order of an array, missing and further keys.

A response is a value, or has an object or an array in it: bare, in a fence, with prose around it. The last one counts.
One that does not end, or is not JSON, is not replaced by a value before it or within it. An object with an answer, as
`{"reasoning": "...", "answer": [1, 2]}`, also counts as that answer.

Work is linear, and nothing is computed: a number of a million digits or an exponent of a million costs its length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeAlias

from crucible_worker.grading.numbers import canonical_decimal

__all__ = ["BadJson", "difference", "json_of", "read_json"]

# The bracket of a value, not of a set or of words.
_OBJECT_START = re.compile(r"(?<!\\)\{(?=\s*+[\"}])")
_START = re.compile(rf"{_OBJECT_START.pattern}|(?<!\\)\[(?=\s*+(?:[\"{{\[\]0-9-]|true|false|null))")
# Of an array, not of an interval or a citation.
_BEGUN = re.compile(r"\{|\[\s*+[\"{\[]")
_FENCED = re.compile(r"\s*+```(?:json)?\s*+(?P<value>[^`]*+)```\s*+", re.IGNORECASE)
_UNENDED = "Unterminated"
# An attempt that fails costs what it read, and a little for each character before it.
_MAX_FAILED = 500
_WORK_PER_CHARACTER = 4
_ANSWERS = ("answer", "finalanswer")
_JOINTS = str.maketrans("", "", "_- ")
_MAX_SHOWN = 40  # characters of a key or a value in a reason
_NAME = re.compile(r"[A-Za-z_]\w{0,60}", re.ASCII)

_Path: TypeAlias = "tuple[_Path, str | int] | None"


class BadJson(ValueError):
    """A text has no value of JSON; the message says why, as the end of a sentence."""


class _Decimal(str):
    """A number, as it is written."""

    __slots__ = ()


def read_json(text: str) -> Any:
    """Read a text that is one value of JSON.

    Raises:
        BadJson: it is not.
    """
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise BadJson(f"is not JSON: {error.msg} at character {error.pos:,}") from None
    except RecursionError:
        raise BadJson("is nested too deep") from None


def json_of(response: str, *, objects_only: bool) -> Any:
    """The value in a response.

    Args:
        response: the response, without its reasoning.
        objects_only: only an object can be meant, so that arrays outside of one are prose: a citation, "[1]".

    Raises:
        BadJson: there is none, or the last one does not end.
    """
    fenced = _FENCED.fullmatch(response)
    try:
        return read_json(fenced["value"] if fenced else response)
    except BadJson:
        return _last_value(response, _OBJECT_START if objects_only else _START)


def _last_value(response: str, start: re.Pattern[str]) -> Any:
    found: list[Any] = []
    at, end = 0, len(response.rstrip())
    work, failed = _WORK_PER_CHARACTER * len(response), 0
    while (bracket := start.search(response, at)) is not None:
        at = bracket.start()
        try:
            value, at = _DECODER.raw_decode(response, at)
        except json.JSONDecodeError as error:
            if _BEGUN.match(response, at) or error.pos >= end or error.msg.startswith(_UNENDED):
                raise BadJson(f"has JSON that does not end, or is wrong at character {error.pos:,}") from None
            work, failed = work - (error.pos - at), failed + 1
            at += 1
        except RecursionError:
            raise BadJson("is nested too deep") from None
        else:
            found = [value]
        if work < 0 or failed > _MAX_FAILED:
            raise BadJson("has more brackets than are read")
    if not found:
        raise BadJson("has no JSON")
    return found[0]


def difference(target: Any, answer: Any, text: Callable[[str], str]) -> str:
    """The first difference of two values, with its path; empty if they are equal.

    Args:
        target: the right value.
        answer: the value of a response; if it is an object with an answer, that may be equal instead.
        text: normalises a text, so that some differences do not count.
    """
    found = _first_difference(target, answer, text)
    if not found or not isinstance(answer, dict):
        return found
    by_key = {key.translate(_JOINTS).casefold(): value for key, value in answer.items()}
    inner = [by_key[key] for key in _ANSWERS if key in by_key]
    return "" if inner and not _first_difference(target, inner[-1], text) else found


def _first_difference(target: Any, answer: Any, text: Callable[[str], str]) -> str:
    left: list[tuple[_Path, Any, Any]] = [(None, target, answer)]
    while left:
        path, one, other = left.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            if (odd := next(_odd_keys(one, other), None)) is not None:
                return f"{_shown((path, odd))} is {'missing' if odd in one else 'not in the target'}"
            left.extend(((path, key), one[key], other[key]) for key in reversed(one))
        elif isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return f"{_shown(path)} has {len(other):,} elements, not {len(one):,}"
            left.extend(((path, at), one[at], other[at]) for at in reversed(range(len(one))))
        elif (kind := _kind(one)) != _kind(other):
            return f"{_shown(path)} is {_kind(other)}, not {kind}"
        elif not _are_equal(one, other, text):
            return f"{_shown(path)} is {_clipped(other)}, not {_clipped(one)}"
    return ""


def _are_equal(one: Any, other: Any, text: Callable[[str], str]) -> bool:
    """Whether two values of one kind, neither objects nor arrays, are equal."""
    if one == other:
        return True
    if isinstance(one, _Decimal):
        value = canonical_decimal(one)
        return value is not None and value == canonical_decimal(other)
    return isinstance(one, str) and text(one) == text(other)


def _odd_keys(one: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    yield from (key for key in one if key not in other)
    yield from (key for key in other if key not in one)


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case _Decimal():
            return "a number"
        case str():
            return "a text"
        case list():
            return "an array"
        case _:
            return "an object"


def _clipped(value: Any) -> str:
    shown = value if isinstance(value, _Decimal) else json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= _MAX_SHOWN else shown[:_MAX_SHOWN] + "..."


def _shown(path: _Path) -> str:
    """A path as `$.arguments.days[0]`; its end, if it is long."""
    parts: list[str] = []
    while path is not None and len(parts) < _MAX_SHOWN:
        path, key = path
        parts.append(f".{key}" if isinstance(key, str) and _NAME.fullmatch(key) else f"[{_clipped(key)}]")
    return ("$" if path is None else "...") + "".join(reversed(parts))


def _constant(text: str) -> NoReturn:
    raise BadJson(f"has {text}, which JSON has not")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise BadJson(f"has the key {_clipped(twice)} twice")
    return found


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_Decimal, parse_float=_Decimal, parse_constant=_constant
)
