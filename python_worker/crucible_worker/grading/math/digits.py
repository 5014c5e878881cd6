"""A numeral as its digits: comparisons for one that has too many to be read as a number.

Digits are counted first. They are read only if the number on the other side has as many, and is known exactly.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from fractions import Fraction

__all__ = ["Digits", "digits_of"]

_BITS = math.log2(10)
_CHUNK = 4_000  # digits that Python reads at once
_NUMERAL = re.compile(
    r"(?>(?:\\[(\[]|[\s$])*)([-+\u2212]?)\s*+"
    r"([0-9]*+(?>(?:(?:,\\!|,|\{,\}|\\[,;: ]|[ ~])[0-9]{3}(?![0-9]))*))(?>(?:\.([0-9]*+))?)(?>(?:\\[)\]]|[\s$])*)\.?"
)
_NO_DIGIT = re.compile(r"[^0-9]++")


@dataclasses.dataclass(frozen=True, slots=True)
class Digits:
    """A numeral without redundant zeros."""

    negative: bool
    """It is below zero."""
    whole: str
    """Before the decimal point."""
    decimals: str
    """Behind it."""

    def equals(self, value: Fraction) -> bool:
        """Whether this is the value. Bounded by the size of the value, however many digits there are."""
        over, under = abs(value.numerator), value.denominator
        # A fraction in lowest terms has at most as many decimals as its denominator has bits.
        if len(self.decimals) >= under.bit_length() or not _as_many(len(self.whole), over // under):
            return False
        read = _read(self.whole + self.decimals)
        return read * under == over * 10 ** len(self.decimals) and (read == 0 or self.negative == (value < 0))

    def shortened(self, digits: int) -> Fraction | None:
        """The number up to its first decimals; None if it has more than so many digits before them."""
        if len(self.whole) > digits:
            return None
        decimals = self.decimals[:digits]
        value = Fraction(_read(self.whole + decimals), 10 ** len(decimals))
        return -value if self.negative else value


def digits_of(text: str) -> Digits | None:
    """The digits of a text that is one decimal numeral; None for every other text."""
    match = _NUMERAL.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        return None
    whole, decimals = _NO_DIGIT.sub("", match[2]).lstrip("0"), (match[3] or "").rstrip("0")
    return Digits(match[1] not in ("", "+") and bool(whole or decimals), whole, decimals)


def _as_many(digits: int, number: int) -> bool:
    """Whether a natural number may have so many digits: 10^(n - 1) <= x < 10^n."""
    bits = number.bit_length()
    return (digits - 1) * _BITS <= bits <= digits * _BITS + 1


def _read(digits: str) -> int:
    chunks = (digits[start : start + _CHUNK] for start in range(0, len(digits), _CHUNK))
    return functools.reduce(lambda total, chunk: total * 10 ** len(chunk) + int(chunk), chunks, 0)
