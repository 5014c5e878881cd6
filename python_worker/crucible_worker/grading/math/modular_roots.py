"""Prime fields that hold i and the square roots of small primes."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

from flint import fmpz, nmod

__all__ = ["PRIMES", "imaginary_unit", "rational_root"]

PRIMES = (6502098078659584129, 5638539803553242041)
"""1 modulo 8, and squares modulo either are all primes below 100. Of 63 bits: a residue is a machine word."""
_SMALL = 100
_SMALL_PRIMES = 25
_MAX_BITS = 128  # of what is taken apart into primes


@functools.cache
def imaginary_unit(prime: int) -> nmod:
    """A square root of -1."""
    return nmod(-1, prime).sqrt()


@functools.lru_cache(maxsize=4096)
def rational_root(prime: int, square: Fraction) -> nmod | None:
    """The square root of a number above zero, if its large prime factors occur an even number of times."""
    over, under = _natural_root(prime, square.numerator), _natural_root(prime, square.denominator)
    return None if over is None or under is None else over / under


def _natural_root(prime: int, square: int) -> nmod | None:
    if square.bit_length() > _MAX_BITS:
        return None
    one = nmod(1, prime)
    result = one
    for factor, times in fmpz(square).factor(trial_limit=_SMALL_PRIMES):
        root = _root_of_factor(prime, int(factor)) if times % 2 else one
        if root is None:
            return None
        result = result * root * factor ** (times // 2)
    return result


@functools.lru_cache(maxsize=4096)
def _root_of_factor(prime: int, factor: int) -> nmod | None:
    """Of a small prime, or of a square that is no longer taken apart."""
    if factor < _SMALL:
        return nmod(factor, prime).sqrt()
    root = math.isqrt(factor)
    return nmod(root, prime) if root * root == factor else None
