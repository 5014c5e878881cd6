"""Whether what a program returned or printed equals what is expected.

Both are foreign: no value is built, and no number is read, that costs more than its length.
"""

from __future__ import annotations

import decimal
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.types import OutputComparison
from crucible_worker.grading.code.inside.wire import decode

__all__ = ["LINES", "MAX_NUMBER_CHARS", "MAX_NUMBER_EXPONENT", "Allowed", "difference", "equals", "equals_json"]

# Whether a program's output is the expected one.
#
# The output is foreign text: it is read once from its beginning to its end, and no number in it costs more than its
# length, which is bounded.

LINES = OutputComparison()
"""Line by line, as text."""

MAX_NUMBER_CHARS = 1_000
"""Digits of a number that is compared by value. A longer token is compared as text."""
MAX_NUMBER_EXPONENT = 1_000
"""A number of 10^1000 or more, or below 10^-1000, is compared as text."""

_PART = re.compile(r"\s+|\S+")
_NUMBER = re.compile(
    r"[-+]?(?:(?P<whole>[0-9]++)(?>(?P<point>\.[0-9]*+)?)|\.[0-9]++)(?>(?P<exponent>[eE][-+]?[0-9]++)?)"
)


def difference(output: bytes, expected: str, comparison: OutputComparison) -> str | None:
    """Where an output first differs from the expected one, "line 3" or "token 3"; None if it does not.

    Blanks at the ends of lines and empty lines at the end never count. Linear in the length of both.
    """
    written = output.decode(errors="replace")
    if comparison.by_token:
        return _first_other("token", written.split(), expected.split(), comparison)
    return _first_other("line", _lines(written), _lines(expected), comparison)


def _first_other(
    unit: str, written: Sequence[str], expected: Sequence[str], comparison: OutputComparison
) -> str | None:
    if written == expected:
        return None
    allowed = Allowed(comparison)
    for at, (one, other) in enumerate(zip(written, expected), start=1):
        if one != other and not allowed.same(one, other):
            return f"{unit} {at}"
    return None if len(written) == len(expected) else f"{unit} {min(len(written), len(expected)) + 1}"


def _lines(text: str) -> Sequence[str]:
    text = text.rstrip()
    return [line.rstrip() for line in text.split("\n")] if text else []


_MAX_INTEGER_BITS = 3_300  # as many digits as MAX_NUMBER_CHARS, or fewer
_SURE = 1e-9  # a share of the tolerance, by which floats decide without decimal numbers
_LEAST_SURE, _MOST_SURE = 1e-290, 1e290


class Allowed:
    """Which differences of numbers a tolerance accepts, in tokens, in lines of tokens, and in values."""

    def __init__(self, comparison: OutputComparison) -> None:
        self._absolute = decimal.Decimal(repr(comparison.absolute_tolerance))
        self._relative = decimal.Decimal(repr(comparison.relative_tolerance))
        self._rough = comparison.absolute_tolerance, comparison.relative_tolerance
        self._exact = not (self._absolute or self._relative)
        # Every result is exact: sums reach from 10^2000 down to 10^-2324, which a tolerance can need.
        digits = 8 * MAX_NUMBER_CHARS
        self._context = decimal.Context(prec=digits, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN, traps=[])

    def same(self, written: str, expected: str) -> bool:
        """Whether two texts have the same blanks, and tokens that are equal or within the tolerance."""
        if self._exact:
            return False
        ours, theirs = _PART.findall(written), _PART.findall(expected)
        return len(ours) == len(theirs) and all(
            one == other or self._close(one, other) for one, other in zip(ours, theirs)
        )

    def near(self, written: Any, value: Any, expected: Any) -> bool:
        """Whether a returned number is within the tolerance; two integers must be equal.

        Args:
            written: the number as `wire.encode` writes it.
            value: the same as a plain value, which does not equal the expected one.
            expected: a JSON value.
        """
        if self._exact or type(expected) not in (int, float):
            return False
        if type(value) is float:
            # Decimal numbers are exact, and far slower. They decide only where floats may be rounded.
            try:
                distance, wanted = abs(value - expected), abs(float(expected))
            except OverflowError:
                return False
            most = self._rough[0] + self._rough[1] * wanted
            if _LEAST_SURE < most < _MOST_SURE and abs(distance - most) > _SURE * most + 1e-12 * wanted:
                return distance < most
        return (token := _token_of(written, value)) is not None and self._close(token, repr(expected))

    def _close(self, written: str, expected: str) -> bool:
        one, other = _decimal_number(written, self._context), _decimal_number(expected, self._context)
        if one is None or other is None:
            return False
        (value, whole), (wanted, wanted_whole) = one, other
        if whole and wanted_whole:
            return value == wanted
        exact = self._context
        distance = exact.abs(exact.subtract(value, wanted))
        return distance <= exact.add(self._absolute, exact.multiply(self._relative, exact.abs(wanted)))


