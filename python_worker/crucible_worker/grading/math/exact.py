"""Exact values of constants: rational arithmetic whose every step is bounded before it is taken.

A power, a factorial or a binomial is measured by the bits of its operands before it is computed, so 10^10^10 costs
nothing; its remainder, 10^10^10 mod 7, is still known. Nearly all numbers are short, and for these Python's integers
are two to four times faster than FLINT's fractions. Division by zero has no value, nor has 0^0, on which the
conventions differ. An odd root of a negative number is the real one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

from flint import fmpz

from crucible_worker.grading.math.tree import Based, Constant, FunctionCall, Node, Number, Power, Product, Quantity, Sum

__all__ = [
    "MAX_BITS",
    "MAX_HEIGHT",
    "MAX_MODULUS",
    "MAX_ROOT",
    "MAX_WORK",
    "NoValue",
    "Undefined",
    "Work",
    "based_value",
    "rational",
    "rational_or_none",
    "remainder",
]

# Remainders of numbers too large to be written: 10^10^10 mod 7, by Euler's theorem down the tower.

MAX_HEIGHT = 16
"""Exponents on exponents that are too large to be written."""
MAX_MODULUS = 10**7
"""Largest modulus: its prime factors are found by trial division."""

_LARGE = 64  # above the exponent of any prime in a modulus

Exact = Callable[[Node], Fraction | None]
"""Computes the exact value of a constant, if it is not too large."""


def remainder(node: Node, modulus: int, exact: Exact, height: int = 0) -> int | None:
    """The remainder of a natural number written as sums, products, powers and factorials.

    `height` counts the exponents below this one.

    Returns:
        None if this is unknown, the modulus is not from 1 to `MAX_MODULUS`, or the tower is too high.
    """
    if not 1 <= modulus <= MAX_MODULUS or height > MAX_HEIGHT:
        return None
    value = exact(node)
    if value is not None:
        return value.numerator % modulus if value.denominator == 1 else None
    match node:
        case Sum():
            parts = [remainder(term, modulus, exact, height) for term in node.terms]
            return None if None in parts else sum(part for part in parts if part is not None) % modulus
        case Product():
            result = 1
            for factor in node.factors:
                part = remainder(factor, modulus, exact, height)
                if part is None:
                    return None
                result = result * part % modulus
            return result
        case Power():
            return _power(node, modulus, exact, height)
        case FunctionCall(function="factorial", arguments=(of,)):
            number = exact(of)
            # A factorial from the modulus on is a multiple of it; below, it was small enough to be exact, or open.
            return 0 if number is not None and number.denominator == 1 and number >= modulus else None
        case _:
            return None


def _power(node: Power, modulus: int, exact: Exact, height: int) -> int | None:
    base = remainder(node.base, modulus, exact, height)
    if base is None:
        return None
    exponent = exact(node.exponent)
    if exponent is not None:
        if exponent.denominator != 1 or exponent < 0:
            return None
        return pow(base, exponent.numerator, modulus)
    if not _is_large(node.exponent, exact, height):
        return None
    # b^k = b^(k mod phi + phi) modulo m for every b, if k is at least the exponent of each prime in m.
    order = _totient(modulus)
    rest = remainder(node.exponent, order, exact, height + 1)
    return None if rest is None else pow(base, rest + order, modulus)


def _is_large(node: Node, exact: Exact, height: int) -> bool:
    """Whether a constant certainly is an integer of at least `_LARGE`."""
    if height > MAX_HEIGHT:
        return False
    value = exact(node)
    if value is not None:
        return value.denominator == 1 and value >= _LARGE
    match node:
        case Sum():
            return all(_is_large(term, exact, height) for term in node.terms)
        case Product():
            return all(_is_large(factor, exact, height) for factor in node.factors)
        case Power():
            return _is_counting(node.base, exact, height) and _is_large(node.exponent, exact, height + 1)
        case FunctionCall(function="factorial", arguments=(of,)):
            return _is_large(of, exact, height + 1)
        case _:
            return False


def _is_counting(node: Node, exact: Exact, height: int) -> bool:
    """Whether a constant certainly is an integer of at least 2."""
    value = exact(node)
    return value.denominator == 1 and value >= 2 if value is not None else _is_large(node, exact, height)


def _totient(number: int) -> int:
    result, rest, factor = number, number, 2
    while factor * factor <= rest:
        if rest % factor == 0:
            result -= result // factor
            while rest % factor == 0:
                rest //= factor
        factor += 1 if factor == 2 else 2
    return result - result // rest if rest > 1 else result


MAX_BITS = 32_768
"""Bits of a numerator or denominator: enough for 2,900!, and two such numbers are divided in half a millisecond."""
MAX_WORK = 3_000_000_000
"""Sum over all operations of the product of their operands' bits, and a million for each: about 3 ms."""
MAX_ROOT = 1_024
"""Largest n of the n-th roots that are tried."""

