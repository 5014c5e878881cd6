"""Comparing words, and names written as words."""

from __future__ import annotations

import re
from collections.abc import Iterable

from crucible_worker.grading.math.notation import spelled
from crucible_worker.grading.math.outcome import MathOutcome, different, equal
from crucible_worker.grading.math.tree import Collection, Constant, Node, Symbol, Text

__all__ = ["EMPTY_WORDS", "are_judgements", "compare_text", "is_claim", "is_empty_set", "words_of"]

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


def words_of(node: Node) -> str | None:
    """The words of a node that is a text or a name of letters; None if it is neither."""
    if isinstance(node, Text):
        return node.words
    if isinstance(node, Symbol):
        return node.name.casefold()
    return None


def are_judgements(nodes: Iterable[Node]) -> bool:
    """Whether each answers a separate question, so that their order matters: true, false."""
    return all(words_of(node) in _JUDGEMENTS for node in nodes)


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
    expected, said = words_of(target), words_of(answer)
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
