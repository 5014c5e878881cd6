"""Evaluation in a prime field: it proves rational functions equal or different, exactly, in microseconds.

A tree is evaluated at one random point modulo a random prime of 63 bits. Two rational functions that differ agree there
with a probability below their degree / 2^62, and modulo two primes below its square; 0/0 at some points does
not matter, as the point is random. The field contains i and the square roots of the primes below 100, so that
sqrt(12) = 2 sqrt(3) is proven here too.

Everything else is opaque: sin(u) is random for each value of u, but obeys identities without exceptions
(sin^2 + cos^2 = 1, e^(u + v) = e^u e^v, n! = n (n - 1)!). So agreement proves equality of opaque expressions too, while
disagreement says nothing about them.
"""

from __future__ import annotations

import functools
import hashlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from flint import fmpz, nmod

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
    replaced,
)

__all__ = ["MAX_SHIFT", "PRIMES", "ModularEvaluation", "imaginary_unit", "rational_root"]

# Prime fields that contain i and the square roots of small primes.
#
# The primes are drawn at random once, before children are forked. `x + p` is `x` modulo p, so an answer must not know
# p.

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


# Evaluation modulo a prime.


MAX_SHIFT = 32
"""Terms of a sum or product that is written out, factors of a binomial, and of (n + 5)! over n!."""

_MAX_DEGREE_BITS = 256  # of the degree of a root


