r"""Relations, set operations, ratios, and lists: everything looser than arithmetic."""

from __future__ import annotations

from typing import Literal, TypeAlias, cast

from crucible_worker.grading.math.assembly import REALS, as_set, is_membership, listed
from crucible_worker.grading.math.brackets import Brackets
from crucible_worker.grading.math.cursor import Cursor
from crucible_worker.grading.math.expression import Expressions
from crucible_worker.grading.math.notation import spelled
from crucible_worker.grading.math.operands import Operands
from crucible_worker.grading.math.tree import FunctionCall, Node, Number, Relation, SetOperation, Symbol, Text

__all__ = ["AnswerReader"]

_SetOperator: TypeAlias = Literal["union", "intersection", "difference"]
_SEPARATORS = frozenset({",", "and"})
_AFTER = frozenset({"relation", "setop", ":", "pmod", "(", "word"})
_MAX_PARAMETERS = 12
_HEDGES = frozenset({"only", "approximately", "about", "roughly", "exactly", "both", "either"})
_QUALIFIERS = frozenset({"for", "where", "only"})
_DENIED = frozenset({"false", "incorrect", "invalid", "mistaken", "never", "not", "wrong"})
_LABELS = frozenset({":", "relation"})
_CLAUSE_WORDS = spelled(
    "all any every each some for where is are a an the be of in on real reals positive negative nonnegative nonpositive"
    " non nonzero integer integers natural naturals rational rationals complex number numbers value values constant"
    " constants arbitrary given fixed set"
)
_CHOICES = frozenset("ABCDEFGHIJ")
_CHOICE_STARTS = frozenset({"number", "frac", "sqrt", "currency", "word"})
_EXTREMES = frozenset({"max", "min"})
_LABELLED = frozenset({":", "number", "-", "+", "frac", "currency"})
_OF_VARIABLES = frozenset({"in", "<", ">", "<=", ">=", "!="})
_OPENING = frozenset({"(", "[", "{", "box{", "set{", "angle("})
_CLOSING = frozenset({")", "]", "}", "set}", "angle)"})


