"""Numbers that are not written out: those that dots leave out, and the size and digits of those too large to compute.

1000000! has 5,565,709 digits, whatever they are. A size is bounds of the decimal logarithm of the absolute value. It is
computed from the tree in floats, so a tower of powers costs as little as a sum.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

from crucible_worker.grading.math.exact import Undefined, rational, rational_or_none
from crucible_worker.grading.math.tree import (
    Based,
    Collection,
    Constant,
    FunctionCall,
    Node,
    Number,
    Power,
    Product,
    Sum,
    Symbol,
)

__all__ = [
    "DOTS",
    "MAX_SMALL_DIGITS",
    "MAX_WRITTEN_OUT",
    "Digits",
    "Size",
    "digits_of",
    "size_of",
    "value_of",
    "written_out",
]

# Lists, sums and products with dots: the terms that `1, 2, \ldots, 10` leaves out, if only one progression fits.

DOTS = Symbol("...")
"""The dots."""
MAX_WRITTEN_OUT = 1_000
"""Items of a list that is written out."""
_MAX_PART = 10**9  # of a term or factor: a product of 1,000 such numbers has 9,000 digits


def written_out(target: Collection, answer: Collection) -> tuple[Collection, Collection]:
    """Two lists with their dots written out, if their meaning is clear; otherwise unchanged."""
    if target.items[-1:] == answer.items[-1:] == (DOTS,):
        return _equally_long(target, answer)
    return _full(target), _full(answer)


def value_of(node: Node) -> Number | None:
    r"""The value of a sum of numbers with dots, or of a product, `1 + 2 + \cdots + 10`; None for any other tree."""
    match node:
        case Sum(parts) | Product(parts) if parts.count(DOTS) == 1:
            values = _values(_full(Collection("list", parts)).items)
        case _:
            return None
    if values is None or any(max(abs(value.numerator), value.denominator) > _MAX_PART for value in values):
        return None
    return Number(sum(values, Fraction(0)) if isinstance(node, Sum) else math.prod(values, start=Fraction(1)))


def _full(node: Collection) -> Collection:
    if node.items.count(DOTS) != 1 or node.items[-1] == DOTS:
        return node
    place = node.items.index(DOTS)
    before, after = _values(node.items[:place]), _values(node.items[place + 1 :])
    if not before or not after:
        return node
    found = [written for written in _progressions(before, after) if written is not None]
    if not found or len(found) > 1:
        return node
    return Collection(node.kind, tuple(map(Number, found[0])))


def _values(nodes: tuple[Node, ...]) -> list[Fraction] | None:
    values = [rational_or_none(node) for node in nodes]
    return None if None in values else [value for value in values if value is not None]


def _progressions(before: list[Fraction], after: list[Fraction]) -> list[list[Fraction] | None]:
    """The arithmetic progression and the geometric one with this beginning and this end; None if there is none.

    Two neighbouring integers mean the arithmetic one: 1, 2, ..., 64 counts.
    """
    if len(before) == 1:
        if before[0].denominator != 1:
            return []
        step = Fraction(1 if after[-1] > before[0] else -1)
        return [_arithmetic(before, step, after)]
    arithmetic = _arithmetic(before, before[1] - before[0], after)
    if arithmetic is not None and abs(before[1] - before[0]) == 1:
        return [arithmetic]
    return [arithmetic, _geometric(before, after)]


def _arithmetic(before: list[Fraction], step: Fraction, after: list[Fraction]) -> list[Fraction] | None:
    if step == 0 or any(two - one != step for one, two in itertools.pairwise(before)):
        return None
    count = (after[-1] - before[0]) / step + 1
    if count.denominator != 1 or not len(before) + len(after) <= count <= MAX_WRITTEN_OUT:
        return None
    written = [before[0] + number * step for number in range(int(count))]
    return written if written[-len(after) :] == after else None


def _geometric(before: list[Fraction], after: list[Fraction]) -> list[Fraction] | None:
    if 0 in before or abs(ratio := before[1] / before[0]) in (0, 1):
        return None
    written = [before[0]]
    limit = abs(after[-1])
    while (abs(written[-1]) < limit) if abs(ratio) > 1 else (abs(written[-1]) > limit):
        written.append(written[-1] * ratio)
        if len(written) > MAX_WRITTEN_OUT or limit == 0:
            return None
    fits = len(written) >= len(before) + len(after) and written[: len(before)] == before
    return written if fits and written[-len(after) :] == after else None


def _equally_long(target: Collection, answer: Collection) -> tuple[Collection, Collection]:
    """Two lists that never end, the shorter beginning extended to the other's length: 2, 4, ... and 2, 4, 6, ..."""
    shorter, longer = sorted((target, answer), key=lambda node: len(node.items))
    values, others = _values(shorter.items[:-1]), _values(longer.items[:-1])
    if not values or not others or len(values) < 2 or len(values) == len(others) or others[: len(values)] != values:
        return target, answer
    steps = {two - one for one, two in itertools.pairwise(others)}
    ratios = {two / one for one, two in itertools.pairwise(others)} if 0 not in others else set[Fraction]()
    if len(steps) != 1 and (len(ratios) != 1 or len(values) == 2):
        return target, answer
    return longer, longer


