"""The outcome of comparing two trees, and the state that comparisons share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TypeAlias

from crucible_bridge.types import MathPolicy
from crucible_worker.grading.math.identity import ExpressionRelation, IdentityFinding, examine
from crucible_worker.grading.math.tree import FunctionCall, Node, nodes_of, rebuilt

__all__ = [
    "MAX_COMPARISONS",
    "MAX_PAIRS",
    "MathOutcome",
    "Pair",
    "Scope",
    "all_of",
    "any_of",
    "different",
    "equal",
    "unknown",
]

MAX_COMPARISONS = 2_000
"""Comparisons of trees in one decision; one that takes more is UNDECIDED."""
MAX_IDENTITIES = 64
"""Pairs of formulas that one decision examines by numbers; each may take 5 ms, most take 50 us."""
MAX_PAIRS = 8
"""Pairs of trees that remain to be proven; an outcome with more of them stays undecided."""

Pair: TypeAlias = tuple[Node, Node]
"""Two trees of arithmetic that must be proven equal."""

_REAL_ELSEWHERE = IdentityFinding(
    identity=ExpressionRelation.DIFFERENT, reason="an absolute value extends where one side is real"
)
_TOO_MUCH = IdentityFinding(identity=ExpressionRelation.UNKNOWN, reason="too much to compare")
_RANK = {"": 0, "literal": 1, "rational": 2, "text": 3, "structure": 4, "identity": 5, "symbolic": 6}


@dataclasses.dataclass(frozen=True, slots=True)
class MathOutcome:
    """Whether two trees are equal."""

    kind: Literal["equal", "different", "unknown"]
    """`unknown` is equal if each of `pairs` is, and undecided if there are none."""
    method: str = ""
    """The strongest means that were needed: "rational", "text", "structure", "identity"."""
    reason: str = ""
    """The reason, for people."""
    pairs: tuple[Pair, ...] = ()
    """The pairs that remain to be proven."""
    agrees: bool = False
    """Numbers agreed so far for every pair."""


def equal(method: str = "structure", reason: str = "") -> MathOutcome:
    """They are equal."""
    return MathOutcome("equal", method, reason)


def different(method: str = "structure", reason: str = "") -> MathOutcome:
    """They are not equal."""
    return MathOutcome("different", method, reason)


def unknown(reason: str, pairs: tuple[Pair, ...] = (), *, method: str = "", agrees: bool = False) -> MathOutcome:
    """It is unknown, or not yet known."""
    return MathOutcome("unknown", method, reason, pairs, agrees)


def all_of(outcomes: Iterable[MathOutcome], *, method: str = "structure") -> MathOutcome:
    """Equal if all are; the first difference ends it."""
    found: list[MathOutcome] = []
    for outcome in outcomes:
        if outcome.kind == "different":
            return outcome
        found.append(outcome)
    strongest = max((outcome.method for outcome in found), key=_rank, default=method)
    strongest = max(strongest, method, key=_rank)
    open_ones = [outcome for outcome in found if outcome.kind == "unknown"]
    if not open_ones:
        return equal(strongest)
    pairs = tuple(pair for outcome in open_ones for pair in outcome.pairs)
    if len(pairs) > MAX_PAIRS or not all(outcome.pairs for outcome in open_ones):
        pairs = ()
    return unknown(open_ones[0].reason, pairs, method=strongest, agrees=all(outcome.agrees for outcome in open_ones))


def any_of(outcomes: Iterable[MathOutcome]) -> MathOutcome:
    """Equal if one is; otherwise the first that is open, and the first difference if none is open."""
    first: MathOutcome | None = None
    for outcome in outcomes:
        if outcome.kind == "equal":
            return outcome
        if first is None or (first.kind == "different" and outcome.kind == "unknown"):
            first = outcome
    return first if first is not None else different()


@dataclasses.dataclass(slots=True)
class Scope:
    """The state that the comparisons of one decision share."""

    policy: MathPolicy
    """What counts as equivalent."""
    compare: Callable[[Node, Node, Scope], MathOutcome]
    """Compares two trees of any shape; comparisons of a shape use it for the parts."""
    comparisons: int = MAX_COMPARISONS
    """How many comparisons are left."""
    identities: int = MAX_IDENTITIES
    """How many pairs of formulas may still be examined."""
    sizes: dict[Node, float | None] = dataclasses.field(default_factory=dict)
    """Computed values of constants, for matching lists."""

    def charge(self) -> bool:
        """Count one comparison; False when none are left."""
        self.comparisons -= 1
        return self.comparisons >= 0

    def examine(self, left: Node, right: Node) -> IdentityFinding:
        """Examine two formulas by numbers; UNKNOWN after too many.

        For an absolute value, the real domain matters: ln x is real for half of the numbers for which ln|x| is real.
        """
        self.identities -= 1
        if self.identities < 0:
            return _TOO_MUCH
        if self.policy.log_abs_optional:
            left, right = _without_log_abs(left), _without_log_abs(right)
        finding = examine(left, right)
        return _REAL_ELSEWHERE if finding.one_sided and (_has_absolute(left) or _has_absolute(right)) else finding

    def each(self, lefts: Iterable[Node], rights: Iterable[Node]) -> Iterator[MathOutcome]:
        """Compare pairs lazily, one by one."""
        for left, right in zip(lefts, rights):
            yield self.compare(left, right, self)


def _has_absolute(node: Node) -> bool:
    return any(isinstance(part, FunctionCall) and part.function == "abs" for part in nodes_of(node))


def _without_log_abs(node: Node) -> Node:
    """The node with ln x for ln|x|."""
    match node:
        case FunctionCall("ln" | "log" as function, (FunctionCall("abs", (of,)), *base)):
            node = FunctionCall(function, (of, *base))
    return rebuilt(node, _without_log_abs)


def _rank(method: str) -> int:
    return _RANK.get(method, 0)
