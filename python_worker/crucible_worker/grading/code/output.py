"""Whether a program's output is the expected one.

The output is foreign text: it is read once from its beginning to its end, and no number in it costs more than its
length, which is bounded.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Sequence

from crucible_bridge.types import OutputComparison

__all__ = ["LINES", "MAX_NUMBER_CHARS", "MAX_NUMBER_EXPONENT", "difference"]

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
    allowed = _Allowed(comparison)
    for at, (one, other) in enumerate(zip(written, expected), start=1):
        if one != other and not allowed.same(one, other):
            return f"{unit} {at}"
    return None if len(written) == len(expected) else f"{unit} {min(len(written), len(expected)) + 1}"


def _lines(text: str) -> Sequence[str]:
    text = text.rstrip()
    return [line.rstrip() for line in text.split("\n")] if text else []


class _Allowed:
    """Which differences of tokens, or of lines of tokens, a tolerance accepts."""

    def __init__(self, comparison: OutputComparison) -> None:
        self._absolute = decimal.Decimal(repr(comparison.absolute_tolerance))
        self._relative = decimal.Decimal(repr(comparison.relative_tolerance))
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

    def _close(self, written: str, expected: str) -> bool:
        one, other = _number(written, self._context), _number(expected, self._context)
        if one is None or other is None:
            return False
        (value, whole), (wanted, wanted_whole) = one, other
        if whole and wanted_whole:
            return value == wanted
        exact = self._context
        distance = exact.abs(exact.subtract(value, wanted))
        return distance <= exact.add(self._absolute, exact.multiply(self._relative, exact.abs(wanted)))


def _number(token: str, exact: decimal.Context) -> tuple[decimal.Decimal, bool] | None:
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
