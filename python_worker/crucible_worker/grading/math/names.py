r"""Names of symbols: indices and primes, and other uses of these signs: bases, minutes, `C_n^k`, calls."""

from __future__ import annotations

from crucible_worker.grading.math.cursor import Cursor, GrammarRules
from crucible_worker.grading.math.numerals import based, number_of_words
from crucible_worker.grading.math.tree import Based, Constant, FunctionCall, Node, Number, Power, Quantity, Symbol

__all__ = ["UNKNOWN_FUNCTIONS", "Names"]

UNKNOWN_FUNCTIONS = frozenset("fghFGH")
"""Symbols that are functions if a bracket follows."""

_STAR = "^*"
_LETTER_BASES = frozenset(map(str, range(11, 37)))


class Names:
    """Reads indices and primes."""

    __slots__ = ("_rules",)

    def __init__(self, rules: GrammarRules) -> None:
        self._rules = rules

    def primed(self, cursor: Cursor, node: Node, marks: str) -> Node:
        """A symbol with a prime, a function with one, or minutes and seconds of an angle; the sign is already read."""
        if isinstance(node, Symbol):
            if cursor.kinds[cursor.at] == "(" and (node.name in UNKNOWN_FUNCTIONS or self.is_applied(cursor)):
                cursor.at += 1
                return self._rules.called(cursor, node.name + marks)
            return Symbol(node.name + marks)
        return Quantity(node, "arcsecond" if marks == "''" else "arcminute")

    def subscript(self, cursor: Cursor, node: Node) -> Node:
        """The base of a numeral, or a part of a symbol's name."""
        kinds = cursor.kinds
        if isinstance(node, Number | Based):
            base = self.argument_words(cursor).strip("()")
            found = number_of_words(base.split()) if base.isalpha() else None
            size = int(found.value) if found is not None else int(base) if base.isdecimal() and len(base) < 3 else 0
            digits = node.digits if isinstance(node, Based) else str(node.value)
            return based(digits, size)
        if not isinstance(node, Symbol):
            if not isinstance(node, Constant):
                cursor.fail("a subscript of something that is not a symbol")
            node = Symbol(node.name)
        start = cursor.at
        words = self.argument_words(cursor)
        if node.name == "C" and kinds[cursor.at] == "^" and (chosen := self._combinations(cursor, start)) is not None:
            return chosen
        if len(node.name) > 1 and node.name.isupper() and words in _LETTER_BASES:
            return based(node.name, int(words))
        star = _STAR if node.name.endswith(_STAR) else ""
        name = f"{node.name.removesuffix(_STAR)}_{words}{star}"
        if kinds[cursor.at] == "(" and (node.name[0] in UNKNOWN_FUNCTIONS or self.is_applied(cursor)):
            cursor.at += 1
            return self._rules.called(cursor, name)
        return Symbol(name)

    def is_applied(self, cursor: Cursor) -> bool:
        """Whether a single letter or numeral in brackets follows: V(t) and y(0) are values, not products."""
        kinds = cursor.kinds
        return kinds[cursor.at] == "(" and kinds[cursor.at + 1] in ("letter", "number") and kinds[cursor.at + 2] == ")"

    def starred(self, cursor: Cursor, node: Symbol) -> Symbol | None:
        """A symbol with a star, which is a part of its name; the `^` is already read. None if no star follows."""
        group = cursor.kinds[cursor.at] == "{"
        if cursor.kinds[cursor.at + group] != "*" or (group and cursor.kinds[cursor.at + 2] != "}"):
            return None
        cursor.at += 1 + 2 * group
        return Symbol(node.name + _STAR)

    def indexed(self, cursor: Cursor, node: Power) -> Node:
        """A power whose index follows its exponent, `v^2_0`: the index is that of the base."""
        if not isinstance(node.base, Symbol):
            cursor.fail("an index of something that is not a symbol")
        if node.base.name == "C":
            start = cursor.at
            cursor.enter()
            of = self._rules.argument(cursor)
            cursor.leave()
            if not _is_larger(node.exponent, of):
                return FunctionCall("binomial", (of, node.exponent))
            cursor.at = start
        return Power(self.subscript(cursor, node.base), node.exponent)

    def _combinations(self, cursor: Cursor, start: int) -> Node | None:
        """`C_n^k`, the binomial coefficient; its subscript, already read as a name, is read again as a value.

        None if k is above n: C_1^2 is the square of a constant.
        """
        end, cursor.at = cursor.at, start
        cursor.enter()
        of = self._rules.argument(cursor)
        cursor.expect("^")
        chosen = self._rules.argument(cursor)
        cursor.leave()
        if _is_larger(chosen, of):
            cursor.at = end
            return None
        return FunctionCall("binomial", (of, chosen))

    def argument_words(self, cursor: Cursor) -> str:
        """The spelling of a group or a token, for the name of a symbol."""
        kinds, values = cursor.kinds, cursor.values
        if kinds[cursor.at] != "{":
            if kinds[cursor.at] == "end":
                cursor.fail()
            cursor.at += 1
            return values[cursor.at - 1]
        start = cursor.at + 1
        open_groups = 0
        while True:
            kind = kinds[cursor.at]
            if kind == "{":
                open_groups += 1
            elif kind == "}":
                open_groups -= 1
            elif kind == "end":
                cursor.fail("} expected")
            cursor.at += 1
            if not open_groups:
                return "".join(values[at] for at in range(start, cursor.at - 1) if kinds[at] not in "{}")


def _is_larger(node: Node, other: Node) -> bool:
    return isinstance(node, Number) and isinstance(other, Number) and node.value > other.value
