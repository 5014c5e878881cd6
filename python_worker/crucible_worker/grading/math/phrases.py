"""Words: how an answer in words is spelled, and which phrases are mathematics."""

from __future__ import annotations

import re
from collections.abc import Mapping

from crucible_worker.grading.math.lexer import restored
from crucible_worker.grading.math.notation import NUMBER_SETS
from crucible_worker.grading.math.numerals import NUMBER_WORDS, number_of_words
from crucible_worker.grading.math.tree import Collection, Node, Quantity, Symbol, Text
from crucible_worker.grading.math.units import MAX_UNIT_WORDS, NO_COUNTED_WORDS, NO_NOUNS, singular

__all__ = ["node_of_words", "words_of"]

_MARKUP = re.compile(
    r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mathbf|mbox|boxed|left|right|operatorname|displaystyle|quad|qquad)"
    r"(?![A-Za-z])|\\(?:text)?color\s?\{[^{}]{0,80}+\}|\\[,;:!() \[\]]|[\s{}$~]"
)
_AROUND = ".,;:!?\"'`()[]*\u2018\u2019\u201c\u201d"

_AROUND_NUMBER = ".,;:?\"'`*\u2018\u2019\u201c\u201d"
_DIGIT = re.compile(r"[0-9]")
_NUMERAL = re.compile(r"[-+\u2212$(.]*+[0-9]")

_BRACKETS = frozenset("()[]")

_PHRASE_ROWS: tuple[tuple[Node, tuple[str, ...]], ...] = (
    (Collection("set", ()), ("no solution", "no solutions", "no real solution", "no real solutions", "none")),
    (
        Collection("set", ()),
        ("there is no solution", "there are no solutions", "no solution exists", "no such solution"),
    ),
    (Collection("set", ()), ("empty set", "the empty set", "empty")),
    (Symbol(NUMBER_SETS["R"]), ("all real numbers", "all reals", "all real", "real numbers", "the real numbers")),
    (Symbol(NUMBER_SETS["Z"]), ("all integers", "integers", "the integers")),
)
_PHRASES: Mapping[str, Node] = {phrase: node for node, phrases in _PHRASE_ROWS for phrase in phrases}


def node_of_words(words: str) -> Node:
    """Words as a node: a phrase that is mathematics, a number, or text."""
    if words in _PHRASES:
        return _PHRASES[words]
    parts = words.replace("-", " ").split()
    if (number := number_of_words(parts)) is not None:
        return number
    for end in range(len(parts) - 1, max(0, len(parts) - 1 - MAX_UNIT_WORDS), -1):
        number, noun = number_of_words(parts[:end]), parts[end:]
        if (
            number is not None
            and noun[-1] not in NO_NOUNS
            and NO_COUNTED_WORDS.isdisjoint(noun)
            and NUMBER_WORDS.isdisjoint(noun)
            and not any(map(_NUMERAL.match, noun))
        ):
            return Quantity(number, " ".join((*noun[:-1], singular(noun[-1]))))  # "five apples"
    return Text(words)


def words_of(text: str) -> str:
    r"""An answer as words: case folded, without markup, single spaces, each word without punctuation around it.

    If one of two answers is words, both are compared as words: `odd` and `\text{Odd}`. Linear time.
    """
    words = _MARKUP.sub(" ", restored(text)).casefold().split()
    bare = [*map(_bare, words)]
    if "" in bare and _DIGIT.search(text):
        bare = [said or _bracket(word) for said, word in zip(bare, words)]
    return " ".join(filter(None, bare))


def _bracket(word: str) -> str:
    r"""The bracket that a word is, which may be that of an interval next to numbers: `(0, \frac{1}{2}]`."""
    word = word.rstrip(".,;:")
    return word if word in _BRACKETS else ""


def _bare(word: str) -> str:
    """A word without punctuation around it; at a number, brackets and exclamation marks may be mathematics."""
    return word.strip(_AROUND_NUMBER if _DIGIT.search(word) else _AROUND)
