"""Prime fields that hold i and the square roots of small primes."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

from flint import fmpz, fmpz_mod, fmpz_mod_ctx

__all__ = ["PRIMES", "field_of", "imaginary_unit", "rational_root"]

PRIMES = (197783610176743772528266921, 238890617911369587258054961)
"""1 modulo 8, and squares modulo either are all primes below 100."""
_SMALL = 100
_SMALL_PRIMES = 25
_MAX_BITS = 128  # of what is taken apart into primes


@functools.cache
def field_of(prime: int) -> fmpz_mod_ctx:
    """The integers modulo a prime."""
    return fmpz_mod_ctx(prime)


@functools.cache
def imaginary_unit(prime: int) -> fmpz_mod:
    """A square root of -1."""
    return field_of(prime)(-1).sqrt()


@functools.lru_cache(maxsize=4096)
def rational_root(prime: int, square: Fraction) -> fmpz_mod | None:
    """The square root of a number above zero, if its large prime factors occur an even number of times."""
    over, under = _natural_root(prime, square.numerator), _natural_root(prime, square.denominator)
    return None if over is None or under is None else over / under


def _natural_root(prime: int, square: int) -> fmpz_mod | None:
    if square.bit_length() > _MAX_BITS:
        return None
    one = field_of(prime).one()
    result = one
    for factor, times in fmpz(square).factor(trial_limit=_SMALL_PRIMES):
        root = _root_of_factor(prime, int(factor)) if times % 2 else one
        if root is None:
            return None
        result = result * root * factor ** (times // 2)
    return result


@functools.lru_cache(maxsize=4096)
def _root_of_factor(prime: int, factor: int) -> fmpz_mod | None:
    """Of a small prime, or of a square that is no longer taken apart."""
    if factor < _SMALL:
        return field_of(prime)(factor).sqrt()
    root = math.isqrt(factor)
    return field_of(prime)(root) if root * root == factor else None
