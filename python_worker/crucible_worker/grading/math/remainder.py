"""Remainders of numbers too large to be written: 10^10^10 mod 7, by Euler's theorem down the tower."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from crucible_worker.grading.math.tree import FunctionCall, Node, Power, Product, Sum

__all__ = ["MAX_HEIGHT", "MAX_MODULUS", "remainder"]

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
