"""Reading an answer: LaTeX, plain text, or a mixture, to a tree.

`parse` reads gold answers and extracted answers alike; a text that is neither mathematics nor words is `Unreadable`.
Work is linear in the length: each token is found once and read once.

The parts of the grammar are quantities, expressions, operands and, here, brackets and the statements above all of
them. Each part uses those below it. Rules that it needs from those above it are in `GrammarRules`, which is filled in
here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, TypeAlias, cast

from crucible_worker.grading.math.expressions import Expressions, GrammarRules, Names
from crucible_worker.grading.math.lexer import MAX_CHARS, Cursor, TokenColumns, TooLarge, Unreadable, restored, tokenize
from crucible_worker.grading.math.operands import Operands
from crucible_worker.grading.math.quantities import number_of_words
from crucible_worker.grading.math.text import node_of_words, words_of
from crucible_worker.grading.math.tokens import NO_UNIT_WORDS, spelled
from crucible_worker.grading.math.tree import (
    REALS,
    Collection,
    FunctionCall,
    Interval,
    Matrix,
    Node,
    Number,
    Relation,
    SetOperation,
    Symbol,
    Text,
    as_set,
    children,
    free_symbols,
    is_membership,
    listed,
    quotient,
    system,
)

__all__ = [
    "MAX_ITEM_WORDS",
    "MAX_NODES",
    "MAX_TREE_DEPTH",
    "AnswerReader",
    "Brackets",
    "TooLarge",
    "Unreadable",
    "answer",
    "parse",
    "steps_of",
    "words_of",
]

# Content of brackets: groups, tuples, intervals, sets, absolute values, matrices.

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


# Relations, set operations, ratios, and lists: everything looser than arithmetic.

_SetOperator: TypeAlias = Literal["union", "intersection", "difference"]
_SEPARATORS = frozenset({",", "and"})
_AFTER = frozenset({"relation", "setop", ":", "pmod", "(", "word"})
_MAX_PARAMETERS = 12
_HEDGES = frozenset({"only", "approximately", "about", "around", "roughly", "exactly", "both", "either"})
_QUALIFIERS = frozenset({"for", "where", "only"})
_DENIED = spelled("bad discarded eliminated excluded false incorrect invalid mistaken never not rejected ruled wrong")
_USUAL, _MISTAKES = spelled("common frequent typical"), spelled("error errors mistake mistakes trap traps")
_LABELS = frozenset({":", "relation"})
_CLAUSE_WORDS = spelled(
    "all any every each some for where is are a an the be of in on real reals positive negative nonnegative nonpositive"
    " non nonzero integer integers natural naturals rational rationals complex number numbers value values constant"
    " constants arbitrary given fixed set"
)
_NUMBERED = frozenset({"step", "part", "question", "problem", "case", "task", "line"})
_SHARES = frozenset({"for", "every", "each"})
_CHOICES = frozenset("ABCDEFGHIJ")
_CHOICE_STARTS = frozenset({"number", "frac", "sqrt", "currency", "word"})
_EXTREMES = frozenset({"max", "min"})
_LABELLED = frozenset({":", "number", "-", "+", "frac", "currency"})
_OF_VARIABLES = frozenset({"in", "<", ">", "<=", ">=", "!="})
_OPENING = frozenset({"(", "[", "{", "box{", "set{", "angle("})
_CLOSING = frozenset({")", "]", "}", "set}", "angle)"})


def _denies(label: Sequence[str]) -> bool:
    """Whether the words before a colon say that what follows is wrong: "Excluded", "Common errors"."""
    words = {word.lower() for word in label}
    return bool(words & _DENIED) or bool(words & _USUAL and words & _MISTAKES)


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
            if kind == "number" and kinds[cursor.at + 1] != "relation" and values[cursor.at - 1].lower() in _SHARES:
                cursor.fail()  # a rate: "3 for every 5"
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
            if cursor.kinds[start + 1 : start + 3] == ["number", ":"] and cursor.values[start].lower() in _NUMBERED:
                cursor.kinds[start + 1] = "word"  # the name of a step: "Step 3: 5 + 5 = 10"
            left = self._brackets.words(cursor)
            if cursor.kinds[cursor.at] in _LABELS and _denies(cursor.values[start : cursor.at]):
                cursor.fail("a label that denies its value")
            if cursor.kinds[cursor.at] == ":":
                cursor.at += 1
                value = self._expressions.sum(cursor)
                if free_symbols(value):
                    return Relation((left, value), ("=",))
                return self._related(cursor, [left, value], ["="])
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
        return self._related(cursor, [left], [])

    def _related(self, cursor: Cursor, operands: list[Node], operators: list[Any]) -> Relation:
        """A chain of relations after its first operands."""
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


def _put_together() -> AnswerReader:
    rules = GrammarRules()
    names = Names(rules)
    expressions = Expressions(rules, names)
    operands = Operands(rules, names, expressions)
    brackets = Brackets(rules, expressions)
    statements = AnswerReader(expressions, operands, brackets)
    readers: Mapping[str, Callable[[Cursor], Node]] = {**operands.readers(), **brackets.readers()}

    def primary(cursor: Cursor) -> Node:
        read = readers.get(cursor.kinds[cursor.at])
        if read is None:
            cursor.fail()
        return read(cursor)

    rules.argument, rules.called, rules.primary = operands.argument, operands.called, primary
    rules.group, rules.items, rules.statement = brackets.group, statements.items, statements.statement
    return statements


answer: Callable[[Cursor], Node] = _put_together().answer
"""Read everything; raises `Unreadable` if it is not mathematics, or beyond a budget."""


MAX_NODES = 4_000
"""Nodes of a tree."""
MAX_TREE_DEPTH = 100
"""Levels of a tree."""

_INTEGER = re.compile(r"-?[0-9]{1,200}")
_ARTICLES = frozenset({"a", "A"})  # a letter otherwise
_TRAILING = frozenset({".", ",", ":", "row"})
_SAME = frozenset({"=", "approx"})
_LEADING = frozenset({":", ",", "row"})
_MOMENT = re.compile(
    r"[0-9][ }~]{0,2}(?:\\[a-z]{4,8}\{ ?)?[ap]\.? ?m?\b|:0[0-9]|/[0-9]{4}|[0-9]{4}-[0-9]", re.IGNORECASE
)
_TIME = re.compile(r"0?([0-9]{1,2})(?::([0-5][0-9])(?::([0-5][0-9]))?)?(?: ?([ap])\.? ?m?\.?)?[., ]*+", re.IGNORECASE)
_DATE = re.compile(r"[0-9]{1,2}/[0-9]{1,2}/[0-9]{4}|[0-9]{4}-[0-9]{2}-[0-9]{2}")


def parse(text: str) -> Node:
    """Read an answer.

    Raises:
        TooLarge: it is beyond a budget.
        Unreadable: it is empty, or neither mathematics nor words.
    """
    return _read(text)[0]


def steps_of(text: str) -> int:
    """How much work reading an answer is: tokens found and operands read, until the end or an error."""
    try:
        return _read(text)[1]
    except Unreadable as error:
        return error.steps


def _read(text: str) -> tuple[Node, int]:
    """The tree, and how much work it was."""
    if _INTEGER.fullmatch(text):
        return Number(Fraction(int(text))), 1
    if len(text) > MAX_CHARS:
        raise TooLarge(f"longer than {MAX_CHARS:,} characters")
    text = restored(text)
    if text.startswith("**"):
        text = text.strip("*")  # bold in Markdown
    if text.strip() == "{}":
        return Collection("set", ()), 1
    if _MOMENT.search(text) and (moment := _moment(text)) is not None:
        return moment, 1
    tokens = tokenize(text)
    _trim(tokens)
    cursor = Cursor(tokens)
    count = len(tokens.kinds)
    try:
        node = _in_mathematics(cursor, count)
    except Unreadable as error:
        if not tokens.words or isinstance(error, TooLarge):
            error.steps = count + cursor.steps
            raise
        node = _in_words(text)
    return node, count + cursor.steps


def _in_mathematics(cursor: Cursor, count: int) -> Node:
    if count == 1:
        raise Unreadable("empty")
    if (cursor.kinds[0] == "word" or (count == 3 and cursor.values[0] in _ARTICLES)) and (
        number := number_of_words([value.casefold() for value in cursor.values[: count - 1]])
    ):
        return number
    node = answer(cursor)
    if count > MAX_TREE_DEPTH // 2:  # a token makes two nodes at most: fewer tokens cannot go deeper
        _measure(node)
    return node


def _measure(node: Node) -> None:
    """Check a tree against its budgets."""
    level, depth, nodes = [node], 0, 0
    while level:
        depth += 1
        nodes += len(level)
        if depth > MAX_TREE_DEPTH or nodes > MAX_NODES:
            raise TooLarge(f"a tree of more than {MAX_NODES:,} nodes, or deeper than {MAX_TREE_DEPTH}")
        level = [child for parent in level for child in children(parent)]


def _moment(text: str) -> Text | None:
    """A time of day, `9 a.m.`, `4:30p`, `12:05`, or a date. Without "am" or "pm", the minutes must fit no ratio."""
    words = words_of(text)
    match = _TIME.fullmatch(words)
    if match:
        hour, minutes, seconds, half = match.groups()
        exactly = f":{seconds}" if seconds and seconds != "00" else ""
        if half and (minutes or words.rstrip(". ").endswith("m")):
            return Text(f"{hour}:{minutes or '00'}{exactly} {half.lower()}m")
        if not half and minutes and minutes.startswith("0"):
            return Text(f"{hour}:{minutes}{exactly}")
    return Text(words) if _DATE.fullmatch(words) else None


def _trim(tokens: TokenColumns) -> None:
    """Drop punctuation at the ends, which belongs to the sentence."""
    kinds, values = tokens.kinds, tokens.values
    while len(kinds) > 1 and kinds[-2] in _TRAILING:
        del kinds[-2], values[-2]
    start = 0
    while kinds[start] in _LEADING or (kinds[start] == "relation" and values[start] in _SAME):
        start += 1
    del kinds[:start], values[:start]


def _in_words(text: str) -> Node:
    words = words_of(text)
    if not words:
        raise Unreadable("empty")
    return node_of_words(words)
