"""Texts as trees: the readings of a target or an answer, and its flaw if it has none.

An answer that is too long to be read is wrong if the target is small, so that length cannot prevent a score. Only a
long target equals a long answer: one with a number of many digits, or one that abbreviates more than its characters.
Then it is unknown whether the answer is right, unless both are numerals.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from fractions import Fraction

from crucible_worker.grading.base import MAX_SMALL_CHARS, TOO_LONG
from crucible_worker.grading.math.compare_collections import is_claim
from crucible_worker.grading.math.evaluate import approximate
from crucible_worker.grading.math.exact import Undefined, rational, rational_or_none
from crucible_worker.grading.math.extras.ellipses import DOTS
from crucible_worker.grading.math.extras.sizes import MAX_SMALL_DIGITS, Digits, digits_of, size_of
from crucible_worker.grading.math.grammar import TooLarge, Unreadable, parse
from crucible_worker.grading.math.identity import MAX_SYMBOLS, ExpressionRelation, examine
from crucible_worker.grading.math.outcome import MathOutcome, Scope, different, equal, unknown
from crucible_worker.grading.math.text import boxed, enclosed, ends_with, has_words, last_amount, marked, may_drop
from crucible_worker.grading.math.tidy import ZERO, spread, tidy
from crucible_worker.grading.math.tree import (
    Collection,
    FunctionCall,
    Node,
    Number,
    PlusMinus,
    Power,
    Product,
    Relation,
    Sum,
    Symbol,
    Text,
    free_symbols,
    nodes_of,
)

__all__ = [
    "EMPTY",
    "LEFT_OUT",
    "MAX_CACHED_CHARS",
    "MAX_SMALL_CHARS",
    "OUTSIZE",
    "TOO_LONG",
    "WITHOUT_VALUE",
    "ParsedText",
    "compare_by_size",
    "compare_digits",
    "compare_unread",
    "has_outsize",
    "in_words",
    "is_small",
    "leaves_out",
    "read",
    "read_target",
    "readings_of",
]

MAX_CACHED_CHARS = 300
"""Longer targets are read again for each answer: all cached trees must fit into a child's memory."""
EMPTY = "is empty"
"""The flaw of a text without anything in it."""
WITHOUT_VALUE = "has no value"
"""The flaw of 1/0, and of everything that contains it."""

_CACHED_TARGETS = 4_096
# Few, as answers come from a model: trees of 4,000 nodes each would fill a child's memory.
_CACHED_LATELY = 16
_NO_VALUE = frozenset({"nan", "not a number"})
_MAY_LACK_VALUE = frozenset({FunctionCall, Power, Text})
_TINY = 1e-6


@dataclasses.dataclass(frozen=True, slots=True)
class ParsedText:
    """A text, read."""

    nodes: tuple[Node, ...]
    """Its trees: one, or two if its plus-minus signs may go together or be independent. None with a flaw."""
    flaw: str = ""
    """Why it has no reading: `EMPTY`, `WITHOUT_VALUE`, or "cannot be read" and why."""
    too_large: bool = False
    """It is beyond a budget of the parser."""
    digits: Digits | None = None
    """The digits of such a numeral."""
    chars: int = 0
    """Characters that were read."""
    kinds: frozenset[type] = frozenset()
    """The kinds of nodes in it, any number of levels deep."""


def read_target(text: str) -> ParsedText:
    """Read a target, from a cache if possible: groups of answers share it.

    For a whole solution, the target is its box, or the marked answer.
    """
    return _remembered_target(text) if len(text) <= MAX_CACHED_CHARS else _read_target(text)


@functools.lru_cache(maxsize=_CACHED_TARGETS)
def _remembered_target(text: str) -> ParsedText:
    return _read_target(text)


def _read_target(text: str) -> ParsedText:
    inner = boxed(text)
    if inner is not None:
        return read(inner)
    reading = read(text)
    if in_words(reading):
        inner = marked(text, numbers=False)
        if inner is not None and read(inner).nodes:
            return read(inner)
    return reading


