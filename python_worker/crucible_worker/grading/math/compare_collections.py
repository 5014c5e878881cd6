"""Comparing lists, tuples, sets and matrices."""

from __future__ import annotations

from crucible_worker.grading.math.compare_text import are_judgements
from crucible_worker.grading.math.ellipses import DOTS, written_out
from crucible_worker.grading.math.matching import covers, match
from crucible_worker.grading.math.outcome import MathOutcome, Scope, all_of, any_of, different
from crucible_worker.grading.math.tree import Collection, Matrix, Node, Relation, Symbol

__all__ = ["compare_collections", "compare_matrices"]


def compare_collections(target: Collection, answer: Collection, scope: Scope) -> MathOutcome:
    """Compare several things with several things."""
    if DOTS in target.items or DOTS in answer.items:
        if scope.policy.expand_dots:
            target, answer = written_out(target, answer)
        elif DOTS not in target.items or DOTS not in answer.items:
            return different("structure", "dots on one side only")
    kinds = {target.kind, answer.kind}
    if "tuple" in kinds and "bracket" in kinds and scope.policy.interval_or_pair and len(target.items) == 2:
        return different("structure", "an open interval is not a closed one")
    if kinds == {"list"}:
        return _compare_nested(target, answer, scope) or _compare_lists(target.items, answer.items, scope)
    if "set" in kinds and _has_sets(target) != _has_sets(answer):
        return different("structure", "sets within a set on one side only")
    if "set" in kinds and kinds <= {"set", "list"}:
        return covers(_flat(target), _flat(answer), scope)
    if "set" in kinds:
        if "bracket" in kinds and scope.policy.interval_or_pair and len(target.items) + len(answer.items) == 3:
            return _compare_point(target, answer, scope)
        if scope.policy.tuple_or_set:
            return covers(target.items, answer.items, scope)
        return different("structure", "a tuple is not a set")
    return _compare_in_order(target.items, answer.items, scope)


def _compare_point(target: Collection, answer: Collection, scope: Scope) -> MathOutcome:
    """A closed interval from a number to itself, [3, 3], is the set of that number."""
    bounds, points = sorted((target.items, answer.items), key=len, reverse=True)
    return all_of(scope.each(bounds, points * 2))


def _has_sets(node: Collection) -> bool:
    return any(isinstance(item, Collection) and item.kind == "set" and item.items for item in node.items)


def _compare_nested(target: Collection, answer: Collection, scope: Scope) -> MathOutcome | None:
    """x=1, y=2; x=2, y=1 is a list of two solutions, or of four values; None if no list is within another."""
    nested = [any(_is_list(item) for item in side.items) for side in (target, answer)]
    if not any(nested):
        return None
    as_solutions = _compare_lists(target.items, answer.items, scope)
    if as_solutions.kind == "equal" or all(nested):
        return as_solutions
    return any_of((as_solutions, _compare_lists(_flat(target), _flat(answer), scope)))


def _is_list(node: Node) -> bool:
    return isinstance(node, Collection) and node.kind == "list"


def _flat(node: Node) -> tuple[Node, ...]:
    """The items of a list, and of the lists in it."""
    if not isinstance(node, Collection) or node.kind not in ("list", "set"):
        return (node,)
    return tuple(part for item in node.items for part in (_flat(item) if _is_list(item) else (item,)))


def _compare_lists(targets: tuple[Node, ...], answers: tuple[Node, ...], scope: Scope) -> MathOutcome:
    ordered = scope.policy.ordered_lists or are_judgements((*targets, *answers))
    if ordered or _are_named(targets) != _are_named(answers):
        return _compare_in_order(targets, answers, scope)
    if all(_is_solution(item) for item in (*targets, *answers)):
        return covers(targets, answers, scope)
    return match(targets, answers, scope)


def _are_named(nodes: tuple[Node, ...]) -> bool:
    """Whether each gives the value of a separate variable, so that bare values on the other side are in its order."""
    names = [node.operands[0] for node in nodes if isinstance(node, Relation) and node.operators == ("=",)]
    return len(names) == len(nodes) == len({*names}) > 1 and all(isinstance(name, Symbol) for name in names)


def _is_solution(node: Node) -> bool:
    """A tuple in a list is a solution of several unknowns: a repeated one counts once."""
    if isinstance(node, Relation):
        node = node.operands[-1]
    return isinstance(node, Collection) and node.kind == "tuple"


def _compare_in_order(targets: tuple[Node, ...], answers: tuple[Node, ...], scope: Scope) -> MathOutcome:
    if len(targets) != len(answers):
        return different("structure", f"{len(answers)} in place of {len(targets)}")
    return all_of(scope.each(targets, answers))


def compare_matrices(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """Compare two nodes at least one of which is a matrix. A vector may be written as a tuple."""
    rows, others = _rows(target), _rows(answer)
    if rows is None or others is None:
        return different("structure", "a matrix on one side only")
    if not (isinstance(target, Matrix) and isinstance(answer, Matrix)):
        rows, others = _as_row(rows), _as_row(others)
    if [len(row) for row in rows] != [len(row) for row in others]:
        return different("structure", "matrices of different sizes")
    return all_of(outcome for row, other in zip(rows, others) for outcome in scope.each(row, other))


def _rows(node: Node) -> tuple[tuple[Node, ...], ...] | None:
    if isinstance(node, Matrix):
        return node.rows
    if isinstance(node, Collection) and node.kind in ("tuple", "bracket"):
        return (node.items,)
    return None


def _as_row(rows: tuple[tuple[Node, ...], ...]) -> tuple[tuple[Node, ...], ...]:
    """A vector in one row, whichever way it is written."""
    return (tuple(row[0] for row in rows),) if all(len(row) == 1 for row in rows) else rows
