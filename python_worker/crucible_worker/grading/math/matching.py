"""Matching lists without regard to order, in bounded time.

Items with the same text are matched by hashing, then those with the same exact value. Only the rest is compared pair by
pair. As equality is transitive, the first equal partner is as good as any other.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Hashable, Sequence

from crucible_worker.grading.math.approximate import approximate
from crucible_worker.grading.math.canonical import exact_key
from crucible_worker.grading.math.outcome import MathOutcome, Scope, all_of, different, unknown
from crucible_worker.grading.math.tree import Based, FunctionCall, Node, Number, Power, Product, Quantity, Sum
from crucible_worker.grading.math.walk import nodes_of

__all__ = ["MAX_UNLIKE", "covers", "match"]

MAX_UNLIKE = 40
"""Remaining items of a side that are compared pair by pair; with more of them the answer is UNDECIDED."""

_CLOSE = 1e-9
_PLAIN = frozenset({Number, Sum, Product, Power, FunctionCall})


def match(targets: Sequence[Node], answers: Sequence[Node], scope: Scope) -> MathOutcome:
    """Whether each target has its own answer, and no answer is left."""
    if len(targets) != len(answers):
        return different("structure", f"{len(answers)} in place of {len(targets)}")
    targets, answers = _without_common(targets, answers, [*targets], [*answers])
    if targets:
        target_keys, answer_keys = [*map(exact_key, targets)], [*map(exact_key, answers)]
        targets, answers = _without_common(targets, answers, target_keys, answer_keys)
    if len(targets) > MAX_UNLIKE:
        return unknown(f"more than {MAX_UNLIKE} things in any order")
    found: list[MathOutcome] = []
    remaining = list(answers)
    for target in targets:
        index, outcome = _partner(target, remaining, scope)
        if outcome.kind == "different":
            return outcome
        del remaining[index]
        found.append(outcome)
    return all_of(found)


def covers(targets: Sequence[Node], answers: Sequence[Node], scope: Scope) -> MathOutcome:
    """Whether each target has a partner among the answers and each answer one among the targets: repeats count once."""
    targets, answers = _distinct(targets), _distinct(answers)
    rest, others = _without_common(targets, answers, [*targets], [*answers])
    rest, others = _without_common(rest, others, [*map(exact_key, rest)], [*map(exact_key, others)])
    if max(len(rest), len(others)) > MAX_UNLIKE:
        return unknown(f"more than {MAX_UNLIKE} things in any order")
    forth = (_partner(target, answers, scope)[1] for target in rest)
    back = (_partner(answer, targets, scope, reverse=True)[1] for answer in others)
    return all_of(itertools.chain(forth, back))


def _distinct(nodes: Sequence[Node]) -> list[Node]:
    """The items without those that repeat the text or the exact value of an earlier one."""
    distinct: dict[Hashable, Node] = {}
    for node in nodes:
        key = exact_key(node)
        distinct.setdefault(node if key is None else key, node)
    return [*distinct.values()]


def _without_common(
    targets: Sequence[Node], answers: Sequence[Node], target_keys: Sequence[Hashable], answer_keys: Sequence[Hashable]
) -> tuple[list[Node], list[Node]]:
    """The rest after partners with the same key are removed; a key of None has no partner."""
    common = collections.Counter(target_keys) & collections.Counter(answer_keys)
    common.pop(None, None)
    return _unmatched(targets, target_keys, +common), _unmatched(answers, answer_keys, +common)


def _unmatched(nodes: Sequence[Node], keys: Sequence[Hashable], common: collections.Counter[Hashable]) -> list[Node]:
    left: list[Node] = []
    for node, key in zip(nodes, keys):
        if common[key] > 0:
            common[key] -= 1
        else:
            left.append(node)
    return left


def _partner(node: Node, others: Sequence[Node], scope: Scope, *, reverse: bool = False) -> tuple[int, MathOutcome]:
    """The first that is equal, else the first that may be."""
    best: tuple[int, MathOutcome] | None = None
    size = _size(node, scope)
    for index, other in enumerate(others):
        if size is not None and (other_size := _size(other, scope)) is not None and not _close(size, other_size):
            continue
        outcome = scope.compare(other, node, scope) if reverse else scope.compare(node, other, scope)
        if outcome.kind == "equal":
            return index, outcome
        if best is None or (best[1].kind == "different" and outcome.kind == "unknown"):
            best = (index, outcome)
    return best if best is not None else (-1, different("structure", "one has no counterpart"))


def _size(node: Node, scope: Scope) -> float | None:
    """The exact value of a constant, by which most other items can be skipped."""
    if type(node) not in _PLAIN or scope.policy.rounding_digits:
        return None
    if node not in scope.sizes:
        mixed = any(isinstance(part, Quantity | Based) for part in nodes_of(node))
        scope.sizes[node] = None if mixed else approximate(node)
    return scope.sizes[node]


def _close(left: float, right: float) -> bool:
    return left == right or abs(left - right) <= _CLOSE * max(abs(left), abs(right))
