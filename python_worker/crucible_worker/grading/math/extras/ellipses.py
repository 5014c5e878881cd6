r"""Lists, sums and products with dots: the terms that `1, 2, \ldots, 10` leaves out, if only one progression fits."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

from crucible_worker.grading.math.exact import rational_or_none
from crucible_worker.grading.math.tree import Collection, Node, Number, Product, Sum, Symbol

__all__ = ["DOTS", "MAX_WRITTEN_OUT", "value_of", "written_out"]

DOTS = Symbol("...")
"""The dots."""
MAX_WRITTEN_OUT = 1_000
"""Items of a list that is written out."""
_MAX_PART = 10**9  # of a term or factor: a product of 1,000 such numbers has 9,000 digits


def written_out(target: Collection, answer: Collection) -> tuple[Collection, Collection]:
    """Two lists with their dots written out, if their meaning is clear; otherwise unchanged."""
    if target.items[-1:] == answer.items[-1:] == (DOTS,):
        return _equally_long(target, answer)
    return _full(target), _full(answer)


def value_of(node: Node) -> Number | None:
    r"""The value of a sum of numbers with dots, or of a product, `1 + 2 + \cdots + 10`; None for any other tree."""
    match node:
        case Sum(parts) | Product(parts) if parts.count(DOTS) == 1:
            values = _values(_full(Collection("list", parts)).items)
        case _:
            return None
    if values is None or any(max(abs(value.numerator), value.denominator) > _MAX_PART for value in values):
        return None
    return Number(sum(values, Fraction(0)) if isinstance(node, Sum) else math.prod(values, start=Fraction(1)))


def _full(node: Collection) -> Collection:
    if node.items.count(DOTS) != 1 or node.items[-1] == DOTS:
        return node
    place = node.items.index(DOTS)
    before, after = _values(node.items[:place]), _values(node.items[place + 1 :])
    if not before or not after:
        return node
    found = [written for written in _progressions(before, after) if written is not None]
    if not found or len(found) > 1:
        return node
    return Collection(node.kind, tuple(map(Number, found[0])))


def _values(nodes: tuple[Node, ...]) -> list[Fraction] | None:
    values = [rational_or_none(node) for node in nodes]
    return None if None in values else [value for value in values if value is not None]


def _progressions(before: list[Fraction], after: list[Fraction]) -> list[list[Fraction] | None]:
    """The arithmetic progression and the geometric one with this beginning and this end; None if there is none.

    Two neighbouring integers mean the arithmetic one: 1, 2, ..., 64 counts.
    """
    if len(before) == 1:
        if before[0].denominator != 1:
            return []
        step = Fraction(1 if after[-1] > before[0] else -1)
        return [_arithmetic(before, step, after)]
    arithmetic = _arithmetic(before, before[1] - before[0], after)
    if arithmetic is not None and abs(before[1] - before[0]) == 1:
        return [arithmetic]
    return [arithmetic, _geometric(before, after)]


def _arithmetic(before: list[Fraction], step: Fraction, after: list[Fraction]) -> list[Fraction] | None:
    if step == 0 or any(two - one != step for one, two in itertools.pairwise(before)):
        return None
    count = (after[-1] - before[0]) / step + 1
    if count.denominator != 1 or not len(before) + len(after) <= count <= MAX_WRITTEN_OUT:
        return None
    written = [before[0] + number * step for number in range(int(count))]
    return written if written[-len(after) :] == after else None


def _geometric(before: list[Fraction], after: list[Fraction]) -> list[Fraction] | None:
    if 0 in before or abs(ratio := before[1] / before[0]) in (0, 1):
        return None
    written = [before[0]]
    limit = abs(after[-1])
    while (abs(written[-1]) < limit) if abs(ratio) > 1 else (abs(written[-1]) > limit):
        written.append(written[-1] * ratio)
        if len(written) > MAX_WRITTEN_OUT or limit == 0:
            return None
    fits = len(written) >= len(before) + len(after) and written[: len(before)] == before
    return written if fits and written[-len(after) :] == after else None


def _equally_long(target: Collection, answer: Collection) -> tuple[Collection, Collection]:
    """Two lists that never end, the shorter beginning extended to the other's length: 2, 4, ... and 2, 4, 6, ..."""
    shorter, longer = sorted((target, answer), key=lambda node: len(node.items))
    values, others = _values(shorter.items[:-1]), _values(longer.items[:-1])
    if not values or not others or len(values) < 2 or len(values) == len(others) or others[: len(values)] != values:
        return target, answer
    steps = {two - one for one, two in itertools.pairwise(others)}
    ratios = {two / one for one, two in itertools.pairwise(others)} if 0 not in others else set[Fraction]()
    if len(steps) != 1 and (len(ratios) != 1 or len(values) == 2):
        return target, answer
    return longer, longer