class AnswerReader:
    """Reads whole answers."""

    __slots__ = ("_brackets", "_expressions", "_operands")

    def __init__(self, expressions: Expressions, operands: Operands, brackets: Brackets) -> None:
        self._expressions = expressions
        self._operands = operands
        self._brackets = brackets

    def answer(self, cursor: Cursor) -> Node:
        """Everything.

        Raises:
            Unreadable: it is not mathematics, or beyond a budget.
        """
        choice = self._choice(cursor)
        items, separators = self.items(cursor)
        if cursor.kinds[cursor.at] != "end":
            cursor.fail()
        node = listed(items, separators)
        return node if choice is None else Relation((choice, node), ("=",))

    def _choice(self, cursor: Cursor) -> Symbol | None:
        """The letter of a choice before its text, `(B) 12` or `B. 12`: a label; None if there is none."""
        kinds = cursor.kinds
        bracket = kinds[0] == "("
        if kinds[bracket] not in ("letter", "upright") or cursor.values[bracket] not in _CHOICES:
            return None
        ends = (")",) if bracket else (")", ".")
        if kinds[bracket + 1] not in ends or kinds[bracket + 2] not in _CHOICE_STARTS:
            return None
        cursor.at = bracket + 2
        return Symbol(cursor.values[bracket])

    def items(self, cursor: Cursor) -> tuple[list[Node], list[str]]:
        """Statements with commas, semicolons or words between them, and these separators."""
        kinds = cursor.kinds
        items: list[Node] = []
        separators: list[str] = []
        if kinds[cursor.at] == "forall":
            cursor.at += 1
            clause = self.statement(cursor)
            if kinds[cursor.at] != ",":
                cursor.fail()
            cursor.at += 1
            if isinstance(clause, Relation) and clause.operators != ("in",):  # the clause is a condition
                items.append(clause)
                separators.append(",")
        items.append(self.statement(cursor))
        while True:
            if self._is_qualifier(cursor, cursor.at):
                cursor.at += 1
                self._qualifier(cursor)
            if kinds[cursor.at] not in _SEPARATORS:
                return items, separators
            separator = ""
            while kinds[cursor.at] in _SEPARATORS:
                # ", and" is a comma.
                separator = separator or cursor.values[cursor.at]
                cursor.at += 1
            if kinds[cursor.at] == "end":
                return items, separators
            if self._is_qualifier(cursor, cursor.at):
                continue
            item = self.statement(cursor)
            if cursor.depth or not is_membership(item):
                separators.append(separator)
                items.append(item)

    def _is_qualifier(self, cursor: Cursor, at: int) -> bool:
        return cursor.kinds[at] == "forall" or (cursor.kinds[at] == "word" and cursor.values[at].lower() in _QUALIFIERS)

    def _qualifier(self, cursor: Cursor) -> None:
        r"""Skip a clause that defines the variables: `for all real x > 0`, `where k \in \mathbb{Z}`.

        It has only words of `_CLAUSE_WORDS`, and ends if something other than a variable follows a comma.
        """
        kinds, values = cursor.kinds, cursor.values
        open_brackets = 0
        while True:
            kind = kinds[cursor.at]
            if values[cursor.at] == "notin" or (kind == "word" and values[cursor.at].lower() not in _CLAUSE_WORDS):
                cursor.fail()
            open_brackets += (kind in _OPENING) - (kind in _CLOSING)
            if open_brackets < 0 or kind == "end":
                return
            if open_brackets == 0 and kind in _SEPARATORS:
                after = cursor.at + 1
                while kinds[after] in _SEPARATORS:
                    after += 1
                if kinds[after] != "letter" or not (
                    kinds[after + 1] in _SEPARATORS or values[after + 1] in _OF_VARIABLES
                ):
                    return
            cursor.at += 1

    def statement(self, cursor: Cursor) -> Node:
        """A sum, or several with relations, set operations or ratios between them."""
        kind = cursor.kinds[cursor.at]
        if kind == "word" and cursor.values[cursor.at].lower() in _HEDGES:
            cursor.at += 1
            kind = cursor.kinds[cursor.at]
        if (
            kind == "word"
            and cursor.kinds[cursor.at + 1] == "number"
            and cursor.values[cursor.at].lower() == "negative"
        ):
            cursor.kinds[cursor.at] = kind = "-"
        if kind == "word":
            cursor.steps += 1
            start = cursor.at
            left = self._brackets.words(cursor)
            if cursor.kinds[cursor.at] in _LABELS and any(
                word.lower() in _DENIED for word in cursor.values[start : cursor.at]
            ):
                cursor.fail("a label that denies its value")
            if cursor.kinds[cursor.at] == ":":
                cursor.at += 1
                return Relation((left, self._expressions.sum(cursor)), ("=",))
        elif kind == "letter" and cursor.kinds[cursor.at + 1] == "(" and (defined := self._defined(cursor)) is not None:
            left = defined
        elif kind == "function" and cursor.values[cursor.at] in _EXTREMES and cursor.kinds[cursor.at + 1] in _LABELLED:
            return self._extreme(cursor)
        else:
            left = self._expressions.sum(cursor)
        kind = cursor.kinds[cursor.at]
        if kind == "." and cursor.kinds[cursor.at + 1] in _CLOSING:
            cursor.at += 1  # \right. may have lost its command
        if kind not in _AFTER:
            return left
        left = self._sets(cursor, left)
        if cursor.kinds[cursor.at] != "relation":
            return left
        operands, operators = [left], []
        while cursor.kinds[cursor.at] == "relation":
            operator = cursor.values[cursor.at]
            cursor.at += 1
            operators.append(operator)
            right = self._sets(
                cursor,
                self._brackets.words(cursor) if cursor.kinds[cursor.at] == "word" else self._expressions.sum(cursor),
            )
            if operator == "notin":
                operators[-1] = "in"
                right = SetOperation("difference", (REALS, as_set(right)))
            operands.append(as_set(right) if operators[-1] == "in" else right)
        return Relation(tuple(operands), tuple(operators))

    def _extreme(self, cursor: Cursor) -> Node:
        """A value labelled as the largest or the smallest: `max: 3`, `min 1`."""
        label = Text(cursor.values[cursor.at])
        cursor.at += 1
        if cursor.kinds[cursor.at] == ":":
            cursor.at += 1
        return Relation((label, self._expressions.sum(cursor)), ("=",))

    def _defined(self, cursor: Cursor) -> Node | None:
        """A function that is defined here: `P(x) = ...`; None if the bracket is a factor."""
        kinds, values = cursor.kinds, cursor.values
        end = cursor.at + 2
        while kinds[end] in ("letter", "number", ",", "constant") and end - cursor.at <= _MAX_PARAMETERS:
            end += 1
        if kinds[end] != ")" or kinds[end + 1] != "relation" or values[end + 1] != "=":
            return None
        cursor.at += 2
        name = values[cursor.at - 2]
        items, _ = self.items(cursor)
        cursor.expect(")")
        return FunctionCall(name, tuple(items))

    def _sets(self, cursor: Cursor, left: Node) -> Node:
        """Ratios, remainders and set operations after a sum; intersections bind more tightly than unions."""
        left = self._ratio(cursor, left)
        if cursor.kinds[cursor.at] != "setop":
            return left
        operands: list[Node] = [as_set(left)]
        operator: _SetOperator = "union"
        while cursor.kinds[cursor.at] == "setop":
            following = cast("_SetOperator", cursor.values[cursor.at])
            cursor.at += 1
            right = as_set(self._ratio(cursor, self._expressions.sum(cursor)))
            if following == operator or len(operands) == 1:
                operands.append(right)
            elif following == "intersection":
                operands[-1] = SetOperation("intersection", (operands[-1], right))
                continue
            else:
                operands = [SetOperation(operator, tuple(operands)), right]
            operator = following
        return SetOperation(operator, tuple(operands))

    def _ratio(self, cursor: Cursor, left: Node) -> Node:
        kinds = cursor.kinds
        if kinds[cursor.at] == "pmod":
            cursor.at += 1
            return FunctionCall("residue", (left, self._operands.argument(cursor)))
        if kinds[cursor.at] == "(" and kinds[cursor.at + 1] == "mod":
            cursor.at += 2
            modulus = self._expressions.sum(cursor)
            cursor.expect(")")
            return FunctionCall("residue", (left, modulus))
        if kinds[cursor.at] == "word" and cursor.values[cursor.at] == "to":
            return self._ratio_in_words(cursor, left)
        if kinds[cursor.at] != ":" or cursor.bar == "such":
            return left
        terms = [left]
        while kinds[cursor.at] == ":":
            cursor.at += 1
            terms.append(self._expressions.sum(cursor))
        return FunctionCall("ratio", tuple(terms))

    def _ratio_in_words(self, cursor: Cursor, left: Node) -> Node:
        """3 to 4 is 3:4."""
        if not isinstance(left, Number) or cursor.kinds[cursor.at + 1] != "number":
            cursor.fail()
        cursor.at += 1
        return FunctionCall("ratio", (left, self._expressions.sum(cursor)))
