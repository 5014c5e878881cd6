"""A place in the tokens of an answer, and what the parts of the grammar need of each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from crucible_worker.grading.math.lexer import Tokens, TooLarge, Unreadable
from crucible_worker.grading.math.tree import Call, Node

__all__ = ["MAX_DEPTH", "Cursor", "Rules"]

MAX_DEPTH = 40
"""Brackets, groups, exponents and functions within each other."""

# Ends behind the end, so that looking ahead needs no check.
_LOOK_AHEAD = 8
_BEHIND = ["end"] * _LOOK_AHEAD
_NOTHING = [""] * _LOOK_AHEAD


class Cursor:
    """Tokens, read from left to right: `at` grows, but for a unit or a subscript that is read in two ways.

    It is all that changes while an answer is read: the parts of the grammar are handed it, and have no state.
    """

    __slots__ = ("at", "bar", "bound", "depth", "kinds", "steps", "values")

    def __init__(self, tokens: Tokens) -> None:
        self.kinds = tokens.kinds + _BEHIND
        self.values = tokens.values + _NOTHING
        self.at = 0
        """The next token."""
        self.depth = 0
        """Nested brackets, groups and so on around it."""
        self.steps = 0
        """Operands read so far: work is proportional to it."""
        self.bar = "opens"
        """What `|` means after an operand: it "opens" an absolute value, "closes" one, or says "such that"."""
        self.bound: tuple[str, ...] = ()
        """Variables that a sum, product, integral or limit binds: there `i` is no constant."""

    def fail(self, reason: str = "") -> NoReturn:
        """Give up."""
        raise Unreadable(reason or f"unexpected {self.values[self.at] or 'end'}")

    def expect(self, kind: str) -> None:
        """Go past a token that must be there."""
        if self.kinds[self.at] != kind:
            self.fail(f"{kind} expected")
        self.at += 1

    def enter(self) -> None:
        """Go one level deeper; `leave` must follow."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooLarge(f"nested deeper than {MAX_DEPTH}")

    def leave(self) -> None:
        """Go back one level."""
        self.depth -= 1


class Rules:
    """Rules that parts of the grammar need of parts above them: `grammar` fills them in."""

    __slots__ = ("argument", "called", "group", "items", "primary", "statement")

    argument: Callable[[Cursor], Node]
    """A group in braces, or the single token that a command takes without."""
    called: Callable[[Cursor, str], Call]
    """A function that is not known, of what is in the bracket that was passed."""
    group: Callable[[Cursor], Node]
    """A group in braces."""
    items: Callable[[Cursor], tuple[list[Node], list[str]]]
    """Statements with separators between them, and which."""
    primary: Callable[[Cursor], Node]
    """An operand without what may stand behind it."""
    statement: Callable[[Cursor], Node]
    """Sums with relations, set operations or ratios between them."""
