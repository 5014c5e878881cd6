"""Polynomials of degree two at most in one variable: their coefficients, and their roots."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

from crucible_worker.grading.math.canonical import rational_or_none
from crucible_worker.grading.math.tree import Node, Number, Power, Product, Sum, Symbol

__all__ = ["MAX_COEFFICIENT_BITS", "Quadratic", "quadratic", "roots"]

MAX_COEFFICIENT_BITS = 512
"""Bits of a numerator or denominator of a coefficient: products of many factors stay cheap."""

Quadratic: TypeAlias = tuple[Fraction, Fraction, Fraction]
"""c, b, a of a x^2 + b x + c."""

_NOTHING = Fraction(0)
_ONE: Quadratic = (Fraction(1), _NOTHING, _NOTHING)


def quadratic(node: Node, name: str) -> Quadratic | None:
    """The coefficients of a formula in a variable; None if they are not rational, or it is not such a polynomial."""
    match node:
        case Symbol(other):
            return (_NOTHING, Fraction(1), _NOTHING) if other == name else None
        case Sum(terms):
            total = (_NOTHING, _NOTHING, _NOTHING)
            for term in terms:
                part = quadratic(term, name)
                if part is None:
                    return None
                total = (total[0] + part[0], total[1] + part[1], total[2] + part[2])
            return _sized(total)
        case Product(factors):
            return _product(factors, name)
        case Power(base, Number(exponent)) if exponent in (1, 2):
            return _product((base,) * int(exponent), name)
        case _:
            value = rational_or_none(node)
            return None if value is None else _sized((value, _NOTHING, _NOTHING))


def _product(factors: tuple[Node, ...], name: str) -> Quadratic | None:
    total: Quadratic | None = _ONE
    for factor in factors:
        part = quadratic(factor, name)
        if part is None or total is None:
            return None
        (c, b, a), (other_c, other_b, other_a) = total, part
        if a * other_b or b * other_a or a * other_a:
            return None
        total = _sized((c * other_c, c * other_b + b * other_c, c * other_a + b * other_b + a * other_c))
    return total


def _sized(coefficients: Quadratic) -> Quadratic | None:
    sizes = (max(value.numerator.bit_length(), value.denominator.bit_length()) for value in coefficients)
    return coefficients if max(sizes) <= MAX_COEFFICIENT_BITS else None


def roots(coefficients: Quadratic) -> tuple[Node, ...]:
    """The roots of a polynomial of degree two, in order: none, a double one, or two."""
    c, b, a = coefficients
    discriminant = (b / (2 * a)) ** 2 - c / a
    if discriminant < 0:
        return ()
    middle = Number(-b / (2 * a))
    if discriminant == 0:
        return (middle,)
    root = Power(Number(discriminant), Number(Fraction(1, 2)))
    exact = rational_or_none(root)
    distance: Node = root if exact is None else Number(exact)
    if isinstance(distance, Number):
        return (Number(middle.value - distance.value), Number(middle.value + distance.value))
    return (Sum((middle, Product((Number(Fraction(-1)), distance)))), Sum((middle, distance)))