def _decimal_number(token: str, exact: decimal.Context) -> tuple[decimal.Decimal, bool] | None:
    """A decimal number's value, and whether it is written as an integer; None if not a number, or beyond the bounds."""
    if len(token) > MAX_NUMBER_CHARS:
        return None
    match = _NUMBER.fullmatch(token)
    if match is None:
        return None
    value = exact.create_decimal(token)
    if not value.is_finite() or (value and abs(value.adjusted()) > MAX_NUMBER_EXPONENT):
        return None
    return value, match["whole"] is not None and match["point"] is None and match["exponent"] is None


# Whether a program's returned value, in its encoded form, equals the expected value.
#
# The program's containers are never built: keys with one hash would take endless time. They are compared with the
# expected ones; those were checked for such hashes when they were read. Numbers that cost more than their length are
# not built either: a Fraction divides by a common divisor, a range counts its members, a Decimal is converted digit by
# digit. An expected value is never one of these, so a plain number of the same value is enough.

_DICTS = frozenset({"d", "counter", "ordered", "default"})
_SETS = frozenset({"s", "z", "keys", "items"})
_CONTAINERS = _DICTS | _SETS | {"t", "named"}
_NEVER = frozenset(
    {"r", "values", "deque", "array", "date", "datetime", "time", "delta", "iterator", "node", "object"}
)  # equal no constant
_MAX_DIMENSIONS = 64  # of an array of numpy
_MAX_KEY_ITEMS = 1_000  # of a frozenset that is a key
_MAX_DECIMAL_DIGITS = 4_300
"""Before and after the point; Python's own limit for integers. A Decimal with more equals nothing."""


class _Other:
    """A value that equals nothing but itself."""


def equals(written: Any, expected: Any) -> bool:
    """Whether an encoded value equals a plain one, by the rules of Python's ==.

    Args:
        written: the output of `wire.encode`, or any other JSON value.
        expected: of Python's built-in types.

    Raises:
        ValueError: it is not a form that `wire.encode` writes.
    """
    if isinstance(written, list):
        return isinstance(expected, list) and _all_equal(written, expected)
    mark, content = _marked(written)
    if mark in ("t", "named"):
        return isinstance(expected, tuple) and _all_equal(_tuple_items(mark, content), expected)
    if mark in _SETS:
        items = _items(content) if mark != "items" else [{"t": list(_entry(entry))} for entry in _items(content)]
        return isinstance(expected, set | frozenset) and _same_items(items, expected)
    if mark in _DICTS:
        return isinstance(expected, dict) and _same_entries(_dict_items(mark, content), expected)
    return not isinstance(expected, list | tuple | set | frozenset | dict) and bool(_plain(written) == expected)


