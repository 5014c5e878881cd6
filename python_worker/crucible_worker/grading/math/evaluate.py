"""Walking a tree of arithmetic with numbers that carry their error: what is common to floats and to many digits.

A value is a ball: a number and a bound of its error. What cannot be told from the balls at hand (does this denominator
vanish? on which side of a branch cut does this lie?) has no value in this arithmetic, and is left to a finer one.

Powers and logarithms are principal, except that an odd root of a negative number is the real one, as it is taught.
Inverse cotangents of negative numbers, on which the conventions differ, have no value. Factorials and binomials are
those of the gamma function, right of its poles.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Generic, TypeVar

from crucible_worker.grading.math.evaluate_functions import BOUND_FUNCTIONS, FUNCTIONS, unknown
from crucible_worker.grading.math.evaluate_work import NoValue, Trait, Work
from crucible_worker.grading.math.exact import Undefined
from crucible_worker.grading.math.tree import Based, Call, Constant, Node, Number, Power, Product, Quantity, Sum, Symbol

__all__ = ["MAX_EXPONENT_BITS", "Evaluation"]

MAX_EXPONENT_BITS = 64
"""Of the integer exponents that are raised to."""

_ONE = Fraction(1)

Ball = TypeVar("Ball")


class Evaluation(abc.ABC, Generic[Ball]):
    """The value of trees at a point. Subclasses bring the arithmetic."""

    __slots__ = ("_known", "kinks", "met", "real", "traits", "values", "work")

    def __init__(self, work: Work, values: Mapping[str, Ball], known: dict[int, Ball], *, real: bool) -> None:
        """The value of trees at a point.

        Args:
            work: What this may spend.
            values: Of the symbols.
            known: Values of constant nodes by their ids, which are used and added to.
            real: Refuse what is not real.
        """
        self.work = work
        self._known = known
        self.values = dict(values)
        """Of the symbols."""
        self.real = real
        """Whether what is not real is refused."""
        self.kinks: list[int] = []
        """Signs of the arguments of absolute values and the like, as they were met; 0 where the sign is not known."""
        self.traits = 0
        """Of everything that was met and was not constant: by the bits of `Trait`."""
        self.met = 0
        """Symbols that were met."""

    def value(self, node: Node) -> Ball:
        """The value of a tree.

        Raises:
            NoValue: it has none here.
            Undefined: it certainly has none at this point.
        """
        known = self._known.get(id(node))
        if known is not None:
            return known
        work = self.work
        work.steps -= 1
        if work.steps < 0:
            raise NoValue("too much to compute")
        walk = _WALKS.get(type(node))
        if walk is None:
            raise NoValue("not arithmetic")
        met, traits, kinks = self.met, self.traits, len(self.kinks)
        result = walk(self, node)
        if met == self.met:
            self._known[id(node)] = result
            self.traits = traits
            del self.kinks[kinks:]
        return result

    @abc.abstractmethod
    def number(self, value: Fraction) -> Ball:
        """A rational number."""

    @abc.abstractmethod
    def constant(self, name: str) -> Ball:
        """`pi`, `e` or `i`."""

    @abc.abstractmethod
    def add(self, terms: Sequence[Ball]) -> Ball:
        """The sum."""

    @abc.abstractmethod
    def multiply(self, left: Ball, right: Ball) -> Ball:
        """The product."""

    @abc.abstractmethod
    def integer_power(self, base: Ball, exponent: int) -> Ball:
        """Repeated multiplication; the exponent is not 0."""

    @abc.abstractmethod
    def rational_power(self, base: Ball, exponent: Fraction) -> Ball:
        """A root, raised; the exponent is no integer."""

    @abc.abstractmethod
    def exponential(self, exponent: Ball) -> Ball:
        """A power of e."""

    @abc.abstractmethod
    def logarithm(self, of: Ball) -> Ball:
        """The natural one."""

    @abc.abstractmethod
    def sine(self, of: Ball) -> Ball:
        """The sine."""

    @abc.abstractmethod
    def cosine(self, of: Ball) -> Ball:
        """The cosine."""

    @abc.abstractmethod
    def arcsine(self, of: Ball) -> Ball:
        """The inverse sine."""

    @abc.abstractmethod
    def arctangent(self, of: Ball) -> Ball:
        """The inverse tangent."""

    @abc.abstractmethod
    def absolute(self, of: Ball) -> Ball:
        """The distance from zero."""

    @abc.abstractmethod
    def gamma(self, of: Ball) -> Ball:
        """The gamma function, of a real number above zero."""

    @abc.abstractmethod
    def floor(self, of: Ball) -> int:
        """The greatest integer that is not above a real number."""

    @abc.abstractmethod
    def sign(self, of: Ball) -> int:
        """1, 0 or -1, of a real number."""

    @abc.abstractmethod
    def integer(self, of: Ball) -> int | None:
        """The integer that this certainly is, if it is one."""

    @abc.abstractmethod
    def parts(self, of: Ball) -> tuple[Ball, Ball]:
        """The real and the imaginary part."""

    @abc.abstractmethod
    def phase(self, of: Ball) -> Ball:
        """The angle of a complex number that is not real."""

    @abc.abstractmethod
    def digest(self, of: Ball) -> str:
        """What is the same for equal values, and for hardly any others."""

    def scale(self, of: Ball, by: Fraction) -> Ball:
        """A rational multiple."""
        return self.multiply(of, self.number(by))

    def divide(self, over: Ball, under: Ball) -> Ball:
        """The quotient."""
        return self.multiply(over, self.integer_power(under, -1))

    def observe(self, of: Ball) -> None:
        """Note the sign of what has a kink at zero."""
        self.traits |= Trait.BRANCHES
        try:
            self.kinks.append(self.sign(of))
        except NoValue:
            self.kinks.append(0)


def _number(evaluation: Evaluation[Any], node: Number) -> Any:
    return evaluation.number(node.value)


def _constant(evaluation: Evaluation[Any], node: Constant) -> Any:
    if node.name == "infinity":
        raise NoValue("infinity")
    return evaluation.constant(node.name)


def _symbol(evaluation: Evaluation[Any], node: Symbol) -> Any:
    evaluation.met += 1
    value = evaluation.values.get(node.name)
    if value is None:
        raise NoValue("a symbol without a value")
    return value


def _sum(evaluation: Evaluation[Any], node: Sum) -> Any:
    return evaluation.add([evaluation.value(term) for term in node.terms])


def _product(evaluation: Evaluation[Any], node: Product) -> Any:
    factors = iter(node.factors)
    result = evaluation.value(next(factors))
    for factor in factors:
        result = evaluation.multiply(result, evaluation.value(factor))
    return result


def _power(evaluation: Evaluation[Any], node: Power) -> Any:
    exponent = node.exponent.value if type(node.exponent) is Number else evaluation.work.exact(node.exponent)
    if exponent is None:
        if node.base == Constant("e"):
            return evaluation.exponential(evaluation.value(node.exponent))
        return _general_power(evaluation, evaluation.value(node.base), evaluation.value(node.exponent))
    base = evaluation.value(node.base)
    if exponent.denominator != 1:
        evaluation.traits |= Trait.BRANCHES
        return evaluation.rational_power(base, exponent)
    return _integer_power(evaluation, base, exponent.numerator)


def _integer_power(evaluation: Evaluation[Any], base: Any, exponent: int) -> Any:
    if exponent == 0:
        if evaluation.integer(base) == 0:
            raise Undefined("0 to the power of 0")
        return evaluation.number(_ONE)
    if exponent.bit_length() > MAX_EXPONENT_BITS:
        raise NoValue("a huge exponent")
    return evaluation.integer_power(base, exponent)


def _general_power(evaluation: Evaluation[Any], base: Any, exponent: Any) -> Any:
    whole = evaluation.integer(exponent)
    if whole is not None:
        return _integer_power(evaluation, base, whole)
    if evaluation.integer(base) == 0 and evaluation.sign(exponent) > 0:
        return base
    return evaluation.exponential(evaluation.multiply(exponent, evaluation.logarithm(base)))


def _lowered(evaluation: Evaluation[Any], node: Quantity | Based) -> Any:
    return evaluation.value(evaluation.work.lowered(node))


def _call(evaluation: Evaluation[Any], node: Call) -> Any:
    bound = BOUND_FUNCTIONS.get(node.function)
    if bound is not None:
        return bound(evaluation, node.arguments)
    balls = [evaluation.value(argument) for argument in node.arguments]
    arity, function = FUNCTIONS.get(node.function, (None, None))
    if function is None:
        return unknown(evaluation, node.function, balls)
    if arity != len(balls) and (arity is not None or not balls):
        raise NoValue("the wrong number of arguments")
    return function(evaluation, *balls)


_WALKS: Mapping[type, Callable[[Evaluation[Any], Any], Any]] = {
    Number: _number,
    Constant: _constant,
    Symbol: _symbol,
    Sum: _sum,
    Product: _product,
    Power: _power,
    Call: _call,
    Quantity: _lowered,
    Based: _lowered,
}
