r"""What stands in brackets: groups, tuples, intervals, sets, absolute values, matrices."""

from __future__ import annotations

from crucible_worker.grading.math.assembly import REALS, is_membership, listed, quotient, system
from crucible_worker.grading.math.functions import Functions
from crucible_worker.grading.math.phrases import node_of_words
from crucible_worker.grading.math.tree import Call, Collection, Interval, Matrix, Node, Relation, SetOperation, Symbol
from crucible_worker.grading.math.units import NO_UNIT_WORDS
from crucible_worker.grading.math.walk import free_symbols

__all__ = ["MAX_ITEM_WORDS", "Brackets"]

_MATRICES = frozenset({"matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "array", "vmatrix", "Vmatrix"})
MAX_ITEM_WORDS = 4
"""Words that an element of a list or a label may have; more are a sentence."""

_CASES = frozenset({"cases", "dcases", "rcases"})
_CONDITION_WORDS = frozenset({"if", "for", "when", "where"})


class Brackets(Functions):
    """Reads what stands in brackets."""

    __slots__ = ()

    def group(self) -> Node:
        """A group in braces: one thing, a list in a box, or a set that was written without backslashes."""
        boxed = self.kinds[self.at] == "box{"
        while self.kinds[self.at] == "{" and self.kinds[self.at + 1] == "}":
            self.at += 2
            if self.kinds[self.at] != "{":
                return self.factor()
        self.enter()
        self.at += 1
        bar, self.bar = self.bar, "opens"
        items, separators = self.items()
        node = listed(items, separators) if boxed or len(items) == 1 else Collection("set", tuple(items))
        kind = self.kinds[self.at]
        if kind == "choose" or kind == "over":
            self.at += 1
            below = self.statement()
            node = Call("binomial", (node, below)) if kind == "choose" else quotient(node, below)
        elif kind == "|" or kind == "such":
            node = self._builder(items)
        self.bar = bar
        self.expect("}")
        self.leave()
        return node

    def bracket(self) -> Node:
        """Round and square brackets, of one kind or mixed; `]a, b[` too."""
        kinds = self.kinds
        opening = kinds[self.at]
        self.enter()
        self.at += 1
        bar, self.bar = self.bar, "opens"
        if kinds[self.at] == ")" and opening == "(":
            items, separators = [], []
        else:
            items, separators = self.items()
        self.bar = bar
        closing = kinds[self.at]
        if closing not in (")", "]", "["):
            self.fail(") or ] expected")
        self.at += 1
        self.leave()
        if len(items) == 1:
            if (opening == "(") != (closing == ")"):
                self.fail("brackets that do not match")
            return items[0]
        if opening == "[" and ";" in separators and "," in separators:
            return self._rows(items, separators)
        if opening == "(" and closing == ")":
            return Collection("tuple", tuple(items))
        if opening == "[" and closing == "]":
            return Collection("bracket", tuple(items))
        if len(items) != 2:
            self.fail("an interval without two bounds")
        return Interval(items[0], items[1], opening == "[", closing == "]")

    def _rows(self, items: list[Node], separators: list[str]) -> Node:
        """A matrix that is written with semicolons between its rows."""
        rows: list[list[Node]] = [[items[0]]]
        for separator, item in zip(separators, items[1:], strict=True):
            if separator == ";":
                rows.append([])
            rows[-1].append(item)
        if len({len(row) for row in rows}) != 1:
            self.fail("rows of different lengths")
        return Matrix(tuple(map(tuple, rows)))

    def set(self) -> Node:
        """A set by its elements, or by a condition."""
        self.enter()
        self.at += 1
        bar, self.bar = self.bar, "such"
        if self.kinds[self.at] == "set}":
            items: list[Node] = []
        else:
            items, _ = self.items()
        if self.kinds[self.at] != "set}" and len(items) == 1 and isinstance(items[0], Matrix):
            self.bar = bar  # the brace of a system, which \right. closes
            self.leave()
            return system(items[0].rows)
        described = self.kinds[self.at] in ("|", "such", ":")
        node = self._builder(items) if described else Collection("set", tuple(items))
        self.bar = bar
        self.expect("set}")
        self.leave()
        return node

    def _builder(self, items: list[Node]) -> Node:
        """A set by a condition: of a variable, the condition itself."""
        self.at += 1
        self.bar = "opens"
        conditions, separators = self.items()
        condition = listed(conditions, separators)
        element = items[0] if len(items) == 1 else Collection("tuple", tuple(items))
        domain: tuple[Node, ...] = ()
        if isinstance(element, Relation) and element.operators == ("in",):
            element, of = element.operands
            if is_membership(items[0]):
                domain = (of,) if of != REALS else ()
            elif of != element:
                condition = SetOperation("intersection", (items[0], condition))
        if not domain and isinstance(condition, Relation | SetOperation) and _is_about(element, condition):
            return condition
        return Call("set", (element, condition, *domain))

    def absolute(self) -> Node:
        """An absolute value."""
        self.enter()
        self.at += 1
        bar, self.bar = self.bar, "closes"
        node = self.sum()
        self.bar = bar
        self.expect("|")
        self.leave()
        return Call("det" if isinstance(node, Matrix) else "abs", (node,))

    def rounded(self) -> Node:
        """Floor or ceiling."""
        name = self.values[self.at]
        self.enter()
        self.at += 1
        bar, self.bar = self.bar, "opens"
        node = self.sum()
        self.bar = bar
        self.expect(name + ")")
        self.leave()
        return Call(name, (node,))

    def angle_brackets(self) -> Node:
        """A vector."""
        self.enter()
        self.at += 1
        bar, self.bar = self.bar, "opens"
        items, _ = self.items()
        self.bar = bar
        self.expect("angle)")
        self.leave()
        return Collection("tuple", tuple(items))

    def empty_set(self) -> Node:
        """The sign of the empty set."""
        self.at += 1
        return Collection("set", ())

    def environment(self) -> Node:
        """A matrix, or the cases of a system."""
        name = self.values[self.at]
        if name not in _MATRICES and name not in _CASES:
            self.fail(f"environment {name}")
        self.enter()
        self.at += 1
        bar, self.bar = self.bar, "opens"
        rows = self._cells(name in _CASES)
        self.bar = bar
        if self.values[self.at] != name:
            self.fail(f"end of {name} expected")
        self.expect("end environment")
        self.leave()
        if not rows or len({len(row) for row in rows}) != 1:
            self.fail("rows of different lengths, or none")
        if name in _CASES:
            return system(rows)
        matrix = Matrix(tuple(map(tuple, rows)))
        return Call("det", (matrix,)) if name in ("vmatrix", "Vmatrix") else matrix

    def _cells(self, cases: bool) -> list[list[Node]]:
        kinds = self.kinds
        rows: list[list[Node]] = []
        row: list[Node] = []
        while kinds[self.at] != "end environment":
            if kinds[self.at] == "row":
                self.at += 1
                if row:
                    rows.append(row)
                row = []
                continue
            if cases and kinds[self.at] == "word" and self.values[self.at] in _CONDITION_WORDS:
                self.at += 1
            row.append(self.statement())
            if cases and kinds[self.at] == ",":
                self.at += 1
            if kinds[self.at] == "&":
                self.at += 1
            elif kinds[self.at] not in ("row", "end environment"):
                self.fail()
        if row:
            rows.append(row)
        return rows

    def words(self) -> Node:
        """Words up to the end of an item."""
        kinds = self.kinds
        start = self.at
        while kinds[self.at] in ("word", "upright", "name"):
            self.at += 1
        if self.at > start + MAX_ITEM_WORDS or self.values[start].lower() in NO_UNIT_WORDS:
            self.fail("a sentence")  # also "17 or more"
        if kinds[self.at] not in ("end", ",", "and", ")", "}", "]", "set}", "row", "end environment", "relation", ":"):
            self.fail()
        return node_of_words(" ".join(self.values[start : self.at]).casefold())


def _is_about(element: Node, condition: Node) -> bool:
    """Whether a condition is one of the variable before it: `-2 < x < 3` says nothing of y."""
    return isinstance(element, Symbol) and element.name in free_symbols(condition)
