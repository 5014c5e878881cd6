r"""Lists in texts: elements between square brackets and commas, in JSON's or Python's spelling, or bare.

    [1, 2]    ["a", "b, c"]    ['a', "it's"]    [red, dark blue]    [[1, 2], [3]]    [(1, 2), f(x, y)]    []

A comma divides the elements of the brackets around it, of any kind: "[(1, 4), (3, 2)]" has two elements, and "[1,000]"
has two as well. Quotes are not part of an element, nor is white space around it or around brackets.
"""

from __future__ import annotations

import json
import re
from typing import TypeAlias

__all__ = ["MAX_DEPTH", "MAX_TOKENS", "Element", "read_list"]

MAX_DEPTH = 40
"""Levels of brackets. A text with more of them is not a list."""

MAX_TOKENS = 200_000
"""Brackets, commas and texts together. A text with more is not a list; a list of 100,000 numbers has as many."""

Element: TypeAlias = "str | tuple[Element, ...]"
"""A text; or the content of brackets, after the opening one: ("(", "1", "2"); or, after "", texts and brackets that are
adjacent: ("", "f", ("(", "x"))."""

_CLOSING_BRACKETS = {"[": "]", "(": ")", "{": "}"}
# A quote that does not close before a comma or a bracket is a character of a bare element ("'tis"). Each alternative is
# possessive, and a quoted one is tried again after its first comma or bracket at most: linear.
_LIST_TOKEN = re.compile(
    r"\s*+(?:(?P<mark>[\[\](){},])"
    r"|(?P<quoted>\"(?>(?:[^\"\\]|\\.)*)\"|'(?>(?:[^'\\]|\\.)*)')(?=\s*+[\]),}])"
    r"|(?P<bare>[^\[\](){},]++))",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(['\"\\])")


class _OpenBrackets:
    """Open brackets."""

    def __init__(self, opening: str) -> None:
        self.opening = opening
        self.elements: list[Element] = []
        self.pieces: list[Element] = []
        """Parts of the current element."""

    def end_element(self) -> bool:
        """Add the current element; returns whether there is one."""
        if not self.pieces:
            return False
        self.elements.append(self.pieces[0] if len(self.pieces) == 1 else ("", *self.pieces))
        self.pieces = []
        return True

    def end(self, closing: str) -> bool:
        """Add the last element; returns whether the brackets may be closed now: "[]", "[1]" and "(1,)", not "[1,]"."""
        ended = self.end_element()
        begun = len(self.elements) == 1 and self.opening == "("
        return _CLOSING_BRACKETS[self.opening] == closing and (ended or not self.elements or begun)


def read_list(text: str) -> tuple[Element, ...] | None:
    """The elements of a text that is a list; None if it is not a list, or beyond the bounds. Linear in its length."""
    text = text.strip()
    if not text.startswith("["):
        return None
    groups: list[_OpenBrackets] = []
    for count, token in enumerate(_LIST_TOKEN.finditer(text), start=1):
        if count > MAX_TOKENS:
            return None
        mark = token["mark"]
        if mark is None:
            groups[-1].pieces.append(_unquoted(token["quoted"]) if token["quoted"] else token["bare"].strip())
        elif mark in _CLOSING_BRACKETS:
            if len(groups) == MAX_DEPTH:
                return None
            groups.append(_OpenBrackets(mark))
        elif mark == ",":
            if not groups[-1].end_element():
                return None
        else:
            group = groups.pop()
            if not group.end(mark):
                return None
            if not groups:
                return tuple(group.elements) if token.end() == len(text) else None
            groups[-1].pieces.append((group.opening, *group.elements))
    return None


def _unquoted(token: str) -> str:
    """The value of a quoted text: JSON's escapes in double quotes, otherwise only those of quotes and backslashes."""
    if "\\" in token and token[0] == '"':
        try:
            return json.loads(token, strict=False)
        except ValueError:
            pass
    return _ESCAPE.sub(r"\1", token[1:-1])
