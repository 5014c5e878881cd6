"""Points at which two expressions are compared: drawn at random once, ordered so that early ones distinguish most."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from crucible_worker.grading.math.tree import FunctionCall, Node, Number, Power, Product, Sum

__all__ = ["MAX_SYMBOLS", "WHOLE_POINTS", "complex_point", "points", "points_between"]

MAX_SYMBOLS = 16
"""Symbols in a pair that are given values."""

_Point = tuple[float, ...]

_SIGNS = ("+", "-", "+-", "-+", "++--", "--++", "+--+", "-++-")
_MIDDLE, _SMALL, _LARGE = (1.1, 4.0), (0.1, 0.95), (4.0, 40.0)
_MAX_BREAKS = 12
_LEAST_RATIO = 1.001  # between two numbers if points are placed between them
_NEAREST, _FARTHEST = 1e-6, 1e12


def _drawn(lot: random.Random) -> Iterator[_Point]:
    """Sizes in turn for each pattern of signs: functions differ by their signs, domains end at 0 or 1.

    As all sizes are mixed, every domain of a few inequalities between the symbols is reached soon.
    """
    for signs, sizes in itertools.product(_SIGNS, ((_MIDDLE,), (_SMALL,), (_LARGE,), (_SMALL, _MIDDLE, _LARGE))):
        sign = itertools.cycle(signs)
        yield tuple((1 if next(sign) == "+" else -1) * lot.uniform(*lot.choice(sizes)) for _ in range(MAX_SYMBOLS))
    for falling in (True, False):
        # Far apart and in order: where the difference of two symbols must have a sign.
        ordered = sorted((10 ** lot.uniform(-1, 2) for _ in range(MAX_SYMBOLS)), reverse=falling)
        yield tuple(ordered)
        yield tuple(-size for size in ordered)


_REAL_POINTS = tuple(_drawn(random.Random(2_026)))
_ORDERED = 4  # points at the end
_PATTERNS = {1: 2, 2: 4}  # of signs, by the number of symbols
_ROUND = 4  # points for each of them


def _whole(lot: random.Random) -> Iterator[_Point]:
    for number in range(1, 17):
        # The first symbol counts; of two symbols, the second is mostly smaller, as in a binomial.
        yield (float(number), *(float(lot.randint(1, max(2, number - 1))) for _ in range(MAX_SYMBOLS - 1)))
    for _ in range(8):
        yield tuple(float(lot.randint(1, 40)) for _ in range(MAX_SYMBOLS))


WHOLE_POINTS: Sequence[_Point] = tuple(_whole(random.Random(2_027)))
"""Points of natural numbers."""


def points(names: Sequence[str]) -> Iterator[dict[str, float]]:
    """Real points of both signs."""
    patterns = _PATTERNS.get(len(names), len(_SIGNS)) * _ROUND
    chosen = itertools.chain(_REAL_POINTS[:patterns], _REAL_POINTS[-_ORDERED:])
    return (dict(zip(names, point)) for point in chosen)


def complex_point(names: Sequence[str]) -> dict[str, complex]:
    """A point off the real axis."""
    lot = random.Random(2_028)
    return {name: complex(lot.uniform(0.3, 2), lot.choice((-1, 1)) * lot.uniform(0.3, 2)) for name in names}


def points_between(names: Sequence[str], trees: Iterable[Node]) -> Iterator[dict[str, float]]:
    """Points between and beyond the written numbers, where the pieces of expressions with corners meet."""
    written = sorted({abs(value) for tree in trees for value in _numbers(tree) if _NEAREST < abs(value) < _FARTHEST})
    breaks = [0.0]
    for number in map(float, written):
        if len(breaks) <= _MAX_BREAKS and number > breaks[-1] * _LEAST_RATIO:
            breaks.append(number)
    lot = random.Random(2_029)
    sizes = [low + (high - low) * lot.uniform(0.3, 0.7) for low, high in itertools.pairwise(breaks)]
    sizes += [breaks[-1] * lot.uniform(1.1, 1.4) + 0.1, breaks[-1] * lot.uniform(2, 4) + 1]
    for size, sign in itertools.product(sizes, (1, -1)):
        others = (lot.choice((1, -1)) * lot.choice(sizes) * lot.uniform(0.98, 1.02) for _ in names[1:])
        yield dict(zip(names, (sign * size, *others)))


def _numbers(node: Node) -> Iterator[Fraction]:
    match node:
        case Number():
            yield node.value
        case Sum(parts) | Product(parts) | FunctionCall(_, parts):
            for part in parts:
                yield from _numbers(part)
        case Power():
            yield from _numbers(node.base)
            yield from _numbers(node.exponent)
        case _:
            return
