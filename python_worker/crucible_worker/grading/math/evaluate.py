"""The value of an expression as a number with a bound of its error, and that of a constant as a float or decimal.

If the balls do not decide a question (does this denominator vanish? on which side of a branch cut is this?), there is
no value with so many bits, and more bits are used.

Powers and logarithms are principal, except that an odd root of a negative number is the real one, as taught in schools.
Inverse cotangents of negative numbers, on which the conventions differ, have no value. Factorials and binomials are
those of the gamma function, right of its poles.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NoReturn, TypeAlias

from flint import arb

from crucible_worker.grading.math.balls import FEW_BITS, Ball, Balls, NotReal, Trait, rounded
from crucible_worker.grading.math.exact import NoValue, Undefined, Work, rational
from crucible_worker.grading.math.tree import (
    Based,
    Constant,
    FunctionCall,
    Node,
    Number,
    Power,
    Product,
    Quantity,
    Sum,
    Symbol,
)

__all__ = [
    "FUNCTIONS",
    "MAX_DIGITS",
    "MAX_EXPONENT_BITS",
    "MAX_TERMS",
    "Evaluation",
    "approximate",
    "decimal_value",
    "unknown",
]

# The known functions of balls, with the traits of each; an unknown function has random values.

MAX_TERMS = 128
"""Terms of a written-out sum or product, and factors of a binomial."""

_MAX_FACTORIAL = 170  # above, the gamma function is faster than the product
_HALF = Fraction(1, 2)
_ONE = Fraction(1)
_Function: TypeAlias = Callable[[Balls, Ball], Ball]
_JUMPING = Trait.BRANCHES | Trait.JUMPS | Trait.COUNTS


def _quotient(over: _Function, under: _Function) -> _Function:
    return lambda at, of: at.divide(over(at, of), under(at, of))


def _reciprocal(function: _Function) -> _Function:
    return lambda at, of: at.integer_power(function(at, of), -1)


def _arcsine(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.BRANCHES
    return at.arcsine(of)


def _arccosine(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.BRANCHES
    return at.add([at.scale(at.constant("pi"), _HALF), at.scale(at.arcsine(of), -_ONE)])


def _arctangent(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.BRANCHES
    return at.arctangent(of)


def _arccotangent(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.BRANCHES
    sign = at.sign(of)
    if sign < 0:
        raise NotReal("the inverse cotangent of a negative number depends on the convention")
    quarter = at.scale(at.constant("pi"), _HALF)
    return quarter if sign == 0 else at.arctangent(at.integer_power(of, -1))


def _arcsecant(at: Balls, of: Ball) -> Ball:
    return _arccosine(at, at.integer_power(of, -1))


def _arccosecant(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.BRANCHES
    return at.arcsine(at.integer_power(of, -1))


def _hyperbolic_sine(at: Balls, of: Ball) -> Ball:
    power = at.exponential(of)
    return at.scale(at.add([power, at.scale(at.integer_power(power, -1), -_ONE)]), _HALF)


def _hyperbolic_cosine(at: Balls, of: Ball) -> Ball:
    power = at.exponential(of)
    return at.scale(at.add([power, at.integer_power(power, -1)]), _HALF)


def _natural_logarithm(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.BRANCHES
    return at.logarithm(of)


def _logarithm(at: Balls, of: Ball, base: Ball) -> Ball:
    at.traits |= Trait.BRANCHES
    return at.divide(at.logarithm(of), at.logarithm(base))


def _absolute(at: Balls, of: Ball) -> Ball:
    at.observe(of)
    return at.absolute(of)


def _floor(at: Balls, of: Ball) -> Ball:
    at.traits |= _JUMPING
    return at.number(Fraction(at.floor(of)))


def _ceil(at: Balls, of: Ball) -> Ball:
    at.traits |= _JUMPING
    return at.number(Fraction(-at.floor(at.scale(of, -_ONE))))


def _sign(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.BRANCHES | Trait.JUMPS
    return at.number(Fraction(at.sign(of)))


def _real_part(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.CONJUGATES
    return at.parts(of)[0]


def _imaginary_part(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.CONJUGATES
    return at.parts(of)[1]


def _conjugate(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.CONJUGATES
    real, imaginary = at.parts(of)
    if at.integer(imaginary) == 0:
        return real
    return at.add([real, at.scale(imaginary * at.constant("i"), -_ONE)])


def _argument(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.CONJUGATES
    if at.integer(at.parts(of)[1]) != 0:
        return at.phase(of)
    sign = at.sign(of)
    if sign == 0:
        raise Undefined("the argument of 0")
    return at.number(Fraction(0)) if sign > 0 else at.constant("pi")


def _factorial(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.COUNTS
    whole = at.integer(of)
    if whole is not None:
        if whole < 0:
            raise Undefined("factorial of a negative integer")
        if whole <= _MAX_FACTORIAL:
            return at.number(Fraction(math.factorial(whole)))
    return at.gamma(at.add([of, at.number(_ONE)]))


def _double_factorial(at: Balls, of: Ball) -> Ball:
    at.traits |= Trait.COUNTS
    whole = at.integer(of)
    if whole is None or whole < 0:
        raise NotReal("a double factorial of what is no natural number")
    if whole > _MAX_FACTORIAL:
        raise NoValue("a huge double factorial")
    return at.number(Fraction(math.prod(range(whole, 0, -2))))


def _binomial(at: Balls, of: Ball, chosen: Ball) -> Ball:
    at.traits |= Trait.COUNTS
    count = at.integer(chosen)
    if count is not None and count <= MAX_TERMS:
        if count < 0:
            return at.number(Fraction(0))
        result = at.number(Fraction(1, math.factorial(count)))
        for index in range(count):
            result = result * at.add([of, at.number(Fraction(-index))])
        return result
    rest = at.add([of, at.scale(chosen, -_ONE)])
    return at.divide(_factorial(at, of), _factorial(at, chosen) * _factorial(at, rest))


def _modulo(at: Balls, of: Ball, by: Ball) -> Ball:
    at.traits |= _JUMPING
    whole = at.floor(at.divide(of, by))
    return at.add([of, at.scale(by, Fraction(-whole))])


def _integers(at: Balls, balls: Sequence[Ball]) -> list[int]:
    at.traits |= _JUMPING
    numbers = [at.integer(ball) for ball in balls]
    if None in numbers:
        raise NotReal("a divisor of what is no integer")
    return [number for number in numbers if number is not None]


def _greatest_divisor(at: Balls, *balls: Ball) -> Ball:
    return at.number(Fraction(math.gcd(*_integers(at, balls))))


def _least_multiple(at: Balls, *balls: Ball) -> Ball:
    numbers = _integers(at, balls)
    at.work.charge(sum(number.bit_length() for number in numbers) // 64)
    return at.number(Fraction(math.lcm(*numbers)))


def _greatest(at: Balls, *balls: Ball) -> Ball:
    best = balls[0]
    for ball in balls[1:]:
        # The mean and half the distance: if two are too close to be distinguished, the ball contains both.
        lead = _real(at, at.add([best, at.scale(ball, -_ONE)]))
        at.observe(lead)
        best = at.scale(at.add([best, ball, at.absolute(lead)]), _HALF)
    return best


def _least(at: Balls, *balls: Ball) -> Ball:
    return at.scale(_greatest(at, *(at.scale(ball, -_ONE) for ball in balls)), -_ONE)


def _real(at: Balls, ball: Ball) -> Ball:
    real, imaginary = at.parts(ball)
    if at.integer(imaginary) != 0:
        raise NotReal("complex numbers have no order")
    return real


def unknown(at: Balls, name: str, balls: Sequence[Ball]) -> Ball:
    """A random value of an unknown function, always the same one for equal arguments."""
    text = "\0".join([name, *(at.digest(ball) for ball in balls)])
    lot = int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=6).digest())
    return at.number(_HALF + Fraction(lot, 1 << 48))


FUNCTIONS: Mapping[str, tuple[int | None, Callable[..., Ball]]] = {
    "sin": (1, Balls.sine),
    "cos": (1, Balls.cosine),
    "tan": (1, _quotient(Balls.sine, Balls.cosine)),
    "cot": (1, _quotient(Balls.cosine, Balls.sine)),
    "sec": (1, _reciprocal(Balls.cosine)),
    "csc": (1, _reciprocal(Balls.sine)),
    "arcsin": (1, _arcsine),
    "arccos": (1, _arccosine),
    "arctan": (1, _arctangent),
    "arccot": (1, _arccotangent),
    "arcsec": (1, _arcsecant),
    "arccsc": (1, _arccosecant),
    "sinh": (1, _hyperbolic_sine),
    "cosh": (1, _hyperbolic_cosine),
    "tanh": (1, _quotient(_hyperbolic_sine, _hyperbolic_cosine)),
    "coth": (1, _quotient(_hyperbolic_cosine, _hyperbolic_sine)),
    "sech": (1, _reciprocal(_hyperbolic_cosine)),
    "csch": (1, _reciprocal(_hyperbolic_sine)),
    "exp": (1, Balls.exponential),
    "ln": (1, _natural_logarithm),
    "log": (2, _logarithm),
    "abs": (1, _absolute),
    "floor": (1, _floor),
    "ceil": (1, _ceil),
    "sign": (1, _sign),
    "re": (1, _real_part),
    "im": (1, _imaginary_part),
    "conjugate": (1, _conjugate),
    "arg": (1, _argument),
    "factorial": (1, _factorial),
    "double factorial": (1, _double_factorial),
    "binomial": (2, _binomial),
    "ratio": (2, Balls.divide),
    "mod": (2, _modulo),
    "gcd": (None, _greatest_divisor),
    "lcm": (None, _least_multiple),
    "min": (None, _least),
    "max": (None, _greatest),
}
"""Functions of one value each: the number of arguments, None for any number, and the function."""


# A tree of arithmetic is walked.

MAX_EXPONENT_BITS = 64
"""Largest integer exponent of a power."""


class Evaluation:
    """The value of trees at a point."""

    __slots__ = ("_known", "_met", "_values", "_work", "balls")

    def __init__(
        self, work: Work, values: Mapping[str, Ball], known: dict[int, Ball], *, real: bool, bits: int
    ) -> None:
        """The value of trees at a point.

        Args:
            work: The budget.
            values: Those of the symbols.
            known: Values of constant nodes by their ids, which are used and added to.
            real: Refuse values that are not real.
            bits: The bits of numbers.
        """
        self.balls = Balls(work, real=real, bits=bits)
        """The arithmetic, and its notes."""
        self._work = work
        self._known = known
        self._values = dict(values)
        self._met = 0  # number of symbols that were evaluated

    def value(self, node: Node) -> Ball:
        """The value of a tree.

        Raises:
            NoValue: it has none here.
            Undefined: it certainly has none at this point.
        """
        self.balls.use()
        return self._value(node)

    def _value(self, node: Node) -> Ball:
        known = self._known.get(id(node))
        if known is not None:
            return known
        work = self._work
        work.steps -= 1
        if work.steps < 0:
            raise NoValue("too much to compute")
        walk = _WALKS.get(type(node))
        if walk is None:
            raise NoValue("not arithmetic")
        balls = self.balls
        met, traits, kinks = self._met, balls.traits, len(balls.kinks)
        result = walk(self, node)
        if met == self._met:
            self._known[id(node)] = result
            balls.traits = traits
            del balls.kinks[kinks:]
        return result

    def _number(self, node: Number) -> Ball:
        return self.balls.number(node.value)

    def _constant(self, node: Constant) -> Ball:
        if node.name == "infinity":
            raise NoValue("infinity")
        return self.balls.constant(node.name)

    def _symbol(self, node: Symbol) -> Ball:
        self._met += 1
        value = self._values.get(node.name)
        if value is None:
            raise NoValue("a symbol without a value")
        return value

    def _sum(self, node: Sum) -> Ball:
        return self.balls.add([self._value(term) for term in node.terms])

    def _product(self, node: Product) -> Ball:
        factors = iter(node.factors)
        result = self._value(next(factors))
        for factor in factors:
            result = result * self._value(factor)
        return result

    def _power(self, node: Power) -> Ball:
        exponent = node.exponent.value if type(node.exponent) is Number else self._work.exact(node.exponent)
        if exponent is None:
            if node.base == Constant("e"):
                return self.balls.exponential(self._value(node.exponent))
            return self._general_power(self._value(node.base), self._value(node.exponent))
        base = self._value(node.base)
        if exponent.denominator != 1:
            self.balls.traits |= Trait.BRANCHES
            return self.balls.rational_power(base, exponent)
        return self._integer_power(base, exponent.numerator)

    def _integer_power(self, base: Ball, exponent: int) -> Ball:
        if exponent == 0:
            if self.balls.integer(base) == 0:
                raise Undefined("0 to the power of 0")
            return self.balls.number(_ONE)
        if exponent.bit_length() > MAX_EXPONENT_BITS:
            raise NoValue("a huge exponent")
        return self.balls.integer_power(base, exponent)

    def _general_power(self, base: Ball, exponent: Ball) -> Ball:
        whole = self.balls.integer(exponent)
        if whole is not None:
            return self._integer_power(base, whole)
        if self.balls.integer(base) == 0 and self.balls.sign(exponent) > 0:
            return base
        return self.balls.exponential(exponent * self.balls.logarithm(base))

    def _lowered(self, node: Quantity | Based) -> Ball:
        return self._value(self._work.lowered(node))

    def _call(self, node: FunctionCall) -> Ball:
        bound = _BOUND_FUNCTIONS.get(node.function)
        if bound is not None:
            return bound(self, node.arguments)
        balls = [self._value(argument) for argument in node.arguments]
        arity, function = FUNCTIONS.get(node.function, (None, None))
        if function is None:
            return unknown(self.balls, node.function, balls)
        if arity != len(balls) and (arity is not None or not balls):
            raise NoValue("the wrong number of arguments")
        return function(self.balls, *balls)

    def _bounds(self, arguments: Sequence[Node]) -> tuple[str, range, Node]:
        if len(arguments) != 4:
            raise NoValue("a sum or product without its bounds")
        variable, start, stop, of = arguments
        if not isinstance(variable, Symbol):
            raise NoValue("a sum or product without its bounds")
        self.balls.traits |= Trait.COUNTS
        first, last = self.balls.integer(self._value(start)), self.balls.integer(self._value(stop))
        if first is None or last is None:
            raise NotReal("a sum or product to what is no integer")
        if not first - 1 <= last < first + MAX_TERMS:
            raise NoValue("a sum or product that is not written out")
        return variable.name, range(first, last + 1), of

    def _terms(self, arguments: Sequence[Node]) -> list[Ball]:
        name, numbers, of = self._bounds(arguments)
        shadowed = self._values.get(name)
        terms = []
        try:
            for number in numbers:
                self._values[name] = self.balls.number(Fraction(number))
                terms.append(self._value(of))
        finally:
            if shadowed is None:
                self._values.pop(name, None)
            else:
                self._values[name] = shadowed
        return terms

    def _finite_sum(self, arguments: Sequence[Node]) -> Ball:
        return self.balls.add([self.balls.number(Fraction(0)), *self._terms(arguments)])

    def _finite_product(self, arguments: Sequence[Node]) -> Ball:
        result = self.balls.number(_ONE)
        for term in self._terms(arguments):
            result = result * term
        return result

    def _left_to_symbols(self, arguments: Sequence[Node]) -> NoReturn:
        raise NoValue("calculus")


_WALKS: Mapping[type, Callable[[Evaluation, Any], Ball]] = {
    Number: Evaluation._number,
    Constant: Evaluation._constant,
    Symbol: Evaluation._symbol,
    Sum: Evaluation._sum,
    Product: Evaluation._product,
    Power: Evaluation._power,
    FunctionCall: Evaluation._call,
    Quantity: Evaluation._lowered,
    Based: Evaluation._lowered,
}

_BOUND_FUNCTIONS: Mapping[str, Callable[[Evaluation, Sequence[Node]], Ball]] = {
    "sum": Evaluation._finite_sum,
    "product": Evaluation._finite_product,
    "integral": Evaluation._left_to_symbols,
    "limit": Evaluation._left_to_symbols,
    "derivative": Evaluation._left_to_symbols,
}


# The value of a constant as a number: for sorting, rounding, and comparing infinities.


MAX_DIGITS = 100
"""Most digits that can be requested."""

_MAX_STEPS = 2_000
_MIN_BITS = 40
_GUARD_BITS = 64


def approximate(node: Node) -> float | None:
    """The real value of a constant to 12 digits; infinity and its negative as such.

    Returns:
        None if it has symbols or no value, is not real, or is finite but beyond floats.
    """
    infinite = _infinite(node)
    if infinite is not None:
        return infinite
    try:
        value = Evaluation(Work(_MAX_STEPS), {}, {}, real=False, bits=FEW_BITS).value(node)
        if isinstance(value, arb) and value.rel_accuracy_bits() >= _MIN_BITS:
            near = float(value)
            return near if math.isfinite(near) else None
    except NoValue:
        pass  # more bits decide what few bits cannot
    except (Undefined, RecursionError):
        return None
    precise = decimal_value(node, 16)
    if precise is None:
        return None
    try:
        return precise.numerator / precise.denominator
    except OverflowError:
        return None


def decimal_value(node: Node, digits: int) -> Fraction | None:
    """The real value of a constant, exact or to so many significant digits, at most `MAX_DIGITS`.

    Returns:
        None if it has symbols or no value, is not real, or its digits cannot be computed. What seems to be 0 is 0.
    """
    bits = int(min(digits, MAX_DIGITS) * math.log2(10)) + 1
    try:
        exact = rational(node)
        if exact is not None:
            return exact
        evaluation = Evaluation(Work(_MAX_STEPS), {}, {}, real=False, bits=2 * bits + _GUARD_BITS)
        return rounded(evaluation.balls, evaluation.value(node), bits)
    except (NoValue, Undefined, RecursionError):
        return None


def _infinite(node: Node) -> float | None:
    """Plus or minus infinity, times or plus finite terms."""
    match node:
        case Constant(name="infinity"):
            return math.inf
        case Product():
            parts = node.factors
        case Sum():
            parts = node.terms
        case _:
            return None
    found = [value for value in map(_infinite, parts) if value is not None]
    if not found:
        return None
    values = [approximate(part) for part in parts]
    total = 0.0 if isinstance(node, Sum) else 1.0
    for value in values:
        if value is None:
            return None
        total = total + value if isinstance(node, Sum) else total * value
    return total if math.isinf(total) else None