class ModularEvaluation:
    """Values modulo a prime."""

    __slots__ = ("_anchors", "_bound", "_prime", "_work", "names", "opaque")

    def __init__(self, prime: int, work: Work) -> None:
        self._prime = prime
        self._work = work
        self._bound: dict[str, int] = {}
        self._anchors: dict[int, int] = {}
        self.names: dict[str, None] = {}
        """Evaluated symbols, in order."""
        self.opaque = False
        """Whether anything was opaque, so that disagreement proves nothing."""

    def value(self, node: Node) -> nmod:
        """The value of a tree at the point.

        Raises:
            NoValue: it is not arithmetic, or too much work.
            Undefined: it divides by an expression that is zero at every point.
        """
        work = self._work
        work.steps -= 1
        if work.steps < 0:
            raise NoValue("too much to compute")
        walk = _WALKS.get(type(node))
        if walk is None:
            raise NoValue("not arithmetic")
        return walk(self, node)

    def _rational(self, value: Fraction) -> nmod:
        over = nmod(value.numerator, self._prime)
        if value.denominator == 1:
            return over
        under = nmod(value.denominator, self._prime)
        if not under:  # `is_zero` of nmod is always False
            raise NoValue("a denominator that is a multiple of the prime")
        return over / under

    def _number(self, node: Number) -> nmod:
        return self._rational(node.value)

    def _constant(self, node: Constant) -> nmod:
        if node.name == "infinity":
            raise NoValue("infinity")
        if node.name == "i":
            return imaginary_unit(self._prime)
        # pi is transcendental, so it is like a variable. For pi and e together this is not known.
        self.opaque = self.opaque or node.name == "e"
        return _lot(self._prime, "constant", node.name)

    def _symbol(self, node: Symbol) -> nmod:
        bound = self._bound.get(node.name)
        if bound is not None:
            return nmod(bound, self._prime)
        self.names[node.name] = None
        return _lot(self._prime, "symbol", node.name)

    def _sum(self, node: Sum) -> nmod:
        terms = iter(node.terms)
        total = self.value(next(terms))
        for term in terms:
            total = total + self.value(term)
        return total

    def _product(self, node: Product) -> nmod:
        factors = iter(node.factors)
        result = self.value(next(factors))
        for factor in factors:
            result = result * self.value(factor)
        return result

    def _power(self, node: Power) -> nmod:
        exponent = node.exponent.value if type(node.exponent) is Number else self._work.exact(node.exponent)
        if exponent is None and self._bound:
            known = {name: Number(Fraction(number)) for name, number in self._bound.items()}
            exponent = rational(replaced(node.exponent, known))
        if exponent is None:
            return self._symbolic_power(node.base, node.exponent)
        base = self.value(node.base)
        if exponent.denominator == 1:
            return self._raised(base, exponent.numerator)
        if not base:
            return base if exponent > 0 else self._raised(base, -1)
        whole, rest = divmod(exponent.numerator, exponent.denominator)
        return self._raised(base, whole) * self._root(node.base, base, exponent.denominator) ** rest

    def _lowered(self, node: Quantity | Based) -> nmod:
        return self.value(self._work.lowered(node))

    def _call(self, node: FunctionCall) -> nmod:
        exact = self._work.exact(node)
        if exact is not None:
            return self._rational(exact)
        function = _CALLS.get(node.function)
        if function is not None:
            return function(self, *node.arguments) if len(node.arguments) == _ARITY.get(node.function, 1) else _fail()
        if node.function in ("integral", "limit", "derivative"):
            self.opaque = True
            return _lot(self._prime, "calculus", repr(node))
        return self._draw(node.function, *map(self.value, node.arguments))

    def _draw(self, name: str, *arguments: nmod | int) -> nmod:
        self.opaque = True
        return _lot(self._prime, name, *map(int, arguments))

    def _over(self, left: nmod, right: nmod) -> nmod:
        if not right:
            raise Undefined("division by 0")
        return left / right

    def _raised(self, base: nmod, exponent: int) -> nmod:
        if not base:
            if exponent <= 0:
                raise Undefined("0 to the power of 0" if exponent == 0 else "division by 0")
            return base
        if abs(exponent) >= self._prime:
            exponent %= self._prime - 1  # Fermat's theorem
        return base**exponent

    def _root(self, node: Node, base: nmod, degree: int) -> nmod:
        if degree.bit_length() > _MAX_DEGREE_BITS:
            raise NoValue("a root of a huge degree")
        square = self._work.exact(node) if degree == 2 else None
        if square is not None:
            root = rational_root(self._prime, abs(square))
            if root is not None:
                return root if square > 0 else root * imaginary_unit(self._prime)
        return self._draw("root", degree, base)

    def _symbolic_power(self, base: Node, exponent: Node) -> nmod:
        """b^(k u + v) = (b^u)^k b^v, for every b except 0, and integers k."""
        if base == Constant("e"):
            plain = -1
        else:
            plain = int(self.value(base))
            if plain == 0:
                raise NoValue("a power of 0")
        result = nmod(1, self._prime)
        for term in exponent.terms if type(exponent) is Sum else (exponent,):
            times, rest = _split(term)
            if rest is None:
                root = self.value(base)
            else:
                value = int(self.value(rest))
                if value > self._prime // 2:
                    value, times = self._prime - value, -times
                root = self._draw("power", plain, value) if value else nmod(1, self._prime)
            result = result * self._raised(root, times)
        return result

    def _half_angle(self, of: Node) -> nmod:
        """The tangent of half the angle, an odd function."""
        value = self.value(of)
        if not value:
            return value
        if int(value) > self._prime // 2:
            return -self._draw("half", -value)
        return self._draw("half", value)

    def _sine(self, of: Node) -> nmod:
        half = self._half_angle(of)
        return 2 * half / (1 + half * half)

    def _cosine(self, of: Node) -> nmod:
        square = self._half_angle(of) ** 2
        return (1 - square) / (1 + square)

    def _tangent(self, of: Node) -> nmod:
        return self._over(self._sine(of), self._cosine(of))

    def _cotangent(self, of: Node) -> nmod:
        return self._over(self._cosine(of), self._sine(of))

    def _secant(self, of: Node) -> nmod:
        return self._over(nmod(1, self._prime), self._cosine(of))

    def _cosecant(self, of: Node) -> nmod:
        return self._over(nmod(1, self._prime), self._sine(of))

    def _ratio(self, over: Node, under: Node) -> nmod:
        return self._over(self.value(over), self.value(under))

    def _exponential(self, of: Node) -> nmod:
        return self._power(Power(Constant("e"), of))

    def _logarithm(self, of: Node, base: Node) -> nmod:
        return self._over(self._draw("ln", self.value(of)), self._draw("ln", self.value(base)))

    def _absolute(self, of: Node) -> nmod:
        value = self.value(of)
        return value if not value else self._draw("abs", min(int(value), int(-value)))

    def _factorial(self, of: Node) -> nmod:
        """(n + k)! = n! (n + 1) ... (n + k), for integers k."""
        shift, rest = 0, []
        for term in of.terms if type(of) is Sum else (of,):
            if type(term) is Number and term.value.denominator == 1:
                shift += term.value.numerator
            else:
                rest.append(term)
        if not rest and shift > 0:
            anchor = self._anchor(shift)
            base, shift = nmod(anchor, self._prime), shift - anchor
        elif not rest or abs(shift) > MAX_SHIFT:
            return self._draw("factorial", self.value(of))
        else:
            base = self.value(rest[0] if len(rest) == 1 else Sum(tuple(rest)))
        result = self._draw("factorial", base)
        for step in range(1, shift + 1):
            result = result * (base + step)
        for step in range(shift + 1, 1):
            result = self._over(result, base + step)
        return result

    def _anchor(self, number: int) -> int:
        """A nearby number, the same for a whole neighbourhood: 1000000! is 1000000 times 999999!."""
        block = number // MAX_SHIFT
        for near in (block, block - 1, block + 1):
            anchor = self._anchors.get(near)
            if anchor is not None and abs(anchor - number) <= MAX_SHIFT:
                return anchor
        return self._anchors.setdefault(block, number)

    def _binomial(self, of: Node, chosen: Node) -> nmod:
        count = self._work.exact(chosen)
        if count is not None and count.denominator == 1 and 0 <= count <= MAX_SHIFT:
            value = self.value(of)
            result = self._rational(Fraction(1, math.factorial(count.numerator)))
            for index in range(count.numerator):
                result = result * (value - index)
            return result
        total, over = self.value(of), self.value(chosen)
        # Choosing and leaving are the same.
        return self._draw("binomial", total, *sorted((int(over), int(total - over))))

    def _finite_sum(self, *arguments: Node) -> nmod:
        return sum(self._written_out(arguments), nmod(0, self._prime))

    def _finite_product(self, *arguments: Node) -> nmod:
        return math.prod(self._written_out(arguments), start=nmod(1, self._prime))

    def _written_out(self, arguments: Sequence[Node]) -> list[nmod]:
        variable, start, stop, of = arguments
        first, last = self._work.exact(start), self._work.exact(stop)
        if not isinstance(variable, Symbol) or first is None or last is None:
            raise NoValue("a sum or product that is not written out")
        if first.denominator != 1 or last.denominator != 1 or not first - 1 <= last < first + MAX_SHIFT:
            raise NoValue("a sum or product that is not written out")
        name, shadowed = variable.name, self._bound.get(variable.name)
        # Exponents with the variable are not constants, so cached values of them stay right.
        terms = []
        try:
            for number in range(first.numerator, last.numerator + 1):
                self._bound[name] = number
                terms.append(self.value(of))
        finally:
            if shadowed is None:
                self._bound.pop(name, None)  # an empty range binds nothing
            else:
                self._bound[name] = shadowed
        return terms


