"""Walking a tree of arithmetic with numbers that carry a bound of their error.

If the balls do not decide a question (does this denominator vanish? on which side of a branch cut is this?), there is
no value with so many bits, and more bits are used.

Powers and logarithms are principal, except that an odd root of a negative number is the real one, as taught in schools.
Inverse cotangents of negative numbers, on which the conventions differ, have no value. Factorials and binomials are
those of the gamma function, right of its poles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NoReturn

from crucible_worker.grading.math.balls import Ball, Balls
from crucible_worker.grading.math.evaluate_functions import FUNCTIONS, MAX_TERMS, unknown
from crucible_worker.grading.math.evaluate_work import NotReal, NoValue, Trait, Work
from crucible_worker.grading.math.exact import Undefined
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

__all__ = ["MAX_EXPONENT_BITS", "Evaluation"]

MAX_EXPONENT_BITS = 64
"""Largest integer exponent of a power."""

_ONE = Fraction(1)


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