def readings_of(answer: str, target: ParsedText) -> Iterator[ParsedText]:
    """The readings of an answer: unchanged, then without the words around it if they may be dropped."""
    if (inner := enclosed(answer)) is not None:
        yield read(inner)
        return
    inner = boxed(answer)
    text = answer if inner is None else inner
    whole = read(text)
    if whole.too_large:
        # A number in an unreadable formula is not its value; a response may have any length.
        inner = marked(text, numbers=False)
        yield whole if inner is None or not may_drop(text, inner) else read(inner)
        return
    yield whole
    if not in_words(whole):
        return
    inner, said = marked(text), whole
    if inner is not None:
        if not may_drop(text, inner) or not (ends_with(text, inner) or marked(text, numbers=False)):
            return
        said = read(inner)
        yield said
        if not in_words(said):
            return
    if not in_words(target) and has_words(text) and not _has_claims(whole, said):
        amount = last_amount(text)
        if amount is not None and may_drop(text, amount.split()[0]):
            yield read(amount)


def _has_claims(*readings: ParsedText) -> bool:
    """Whether one of several things is an answer in words: in "0.5, infinitely many" nothing may be dropped."""
    nodes = (node for reading in readings for node in reading.nodes)
    return any(any(map(is_claim, node.items if isinstance(node, Collection) else (node,))) for node in nodes)


def in_words(reading: ParsedText) -> bool:
    """Whether there are words in it, so that it may be more than the answer."""
    if not reading.nodes:
        return reading.flaw not in (EMPTY, WITHOUT_VALUE)
    if Text not in reading.kinds:
        return False
    node = reading.nodes[0]
    if isinstance(node, Relation):
        return any(isinstance(operand, Text) for operand in node.operands)
    return any(isinstance(part, Text) and (part is node or " " in part.words) for part in nodes_of(node))


@functools.lru_cache(maxsize=_CACHED_LATELY)
def read(text: str) -> ParsedText:
    """Read a text; the last few readings are cached, as one decision may need them again."""
    if not text.strip():
        return ParsedText((), EMPTY)
    try:
        node = tidy(parse(text))
    except TooLarge as error:
        return ParsedText((), f"is too large to be read: {error}", too_large=True, digits=digits_of(text))
    except Unreadable as error:
        return ParsedText((), f"cannot be read: {error}")
    kinds = frozenset(map(type, nodes_of(node)))
    if kinds & _MAY_LACK_VALUE and not _has_value(node):
        return ParsedText((), WITHOUT_VALUE)
    if PlusMinus not in kinds:
        return ParsedText((node,), chars=len(text), kinds=kinds)
    together, independent = spread(node, independent=False), spread(node, independent=True)
    nodes = (together,) if together == independent else (together, independent)
    return ParsedText(nodes, chars=len(text), kinds=kinds)


def _has_value(node: Node) -> bool:
    """Whether no part of it is without a value, as 1/0 is."""
    for part in nodes_of(node):
        if isinstance(part, Text) and part.words in _NO_VALUE:
            return False
        if isinstance(part, FunctionCall):
            if _undefined(part):
                return False
        elif isinstance(part, Power) and isinstance(part.exponent, Number) and part.exponent.value <= 0:
            if isinstance(part.base, Number) and part.base.value != 0:
                continue
            if _undefined(part) or _vanishes(part.base):
                return False
    return True


def _undefined(node: Node) -> bool:
    try:
        rational(node)
    except Undefined:
        return True
    return False


def _vanishes(node: Node) -> bool:
    """Whether a number that may be irrational is zero."""
    if isinstance(node, Number) or free_symbols(node):
        return False
    near = approximate(node)
    return near is not None and abs(near) < _TINY and examine(node, ZERO).identity is ExpressionRelation.EQUAL


# Answers that are too long to be read.


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
