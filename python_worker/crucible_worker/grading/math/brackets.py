r"""Content of brackets: groups, tuples, intervals, sets, absolute values, matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crucible_worker.grading.math.expressions import Expressions
from crucible_worker.grading.math.parsing import REALS, Cursor, GrammarRules, is_membership, listed, quotient, system
from crucible_worker.grading.math.text import node_of_words
from crucible_worker.grading.math.tree import (
    Collection,
    FunctionCall,
    Interval,
    Matrix,
    Node,
    Relation,
    SetOperation,
    Symbol,
    free_symbols,
)
from crucible_worker.grading.math.units import NO_UNIT_WORDS

__all__ = ["MAX_ITEM_WORDS", "Brackets"]

_MATRICES = frozenset({"matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix", "array", "vmatrix", "Vmatrix"})
MAX_ITEM_WORDS = 4
"""Words that an element of a list or a label may have; a sentence has more."""

_CASES = frozenset({"cases", "dcases", "rcases"})
_CONDITION_WORDS = frozenset({"if", "for", "when", "where"})


class Brackets:
    """Reads the content of brackets."""

    __slots__ = ("_expressions", "_rules")

    def __init__(self, rules: GrammarRules, expressions: Expressions) -> None:
        self._rules = rules
        self._expressions = expressions

    def readers(self) -> Mapping[str, Callable[[Cursor], Node]]:
        """The reader of a bracket, by the kind of its first token."""
        return {
            "{": self.group,
            "box{": self.group,
            "(": self.bracket,
            "[": self.bracket,
            "]": self.bracket,
            "set{": self.set,
            "|": self.absolute,
            "floor(": self.rounded,
            "ceil(": self.rounded,
            "angle(": self.angle_brackets,
            "emptyset": self.empty_set,
            "begin": self.environment,
        }

    def group(self, cursor: Cursor) -> Node:
        """A group in braces: one thing, a list in a box, or a set that was written without backslashes."""
        boxed = cursor.kinds[cursor.at] == "box{"
        while cursor.kinds[cursor.at] == "{" and cursor.kinds[cursor.at + 1] == "}":
            cursor.at += 2
            if cursor.kinds[cursor.at] != "{":
                return self._expressions.factor(cursor)
        cursor.enter()
        cursor.at += 1
        bar, cursor.bar = cursor.bar, "opens"
        items, separators = self._rules.items(cursor)
        node = listed(items, separators) if boxed or len(items) == 1 else Collection("set", tuple(items))
        kind = cursor.kinds[cursor.at]
        if kind == "choose" or kind == "over":
            cursor.at += 1
            below = self._rules.statement(cursor)
            node = FunctionCall("binomial", (node, below)) if kind == "choose" else quotient(node, below)
        elif kind == "|" or kind == "such":
            node = self._builder(cursor, items)
        cursor.bar = bar
        cursor.expect("}")
        cursor.leave()
        return node

    def bracket(self, cursor: Cursor) -> Node:
        """Round and square brackets, of one kind or mixed; `]a, b[` too."""
        kinds = cursor.kinds
        opening = kinds[cursor.at]
        cursor.enter()
        cursor.at += 1
        bar, cursor.bar = cursor.bar, "opens"
        if kinds[cursor.at] == ")" and opening == "(":
            items, separators = [], []
        else:
            items, separators = self._rules.items(cursor)
        cursor.bar = bar
        closing = kinds[cursor.at]
        if closing not in (")", "]", "["):
            cursor.fail(") or ] expected")
        cursor.at += 1
        cursor.leave()
        if len(items) == 1:
            if (opening == "(") != (closing == ")"):
                cursor.fail("brackets that do not match")
            return items[0]
        if opening == "[" and ";" in separators and "," in separators:
            return self._rows(cursor, items, separators)
        if opening == "(" and closing == ")":
            return Collection("tuple", tuple(items))
        if opening == "[" and closing == "]":
            return Collection("bracket", tuple(items))
        if len(items) != 2:
            cursor.fail("an interval without two bounds")
        return Interval(items[0], items[1], opening == "[", closing == "]")

    def _rows(self, cursor: Cursor, items: list[Node], separators: list[str]) -> Node:
        """A matrix that is written with semicolons between its rows."""
        rows: list[list[Node]] = [[items[0]]]
        for separator, item in zip(separators, items[1:], strict=True):
            if separator == ";":
                rows.append([])
            rows[-1].append(item)
        if len({len(row) for row in rows}) != 1:
            cursor.fail("rows of different lengths")
        return Matrix(tuple(map(tuple, rows)))

    def set(self, cursor: Cursor) -> Node:
        """A set by its elements, or by a condition."""
        cursor.enter()
        cursor.at += 1
        bar, cursor.bar = cursor.bar, "such"
        if cursor.kinds[cursor.at] == "set}":
            items: list[Node] = []
        else:
            items, _ = self._rules.items(cursor)
        if cursor.kinds[cursor.at] != "set}" and len(items) == 1 and isinstance(items[0], Matrix):
            cursor.bar = bar  # the brace of a system, which \right. closes
            cursor.leave()
            return system(items[0].rows)
        described = cursor.kinds[cursor.at] in ("|", "such", ":")
        node = self._builder(cursor, items) if described else Collection("set", tuple(items))
        cursor.bar = bar
        cursor.expect("set}")
        cursor.leave()
        return node

    def _builder(self, cursor: Cursor, items: list[Node]) -> Node:
        """A set by a condition; for a variable, the condition itself."""
        cursor.at += 1
        cursor.bar = "opens"
        conditions, separators = self._rules.items(cursor)
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
        return FunctionCall("set", (element, condition, *domain))

    def absolute(self, cursor: Cursor) -> Node:
        """An absolute value."""
        cursor.enter()
        cursor.at += 1
        bar, cursor.bar = cursor.bar, "closes"
        node = self._expressions.sum(cursor)
        cursor.bar = bar
        cursor.expect("|")
        cursor.leave()
        return FunctionCall("det" if isinstance(node, Matrix) else "abs", (node,))

    def rounded(self, cursor: Cursor) -> Node:
        """Floor or ceiling."""
        name = cursor.values[cursor.at]
        cursor.enter()
        cursor.at += 1
        bar, cursor.bar = cursor.bar, "opens"
        node = self._expressions.sum(cursor)
        cursor.bar = bar
        cursor.expect(name + ")")
        cursor.leave()
        return FunctionCall(name, (node,))

    def angle_brackets(self, cursor: Cursor) -> Node:
        """A vector."""
        cursor.enter()
        cursor.at += 1
        bar, cursor.bar = cursor.bar, "opens"
        items, _ = self._rules.items(cursor)
        cursor.bar = bar
        cursor.expect("angle)")
        cursor.leave()
        return Collection("tuple", tuple(items))

    def empty_set(self, cursor: Cursor) -> Node:
        """The sign of the empty set."""
        cursor.at += 1
        return Collection("set", ())

    def environment(self, cursor: Cursor) -> Node:
        """A matrix, or the cases of a system."""
        name = cursor.values[cursor.at]
        if name not in _MATRICES and name not in _CASES:
            cursor.fail(f"environment {name}")
        cursor.enter()
        cursor.at += 1
        bar, cursor.bar = cursor.bar, "opens"
        rows = self._cells(cursor, name in _CASES)
        cursor.bar = bar
        if cursor.values[cursor.at] != name:
            cursor.fail(f"end of {name} expected")
        cursor.expect("end environment")
        cursor.leave()
        if not rows or len({len(row) for row in rows}) != 1:
            cursor.fail("rows of different lengths, or none")
        if name in _CASES:
            return system(rows)
        matrix = Matrix(tuple(map(tuple, rows)))
        return FunctionCall("det", (matrix,)) if name in ("vmatrix", "Vmatrix") else matrix

    def _cells(self, cursor: Cursor, cases: bool) -> list[list[Node]]:
        kinds = cursor.kinds
        rows: list[list[Node]] = []
        row: list[Node] = []
        while kinds[cursor.at] != "end environment":
            if kinds[cursor.at] == "row":
                cursor.at += 1
                if row:
                    rows.append(row)
                row = []
                continue
            if cases and kinds[cursor.at] == "word" and cursor.values[cursor.at] in _CONDITION_WORDS:
                cursor.at += 1
            row.append(self._rules.statement(cursor))
            if cases and kinds[cursor.at] == ",":
                cursor.at += 1
            if kinds[cursor.at] == "&":
                cursor.at += 1
            elif kinds[cursor.at] not in ("row", "end environment"):
                cursor.fail()
        if row:
            rows.append(row)
        return rows

    def words(self, cursor: Cursor) -> Node:
        """Words up to the end of an item."""
        kinds = cursor.kinds
        start = cursor.at
        while kinds[cursor.at] in ("word", "upright", "name"):
            cursor.at += 1
        if cursor.at > start + MAX_ITEM_WORDS or cursor.values[start].lower() in NO_UNIT_WORDS:
            cursor.fail("a sentence")  # also "17 or more"
        if kinds[cursor.at] not in (
            "end",
            ",",
            "and",
            ")",
            "}",
            "]",
            "set}",
            "row",
            "end environment",
            "relation",
            ":",
        ):
            cursor.fail()
        return node_of_words(" ".join(cursor.values[start : cursor.at]).casefold())


def _is_about(element: Node, condition: Node) -> bool:
    """Whether a condition is about the variable before it: `-2 < x < 3` says nothing about y."""
    return isinstance(element, Symbol) and element.name in free_symbols(condition)
