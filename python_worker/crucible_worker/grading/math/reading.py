"""Texts as trees: the readings of a target or an answer, and its flaw if it has none."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator

from crucible_worker.grading.math.approximate import approximate
from crucible_worker.grading.math.compare_text import is_claim
from crucible_worker.grading.math.digits import Digits, digits_of
from crucible_worker.grading.math.dropped import ends_with, may_drop
from crucible_worker.grading.math.exact import Undefined, rational
from crucible_worker.grading.math.identity import ExpressionRelation, examine
from crucible_worker.grading.math.parse import TooLarge, Unreadable, parse
from crucible_worker.grading.math.spans import boxed, enclosed, has_words, last_amount, marked
from crucible_worker.grading.math.tidy import ZERO, spread, tidy
from crucible_worker.grading.math.tree import Collection, FunctionCall, Node, Number, PlusMinus, Power, Relation, Text
from crucible_worker.grading.math.walk import free_symbols, nodes_of

__all__ = ["EMPTY", "MAX_CACHED_CHARS", "WITHOUT_VALUE", "ParsedText", "in_words", "read", "read_target", "readings_of"]

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