_REDUCED_BITS = 1_024  # fractions longer than this are put into lowest terms at once
_LONG_BITS = 2_048  # from here on FLINT finds a common divisor faster
_MAX_LOG = 64  # numerator and denominator of rational logarithms that are recognised: log_4 8 = 3/2

_STEP_WORK = 1_000_000  # an operation on small numbers takes as long as one on two of a thousand bits

_Ratio = tuple[int, int]


class Undefined(ArithmeticError):
    """A constant has no value: it divides by zero, or is 0^0."""


class _NotRational(Exception):
    """A value is not rational, not constant or too large to be computed."""


def rational(node: Node, refused: set[int] | None = None) -> Fraction | None:
    """The value of a constant, if it is rational and not too large.

    Args:
        node: The constant.
        refused: Ids of living nodes that are known to have no value; new ones are added. Otherwise evaluating each node
            of a deep tree would take time quadratic in its depth.

    Returns:
        None if there is a symbol, an irrational part, or more than `MAX_BITS` or `MAX_WORK` to compute.

    Raises:
        Undefined: the constant has no value.
    """
    if type(node) is Number:
        return node.value
    try:
        numerator, denominator = _Evaluation(set() if refused is None else refused).value(node)
    except _NotRational:
        return None
    return Fraction(numerator, denominator)


def rational_or_none(node: Node) -> Fraction | None:
    """The exact value; also None if there is none."""
    try:
        return rational(node)
    except Undefined:
        return None


def based_value(node: Based) -> Fraction:
    """The value of a numeral in its base; it may have a point."""
    whole, _, behind = node.digits.partition(".")
    return Fraction(int((whole or "0") + behind, node.base), node.base ** len(behind))