# A numeral as its digits: comparisons for one that has too many to be read as a number.
#
# Digits are counted first. They are read only if the number on the other side has as many, and is known exactly.

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


# Bounds of the logarithm of a value.


MAX_SMALL_DIGITS = 1_000
"""Digits of a number that is not outsize, before or after the decimal point."""

_CAP, _CAP_SIZE = 1e300, 300.0  # no lower bound is above this one, and no upper bound below its negative
_MARGIN = 1e-9  # relative and absolute, for the rounding of floats
_LOG_E = math.log10(math.e)
_MIN_STIRLING = 3.0  # from here on n! >= (n/e)^n > 1


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """Bounds of log10|v|; both are minus infinity for zero."""

    low: float
    """It is at least this."""
    high: float
    """It is at most this."""
    sign: int = 0
    """1 or -1 of a real number that is not zero; 0 if this is not known."""

    @property
    def outsize(self) -> bool:
        """Whether the value certainly has, or is one over, a number of more than `MAX_SMALL_DIGITS` digits."""
        return self.low >= MAX_SMALL_DIGITS or (self != _ZERO and self.high <= -MAX_SMALL_DIGITS)

    @property
    def small(self) -> bool:
        """Whether it certainly has no such number."""
        return self == _ZERO or (self.low > -MAX_SMALL_DIGITS and self.high < MAX_SMALL_DIGITS)

    def apart(self, other: Size) -> bool:
        """Whether the values certainly differ: one is more than ten times the other."""
        return self.low > other.high + 1 or other.low > self.high + 1


_ZERO = Size(-math.inf, -math.inf)
_ONE = Size(0.0, 0.0, 1)
_CONSTANTS: Mapping[str, Size] = {
    "pi": Size(math.log10(3.14), math.log10(3.15), 1),
    "e": Size(math.log10(2.71), math.log10(2.72), 1),
    "i": Size(0.0, 0.0),
}


def size_of(node: Node, values: Mapping[str, int] | None = None) -> Size | None:
    """How large a value is.

    Args:
        node: The value's tree.
        values: Those of the variables, natural numbers above zero.

    Returns:
        None if there is a variable without a value, or a function without a known size.
    """
    values = {} if values is None else values
    match node:
        case Number(value):
            return _of_number(value)
        case Constant(name):
            return _CONSTANTS.get(name)
        case Symbol(name):
            return _of_number(Fraction(values[name])) if name in values else None
        case Sum(terms):
            return _sum(_sizes(terms, values))
        case Product(factors):
            return _product(_sizes(factors, values))
        case Power(base, exponent):
            return _power(base, exponent, values)
        case FunctionCall(function, arguments):
            return _call(function, arguments, values)
        case Based():
            return _exact(node)
        case _:
            return None


def _of_number(value: Fraction) -> Size:
    if value == 0:
        return _ZERO
    size = math.log10(abs(value.numerator)) - math.log10(value.denominator)
    return _bounded(size, size, 1 if value > 0 else -1)


def _exact(node: Node) -> Size | None:
    try:
        value = rational(node)
    except Undefined:
        return None
    return None if value is None else _of_number(value)


