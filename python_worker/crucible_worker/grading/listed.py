r"""Lists as texts have them: elements between square brackets and commas, in JSON's or Python's spelling, or bare.

    [1, 2]    ["a", "b, c"]    ['a', "it's"]    [red, dark blue]    [[1, 2], [3]]    []

An element is a list, a text in quotes, or what stands between two commas or brackets, without white space around it.
Quotes are no part of an element. A comma always divides: "[1,000]" has two elements.
"""

from __future__ import annotations

import json
import re
from typing import TypeAlias

__all__ = ["MAX_DEPTH", "Element", "read_list"]

MAX_DEPTH = 40
"""Levels of lists. A text with more of them is no list."""

Element: TypeAlias = "str | tuple[Element, ...]"
"""What a list holds: texts and lists."""

# A quote that does not close before a comma or a bracket is a character of a bare element ("'tis"). Each alternative
# keeps what it matched, and a quoted one is tried again from behind its first comma at most: linear.
_TOKEN = re.compile(
    r"\s*+(?:(?P<mark>[\[\],])"
    r"|(?P<quoted>\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+')(?=\s*+[\],])"
    r"|(?P<bare>[^\[\],]++))",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(['\"\\])")


def read_list(text: str) -> tuple[Element, ...] | None:
    """The elements of the list that a text is; None where it is none. Linear in its length."""
    text = text.strip()
    if not text.startswith("["):
        return None
    open_lists: list[list[Element]] = []
    last = ","  # what stands before: a mark, or "" for an element
    for token in _TOKEN.finditer(text):
        mark = token["mark"]
        if mark is None:
            if last not in ("[", ","):
                return None
            element = _unquoted(token["quoted"]) if token["quoted"] else token["bare"].strip()
            open_lists[-1].append(element)
            last = ""
        elif mark == "[":
            if last not in ("[", ",") or len(open_lists) == MAX_DEPTH:
                return None
            open_lists.append([])
            last = mark
        elif mark == ",":
            if last in ("[", ","):
                return None
            last = mark
        else:
            if last == ",":
                return None
            closed = tuple(open_lists.pop())
            if not open_lists:
                return closed if token.end() == len(text) else None
            open_lists[-1].append(closed)
            last = ""
    return None


def _unquoted(token: str) -> str:
    """What a quoted text says: JSON's escapes in double quotes, elsewhere those of quotes and backslashes alone."""
    if "\\" in token and token[0] == '"':
        try:
            return json.loads(token, strict=False)
        except ValueError:
            pass
    return _ESCAPE.sub(r"\1", token[1:-1])
