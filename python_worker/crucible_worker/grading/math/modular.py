"""Evaluation in a prime field: what proves rational functions equal or different, exactly, in microseconds.

A tree is evaluated at one random point modulo a prime of 88 bits. Two rational functions that differ agree there with
a probability below their degree / 2^88; what is 0/0 at some points does not matter, as the point is random. The field
holds i and the square roots of the primes below 100, so that sqrt(12) = 2 sqrt(3) is seen here too.

Everything else is opaque: sin(u) is drawn by lot for each value of u, only that it obeys what holds without exception
(sin^2 + cos^2 = 1, e^(u + v) = e^u e^v, n! = n (n - 1)!). So agreement proves equality of opaque expressions too, while
disagreement says nothing about them.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from crucible_worker.grading.math.evaluate_work import NoValue, Work
from crucible_worker.grading.math.exact import Undefined, rational
from crucible_worker.grading.math.modular_roots import imaginary_unit, rational_root
from crucible_worker.grading.math.tree import Based, Call, Constant, Node, Number, Power, Product, Quantity, Sum, Symbol
from crucible_worker.grading.math.walk import replaced

__all__ = ["MAX_SHIFT", "ModularEvaluation"]

MAX_SHIFT = 32
"""Terms of a sum or product that is written out, factors of a binomial, and of (n + 5)! over n!."""

_Residue = tuple[int, int]


class ModularEvaluation:
    """Values modulo a prime, each a numerator and a denominator: one division at the end is enough."""

    __slots__ = ("_anchors", "_bound", "_prime", "_work", "names", "opaque")

    def __init__(self, prime: int, work: Work) -> None:
        self._prime = prime
        self._work = work
        self._bound: dict[str, int] = {}
        self._anchors: dict[int, int] = {}
        self.names: dict[str, None] = {}
        """Symbols that were met, in their order."""
        self.opaque = False
        """Whether anything was opaque, so that disagreement means nothing."""

    def same(self, left: _Residue, right: _Residue) -> bool:
        """Whether two values are equal."""
        return (left[0] * right[1] - right[0] * left[1]) % self._prime == 0

    def value(self, node: Node) -> _Residue:
        """The value of a tree at the point.

        Raises:
            NoValue: it is no arithmetic, or too much.
            Undefined: it divides by what is zero at every point.
        """
        work = self._work
        work.steps -= 1
        if work.steps < 0:
            raise NoValue("too much to compute")
        walk = _WALKS.get(type(node))
        if walk is None:
            raise NoValue("not arithmetic")
        return walk(self, node)

    def _number(self, node: Number) -> _Residue:
        value = node.value
        return value.numerator % self._prime, value.denominator % self._prime

    def _constant(self, node: Constant) -> _Residue:
        if node.name == "infinity":
            raise NoValue("infinity")
        if node.name == "i":
            return imaginary_unit(self._prime), 1
        # pi is transcendental: as good as a variable. Whether pi and e together are, nobody knows.
        self.opaque = self.opaque or node.name == "e"
        return _lot(self._prime, "constant", node.name), 1

    def _symbol(self, node: Symbol) -> _Residue:
        bound = self._bound.get(node.name)
        if bound is not None:
            return bound % self._prime, 1
        self.names[node.name] = None
        return _lot(self._prime, "symbol", node.name), 1

    def _sum(self, node: Sum) -> _Residue:
        prime = self._prime
        over, under = 0, 1
        for term in node.terms:
            first, second = self.value(term)
            if second == under:
                over += first
            else:
                over, under = (over * second + first * under) % prime, under * second % prime
        return over % prime, under

    def _product(self, node: Product) -> _Residue:
        prime = self._prime
        over, under = 1, 1
        for factor in node.factors:
            first, second = self.value(factor)
            over = over * first % prime
            if second != 1:
                under = under * second % prime
        return over, under

    def _power(self, node: Power) -> _Residue:
        exponent = node.exponent.value if type(node.exponent) is Number else self._work.exact(node.exponent)
        if exponent is None and self._bound:
            known = {name: Number(Fraction(number)) for name, number in self._bound.items()}
            exponent = rational(replaced(node.exponent, known))
        if exponent is None:
            return self._symbolic_power(node.base, node.exponent)
        base = self.value(node.base)
        if exponent.denominator == 1:
            return self._raised(base, exponent.numerator)
        if base[0] == 0:
            return base if exponent > 0 else self._raised(base, -1)
        whole, rest = divmod(exponent.numerator, exponent.denominator)
        root = self._root(node.base, base, exponent.denominator)
        return self._times(self._raised(base, whole), self._raised((root, 1), rest))

    def _lowered(self, node: Quantity | Based) -> _Residue:
        return self.value(self._work.lowered(node))

    def _call(self, node: Call) -> _Residue:
        exact = self._work.exact(node)
        if exact is not None:
            return exact.numerator % self._prime, exact.denominator % self._prime
        function = _CALLS.get(node.function)
        if function is not None:
            return function(self, *node.arguments) if len(node.arguments) == _ARITY.get(node.function, 1) else _fail()
        if node.function in ("integral", "limit", "derivative"):
            self.opaque = True
            return _lot(self._prime, "calculus", repr(node)), 1
        return self._draw(node.function, *(self._plain(argument) for argument in node.arguments))

    def _draw(self, *key: object) -> _Residue:
        self.opaque = True
        return _lot(self._prime, *key), 1

    def _plain(self, node: Node) -> int:
        over, under = self.value(node)
        return over if under == 1 else over * pow(under, -1, self._prime) % self._prime

    def _times(self, left: _Residue, right: _Residue) -> _Residue:
        return left[0] * right[0] % self._prime, left[1] * right[1] % self._prime

    def _over(self, left: _Residue, right: _Residue) -> _Residue:
        if right[0] == 0:
            raise Undefined("division by 0")
        return left[0] * right[1] % self._prime, left[1] * right[0] % self._prime

    def _raised(self, base: _Residue, exponent: int) -> _Residue:
        over, under = base
        if exponent == 1:
            return base
        if exponent < 0:
            if over == 0:
                raise Undefined("division by 0")
            over, under, exponent = under, over, -exponent
        elif over == 0:
            if exponent == 0:
                raise Undefined("0 to the power of 0")
            return base
        prime = self._prime
        if exponent >= prime:
            exponent %= prime - 1  # Fermat's theorem
        return pow(over, exponent, prime), 1 if under == 1 else pow(under, exponent, prime)

    def _root(self, node: Node, base: _Residue, degree: int) -> int:
        square = self._work.exact(node) if degree == 2 else None
        if square is not None:
            root = rational_root(self._prime, abs(square))
            if root is not None:
                return root if square > 0 else root * imaginary_unit(self._prime) % self._prime
        over, under = base
        plain = over if under == 1 else over * pow(under, -1, self._prime) % self._prime
        return self._draw("root", degree, plain)[0]

    def _symbolic_power(self, base: Node, exponent: Node) -> _Residue:
        """b^(k u + v) = (b^u)^k b^v, for every b but 0 and integers k."""
        if base == Constant("e"):
            plain = -1
        else:
            plain = self._plain(base)
            if plain == 0:
                raise NoValue("a power of 0")
        result = 1, 1
        for term in exponent.terms if type(exponent) is Sum else (exponent,):
            times, rest = _split(term)
            if rest is None:
                root = self.value(base)
            else:
                value = self._plain(rest)
                if value > self._prime // 2:
                    value, times = self._prime - value, -times
                root = self._draw("power", plain, value) if value else (1, 1)
            result = self._times(result, self._raised(root, times))
        return result

    def _half_angle(self, of: Node) -> _Residue:
        """The tangent of half the angle, an odd function."""
        value = self._plain(of)
        if value == 0:
            return 0, 1
        if value > self._prime // 2:
            return self._prime - self._draw("half", self._prime - value)[0], 1
        return self._draw("half", value)

    def _sine(self, of: Node) -> _Residue:
        half, _ = self._half_angle(of)
        return 2 * half % self._prime, (1 + half * half) % self._prime

    def _cosine(self, of: Node) -> _Residue:
        half, _ = self._half_angle(of)
        return (1 - half * half) % self._prime, (1 + half * half) % self._prime

    def _tangent(self, of: Node) -> _Residue:
        return self._over(self._sine(of), self._cosine(of))

    def _cotangent(self, of: Node) -> _Residue:
        return self._over(self._cosine(of), self._sine(of))

    def _secant(self, of: Node) -> _Residue:
        return self._over((1, 1), self._cosine(of))

    def _cosecant(self, of: Node) -> _Residue:
        return self._over((1, 1), self._sine(of))

    def _ratio(self, over: Node, under: Node) -> _Residue:
        return self._over(self.value(over), self.value(under))

    def _exponential(self, of: Node) -> _Residue:
        return self._power(Power(Constant("e"), of))

    def _logarithm(self, of: Node, base: Node) -> _Residue:
        return self._over(self._draw("ln", self._plain(of)), self._draw("ln", self._plain(base)))

    def _absolute(self, of: Node) -> _Residue:
        value = self._plain(of)
        return self._draw("abs", min(value, self._prime - value)) if value else (0, 1)

    def _factorial(self, of: Node) -> _Residue:
        """(n + k)! = n! (n + 1) ... (n + k), for integers k."""
        shift, rest = 0, []
        for term in of.terms if type(of) is Sum else (of,):
            if type(term) is Number and term.value.denominator == 1:
                shift += term.value.numerator
            else:
                rest.append(term)
        if not rest and shift > 0:
            anchor = self._anchor(shift)
            base, shift = anchor % self._prime, shift - anchor
        elif not rest or abs(shift) > MAX_SHIFT:
            return self._draw("factorial", self._plain(of))
        else:
            base = self._plain(rest[0] if len(rest) == 1 else Sum(tuple(rest)))
        result = self._draw("factorial", base)
        for step in range(1, shift + 1):
            result = self._times(result, ((base + step) % self._prime, 1))
        for step in range(shift + 1, 1):
            result = self._over(result, ((base + step) % self._prime, 1))
        return result

    def _anchor(self, number: int) -> int:
        """A number close by, one for all of a neighbourhood: 1000000! is 1000000 times 999999!."""
        block = number // MAX_SHIFT
        for near in (block, block - 1, block + 1):
            anchor = self._anchors.get(near)
            if anchor is not None and abs(anchor - number) <= MAX_SHIFT:
                return anchor
        return self._anchors.setdefault(block, number)

    def _binomial(self, of: Node, chosen: Node) -> _Residue:
        count = self._work.exact(chosen)
        if count is not None and count.denominator == 1 and 0 <= count <= MAX_SHIFT:
            value, result = self._plain(of), 1
            for index in range(count.numerator):
                result = result * (value - index) % self._prime
            return result, math.factorial(count.numerator) % self._prime
        total, over = self._plain(of), self._plain(chosen)
        # Choosing and leaving are the same.
        return self._draw("binomial", total, *sorted((over, (total - over) % self._prime)))

    def _finite_sum(self, *arguments: Node) -> _Residue:
        result = 0, 1
        for over, under in self._written_out(arguments):
            result = (result[0] * under + over * result[1]) % self._prime, result[1] * under % self._prime
        return result

    def _finite_product(self, *arguments: Node) -> _Residue:
        result = 1, 1
        for factor in self._written_out(arguments):
            result = self._times(result, factor)
        return result

    def _written_out(self, arguments: Sequence[Node]) -> list[_Residue]:
        variable, start, stop, of = arguments
        first, last = self._work.exact(start), self._work.exact(stop)
        if not isinstance(variable, Symbol) or first is None or last is None:
            raise NoValue("a sum or product that is not written out")
        if first.denominator != 1 or last.denominator != 1 or not first - 1 <= last < first + MAX_SHIFT:
            raise NoValue("a sum or product that is not written out")
        name, shadowed = variable.name, self._bound.get(variable.name)
        # Exponents that hold the variable are no constants, so nothing that is kept of them is wrong.
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


def _fail() -> _Residue:
    raise NoValue("the wrong number of arguments")


def _split(term: Node) -> tuple[int, Node | None]:
    """An integer factor, and what it multiplies; None for 1."""
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
def _lot(prime: int, *key: object) -> int:
    """A residue other than 0, drawn by lot: always the same one for a key."""
    digest = hashlib.blake2b(repr((prime, *key)).encode(errors="backslashreplace"), digest_size=16).digest()
    return int.from_bytes(digest) % (prime - 1) + 1


_WALKS: Mapping[type, Callable[[ModularEvaluation, Any], _Residue]] = {
    Number: ModularEvaluation._number,
    Constant: ModularEvaluation._constant,
    Symbol: ModularEvaluation._symbol,
    Sum: ModularEvaluation._sum,
    Product: ModularEvaluation._product,
    Power: ModularEvaluation._power,
    Call: ModularEvaluation._call,
    Quantity: ModularEvaluation._lowered,
    Based: ModularEvaluation._lowered,
}

_CALLS: Mapping[str, Callable[..., _Residue]] = {
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
