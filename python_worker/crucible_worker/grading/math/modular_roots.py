"""Prime fields that hold i and the square roots of small primes."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

__all__ = ["PRIMES", "imaginary_unit", "rational_root"]

PRIMES = (197783610176743772528266921, 238890617911369587258054961)
"""1 modulo 8, and squares modulo either are all primes below 100. Numbers of 88 bits are as fast as of 61."""
_SMALL_PRIMES = tuple(n for n in range(2, 100) if all(n % d for d in range(2, n)))
_MAX_BITS = 128  # of what is taken apart into primes


@functools.cache
def imaginary_unit(prime: int) -> int:
    """A square root of -1."""
    return _field_root(prime, prime - 1)


@functools.cache
def _field_root(prime: int, square: int) -> int:
    """A square root modulo a prime, by Cipolla's algorithm."""
    shift = 0
    while pow(shift * shift - square, (prime - 1) // 2, prime) != prime - 1:
        shift += 1
    beyond = (shift * shift - square) % prime
    # (shift + sqrt(beyond)) to the power of (prime + 1) / 2.
    result, base, exponent = (1, 0), (shift, 1), (prime + 1) // 2
    while exponent:
        if exponent & 1:
            result = _pair_product(result, base, beyond, prime)
        base = _pair_product(base, base, beyond, prime)
        exponent >>= 1
    return result[0]


def _pair_product(left: tuple[int, int], right: tuple[int, int], beyond: int, prime: int) -> tuple[int, int]:
    return (
        (left[0] * right[0] + left[1] * right[1] * beyond) % prime,
        (left[0] * right[1] + left[1] * right[0]) % prime,
    )


@functools.lru_cache(maxsize=4096)
def rational_root(prime: int, square: Fraction) -> int | None:
    """The square root of a number above zero, where its prime factors are small or their exponents even."""
    over, under = _natural_root(prime, square.numerator), _natural_root(prime, square.denominator)
    return None if over is None or under is None else over * pow(under, -1, prime) % prime


def _natural_root(prime: int, square: int) -> int | None:
    if square.bit_length() > _MAX_BITS:
        return None
    result = 1
    for small in _SMALL_PRIMES:
        count = 0
        while square % small == 0:
            square //= small
            count += 1
        result = result * small ** (count // 2) % prime
        if count % 2:
            result = result * _field_root(prime, small) % prime
    rest = math.isqrt(square)
    return result * rest % prime if rest * rest == square else None