def _fail() -> nmod:
    raise NoValue("the wrong number of arguments")


def _split(term: Node) -> tuple[int, Node | None]:
    """An integer factor, and the other factor; None for 1."""
    if type(term) is Number and term.value.denominator == 1:
        return term.value.numerator, None
    if type(term) is Product:
        times, rest = 1, []
        for factor in term.factors:
            if type(factor) is Number and factor.value.denominator == 1:
                times *= factor.value.numerator
            else:
                rest.append(factor)
        if times == 0 or times.bit_length() > 256:
            return 1, term
        if not rest:
            return times, None
        return times, rest[0] if len(rest) == 1 else Product(tuple(rest))
    return 1, term


@functools.lru_cache(maxsize=4096)
def _lot(prime: int, *key: object) -> nmod:
    """A random residue other than 0, always the same one for a key."""
    digest = hashlib.blake2b(repr((prime, *key)).encode(errors="backslashreplace"), digest_size=16).digest()
    return nmod(int.from_bytes(digest) % (prime - 1) + 1, prime)


_WALKS: Mapping[type, Callable[[ModularEvaluation, Any], nmod]] = {
    Number: ModularEvaluation._number,
    Constant: ModularEvaluation._constant,
    Symbol: ModularEvaluation._symbol,
    Sum: ModularEvaluation._sum,
    Product: ModularEvaluation._product,
    Power: ModularEvaluation._power,
    FunctionCall: ModularEvaluation._call,
    Quantity: ModularEvaluation._lowered,
    Based: ModularEvaluation._lowered,
}

_CALLS: Mapping[str, Callable[..., nmod]] = {
    "sin": ModularEvaluation._sine,
    "cos": ModularEvaluation._cosine,
    "tan": ModularEvaluation._tangent,
    "cot": ModularEvaluation._cotangent,
    "sec": ModularEvaluation._secant,
    "csc": ModularEvaluation._cosecant,
    "exp": ModularEvaluation._exponential,
    "ratio": ModularEvaluation._ratio,
    "log": ModularEvaluation._logarithm,
    "abs": ModularEvaluation._absolute,
    "factorial": ModularEvaluation._factorial,
    "binomial": ModularEvaluation._binomial,
    "sum": ModularEvaluation._finite_sum,
    "product": ModularEvaluation._finite_product,
}
_ARITY = {"ratio": 2, "log": 2, "binomial": 2, "sum": 4, "product": 4}
