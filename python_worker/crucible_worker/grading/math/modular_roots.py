"""Prime fields that contain i and the square roots of small primes.

The primes are drawn at random once, before children are forked. `x + p` is `x` modulo p, so an answer must not know p.
"""

from __future__ import annotations

import functools
import math
import random
from fractions import Fraction

from flint import fmpz, nmod

__all__ = ["PRIMES", "imaginary_unit", "rational_root"]

_SMALL = 100
_SMALL_PRIMES = tuple(n for n in range(2, _SMALL) if all(n % d for d in range(2, n)))
_BITS = 63  # a residue is a machine word
_CONSTRUCTED = 43  # up to here the small primes are squares by construction
_MAX_BITS = 128  # of numbers that are factored


def _drawn(lot: random.Random) -> int:
    """A prime that is 1 modulo 8, and modulo which all primes below 100 are squares.

    By quadratic reciprocity they are squares if it is a square modulo each of them.
    """
    odd = _SMALL_PRIMES[1:]
    modulus = 8 * math.prod(prime for prime in odd if prime <= _CONSTRUCTED)
    squares = [(prime, {n * n % prime for n in range(1, prime)}) for prime in odd if prime > _CONSTRUCTED]
    least = ((1 << (_BITS - 1)) // modulus + 1) * modulus
    while True:
        root = lot.randrange(1, modulus, 2)
        if math.gcd(root, modulus) > 1:
            continue
        for found in range(least + root * root % modulus, 1 << _BITS, modulus):
            for prime, square in squares:
                if found % prime not in square:
                    break
            else:
                if fmpz(found).is_prime():
                    return found


PRIMES = (_drawn(random.SystemRandom()), _drawn(random.SystemRandom()))
"""The primes of this process and of its forks."""


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
    for factor, times in fmpz(square).factor(trial_limit=len(_SMALL_PRIMES)):
        root = _root_of_factor(prime, int(factor)) if times % 2 else one
        if root is None:
            return None
        result = result * root * factor ** (times // 2)
    return result


@functools.lru_cache(maxsize=4096)
def _root_of_factor(prime: int, factor: int) -> nmod | None:
    """The root of a small prime, or of a square that is not factored further."""
    if factor < _SMALL:
        return nmod(factor, prime).sqrt()
    root = math.isqrt(factor)
    return nmod(root, prime) if root * root == factor else None
