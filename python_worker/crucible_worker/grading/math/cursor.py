"""A position in the tokens of an answer, and the rules that the parts of the grammar need from each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from crucible_worker.grading.math.lexer import TokenColumns, TooLarge, Unreadable
from crucible_worker.grading.math.tree import FunctionCall, Node

__all__ = ["MAX_DEPTH", "Cursor", "GrammarRules"]

MAX_DEPTH = 40
"""Brackets, groups, exponents and functions within each other."""

# End tokens after the end, so that looking ahead needs no check.
_LOOK_AHEAD = 8
_PADDING_KINDS = ["end"] * _LOOK_AHEAD
_PADDING_VALUES = [""] * _LOOK_AHEAD


class Cursor:
    """Tokens, read from left to right: `at` grows, except for a unit or a subscript that is read in two ways.

    It is the only state while an answer is read: it is passed to the parts of the grammar, which have none.
    """

    __slots__ = ("at", "bar", "bound", "depth", "kinds", "steps", "values")

    def __init__(self, tokens: TokenColumns) -> None:
        self.kinds = tokens.kinds + _PADDING_KINDS
        self.values = tokens.values + _PADDING_VALUES
        self.at = 0
        """The next token."""
        self.depth = 0
        """Nested brackets, groups and so on around it."""
        self.steps = 0
        """Operands read so far: work is proportional to it."""
        self.bar = "opens"
        """The meaning of `|` after an operand: it "opens" an absolute value, "closes" one, or means "such that"."""
        self.bound: tuple[str, ...] = ()
        """Variables that a sum, product, integral or limit binds: there `i` is not a constant."""

    def fail(self, reason: str = "") -> NoReturn:
        """Give up."""
        raise Unreadable(reason or f"unexpected {self.values[self.at] or 'end'}")

    def expect(self, kind: str) -> None:
        """Skip a required token."""
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


class GrammarRules:
    """Rules that parts of the grammar need from higher parts: `grammar` sets them."""

    __slots__ = ("argument", "called", "group", "items", "primary", "statement")

    argument: Callable[[Cursor], Node]
    """A group in braces, or the single token that a command takes without braces."""
    called: Callable[[Cursor, str], FunctionCall]
    """An unknown function of the content of the bracket that was just read."""
    group: Callable[[Cursor], Node]
    """A group in braces."""
    items: Callable[[Cursor], tuple[list[Node], list[str]]]
    """Statements with separators between them, and the separators."""
    primary: Callable[[Cursor], Node]
    """An operand without its suffixes."""
    statement: Callable[[Cursor], Node]
    """Sums with relations, set operations or ratios between them."""
