"""The program inside a response: a fenced block of it, or all of it."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["NO_PROGRAM", "program_of"]

NO_PROGRAM = "there is no program"
"""The reason where the program is blank."""

_LANGUAGES = frozenset({"", "py", "py3", "python", "python3"})
# Nothing in them is given back once it has matched: each character of a line is read once.
_FENCE = re.compile(r"^ {0,3}+(`{3,}+|~{3,}+)[ \t]*+([^\s`{]*+)[^\n`]*+$", re.MULTILINE)
_DEFINITION = re.compile(
    r"^(?:(?:async[ \t]++)?(?:def|class)[ \t]++([^\W\d]\w*+)|([^\W\d]\w*+)[ \t]*+[:=])", re.MULTILINE
)


def program_of(response: str, wanted: Iterable[str] = ()) -> tuple[str, str]:
    """Take the program out of a response, in time linear in its length.

    Args:
        response: what a model said.
        wanted: names that the program must define.

    Returns:
        The program, and how it was found: "block", the last fenced block of Python that defines a wanted name, or the
        last one where none does (one that was never closed goes on to the end); "whole" where there is no block.
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
    """Blocks of Python, or all blocks where none says that it is."""
    blocks: list[tuple[str, str]] = []
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(response):
        if opened is None:
            opened = fence
        elif fence[1][0] == opened[1][0] and len(fence[1]) >= len(opened[1]) and not fence[2]:
            blocks.append((opened[2].lower(), response[opened.end() + 1 : fence.start()]))
            opened = None
    if opened is not None:
        blocks.append((opened[2].lower(), response[opened.end() + 1 :]))
    return [text for language, text in blocks if language in _LANGUAGES] or [text for _, text in blocks]