class _Evaluation:
    """Evaluates one tree. Values are a numerator and a denominator above zero, not in lowest terms."""

    __slots__ = ("_refused", "_work")

    def __init__(self, refused: set[int]) -> None:
        self._work = MAX_WORK
        self._refused = refused

    def value(self, node: Node) -> _Ratio:
        """The value of a tree.

        Raises:
            Undefined: it has none.
            _NotRational: it has no rational one, or too large a one.
        """
        if id(node) in self._refused:
            raise _NotRational
        try:
            return self._value(node)
        except _NotRational:
            self._refused.add(id(node))
            raise

    def _value(self, node: Node) -> _Ratio:
        match node:
            case Number():
                return node.value.numerator, node.value.denominator
            case Sum():
                return self._sum(node)
            case Product():
                return self._product(node)
            case Power():
                return self.power(self.value(node.base), self.value(node.exponent))
            case FunctionCall():
                return self._call(node)
            case Based():
                value = based_value(node)
                return self.sized(value.numerator, value.denominator)
            case Quantity(unit="percent"):
                numerator, denominator = self.value(node.value)
                return self.sized(numerator, denominator * 100)
            case _:
                raise _NotRational

    def _sum(self, node: Sum) -> _Ratio:
        total, common = 0, 1
        for term in node.terms:
            numerator, denominator = self.value(term)
            if denominator == common:
                total += numerator
            else:
                self.charge(total, denominator)
                self.charge(numerator, common)
                self.charge(common, denominator)
                total, common = total * denominator + numerator * common, common * denominator
            total, common = self.sized(total, common)
        return total, common

    def _product(self, node: Product) -> _Ratio:
        over, under = 1, 1
        for factor in node.factors:
            numerator, denominator = self.value(factor)
            self.charge(over, numerator)
            self.charge(under, denominator)
            over, under = self.sized(over * numerator, under * denominator)
        return over, under

    def power(self, base: _Ratio, exponent: _Ratio) -> _Ratio:
        shared = math.gcd(*exponent)
        over, root = exponent[0] // shared, exponent[1] // shared
        numerator, denominator = base
        if numerator == 0:
            if over <= 0:
                raise Undefined("0 to the power of 0" if over == 0 else "division by 0")
            return 0, 1
        if root != 1:
            numerator, denominator = self._root(self.lowest(base), root)
        if over < 0:
            numerator, denominator = (denominator, numerator) if numerator > 0 else (-denominator, -numerator)
        return self.sized(self._raised(numerator, abs(over)), self._raised(denominator, abs(over)))

    def _raised(self, base: int, exponent: int) -> int:
        if -1 <= base <= 1:
            return base if exponent % 2 else 1
        # |base| >= 2^(bits - 1): an accepted power has at most twice the estimated bits.
        if base.bit_length() * exponent > 2 * MAX_BITS:
            raise _NotRational
        power = base**exponent
        self.charge(power, power)
        return power

    def _root(self, base: _Ratio, degree: int) -> _Ratio:
        if degree > MAX_ROOT or (base[0] < 0 and degree % 2 == 0):
            raise _NotRational
        root = self._integer_root(abs(base[0]), degree)
        return (root if base[0] > 0 else -root), self._integer_root(base[1], degree)

    def _integer_root(self, value: int, degree: int) -> int:
        if value < 2:
            return value
        if value.bit_length() <= degree:
            raise _NotRational
        self.charge(value, value)
        self.charge(value, value)
        root = math.isqrt(value) if degree == 2 else _floor_root(value, degree)
        if root**degree != value:
            raise _NotRational
        return root

    def _call(self, node: FunctionCall) -> _Ratio:
        if node.function == "mod" and len(node.arguments) == 2:
            return self._mod(*node.arguments)
        arity, function = _FUNCTIONS.get(node.function, (None, None))
        if function is None or arity not in (None, len(node.arguments)) or not node.arguments:
            raise _NotRational
        return function(self, *(self.lowest(self.value(argument)) for argument in node.arguments))

    def _mod(self, of: Node, by: Node) -> _Ratio:
        step = self.lowest(self.value(by))
        if step[0] == 0:
            raise Undefined("division by 0")
        try:
            value = self.lowest(self.value(of))
        except _NotRational:
            # The value may only be too large: a tower of powers still has a remainder.
            found = remainder(of, step[0], rational) if step[1] == 1 else None
            if found is None:
                raise
            return found, 1
        common = value[1] * step[1]
        dividend, divisor = value[0] * step[1], step[0] * value[1]
        return self.sized(dividend - dividend // divisor * divisor, common)

    def lowest(self, value: _Ratio) -> _Ratio:
        """In lowest terms."""
        if value[1] == 1:
            return value
        self.charge(*value)
        self.charge(*value)
        if value[1].bit_length() > _LONG_BITS and value[0].bit_length() > _LONG_BITS:
            shared = int(fmpz(value[0]).gcd(value[1]))
        else:
            shared = math.gcd(*value)
        return value[0] // shared, value[1] // shared

    def sized(self, numerator: int, denominator: int) -> _Ratio:
        """The fraction, if it is not too large."""
        if numerator.bit_length() > _REDUCED_BITS or denominator.bit_length() > _REDUCED_BITS:
            numerator, denominator = self.lowest((numerator, denominator))
            if numerator.bit_length() > MAX_BITS or denominator.bit_length() > MAX_BITS:
                raise _NotRational
        return numerator, denominator

    def charge(self, left: int, right: int) -> None:
        """Charge the work of an operation on two integers."""
        self._work -= left.bit_length() * right.bit_length() + _STEP_WORK
        if self._work < 0:
            raise _NotRational


def _floor_root(value: int, degree: int) -> int:
    """Newton's iteration, from a guess just above: it decreases until it converges."""
    bits = math.log2(value) / degree
    shift = max(0, int(bits) - 60)
    guess = int(2.0 ** (bits - shift) * (1 + 2.0**-30) + 1) << shift
    while True:
        better = ((degree - 1) * guess + value // guess ** (degree - 1)) // degree
        if better >= guess:
            return guess
        guess = better


def _integer(value: _Ratio) -> int:
    if value[1] != 1:
        raise _NotRational
    return value[0]


def _floor(_: _Evaluation, value: _Ratio) -> _Ratio:
    return value[0] // value[1], 1


def _ceil(_: _Evaluation, value: _Ratio) -> _Ratio:
    return -(-value[0] // value[1]), 1


def _absolute(_: _Evaluation, value: _Ratio) -> _Ratio:
    return abs(value[0]), value[1]


def _sign(_: _Evaluation, value: _Ratio) -> _Ratio:
    return (value[0] > 0) - (value[0] < 0), 1


def _itself(_: _Evaluation, value: _Ratio) -> _Ratio:
    return value


def _imaginary(_: _Evaluation, value: _Ratio) -> _Ratio:
    return 0, 1


def _factorial(evaluation: _Evaluation, value: _Ratio) -> _Ratio:
    number = _integer(value)
    if number < 0:
        raise Undefined("factorial of a negative integer")
    if number * number.bit_length() > 2 * MAX_BITS:
        raise _NotRational
    result = math.factorial(number)
    evaluation.charge(result, result)
    return evaluation.sized(result, 1)


def _double_factorial(evaluation: _Evaluation, value: _Ratio) -> _Ratio:
    number = _integer(value)
    if number < 0:
        raise _NotRational
    if number * number.bit_length() > 4 * MAX_BITS:
        raise _NotRational
    result = math.prod(range(number, 0, -2))
    evaluation.charge(result, result)
    return evaluation.sized(result, 1)


def _ratio(evaluation: _Evaluation, over: _Ratio, under: _Ratio) -> _Ratio:
    if under[0] == 0:
        raise Undefined("division by 0")
    sign = 1 if under[0] > 0 else -1
    return evaluation.sized(sign * over[0] * under[1], sign * over[1] * under[0])


def _binomial(evaluation: _Evaluation, of: _Ratio, chosen: _Ratio) -> _Ratio:
    total = _integer(of)
    fewer = min(_integer(chosen), total - chosen[0])
    if total < 0:
        raise _NotRational
    if fewer < 0:
        return 0, 1
    if fewer * total.bit_length() > 2 * MAX_BITS:
        raise _NotRational
    result = math.comb(total, fewer)
    evaluation.charge(result, result)
    return evaluation.sized(result, 1)


def _gcd(_: _Evaluation, *values: _Ratio) -> _Ratio:
    return math.gcd(*map(_integer, values)), 1


def _lcm(evaluation: _Evaluation, *values: _Ratio) -> _Ratio:
    result = 1
    for number in map(_integer, values):
        evaluation.charge(result, number)
        result = evaluation.sized(math.lcm(result, number), 1)[0]
    return result, 1


def _least(_: _Evaluation, *values: _Ratio) -> _Ratio:
    return min(values, key=lambda value: Fraction(*value))


def _greatest(_: _Evaluation, *values: _Ratio) -> _Ratio:
    return max(values, key=lambda value: Fraction(*value))


def _logarithm(evaluation: _Evaluation, of: _Ratio, base: _Ratio) -> _Ratio:
    if of[0] == 0 or base[0] == 0 or base == (1, 1):
        raise Undefined("logarithm of 0, or to the base 0 or 1")
    if of[0] < 0 or base[0] < 0:
        raise _NotRational
    near = (math.log(of[0]) - math.log(of[1])) / (math.log(base[0]) - math.log(base[1]))
    if not -MAX_BITS < near < MAX_BITS:
        raise _NotRational
    guess = Fraction(near).limit_denominator(_MAX_LOG)
    if evaluation.power(base, (guess.numerator, 1)) != evaluation.power(of, (guess.denominator, 1)):
        raise _NotRational
    return guess.numerator, guess.denominator


def _natural_logarithm(_: _Evaluation, value: _Ratio) -> _Ratio:
    if value[0] == 0:
        raise Undefined("logarithm of 0")
    if value != (1, 1):
        raise _NotRational
    return 0, 1


_FUNCTIONS: Mapping[str, tuple[int | None, Callable[..., _Ratio]]] = {
    "floor": (1, _floor),
    "ceil": (1, _ceil),
    "abs": (1, _absolute),
    "sign": (1, _sign),
    "re": (1, _itself),
    "conjugate": (1, _itself),
    "im": (1, _imaginary),
    "factorial": (1, _factorial),
    "double factorial": (1, _double_factorial),
    "ratio": (2, _ratio),
    "binomial": (2, _binomial),
    "gcd": (None, _gcd),
    "lcm": (None, _lcm),
    "min": (None, _least),
    "max": (None, _greatest),
    "log": (2, _logarithm),
    "ln": (1, _natural_logarithm),
}
"""Functions of rational arguments: the number of arguments, None for any number, and the function."""


# What the evaluations of one pair share: the remaining budget, results for nodes, and units as numbers.


class NoValue(Exception):
    """This arithmetic cannot determine the value."""


class Work:
    """What all evaluations of one pair share: the steps that are left, and the results for nodes."""

    __slots__ = ("_exact", "_lowered", "_refused", "hidden", "steps")

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.hidden = 0
        """Bits below the leading one in which something matters: agreement in fewer bits does not show it."""
        self._exact: dict[int, Fraction | None] = {}
        self._refused: set[int] = set()
        self._lowered: dict[int, Node] = {}

    def charge(self, steps: int) -> None:
        """Take steps.

        Raises:
            NoValue: none are left.
        """
        self.steps -= steps
        if self.steps < 0:
            raise NoValue("too much to compute")

    def exact(self, node: Node) -> Fraction | None:
        """The exact value of a node, if it is a rational constant. The node must outlive this."""
        if type(node) is Number:
            return node.value
        key = id(node)
        if key not in self._exact:
            self._exact[key] = rational(node, self._refused)
        return self._exact[key]

    def lowered(self, node: Quantity | Based) -> Node:
        """A degree, a percent sign or a base inside arithmetic, as a number: always the same node for a node.

        Raises:
            NoValue: for every other unit.
        """
        result = self._lowered.get(id(node))
        if result is None:
            result = self._lowered[id(node)] = _lowered(node)
        return result


def _lowered(node: Quantity | Based) -> Node:
    if isinstance(node, Based):
        return Number(based_value(node))
    if node.unit == "percent":
        return Product((node.value, Number(Fraction(1, 100))))
    if node.unit == "degree":
        return Product((node.value, Number(Fraction(1, 180)), Constant("pi")))
    raise NoValue("a unit")
