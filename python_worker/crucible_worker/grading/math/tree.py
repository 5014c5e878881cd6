"""The meaning of an answer, as a tree: the nodes that the parser builds and everything else reads.

Arithmetic has five shapes, so that each reader has few cases: subtraction is a sum with a factor of -1, division
a product with a power of -1, a root a power of 1/n. Nothing is simplified here: a tree represents what was written.
Trees are never changed, and travel between processes by pickle.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import Literal, TypeAlias

__all__ = [
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
    "children",
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


def children(node: Node) -> tuple[Node, ...]:
    """The parts of a node, in order; empty for numbers, constants, symbols, numerals and words."""
    names = _CHILDREN[type(node)]
    if isinstance(node, Matrix):
        return tuple(entry for row in node.rows for entry in row)
    found: list[Node] = []
    for name in names:
        value = getattr(node, name)
        found.extend(value) if isinstance(value, tuple) else found.append(value)
    return tuple(found)


_CHILDREN: dict[type, tuple[str, ...]] = {
    **dict.fromkeys((Number, Constant, Symbol, Based, Text), ()),
    Sum: ("terms",),
    Product: ("factors",),
    Power: ("base", "exponent"),
    FunctionCall: ("arguments",),
    Quantity: ("value",),
    PlusMinus: ("left", "right"),
    Collection: ("items",),
    Interval: ("low", "high"),
    SetOperation: ("operands",),
    Relation: ("operands",),
    Matrix: ("rows",),
}
