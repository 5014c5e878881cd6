r"""Relations, set operations, ratios, and lists: everything looser than arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, cast

from crucible_worker.grading.math.assembly import REALS, as_set, is_membership, listed
from crucible_worker.grading.math.brackets import Brackets
from crucible_worker.grading.math.functions import Functions
from crucible_worker.grading.math.notation import spelled
from crucible_worker.grading.math.tree import Call, Node, Number, Relation, SetOperation, Symbol, Text

__all__ = ["Parser"]

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


class Parser(Brackets):
    """Reads whole answers."""

    __slots__ = ()

    def answer(self) -> Node:
        """Everything.

        Raises:
            Unreadable: it is not mathematics, or beyond a budget.
        """
        choice = self._choice()
        items, separators = self.items()
        if self.kinds[self.at] != "end":
            self.fail()
        node = listed(items, separators)
        return node if choice is None else Relation((choice, node), ("=",))

    def _choice(self) -> Symbol | None:
        """The letter of a choice before its text, `(B) 12` or `B. 12`: a label; None where there is none."""
        kinds = self.kinds
        bracket = kinds[0] == "("
        if kinds[bracket] not in ("letter", "upright") or self.values[bracket] not in _CHOICES:
            return None
        ends = (")",) if bracket else (")", ".")
        if kinds[bracket + 1] not in ends or kinds[bracket + 2] not in _CHOICE_STARTS:
            return None
        self.at = bracket + 2
        return Symbol(self.values[bracket])

    def items(self) -> tuple[list[Node], list[str]]:
        """Statements with commas, semicolons or words between them, and which."""
        kinds = self.kinds
        items: list[Node] = []
        separators: list[str] = []
        if kinds[self.at] == "forall":
            self.at += 1
            clause = self.statement()
            if kinds[self.at] != ",":
                self.fail()
            self.at += 1
            if isinstance(clause, Relation) and clause.operators != ("in",):  # it restricts
                items.append(clause)
                separators.append(",")
        items.append(self.statement())
        while True:
            if self._is_qualifier(self.at):
                self.at += 1
                self._qualifier()
            if kinds[self.at] not in _SEPARATORS:
                return items, separators
            separator = ""
            while kinds[self.at] in _SEPARATORS:
                # ", and" is a comma.
                separator = separator or self.values[self.at]
                self.at += 1
            if kinds[self.at] == "end":
                return items, separators
            if self._is_qualifier(self.at):
                continue
            item = self.statement()
            if self.depth or not is_membership(item):
                separators.append(separator)
                items.append(item)

    def _is_qualifier(self, at: int) -> bool:
        return self.kinds[at] == "forall" or (self.kinds[at] == "word" and self.values[at].lower() in _QUALIFIERS)

    def _qualifier(self) -> None:
        r"""Go past a clause that says which variables are meant: `for all real x > 0`, `where k \in \mathbb{Z}`.

        It has no words but those of `_CLAUSE_WORDS`, and ends where something else than a variable follows a comma.
        """
        kinds, values = self.kinds, self.values
        open_brackets = 0
        while True:
            kind = kinds[self.at]
            if values[self.at] == "notin" or (kind == "word" and values[self.at].lower() not in _CLAUSE_WORDS):
                self.fail()
            open_brackets += (kind in _OPENING) - (kind in _CLOSING)
            if open_brackets < 0 or kind == "end":
                return
            if open_brackets == 0 and kind in _SEPARATORS:
                after = self.at + 1
                while kinds[after] in _SEPARATORS:
                    after += 1
                if kinds[after] != "letter" or not (
                    kinds[after + 1] in _SEPARATORS or values[after + 1] in _OF_VARIABLES
                ):
                    return
            self.at += 1

    def statement(self) -> Node:
        """A sum, or several with relations, set operations or ratios between them."""
        kind = self.kinds[self.at]
        if kind == "word" and self.values[self.at].lower() in _HEDGES:
            self.at += 1
            kind = self.kinds[self.at]
        if kind == "word" and self.kinds[self.at + 1] == "number" and self.values[self.at].lower() == "negative":
            self.kinds[self.at] = kind = "-"
        if kind == "word":
            self.steps += 1
            start = self.at
            left = self.words()
            if self.kinds[self.at] in _LABELS and any(word.lower() in _DENIED for word in self.values[start : self.at]):
                self.fail("a label that denies its value")
            if self.kinds[self.at] == ":":
                self.at += 1
                return Relation((left, self.sum()), ("=",))
        elif kind == "letter" and self.kinds[self.at + 1] == "(" and (defined := self._defined()) is not None:
            left = defined
        elif kind == "function" and self.values[self.at] in _EXTREMES and self.kinds[self.at + 1] in _LABELLED:
            return self._extreme()
        else:
            left = self.sum()
        kind = self.kinds[self.at]
        if kind == "." and self.kinds[self.at + 1] in _CLOSING:
            self.at += 1  # \right. may have lost its command
        if kind not in _AFTER:
            return left
        left = self._sets(left)
        if self.kinds[self.at] != "relation":
            return left
        operands, operators = [left], []
        while self.kinds[self.at] == "relation":
            operator = self.values[self.at]
            self.at += 1
            operators.append(operator)
            right = self._sets(self.words() if self.kinds[self.at] == "word" else self.sum())
            if operator == "notin":
                operators[-1] = "in"
                right = SetOperation("difference", (REALS, as_set(right)))
            operands.append(as_set(right) if operators[-1] == "in" else right)
        return Relation(tuple(operands), tuple(operators))

    def _extreme(self) -> Node:
        """What is labelled as the largest or the smallest value: `max: 3`, `min 1`."""
        label = Text(self.values[self.at])
        self.at += 1
        if self.kinds[self.at] == ":":
            self.at += 1
        return Relation((label, self.sum()), ("=",))

    def _defined(self) -> Node | None:
        """A function that is defined here: `P(x) = ...`; None where the bracket is a factor."""
        kinds, values = self.kinds, self.values
        end = self.at + 2
        while kinds[end] in ("letter", "number", ",", "constant") and end - self.at <= _MAX_PARAMETERS:
            end += 1
        if kinds[end] != ")" or kinds[end + 1] != "relation" or values[end + 1] != "=":
            return None
        self.at += 2
        name = values[self.at - 2]
        items, _ = self.items()
        self.expect(")")
        return Call(name, tuple(items))

    def _sets(self, left: Node) -> Node:
        """Ratios, remainders and set operations behind a sum; intersections bind more tightly than unions."""
        left = self._ratio(left)
        if self.kinds[self.at] != "setop":
            return left
        operands: list[Node] = [as_set(left)]
        operator: _SetOperator = "union"
        while self.kinds[self.at] == "setop":
            following = cast("_SetOperator", self.values[self.at])
            self.at += 1
            right = as_set(self._ratio(self.sum()))
            if following == operator or len(operands) == 1:
                operands.append(right)
            elif following == "intersection":
                operands[-1] = SetOperation("intersection", (operands[-1], right))
                continue
            else:
                operands = [SetOperation(operator, tuple(operands)), right]
            operator = following
        return SetOperation(operator, tuple(operands))

    def _ratio(self, left: Node) -> Node:
        kinds = self.kinds
        if kinds[self.at] == "pmod":
            self.at += 1
            return Call("residue", (left, self.argument()))
        if kinds[self.at] == "(" and kinds[self.at + 1] == "mod":
            self.at += 2
            modulus = self.sum()
            self.expect(")")
            return Call("residue", (left, modulus))
        if kinds[self.at] == "word" and self.values[self.at] == "to":
            return self._ratio_in_words(left)
        if kinds[self.at] != ":" or self.bar == "such":
            return left
        terms = [left]
        while kinds[self.at] == ":":
            self.at += 1
            terms.append(self.sum())
        return Call("ratio", tuple(terms))

    def _ratio_in_words(self, left: Node) -> Node:
        """3 to 4 is 3:4."""
        if not isinstance(left, Number) or self.kinds[self.at + 1] != "number":
            self.fail()
        self.at += 1
        return Call("ratio", (left, self.sum()))

    def primary(self) -> Node:
        """An operand without what may stand behind it."""
        read = _PRIMARIES.get(self.kinds[self.at])
        if read is None:
            self.fail()
        return read(self)


_PRIMARIES: Mapping[str, Callable[[Parser], Node]] = {
    "number": Functions.number,
    "based": Functions.based,
    "letter": Functions.letter,
    "upright": Functions.letter,
    "name": Functions.name,
    "constant": Functions.constant,
    "dots": Functions.dots,
    "currency": Functions.money,
    "frac": Functions.fraction,
    "binom": Functions.binomial,
    "sqrt": Functions.root,
    "cbrt": Functions.root,
    "function": Functions.function,
    "series": Functions.series,
    "integral": Functions.integral,
    "limit": Functions.limit,
    "overline": Functions.overline,
    "mark": Functions.marked,
    "angle": Functions.marked,
    "mathbb": Functions.number_set,
    "{": Brackets.group,
    "box{": Brackets.group,
    "(": Brackets.bracket,
    "[": Brackets.bracket,
    "]": Brackets.bracket,
    "set{": Brackets.set,
    "|": Brackets.absolute,
    "floor(": Brackets.rounded,
    "ceil(": Brackets.rounded,
    "angle(": Brackets.angle_brackets,
    "emptyset": Brackets.empty_set,
    "begin": Brackets.environment,
}
