r"""Reading an answer: LaTeX, plain text, or a mixture, to a tree.

`parse` reads gold answers and extracted answers alike; a text that is neither mathematics nor words is `Unreadable`.
Work is linear in the length: each token is found once and read once.
"""

from __future__ import annotations

import re
from fractions import Fraction

from crucible_worker.grading.math.cursor import Cursor
from crucible_worker.grading.math.grammar import answer
from crucible_worker.grading.math.lexer import MAX_CHARS, TokenColumns, TooLarge, Unreadable, restored, tokenize
from crucible_worker.grading.math.numerals import number_of_words
from crucible_worker.grading.math.phrases import node_of_words, words_of
from crucible_worker.grading.math.tree import Collection, Node, Number, Text, children

__all__ = ["MAX_NODES", "MAX_TREE_DEPTH", "TooLarge", "Unreadable", "parse", "steps_of", "words_of"]

MAX_NODES = 4_000
"""Nodes of a tree."""
MAX_TREE_DEPTH = 100
"""Levels of a tree."""

_INTEGER = re.compile(r"-?[0-9]{1,200}")
_ARTICLES = frozenset({"a", "A"})  # a letter otherwise
_TRAILING = frozenset({".", ",", ":", "row"})
_SAME = frozenset({"=", "approx"})
_LEADING = frozenset({":", ",", "row"})
_MOMENT = re.compile(
    r"[0-9][ }~]{0,2}(?:\\[a-z]{4,8}\{ ?)?[ap]\.? ?m?\b|:0[0-9]|/[0-9]{4}|[0-9]{4}-[0-9]", re.IGNORECASE
)
_TIME = re.compile(r"0?([0-9]{1,2})(?::([0-5][0-9])(?::([0-5][0-9]))?)?(?: ?([ap])\.? ?m?\.?)?[., ]*+", re.IGNORECASE)
_DATE = re.compile(r"[0-9]{1,2}/[0-9]{1,2}/[0-9]{4}|[0-9]{4}-[0-9]{2}-[0-9]{2}")


def parse(text: str) -> Node:
    """Read an answer.

    Raises:
        TooLarge: it is beyond a budget.
        Unreadable: it is empty, or neither mathematics nor words.
    """
    return _read(text)[0]


def steps_of(text: str) -> int:
    """How much work reading an answer is: tokens found and operands read, until the end or an error."""
    try:
        return _read(text)[1]
    except Unreadable as error:
        return error.steps


def _read(text: str) -> tuple[Node, int]:
    """The tree, and how much work it was."""
    if _INTEGER.fullmatch(text):
        return Number(Fraction(int(text))), 1
    if len(text) > MAX_CHARS:
        raise TooLarge(f"longer than {MAX_CHARS:,} characters")
    text = restored(text)
    if text.startswith("**"):
        text = text.strip("*")  # bold in Markdown
    if text.strip() == "{}":
        return Collection("set", ()), 1
    if _MOMENT.search(text) and (moment := _moment(text)) is not None:
        return moment, 1
    tokens = tokenize(text)
    _trim(tokens)
    cursor = Cursor(tokens)
    count = len(tokens.kinds)
    try:
        node = _in_mathematics(cursor, count)
    except Unreadable as error:
        if not tokens.words or isinstance(error, TooLarge):
            error.steps = count + cursor.steps
            raise
        node = _in_words(text)
    return node, count + cursor.steps


def _in_mathematics(cursor: Cursor, count: int) -> Node:
    if count == 1:
        raise Unreadable("empty")
    if (cursor.kinds[0] == "word" or (count == 3 and cursor.values[0] in _ARTICLES)) and (
        number := number_of_words([value.casefold() for value in cursor.values[: count - 1]])
    ):
        return number
    node = answer(cursor)
    if count > MAX_TREE_DEPTH // 2:  # a token makes two nodes at most: fewer tokens cannot go deeper
        _measure(node)
    return node


def _measure(node: Node) -> None:
    """Check a tree against its budgets."""
    level, depth, nodes = [node], 0, 0
    while level:
        depth += 1
        nodes += len(level)
        if depth > MAX_TREE_DEPTH or nodes > MAX_NODES:
            raise TooLarge(f"a tree of more than {MAX_NODES:,} nodes, or deeper than {MAX_TREE_DEPTH}")
        level = [child for parent in level for child in children(parent)]


def _moment(text: str) -> Text | None:
    """A time of day, `9 a.m.`, `4:30p`, `12:05`, or a date. Without "am" or "pm", the minutes must fit no ratio."""
    words = words_of(text)
    match = _TIME.fullmatch(words)
    if match:
        hour, minutes, seconds, half = match.groups()
        exactly = f":{seconds}" if seconds and seconds != "00" else ""
        if half and (minutes or words.rstrip(". ").endswith("m")):
            return Text(f"{hour}:{minutes or '00'}{exactly} {half.lower()}m")
        if not half and minutes and minutes.startswith("0"):
            return Text(f"{hour}:{minutes}{exactly}")
    return Text(words) if _DATE.fullmatch(words) else None


def _trim(tokens: TokenColumns) -> None:
    """Drop punctuation at the ends, which belongs to the sentence."""
    kinds, values = tokens.kinds, tokens.values
    while len(kinds) > 1 and kinds[-2] in _TRAILING:
        del kinds[-2], values[-2]
    start = 0
    while kinds[start] in _LEADING or (kinds[start] == "relation" and values[start] in _SAME):
        start += 1
    del kinds[:start], values[:start]


def _in_words(text: str) -> Node:
    words = words_of(text)
    if not words:
        raise Unreadable("empty")
    return node_of_words(words)