def _bounded(low: float, high: float, sign: int) -> Size:
    """Bounds with a margin, and without infinite ones that claim more than is known."""
    low, high = min(low, _CAP), max(high, -_CAP)
    return Size(low - _MARGIN * (1 + abs(low)), high + _MARGIN * (1 + abs(high)), sign)


def _sizes(nodes: Sequence[Node], values: Mapping[str, int]) -> list[Size] | None:
    found: list[Size] = []
    for node in nodes:
        size = size_of(node, values)
        if size is None:
            return None
        found.append(size)
    return found


def _sum(sizes: list[Size] | None) -> Size | None:
    if sizes is None:
        return None
    *others, largest = sorted(sizes, key=lambda size: size.low)
    if largest == _ZERO:
        return _ZERO
    others = [size for size in others if size != _ZERO]
    grown = math.log10(len(sizes))
    high = max(size.high for size in sizes) + grown
    if largest.sign and all(size.sign == largest.sign for size in others):
        return _bounded(largest.low, high, largest.sign)
    if all(largest.low > size.high + grown + 1 for size in others):
        return _bounded(largest.low - 1, high, largest.sign)
    return _bounded(-math.inf, high, 0)


def _product(sizes: list[Size] | None) -> Size | None:
    if sizes is None or _ZERO in sizes:
        return None if sizes is None else _ZERO
    sign = math.prod(size.sign for size in sizes)
    return _bounded(sum(size.low for size in sizes), sum(size.high for size in sizes), sign)


def _power(base: Node, exponent: Node, values: Mapping[str, int]) -> Size | None:
    raised, times = size_of(base, values), size_of(exponent, values)
    if raised is None or times is None or not times.sign:
        return None
    if raised == _ZERO:
        return _ZERO if times.sign > 0 else None
    counts = (_at_least(times.low), _at_most(times.high))
    bounds = [_times(count, size) for count in counts for size in (raised.low, raised.high)]
    low, high = min(bounds), max(bounds)
    if times.sign < 0:
        low, high = -high, -low
    return _bounded(low, high, raised.sign if raised.sign >= 0 else _sign_of_power(exponent))


def _sign_of_power(exponent: Node) -> int:
    """The sign of a power of a negative number."""
    if not isinstance(exponent, Number) or exponent.value.denominator != 1:
        return 0
    return -1 if exponent.value.numerator % 2 else 1


def _times(count: float, size: float) -> float:
    return 0.0 if size == 0 else count * size


def _at_least(size: float) -> float:
    return min(10.0 ** min(size, _CAP_SIZE), _CAP)


def _at_most(size: float) -> float:
    return 10.0**size if size < _CAP_SIZE else math.inf


def _call(function: str, arguments: Sequence[Node], values: Mapping[str, int]) -> Size | None:
    exact = _exact(FunctionCall(function, tuple(arguments)))
    if exact is not None or not arguments:
        return exact
    first = size_of(arguments[0], values)
    if function == "abs":
        return first if first is None or not first.sign else dataclasses.replace(first, sign=1)
    if function in ("factorial", "double factorial"):
        return _factorial(first, double=function == "double factorial")
    if function == "exp":
        return _power(Constant("e"), arguments[0], values)
    if function == "binomial" and len(arguments) == 2:
        return _binomial(*arguments)
    return None


def _factorial(of: Size | None, *, double: bool) -> Size | None:
    """(n/e)^n <= n! <= n^n, and n!! is between the root of n! and n!."""
    if of is None or of.sign <= 0:
        return None
    least, most = _at_least(of.low), _at_most(of.high)
    if least < _MIN_STIRLING:
        return None
    low = least * (of.low - _LOG_E)
    return _bounded(low / 2 if double else low, most * of.high, 1)


def _binomial(of: Node, chosen: Node) -> Size | None:
    """(n/k)^k <= n over k <= (e n/k)^k, of natural numbers that are written out."""
    try:
        total, count = rational(of), rational(chosen)
    except Undefined:
        return None
    if total is None or count is None or total.denominator != 1 or count.denominator != 1:
        return None
    fewer = min(count, total - count)
    if fewer <= 0:
        return None
    size = math.log10(fewer.numerator)
    each = math.log10(total.numerator) - size
    return _bounded(_at_least(size) * each, _at_most(size) * (each + _LOG_E), 1)