def equals_json(written: Any, expected: Any, allowed: Allowed | None = None) -> bool:
    """Whether an encoded value equals a JSON value: tuples are arrays, keys are texts, true is not 1.

    Args:
        written: the output of `wire.encode`, or any other JSON value.
        expected: the JSON value.
        allowed: the differences of numbers in it that do not count.

    Raises:
        ValueError: it is not a form that `wire.encode` writes.
    """
    mark, content = _marked(written)
    items = written if isinstance(written, list) else _tuple_items(mark, content) if mark in ("t", "named") else None
    if items is not None:
        return (
            isinstance(expected, list)
            and len(items) == len(expected)
            and all(equals_json(item, other, allowed) for item, other in zip(items, expected))
        )
    if mark == "ndarray":
        return _same_rows(*_array(content), expected, allowed)
    if mark in _DICTS:
        return isinstance(expected, dict) and _same_json_entries(_dict_items(mark, content), expected, allowed)
    if mark in _CONTAINERS or isinstance(expected, list | dict):
        return False
    value = _plain(written)
    if isinstance(value, bool) is not isinstance(expected, bool):
        return False
    return bool(value == expected) or (allowed is not None and allowed.near(written, value, expected))


def _token_of(written: Any, value: Any) -> str | None:
    """A number as Python prints it; None if it is none, or very long."""
    if type(value) is int:
        return str(value) if value.bit_length() <= _MAX_INTEGER_BITS else None
    mark, content = _marked(written)
    if mark == "m":
        return str(content)
    if mark == "q":
        numerator, denominator = (int(part, 16) for part in content)
        try:
            return repr(numerator / denominator)
        except ArithmeticError:
            return None
    return repr(value) if type(value) is float else None


def _marked(written: Any) -> tuple[str, Any]:
    if not isinstance(written, dict):
        return "", None
    if len(written) != 1:
        raise ValueError("a written value has one mark")
    return next(iter(written.items()))


def _items(content: Any) -> Sequence[Any]:
    if not isinstance(content, list):
        raise ValueError("a container's content is a list")
    return content


def _tuple_items(mark: str, content: Any) -> Sequence[Any]:
    return _items(content) if mark == "t" else _part(content, 3)


def _dict_items(mark: str, content: Any) -> Sequence[Any]:
    return _part(content, 2) if mark == "default" else _items(content)


def _part(content: Any, count: int) -> Sequence[Any]:
    """The last of so many parts."""
    if not isinstance(content, list) or len(content) != count:
        raise ValueError(f"a container's content has {count} parts")
    return _items(content[-1])


def _all_equal(written: Sequence[Any], expected: Sequence[Any]) -> bool:
    return len(written) == len(expected) and all(equals(item, other) for item, other in zip(written, expected))


def _same_items(written: Sequence[Any], expected: set[Any] | frozenset[Any]) -> bool:
    if len(written) != len(expected):
        return False
    missing = set(expected)
    for item in written:
        key = _key(item)
        if key not in missing:
            return False
        missing.discard(key)
    return True


def _same_entries(written: Sequence[Any], expected: Mapping[Any, Any]) -> bool:
    if len(written) != len(expected):
        return False
    missing = set(expected)
    for entry in written:
        key, value = _entry(entry)
        plain = _key(key)
        if plain not in missing or not equals(value, expected[plain]):
            return False
        missing.discard(plain)
    return True


def _same_json_entries(written: Sequence[Any], expected: Mapping[str, Any], allowed: Allowed | None) -> bool:
    if len(written) != len(expected):
        return False
    missing = set(expected)
    for entry in written:
        key, value = _entry(entry)
        text = key if isinstance(key, str) else json.dumps(key) if not isinstance(key, dict | list) else None
        if text not in missing or not equals_json(value, expected[text], allowed):
            return False
        missing.discard(text)
    return True


def _array(content: Any) -> tuple[Sequence[int], Sequence[Any]]:
    """Shape and items of an array of numpy."""
    items = _part(content, 3)
    shape = _items(content[1])
    if len(shape) > _MAX_DIMENSIONS or not all(type(count) is int and count >= 0 for count in shape):
        raise ValueError("the shape of an array is a list of sizes")
    if math.prod(shape) != len(items) or any(isinstance(item, list) for item in items):
        raise ValueError("an array has as many numbers as its shape says")
    return shape, items


