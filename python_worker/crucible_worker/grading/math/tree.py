"""The meaning of an answer as a tree: its nodes, walks over them, and how the parser combines them.

Arithmetic has five shapes, so that each reader has few cases: subtraction is a sum with a factor of -1, division
a product with a power of -1, a root a power of 1/n. Nothing is simplified here: a tree represents what was written.
Trees are never changed, and travel between processes by pickle.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from crucible_worker.grading.math.tokens import NUMBER_SETS

__all__ = [
    "BINDING",
    "MINUS_ONE",
    "ONE",
    "REALS",
    "ZERO",
    "Based",
    "Collection",
    "Constant",
    "FunctionCall",
    "Interval",
    "Matrix",
    "Node",
    "Number",
    "PlusMinus",
    "Power",
    "Product",
    "Quantity",
    "Relation",
    "SetOperation",
    "Sum",
    "Symbol",
    "Text",
    "added",
    "arithmetic",
    "as_set",
    "children",
    "free_symbols",
    "is_membership",
    "is_proper",
    "listed",
    "multiplied",
    "negative",
    "nodes_of",
    "ordered_symbols",
    "quotient",
    "rebuilt",
    "replaced",
    "spread_unit",
    "system",
    "walk",
    "with_unit_outside",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Number:
    """A rational number, exact: 0.1 is 1/10, 0.(3) is 1/3."""

    value: Fraction
    """Its value."""
    decimal: bool = False
    """It was written with a decimal point, which a policy of rounding requires."""


@dataclasses.dataclass(frozen=True, slots=True)
class Constant:
    """A number with a name."""

    name: Literal["pi", "e", "i", "infinity"]
    """Which."""


@dataclasses.dataclass(frozen=True, slots=True)
class Symbol:
    """A variable, or an unknown function."""

    name: str
    """Its normalised name: `x`, `x_1`, `alpha`, `AB`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sum:
    """Terms added."""

    terms: tuple[Node, ...]
    """Two or more terms."""


@dataclasses.dataclass(frozen=True, slots=True)
class Product:
    """Factors multiplied."""

    factors: tuple[Node, ...]
    """Two or more factors."""


@dataclasses.dataclass(frozen=True, slots=True)
class Power:
    """A base raised to an exponent. The square root of x is `Power(x, Number(1/2))`, 1/x is `Power(x, Number(-1))`."""

    base: Node
    """The base."""
    exponent: Node
    """To what."""


@dataclasses.dataclass(frozen=True, slots=True)
class FunctionCall:
    """A known function of arguments.

    One argument: sin cos tan cot sec csc, arcsin arccos arctan arccot arcsec arccsc, sinh cosh tanh coth sech csch,
    exp, ln, abs, floor, ceil, factorial, double factorial, sign, re, im, conjugate, arg; det of a matrix. Two: log (of,
    base), binomial (n, k), mod (of, by), residue (value, modulus), compose (f, g), cross (sets or vectors, in order),
    set (element, condition, maybe the domain) if the condition alone does not define it. Any number: gcd, lcm, min,
    max, ratio (1:2:3), cases (tuples of value and condition), conjunction, disjunction. Bound variable first, as a
    Symbol: sum, product (variable, from, to, of), integral (variable, from, to, of) or (variable, of), limit (variable,
    at, of), derivative (variable, of). Variable first, but not bound: slope (variable, of), the derivative of what may
    depend on the variable. Of a function or a set: maximum, minimum; nothing computes them. Every other name is a
    unknown function: f(x) is `FunctionCall("f", (x,))`.
    """

    function: str
    """Which."""
    arguments: tuple[Node, ...]
    """Of what."""


@dataclasses.dataclass(frozen=True, slots=True)
class Quantity:
    """A value with a unit, a currency, a degree sign or a percent sign."""

    value: Node
    """How many."""
    unit: str
    """One spelling for each unit: `degree`, `percent`, `dollar`, `meter`, `square centimeter`, `mile per hour`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Based:
    """A numeral with its base: 1011_2."""

    digits: str
    """As written, lower case; may have a point."""
    base: int
    """From 2 to 36."""


@dataclasses.dataclass(frozen=True, slots=True)
class PlusMinus:
    """Both `left + right` and `left - right`."""

    left: Node
    """Zero if nothing is written."""
    right: Node
    """The term that is added and subtracted."""


@dataclasses.dataclass(frozen=True, slots=True)
class Collection:
    """Several things."""

    kind: Literal["list", "tuple", "set", "bracket"]
    """`list`: bare, with commas or "and"; `tuple`: (a, b); `set`: {a, b}; `bracket`: [a, b], maybe an interval."""
    items: tuple[Node, ...]
    """May be empty."""


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """From a bound to a bound, at least one end in a form that only intervals have."""

    low: Node
    """Lower bound."""
    high: Node
    """Upper bound."""
    low_closed: bool
    """Whether the lower bound is closed: [, not (."""
    high_closed: bool
    """Whether the upper bound is closed: ], not )."""


@dataclasses.dataclass(frozen=True, slots=True)
class SetOperation:
    """A combination of sets."""

    operator: Literal["union", "intersection", "difference"]
    """How."""
    operands: tuple[Node, ...]
    """Two or more; inequalities stand for what they describe."""


@dataclasses.dataclass(frozen=True, slots=True)
class Relation:
    r"""A chain of comparisons: `0 < x <= 5`, `x = 3`, `x \in [0, 1)`."""

    operands: tuple[Node, ...]
    """Two or more parts."""
    operators: tuple[Literal["=", "!=", "<", "<=", ">", ">=", "in", "approx"], ...]
    """One fewer."""


@dataclasses.dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of entries; a vector is a matrix of one column."""

    rows: tuple[tuple[Node, ...], ...]
    """One or more, equally long."""


