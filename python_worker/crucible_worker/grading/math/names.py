r"""Names of symbols: indices and primes, and what else is written as they are: bases, minutes, `C_n^k`, calls."""

from __future__ import annotations

import abc

from crucible_worker.grading.math.measures import Measures
from crucible_worker.grading.math.numerals import based, number_of_words
from crucible_worker.grading.math.tree import Based, Call, Constant, Node, Number, Power, Quantity, Symbol

__all__ = ["UNKNOWN_FUNCTIONS", "Names"]

UNKNOWN_FUNCTIONS = frozenset("fghFGH")
"""Symbols that are functions where a bracket follows."""

_STAR = "^*"
_LETTER_BASES = frozenset(map(str, range(11, 37)))


class Names(Measures):
    """Reads indices and primes."""

    __slots__ = ()

    def primed(self, node: Node, marks: str) -> Node:
        """A symbol with a prime, a function with one, or minutes and seconds of an angle; the sign was passed."""
        if isinstance(node, Symbol):
            if self.kinds[self.at] == "(" and (node.name in UNKNOWN_FUNCTIONS or self.is_applied()):
                self.at += 1
                return self.called(node.name + marks)
            return Symbol(node.name + marks)
        return Quantity(node, "arcsecond" if marks == "''" else "arcminute")

    def subscript(self, node: Node) -> Node:
        """The base of a numeral, or a part of a symbol's name."""
        kinds = self.kinds
        if isinstance(node, Number | Based):
            base = self.argument_words().strip("()")
            found = number_of_words(base.split()) if base.isalpha() else None
            size = int(found.value) if found is not None else int(base) if base.isdecimal() and len(base) < 3 else 0
            digits = node.digits if isinstance(node, Based) else str(node.value)
            return based(digits, size)
        if not isinstance(node, Symbol):
            if not isinstance(node, Constant):
                self.fail("a subscript of what is no symbol")
            node = Symbol(node.name)
        start = self.at
        words = self.argument_words()
        if node.name == "C" and kinds[self.at] == "^" and (chosen := self._combinations(start)) is not None:
            return chosen
        if len(node.name) > 1 and node.name.isupper() and words in _LETTER_BASES:
            return based(node.name, int(words))
        star = _STAR if node.name.endswith(_STAR) else ""
        name = f"{node.name.removesuffix(_STAR)}_{words}{star}"
        if kinds[self.at] == "(" and (node.name[0] in UNKNOWN_FUNCTIONS or self.is_applied()):
            self.at += 1
            return self.called(name)
        return Symbol(name)

    def is_applied(self) -> bool:
        """Whether a lone letter or numeral in brackets follows: no factor is written so, V(t) and y(0) are values."""
        kinds = self.kinds
        return kinds[self.at] == "(" and kinds[self.at + 1] in ("letter", "number") and kinds[self.at + 2] == ")"

    def starred(self, node: Symbol) -> Symbol | None:
        """A symbol with a star, which is a part of its name; the `^` was passed. None where no star follows."""
        group = self.kinds[self.at] == "{"
        if self.kinds[self.at + group] != "*" or (group and self.kinds[self.at + 2] != "}"):
            return None
        self.at += 1 + 2 * group
        return Symbol(node.name + _STAR)

    def indexed(self, node: Power) -> Node:
        """A power whose index follows its exponent, `v^2_0`: the index is that of the base."""
        if not isinstance(node.base, Symbol):
            self.fail("an index of what is no symbol")
        if node.base.name == "C":
            start = self.at
            self.enter()
            of = self.argument()
            self.leave()
            if not _is_larger(node.exponent, of):
                return Call("binomial", (of, node.exponent))
            self.at = start
        return Power(self.subscript(node.base), node.exponent)

    def _combinations(self, start: int) -> Node | None:
        """`C_n^k`, the binomial coefficient; its subscript, read for a name already, is read for its value.

        None where k is above n: C_1^2 is the square of a constant.
        """
        end, self.at = self.at, start
        self.enter()
        of = self.argument()
        self.expect("^")
        chosen = self.argument()
        self.leave()
        if _is_larger(chosen, of):
            self.at = end
            return None
        return Call("binomial", (of, chosen))

    def argument_words(self) -> str:
        """A group or a token as it is spelled, for the name of a symbol."""
        kinds, values = self.kinds, self.values
        if kinds[self.at] != "{":
            if kinds[self.at] == "end":
                self.fail()
            self.at += 1
            return values[self.at - 1]
        start = self.at + 1
        open_groups = 0
        while True:
            kind = kinds[self.at]
            if kind == "{":
                open_groups += 1
            elif kind == "}":
                open_groups -= 1
            elif kind == "end":
                self.fail("} expected")
            self.at += 1
            if not open_groups:
                return "".join(values[at] for at in range(start, self.at - 1) if kinds[at] not in "{}")

    @abc.abstractmethod
    def called(self, name: str) -> Node:
        """A function that is not known, of what is in the bracket that was passed."""


def _is_larger(node: Node, other: Node) -> bool:
    return isinstance(node, Number) and isinstance(other, Number) and node.value > other.value