def _same_rows(shape: Sequence[int], items: Sequence[Any], expected: Any, allowed: Allowed | None) -> bool:
    """Whether an array equals nested lists. The lists are walked, because the array may have a billion empty rows."""
    if not shape:
        return equals_json(items[0], expected, allowed)
    if not isinstance(expected, list) or len(expected) != shape[0]:
        return False
    size = len(items) // shape[0] if shape[0] else 0
    rows = (items[at * size : (at + 1) * size] for at in range(len(expected)))
    return all(_same_rows(shape[1:], row, other, allowed) for row, other in zip(rows, expected))


def _entry(entry: Any) -> tuple[Any, Any]:
    if not isinstance(entry, list) or len(entry) != 2:
        raise ValueError("an entry is a key and a value")
    return entry[0], entry[1]


def _key(written: Any) -> Any:
    """A key or an element, which is small."""
    if _count(written) > _MAX_KEY_ITEMS:
        raise ValueError(f"a key of more than {_MAX_KEY_ITEMS:,} parts")
    try:
        key = _plain(written)
        hash(key)
    except TypeError:
        raise ValueError("a key that is not hashable") from None
    return key


def _plain(written: Any) -> Any:
    """An encoded value other than a list, set or dict, as a plain value that equals the same constants.

    Raises:
        ValueError: it is not a form that `wire.encode` writes.
    """
    mark, content = _marked(written)
    match mark:
        case "":
            return written
        case "t" | "named":
            return tuple(map(_plain, _tuple_items(mark, content)))
        case "z":
            return frozenset(map(_plain, _items(content)))
        case _ if mark in _CONTAINERS:
            raise ValueError("a container where none is allowed")
        case "q":
            return _quotient(content)
        case "m":
            return _decimal(content)
        case "ndarray":
            # Python's == of any other array and a constant is no truth value.
            shape, items = _array(content)
            return _Other() if shape else _plain(items[0])
        case "c":
            parts = [_plain(part) for part in _items(content)]
            if len(parts) != 2 or not all(isinstance(part, float) for part in parts):
                raise ValueError("a complex number has two parts")
            return complex(*parts)
        case "bytearray":
            return decode({"b": content})
        case "i" | "f" | "b":
            return decode(written)
        case _ if mark in _NEVER:
            return _Other()
        case _:
            raise ValueError(f"no written value has the mark {mark!r:.20}")


def _quotient(content: Any) -> Any:
    parts = _items(content)
    if len(parts) != 2 or not all(isinstance(part, str) for part in parts):
        raise ValueError("a quotient has two parts")
    numerator, denominator = (int(part, 16) for part in parts)
    return _number(numerator, denominator)


def _decimal(content: Any) -> Any:
    if not isinstance(content, str):
        raise ValueError("a decimal number is a text")
    if len(content) > _MAX_DECIMAL_DIGITS:
        return _Other()
    try:
        value = decimal.Decimal(content)
    except decimal.InvalidOperation:
        raise ValueError("no decimal number") from None
    if value.is_infinite():
        return float(value)
    if value.is_nan() or abs(value.adjusted()) > _MAX_DECIMAL_DIGITS:
        return _Other()
    return _number(*value.as_integer_ratio())


def _number(numerator: int, denominator: int) -> Any:
    """The integer or float that a fraction in lowest terms equals. An interpreter has no fraction in other terms."""
    if denominator == 1:
        return numerator
    if denominator < 1:
        return _Other()
    try:
        value = numerator / denominator
    except OverflowError:
        return _Other()
    return value if math.isfinite(value) and value.as_integer_ratio() == (numerator, denominator) else _Other()


def _count(written: Any) -> int:
    """How many parts an encoded value has."""
    count, waiting = 0, [written]
    while waiting and count <= _MAX_KEY_ITEMS:
        part = waiting.pop()
        count += 1
        if isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, dict):
            waiting.extend(part.values())
    return count