@dataclasses.dataclass(frozen=True, slots=True)
class Text:
    """Words."""

    words: str
    """Case folded, single spaces, no punctuation at the ends."""


Node: TypeAlias = (
    Number
    | Constant
    | Symbol
    | Sum
    | Product
    | Power
    | FunctionCall
    | Quantity
    | Based
    | PlusMinus
    | Collection
    | Interval
    | SetOperation
    | Relation
    | Matrix
    | Text
)
"""Any node."""


# Traversal: parts, names, replacing. Nothing here compares.


BINDING = frozenset({"sum", "product", "integral", "limit", "derivative"})
"""Calls with a bound variable as the first argument."""

# By type, as every walk over a tree comes here for each of its nodes.
_PARTS: Mapping[type, Callable[[Any], tuple[Node, ...]]] = {
    Sum: operator.attrgetter("terms"),
    Product: operator.attrgetter("factors"),
    Power: operator.attrgetter("base", "exponent"),
    FunctionCall: operator.attrgetter("arguments"),
    Quantity: lambda node: (node.value,),
    PlusMinus: operator.attrgetter("left", "right"),
    Collection: operator.attrgetter("items"),
    Interval: operator.attrgetter("low", "high"),
    SetOperation: operator.attrgetter("operands"),
    Relation: operator.attrgetter("operands"),
    Matrix: lambda node: tuple(itertools.chain.from_iterable(node.rows)),
}
_ARITHMETIC = (Number, Constant, Symbol, Sum, Product, Power, FunctionCall, Based)
_LEAVES = (Number, Constant, Symbol, Based, Text)


def children(node: Node) -> tuple[Node, ...]:
    """The parts of a node, in order."""
    parts = _PARTS.get(type(node))
    return () if parts is None else parts(node)


def rebuilt(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with each part changed; the node itself if nothing changed."""
    parts = children(node)
    changed = tuple(map(change, parts))
    if all(map(operator.is_, changed, parts)):
        return node
    match node:
        case Sum():
            return Sum(changed)
        case Product():
            return Product(changed)
        case Power():
            return Power(*changed)
        case FunctionCall(function):
            return FunctionCall(function, changed)
        case Quantity(_, unit):
            return Quantity(changed[0], unit)
        case PlusMinus():
            return PlusMinus(*changed)
        case Collection(kind):
            return Collection(kind, changed)
        case Interval(_, _, low_closed, high_closed):
            low, high = changed
            return Interval(low, high, low_closed, high_closed)
        case SetOperation(how):
            return SetOperation(how, changed)
        case Relation(_, operators):
            return Relation(changed, operators)
        case Matrix(rows):
            width = len(rows[0])
            return Matrix(tuple(changed[start : start + width] for start in range(0, len(changed), width)))
        case _:
            return node


def walk(node: Node) -> list[Node]:
    """The node and everything in it, from left to right."""
    found: list[Node] = []
    stack = [node]
    while stack:
        current = stack.pop()
        found.append(current)
        parts = _PARTS.get(type(current))
        if parts is not None:
            stack.extend(parts(current)[::-1])
    return found


def nodes_of(node: Node) -> list[Node]:
    """The node and everything in it, level by level: faster than `walk`, if the order does not matter."""
    found = [node]
    for current in found:  # it grows meanwhile
        parts = _PARTS.get(type(current))
        if parts is not None:
            found.extend(parts(current))
    return found


def arithmetic(node: Node) -> bool:
    """Whether this is a number or a formula: only arithmetic, degrees and percents."""
    return all(
        isinstance(part, _ARITHMETIC) or (isinstance(part, Quantity) and part.unit in ("degree", "percent"))
        for part in nodes_of(node)
    )


def ordered_symbols(node: Node) -> tuple[str, ...]:
    """Names of the variables in the order in which they first occur, without those that a sum or an integral binds."""
    parts = walk(node)
    names = dict.fromkeys(part.name for part in parts if isinstance(part, Symbol))
    if not names:
        return ()
    bound = _bound(parts)
    return tuple(name for name in names if name not in bound)


def free_symbols(node: Node) -> frozenset[str]:
    """Names of the variables, those that a sum or an integral binds left out."""
    parts = nodes_of(node)
    names = frozenset([part.name for part in parts if isinstance(part, Symbol)])
    return names - _bound(parts) if names else names


def _bound(parts: Sequence[Node]) -> set[str]:
    """Names of the variables that a sum or an integral among these binds."""
    return {
        part.arguments[0].name
        for part in parts
        if isinstance(part, FunctionCall)
        and part.function in BINDING
        and part.arguments
        and isinstance(part.arguments[0], Symbol)
    }


def replaced(node: Node, values: Mapping[str, Node]) -> Node:
    """The node with variables replaced."""
    if isinstance(node, Symbol):
        return values.get(node.name, node)
    if isinstance(node, _LEAVES):
        return node
    return rebuilt(node, lambda part: replaced(part, values))


# Combining nodes, for arithmetic, sets and lists.

ZERO = Number(Fraction(0))
"""0."""
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


def spread_unit(terms: list[Node]) -> Node:
    r"""A sum; a unit after only the last term is the unit of all: `3 + \sqrt2 \text{ cm}`."""
    last = terms[-1]
    if not isinstance(last, Quantity) or last.unit in ("percent", "degree"):
        return added(terms)
    if any(isinstance(term, Quantity) for term in terms[:-1]):
        return added(terms)
    return Quantity(added([*terms[:-1], last.value]), last.unit)
