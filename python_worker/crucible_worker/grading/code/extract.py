"""The program inside a response: a fenced block of it, or all of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["NO_PROGRAM", "program_of"]

NO_PROGRAM = "there is no program"
"""The reason if the program is blank."""

_LANGUAGES = frozenset({"", "py", "py3", "python", "python3"})
# They never backtrack: each character of a line is read once.
_FENCE = re.compile(
    r"^(?P<indent> {0,3}+)(?>(?:</?[A-Za-z][\w-]*+>[ \t]*+)*)(?P<mark>`{3,}+|~{3,}+)[ \t]*+"
    r"(?P<language>[^\s`{<]*+)(?P<tag><?+)[^\n`]*+$",
    re.MULTILINE,
)
_LAST_MARK = re.compile(r"(?<!`)(?<!~)(?P<mark>`{3,}+|~{3,}+)[ \t]*+$", re.MULTILINE)
_DEFINITION = re.compile(
    r"^(?:(?:async[ \t]++)?(?:def|class)[ \t]++([^\W\d]\w*+)|([^\W\d]\w*+)[ \t]*+[:=])", re.MULTILINE
)


def program_of(response: str, wanted: Iterable[str] = ()) -> tuple[str, str]:
    """Extract the program from a response, in time linear in its length.

    Args:
        response: the model's response.
        wanted: names that the program must define.

    Returns:
        The program, and how it was found: "block", the last fenced block of Python that defines a wanted name, or the
        last one if none does; "whole" if there is no block. A block that was never closed ends at the first mark
        that ends a line, or with the response.
    """
    blocks = _blocks(response)
    if not blocks:
        return response, "whole"
    names = frozenset(wanted)
    if names:
        for block in reversed(blocks):
            if any(found[1] in names or found[2] in names for found in _DEFINITION.finditer(block)):
                return block, "block"
    return blocks[-1], "block"


def _blocks(response: str) -> list[str]:
    """Blocks tagged as Python, or all blocks if none is."""
    blocks: list[tuple[str, str]] = []
    opened: re.Match[str] | None = None
    mark = ""
    for fence in _FENCE.finditer(response):
        if opened is None:
            if not fence["tag"]:  # a mark before a tag only closes: "```</answer>"
                opened, mark = fence, fence["mark"]
        elif not fence["language"] and _fits(fence["mark"], mark):
            blocks.append((opened["language"].lower(), _inside(opened, response[opened.end() + 1 : fence.start()])))
            opened = None
    if opened is not None:
        # A mark at the end of a line of the program closes nothing, unless nothing else does.
        rest = response[opened.end() + 1 :]
        ends = (found.start() for found in _LAST_MARK.finditer(rest) if _fits(found["mark"], mark))
        blocks.append((opened["language"].lower(), _inside(opened, rest[: next(ends, None)])))
    return [text for language, text in blocks if language in _LANGUAGES] or [text for _, text in blocks]


def _fits(mark: str, opening: str) -> bool:
    """Whether a mark can close a block: the same character, at least as often."""
    return mark[0] == opening[0] and len(mark) >= len(opening)


def _inside(opened: re.Match[str], text: str) -> str:
    """The lines of a block, without the indent of its fence: a block in a list is indented."""
    indent = len(opened["indent"])
    return re.sub(rf"^ {{1,{indent}}}", "", text, flags=re.MULTILINE) if indent else text
