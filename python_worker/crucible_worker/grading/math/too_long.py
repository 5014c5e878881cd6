"""Answers that are too long to be read: wrong if the target is small, so that length cannot prevent a score.

Only a long target equals a long answer: one with a number of many digits, or one that abbreviates more than
its characters. Then it is unknown whether the answer is right, unless both are numerals.
"""

from __future__ import annotations

from fractions import Fraction

from crucible_worker.grading.base import MAX_SMALL_CHARS, TOO_LONG
from crucible_worker.grading.math.canonical import rational_or_none
from crucible_worker.grading.math.ellipses import DOTS
from crucible_worker.grading.math.evaluate_points import MAX_SYMBOLS
from crucible_worker.grading.math.outcome import MathOutcome, Scope, different, equal, unknown
from crucible_worker.grading.math.reading import ParsedText
from crucible_worker.grading.math.sizes import MAX_SMALL_DIGITS, size_of
from crucible_worker.grading.math.tree import Collection, FunctionCall, Node, Number, Power, Product, Sum, Symbol
from crucible_worker.grading.math.walk import free_symbols, nodes_of

__all__ = [
    "LEFT_OUT",
    "MAX_SMALL_CHARS",
    "OUTSIZE",
    "TOO_LONG",
    "compare_by_size",
    "compare_digits",
    "compare_unread",
    "has_outsize",
    "is_small",
    "leaves_out",
]

OUTSIZE = f"the answer has a number of more than {MAX_SMALL_DIGITS:,} digits"
"""Why an answer that was read is too long."""
LEFT_OUT = "the answer leaves a part out, and the target does not"
"""Why an answer with dots that no rule writes out is wrong."""

_MAX_SHORTENED = 200  # digits of a numeral that is rounded
_MAX_EXPANDED = 20  # powers of a sum that are not written out at great length
_GROWING = frozenset({"factorial", "double factorial", "binomial"})
_WRITTEN_OUT = frozenset({"sum", "product"})
_INFINITE = "infinity"
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)


def compare_unread(expected: ParsedText, said: ParsedText, scope: Scope) -> MathOutcome:
    """Compare the target with an answer that is beyond a budget of the parser."""
    outcome = compare_digits(expected, said)
    if outcome is not None and outcome.kind == "equal":
        return outcome
    if said.digits is not None and scope.policy.rounding_digits:
        value = said.digits.shortened(_MAX_SHORTENED)
        rounded = Number(value, True) if value is not None and said.digits.decimals else None
        if rounded and any(scope.compare(node, rounded, scope).kind == "equal" for node in expected.nodes):
            return equal("rational", "equal when rounded")
    reason = f"the answer {said.flaw}"
    if is_small(expected):
        return different(TOO_LONG, reason)
    return outcome or unknown(reason, method="structure")


def compare_digits(expected: ParsedText, said: ParsedText) -> MathOutcome | None:
    """Compare a numeral that is too long to be read with another, or with a number; None if one of them is neither."""
    if expected.digits is not None and said.digits is not None:
        return equal("rational") if expected.digits == said.digits else different("rational")
    for one, other in ((expected, said), (said, expected)):
        if one.digits is None or not other.nodes:
            continue
        values = [rational_or_none(node) for node in other.nodes]
        if any(value is not None and one.digits.equals(value) for value in values):
            return equal("rational")
        if None not in values:
            return different("rational")
    return None


def compare_by_size(target: Node, answer: Node) -> MathOutcome | None:
    """Different, if one formula has a value with very many digits and the other has not; None otherwise."""
    names = sorted(free_symbols(target) | free_symbols(answer))
    if len(names) > MAX_SYMBOLS:
        return None
    values = dict(zip(names, _PRIMES))
    said = size_of(answer, values)
    expected = None if said is None else size_of(target, values)
    if said is None or expected is None or not expected.apart(said):
        return None
    if said.outsize and expected.small:
        return different(TOO_LONG, OUTSIZE)
    return different("identity", "of another size") if said.outsize or expected.outsize else None


def is_small(target: ParsedText) -> bool:
    """Whether a target was read, is short, and has no part that is longer when it is written out."""
    if not target.nodes or target.chars > MAX_SMALL_CHARS:
        return False
    return not any(map(is_longer, target.nodes))


def is_longer(node: Node) -> bool:
    """Whether something in a tree may stand for a text, or for a number, that is much longer."""
    return any(map(_is_longer, nodes_of(node)))


def has_outsize(answer: ParsedText) -> bool:
    """Whether there is a number of very many digits in an answer, as a power or a factorial."""
    return any(
        isinstance(part, Power | FunctionCall)
        and not free_symbols(part)
        and (size := size_of(part)) is not None
        and size.outsize
        for node in answer.nodes
        for part in nodes_of(node)
    )


def leaves_out(answer: ParsedText, target: ParsedText) -> bool:
    r"""Whether there are dots in an answer that cannot mean the target.

    Dots may stand for anything. `1 + 2 + \cdots + n` may be `n(n + 1)/2`, and `\{3, 9, \ldots, 243\}` a set that begins
    and ends so; `1 + \cdots + n` is not 42.
    """
    dotted = Symbol in answer.kinds and any(part == DOTS for node in answer.nodes for part in nodes_of(node))
    return dotted and not any(_may_be(said, node) for said in answer.nodes for node in target.nodes)


def _may_be(answer: Node, target: Node) -> bool:
    match answer, target:
        case (Sum(shown) | Product(shown), _) if _has_dots_within(shown):
            names = free_symbols(answer) - {DOTS.name}
            return bool(names) and names == free_symbols(target)
        case Collection(items=shown), Collection(items=items) if _has_dots_within(shown):
            place = shown.index(DOTS)
            end = shown[place + 1 :]
            return len(items) >= len(shown) and items[:place] == shown[:place] and items[-len(end) :] == end
        case _:
            return False


def _has_dots_within(shown: tuple[Node, ...]) -> bool:
    return shown.count(DOTS) == 1 and DOTS not in (shown[0], shown[-1])


def _is_longer(node: Node) -> bool:
    match node:
        case Number():
            size = size_of(node)
            return size is None or not size.small
        case Symbol():
            return node == DOTS
        case FunctionCall(function, (_, _, last, _)) if function in _WRITTEN_OUT:
            return getattr(last, "name", "") != _INFINITE
        case Power(Sum() as base, Number(times)) if free_symbols(base):
            return times > _MAX_EXPANDED
        case Power(_, exponent) if not free_symbols(node):
            size = size_of(node)
            if size is None:
                return not (isinstance(exponent, Number) and abs(exponent.value) <= Fraction(_MAX_EXPANDED))
            return not size.small
        case FunctionCall(function) if function in _GROWING and not free_symbols(node):
            size = size_of(node)
            return size is None or not size.small
        case _:
            return False
