"""Plain values as JSON, on both sides of a sandbox's wall: what cannot be written down here does not cross it.

    null, true, 1, 1.5, "text"      themselves
    [...]                           a list
    {"t": [...]}                    a tuple; "s" a set, "z" a frozenset
    {"d": [[key, value], ...]}      a dict
    {"i": "ff"}, {"f": "nan"}       an integer beyond 64 bits, a float that is not finite
    {"b": "00ff"}, {"c": [1.0, 2.0]}, {"q": ["1", "2"]}, {"m": "1.50"}, {"r": [0, 9, 2]}
                                    bytes, complex, Fraction and Decimal, range

An instance of a subclass is written as what it is besides: a defaultdict as a dict, a named tuple as a tuple. Whatever
a program says of itself, only values of Python's own types come out at the other side.
"""

from __future__ import annotations

import decimal
import fractions
import math
from typing import Any

__all__ = ["MAX_DEPTH", "SOLUTION", "NotPlain", "asking", "decode", "encode"]

MAX_DEPTH = 100
"""Levels of containers."""

SOLUTION = "Solution"
"""The class of whose objects LeetCode's functions are methods."""

_WORD_BITS = 63


class NotPlain(Exception):
    """A value cannot be written down: an object of some other type, or one with too many levels."""


def asking(
    function: str,
    arguments: Any,
    named: Any,
    *,
    of: int | None = None,
    keep: bool = False,
    changes: bool = False,
    solution: bool = False,
) -> dict[str, Any]:
    """What a program is sent so that it calls a function.

    Args:
        function: its name.
        arguments: a list, written down.
        named: a dict, likewise.
        of: which object that the program has kept; the program itself if None.
        keep: whether an object that comes of it is to be kept.
        changes: whether to tell what became of the arguments.
        solution: whether the function may be a method of the class `SOLUTION`, where the program has no such function.
    """
    return {
        "function": function,
        "arguments": arguments,
        "named": named,
        "object": of,
        "keep": keep,
        "changes": changes,
        "solution": solution,
    }


def encode(value: Any, depth: int = 0) -> Any:
    """Write a value down as JSON has it.

    Raises:
        NotPlain: the value, or one in it, is not plain; the text names its type.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _WORD_BITS else {"i": format(int(value), "x")}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"f": repr(float(value))}
    if isinstance(value, str):
        return str(value)
    if depth == MAX_DEPTH:
        raise NotPlain(f"a value with more than {MAX_DEPTH} levels")
    below = depth + 1
    if isinstance(value, list):
        return [encode(item, below) for item in value]
    for kind, name in ((tuple, "t"), (set, "s"), (frozenset, "z")):
        if isinstance(value, kind):
            return {name: [encode(item, below) for item in value]}
    if isinstance(value, dict):
        return {"d": [[encode(key, below), encode(item, below)] for key, item in value.items()]}
    return _encode_rare(value)


def decode(written: Any) -> Any:
    """Read what `encode` wrote.

    Raises:
        ValueError: it is nothing that `encode` writes.
    """
    if isinstance(written, list):
        return [decode(item) for item in written]
    if not isinstance(written, dict):
        return written
    if len(written) != 1:
        raise ValueError("a written value has one mark")
    ((mark, content),) = written.items()
    reader = _READERS.get(mark)
    if reader is None:
        raise ValueError(f"no written value has the mark {mark!r:.20}")
    try:
        return reader(content)
    except (TypeError, ArithmeticError, LookupError) as error:
        raise ValueError(f"malformed behind the mark {mark!r}: {error}") from None


def _encode_rare(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"b": value.hex()}
    if isinstance(value, complex):
        return {"c": [encode(value.real), encode(value.imag)]}
    if isinstance(value, fractions.Fraction):
        return {"q": [format(value.numerator, "x"), format(value.denominator, "x")]}
    if isinstance(value, decimal.Decimal):
        return {"m": str(value)}
    if isinstance(value, range):
        return {"r": [encode(value.start), encode(value.stop), encode(value.step)]}
    raise NotPlain(type(value).__name__[:60])


_READERS = {
    "t": lambda content: tuple(map(decode, content)),
    "s": lambda content: set(map(decode, content)),
    "z": lambda content: frozenset(map(decode, content)),
    "d": lambda content: {decode(key): decode(item) for key, item in content},
    "i": lambda content: int(content, 16),
    "f": lambda content: {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content],
    "b": bytes.fromhex,
    "c": lambda content: complex(*map(decode, content)),
    "q": lambda content: fractions.Fraction(*(int(part, 16) for part in content)),
    "m": decimal.Decimal,
    "r": lambda content: range(*map(decode, content)),
}
