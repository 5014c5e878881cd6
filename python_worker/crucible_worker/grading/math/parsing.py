"""What the parts of the grammar share: a position in the tokens, rules of other parts, and how nodes are combined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import NoReturn

from crucible_worker.grading.math.lexer import TokenColumns, TooLarge, Unreadable
from crucible_worker.grading.math.tokens import NUMBER_SETS
from crucible_worker.grading.math.tree import (
    Collection,
    FunctionCall,
    Interval,
    Node,
    Number,
    Power,
    Product,
    Quantity,
    Relation,
    SetOperation,
    Sum,
    Symbol,
    Text,
    free_symbols,
    walk,
)

__all__ = [
    "MAX_DEPTH",
    "MINUS_ONE",
    "ONE",
    "REALS",
    "Cursor",
    "GrammarRules",
    "added",
    "as_set",
    "is_membership",
    "is_proper",
    "listed",
    "multiplied",
    "negative",
    "quotient",
    "system",
    "with_unit_outside",
]

# A position in the tokens of an answer, and the rules that the parts of the grammar need from each other.

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


# Combining nodes, for arithmetic, sets and lists.


ONE = Number(Fraction(1))
"""1."""
MINUS_ONE = Number(Fraction(-1))
"""-1."""

REALS = Symbol(NUMBER_SETS["R"])
"""All real numbers."""

# Signs of logic: between relations they are the words.
_CONNECTIVES: Mapping[str, str] = {"conjunction": "and", "disjunction": "or"}
_INEQUALITIES = frozenset({"<", "<=", ">", ">=", "!="})


def negative(node: Node) -> Node:
    """Minus a node."""
    if isinstance(node, Number):
        return Number(-node.value, node.decimal)
    if isinstance(node, Product):
        first = node.factors[0]
        if isinstance(first, Number):
            return Product((Number(-first.value, first.decimal), *node.factors[1:]))
        return Product((MINUS_ONE, *node.factors))
    if isinstance(node, Quantity):
        return Quantity(negative(node.value), node.unit)
    return Product((MINUS_ONE, node))


def quotient(numerator: Node, denominator: Node) -> Product:
    """A fraction."""
    return Product((numerator, Power(denominator, MINUS_ONE)))


def added(terms: list[Node]) -> Node:
    """Terms, in one sum."""
    return terms[0] if len(terms) == 1 else Sum(tuple(terms))


def multiplied(factors: list[Node]) -> Node:
    """Factors, in one product."""
    return factors[0] if len(factors) == 1 else Product(tuple(factors))


def is_membership(node: Node) -> bool:
    r"""Whether a node only gives the set of numbers of a variable: `k \in \mathbb{Z}`."""
    return (
        isinstance(node, Relation)
        and node.operators == ("in",)
        and isinstance(node.operands[0], Symbol)
        and isinstance(node.operands[1], Symbol)
        and node.operands[1].name[0] in NUMBER_SETS.values()
    )


def with_unit_outside(factors: list[Node]) -> Node:
    """Factors, in one product; a sign after only the last one belongs to the product: `3/4%`, `2 * 10^2 °`."""
    last = factors[-1]
    divides = isinstance(last, Power) and last.exponent is MINUS_ONE
    quantity = last.base if isinstance(last, Power) and divides else last
    if len(factors) == 1 or not isinstance(quantity, Quantity):
        return multiplied(factors)
    if any(isinstance(factor, Quantity) for factor in factors[:-1]):
        return multiplied(factors)
    value = Power(quantity.value, MINUS_ONE) if divides else quantity.value
    return Quantity(multiplied([*factors[:-1], value]), quantity.unit)


def is_proper(node: Node) -> bool:
    """A fraction of two integers below one."""
    if not isinstance(node, Product) or len(node.factors) != 2:
        return False
    numerator, power = node.factors
    if not isinstance(numerator, Number) or not isinstance(power, Power) or not isinstance(power.base, Number):
        return False
    return power.exponent is MINUS_ONE and 0 < numerator.value < power.base.value


def as_set(node: Node) -> Node:
    """A node where only a set is possible: two things in brackets are an interval, a letter is a set of numbers."""
    if isinstance(node, Symbol) and node.name in NUMBER_SETS:
        return Symbol(NUMBER_SETS[node.name])
    if isinstance(node, Collection) and len(node.items) == 2 and node.kind in ("tuple", "bracket"):
        closed = node.kind == "bracket"
        return Interval(node.items[0], node.items[1], closed, closed)
    return node


def _distributed(items: Sequence[Node]) -> Sequence[Node]:
    """`x = 1, 2` as `x = 1, x = 2`, and so with "is not"."""
    first = items[0]
    if not isinstance(first, Relation) or first.operators not in (("=",), ("!=",)):
        return items
    if any(isinstance(item, Relation | Text) for item in items[1:]):
        return items
    left = first.operands[0]
    return (first, *(Relation((left, item), first.operators) for item in items[1:]))


def system(rows: Sequence[Sequence[Node]]) -> Node:
    """The lines after a brace: statements, or values with their conditions."""
    if len(rows[0]) == 1:
        return Collection("list", tuple(row[0] for row in rows))
    return FunctionCall("cases", tuple(Collection("tuple", tuple(row)) for row in rows))


def _is_proposition(node: Node) -> bool:
    """Whether letters stand for statements: there is no relation in it, and it is not a number."""
    parts = walk(node)
    return any(isinstance(part, Symbol) for part in parts) and not any(isinstance(part, Relation) for part in parts)


def _proposition(items: Sequence[Node], separators: Sequence[str]) -> Node:
    r"""`p \land q \lor r`: "and" binds more tightly."""
    cases: list[list[Node]] = [[items[0]]]
    for separator, item in zip(separators, items[1:], strict=True):
        if separator == "disjunction":
            cases.append([])
        cases[-1].append(item)
    parts = tuple(case[0] if len(case) == 1 else FunctionCall("conjunction", tuple(case)) for case in cases)
    return parts[0] if len(parts) == 1 else FunctionCall("disjunction", parts)


def _are_cases(items: Sequence[Node]) -> bool:
    """Whether these are equations and inequalities of one variable, `x > 3 or x = 5`: values of it, and not steps."""
    if not all(isinstance(item, Relation) for item in items):
        return False
    relations = [item for item in items if isinstance(item, Relation)]
    operators = {operator for relation in relations for operator in relation.operators}
    if "=" not in operators or not operators & _INEQUALITIES or not operators <= _INEQUALITIES | {"="}:
        return False
    return len(frozenset[str]().union(*map(free_symbols, items))) == 1


def listed(items: Sequence[Node], separators: Sequence[str]) -> Node:
    """A bare list, or its one item.

    Inequalities joined by "or" are the union of what they describe, by "and" the intersection. Semicolons divide lists.
    So does a word if it divides them into lists of the same length, two or more: `p = 5, q = 2 and p = 7, q = 2`.
    """
    if len(items) == 1:
        return items[0]
    if set(separators) <= _CONNECTIVES.keys() and all(map(_is_proposition, items)):
        return _proposition(items, separators)
    separators = [_CONNECTIVES.get(separator, separator) for separator in separators]
    items = _distributed(items)
    if {*separators} == {"or"} and _are_cases(items):
        return SetOperation("union", tuple(items))
    if all(isinstance(item, Relation) and _INEQUALITIES.issuperset(item.operators) for item in items):
        excluding = all(item.operators == ("!=",) for item in items if isinstance(item, Relation))
        if set(separators) == {"and"} or (excluding and "or" in separators):
            return SetOperation("intersection", tuple(items))  # "x is not 1 or 2" excludes both
        if set(separators) == {"or"}:
            return SetOperation("union", tuple(items))
    for dividers in ((";",), ("and", "or")):
        parts: list[list[Node]] = [[items[0]]]
        for separator, item in zip(separators, items[1:], strict=True):
            if separator in dividers:
                parts.append([])
            parts[-1].append(item)
        sizes = {len(part) for part in parts}
        if len(parts) > 1 and sizes != {1} and (dividers == (";",) or len(sizes) == 1):
            lists = (part[0] if len(part) == 1 else Collection("list", tuple(part)) for part in parts)
            return Collection("list", tuple(lists))
    return Collection("list", tuple(items))
