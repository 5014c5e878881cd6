"""Conjunctions of several words between two answers, which join them like "and" and "or"."""

from __future__ import annotations

import re

__all__ = ["with_conjunctions"]

_AND = ("as well as", "and also", "together with", "along with", "in addition to")
_OR = ("or else", "or perhaps", "or possibly", "or maybe")
_ALL = (*_AND, *_OR)
# Mathematics follows: a number, a delimiter, a sign, a command, or a letter followed by a relation. What precedes is
# checked after the first character, because an expression that begins with a set of characters is searched faster.
_CONJUNCTION = re.compile(
    r"[, \n](?:(?<=[^\s,;],)[ \n]|(?<=[^\s,;][ \n]))"
    rf"(?:(?P<both>{'|'.join(_AND)})|(?:{'|'.join(_OR)}))[ \n]"
    r"(?=[-+\u2212$\\(\[{0-9\u221a\u03c0*]|[A-Za-z](?:_\w)?\s?[=<>])"
)


def with_conjunctions(text: str) -> str:
    """A text with "and" or "or" for each conjunction of several words before mathematics. Linear."""
    for conjunction in _ALL:
        if conjunction in text:
            return _CONJUNCTION.sub(lambda found: " and " if found["both"] else " or ", text)
    return text
