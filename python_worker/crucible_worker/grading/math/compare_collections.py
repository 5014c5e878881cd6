"""Comparing words, and lists, tuples, sets and matrices, whose items are matched in bounded time.

Items in any order with the same text are matched by hashing, then those with the same exact value. Only the rest is
compared pair by pair. As equality is transitive, the first equal partner is as good as any other.
"""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Hashable, Iterable, Sequence

from crucible_worker.grading.math.evaluate import approximate
from crucible_worker.grading.math.extras.ellipses import DOTS, written_out
from crucible_worker.grading.math.outcome import MathOutcome, Scope, all_of, any_of, different, equal, unknown
from crucible_worker.grading.math.tidy import exact_key
from crucible_worker.grading.math.tokens import spelled
from crucible_worker.grading.math.tree import (
    Based,
    Collection,
    Constant,
    FunctionCall,
    Matrix,
    Node,
    Number,
    Power,
    Product,
    Quantity,
    Relation,
    Sum,
    Symbol,
    Text,
    nodes_of,
)

__all__ = [
    "EMPTY_WORDS",
    "MAX_UNLIKE",
    "are_judgements",
    "compare_collections",
    "compare_matrices",
    "compare_text",
    "covers",
    "is_claim",
    "is_empty_set",
    "match",
]

# Comparing words, and names written as words.

_METHOD = "text"

EMPTY_WORDS = frozenset(
    {
        "no solution",
        "no solutions",
        "no real solution",
        "no real solutions",
        "there is no solution",
        "there are no solutions",
        "empty set",
        "the empty set",
        "empty",
    }
)
"""Words for the empty set."""

_JUDGEMENTS = spelled(
    "true false t f yes no correct incorrect right wrong valid invalid always sometimes never even odd rational"
    " irrational increasing decreasing increases decreases convergent divergent converges diverges"
)
_INFINITE_WORDS = frozenset(
    {"infinity", "infinite", "infinitely many", "infinitely many solutions", "an infinite number", "positive infinity"}
)
_SPELLINGS = {
    "dne": "does not exist",
    "doesn't exist": "does not exist",
    "limit does not exist": "does not exist",
    "limit doesn't exist": "does not exist",
}
_CLAIMS = (*EMPTY_WORDS, *_INFINITE_WORDS, *_SPELLINGS, *_SPELLINGS.values(), "none", "undefined", "impossible")
_ARTICLES = re.compile(r"\b(?:the (?=\w)|an? (?=\w\w))")  # in "a x + b" it is a factor
_HYPHEN = re.compile(r"_|(?<=\w)-(?=[^\W\d])")  # otherwise it is a sign
_BLANKS = re.compile(r"[\s,]+")
_AROUND_SIGN = re.compile(r" ?([=<>]) ?")
_AROUND = " .,:;!?()[]'\"*"
_AROUND_NUMBERS = " .,:;?'\"*"  # brackets and exclamation marks may be mathematics
_DIGIT = re.compile(r"[0-9]")


def _words_of(node: Node) -> str | None:
    """The words of a node that is a text or a name of letters; None if it is neither."""
    if isinstance(node, Text):
        return node.words
    if isinstance(node, Symbol):
        return node.name.casefold()
    return None


def are_judgements(nodes: Iterable[Node]) -> bool:
    """Whether each answers a separate question, so that their order matters: true, false."""
    return all(_words_of(node) in _JUDGEMENTS for node in nodes)


def is_empty_set(node: Node) -> bool:
    """Whether this is the empty set, in signs or in words."""
    if isinstance(node, Collection):
        return not node.items and node.kind in ("set", "list")
    return isinstance(node, Text) and node.words in EMPTY_WORDS


def is_claim(node: Node) -> bool:
    """Whether this is, or ends with, words that are an answer by themselves: "infinitely many", "does not exist"."""
    return is_empty_set(node) or (isinstance(node, Text) and node.words.endswith(_CLAIMS))


def compare_text(target: Node, answer: Node) -> MathOutcome:
    """Compare two nodes at least one of which is text."""
    if is_empty_set(target) and is_empty_set(answer):
        return equal(_METHOD)
    if _infinite(target) and _infinite(answer):
        return equal(_METHOD)
    expected, said = _words_of(target), _words_of(answer)
    if expected is None or said is None:
        return different(_METHOD, "words on one side, mathematics on the other")
    if _plain(expected) == _plain(said):
        return equal(_METHOD)
    return different(_METHOD, "different words")


def _infinite(node: Node) -> bool:
    if isinstance(node, Constant):
        return node.name == "infinity"
    return isinstance(node, Text) and node.words in _INFINITE_WORDS


def _plain(words: str) -> str:
    """Words without articles, hyphens and punctuation around them: "the x-axis" is "x axis", "at x = 1" is "at x=1"."""
    around = _AROUND_NUMBERS if _DIGIT.search(words) else _AROUND
    words = _AROUND_SIGN.sub(r"\1", _BLANKS.sub(" ", _HYPHEN.sub(" ", words))).strip(around)
    words = _ARTICLES.sub("", words)
    return _SPELLINGS.get(words, words)


# Matching lists without regard to order.

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


# Lists, tuples, sets, and matrices.


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
