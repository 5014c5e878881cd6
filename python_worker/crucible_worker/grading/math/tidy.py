"""One shape for expressions with several spellings: units and matrices within arithmetic, ratios, plus-minus.

Trees that still differ in order have the same key if only parts of sums and products are exchanged.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from fractions import Fraction

from crucible_worker.grading.math.exact import rational_or_none
from crucible_worker.grading.math.tree import (
    Collection,
    FunctionCall,
    Interval,
    Matrix,
    Node,
    Number,
    PlusMinus,
    Power,
    Product,
    Quantity,
    Relation,
    SetOperation,
    Sum,
    Symbol,
    children,
    nodes_of,
    rebuilt,
)

__all__ = [
    "MAX_DETERMINANT_SIDE",
    "MAX_MATRIX_NODES",
    "MAX_MATRIX_SIDE",
    "MAX_SIGNS",
    "MINUS_ONE",
    "ONE",
    "ZERO",
    "exact_key",
    "factors_of",
    "negated",
    "order_key",
    "spread",
    "tidy",
]

# Trees that differ only in order: a key that is the same for sums and products with their parts exchanged.

_ANY_ORDER = frozenset({"gcd", "lcm", "min", "max", "conjunction", "disjunction"})


def order_key(node: Node) -> Hashable:
    """A key: equal keys are equal trees except for the order of terms, of factors, and of unordered arguments."""
    match node:
        case Number(value):
            return (value.numerator, value.denominator)
        case Sum(terms):
            return ("+", _sorted(itertools.chain.from_iterable(_parts(term, Sum) for term in terms)))
        case Product(factors):
            return ("*", _sorted(itertools.chain.from_iterable(_parts(factor, Product) for factor in factors)))
        case FunctionCall(function, arguments) if function in _ANY_ORDER:
            return (function, _sorted(arguments))
        case _:
            parts = children(node)
            if not parts:
                return node
            return (_shape(node), *map(order_key, parts))


def exact_key(node: Node) -> Hashable | None:
    """A key for values that are known exactly, for matching long lists; None if the value is not."""
    if isinstance(node, Collection) and node.kind == "tuple":
        keys = tuple(map(exact_key, node.items))
        return None if None in keys else ("tuple", keys)
    if isinstance(node, Collection | Relation):
        return None
    return rational_or_none(node)


def factors_of(node: Product) -> tuple[Node, ...]:
    """The factors of a product, those of products within it too."""
    return _parts(node, Product)


def _parts(node: Node, kind: type[Sum | Product]) -> tuple[Node, ...]:
    """Terms of a sum within a sum, factors of a product within a product."""
    if not isinstance(node, kind):
        return (node,)
    return tuple(itertools.chain.from_iterable(_parts(part, kind) for part in children(node)))


def _sorted(nodes: Iterable[Node]) -> tuple[Hashable, ...]:
    return tuple(sorted(map(order_key, nodes), key=repr))


def _shape(node: Node) -> Hashable:
    """The kind of a node, apart from its parts."""
    fields = [type(node).__name__]
    for name in ("function", "unit", "kind", "operator", "operators", "low_closed", "high_closed"):
        value = getattr(node, name, None)
        if value is not None:
            fields.append(str(value))
    return tuple(fields)


# One shape for expressions.


MAX_SIGNS = 4
"""Independent plus-minus signs of one expression, at most: 16 values."""
MAX_MATRIX_SIDE = 10
"""Rows and columns of matrices that are multiplied."""
MAX_MATRIX_NODES = 4_000
"""Nodes of a product of matrices; larger ones stay products."""
MAX_DETERMINANT_SIDE = 4
"""Rows of determinants that are written out."""

ZERO = Number(Fraction(0))
ONE = Number(Fraction(1))
MINUS_ONE = Number(Fraction(-1))

# Units that count as numbers: a percentage of 80 dollars is dollars.
_DEGREES = {"degree": Fraction(1), "arcminute": Fraction(1, 60), "arcsecond": Fraction(1, 3600)}
_COMPOUNDS = frozenset(
    pair
    for series in (
        ("day", "hour", "minute", "second"),
        ("yard", "foot", "inch"),
        ("pound", "ounce"),
        ("dollar", "cent"),
    )
    for count in range(2, len(series) + 1)
    for pair in itertools.combinations(series, count)
)
_SETS = (Relation, Collection, Interval, SetOperation, Symbol)
_UNTIDY = frozenset({Quantity, Matrix, Collection, FunctionCall})
_PURE_UNITS = frozenset({"degree", "percent"})


def negated(node: Node) -> Node:
    """The node with the other sign."""
    if isinstance(node, Number):
        return Number(-node.value, node.decimal)
    return Product((MINUS_ONE, node))


def tidy(node: Node) -> Node:
    """Units outside of arithmetic, matrices multiplied out, a:b as a/b, no list of one thing."""
    if _UNTIDY.isdisjoint(map(type, nodes_of(node))):
        return node
    return _tidied(node)


def _tidied(node: Node) -> Node:
    node = rebuilt(node, _tidied)
    match node:
        case Sum(terms):
            return _sum(node, terms)
        case Product(factors):
            return _product(node, factors)
        case Power(Matrix() as base, Number(exponent)) if exponent.denominator == 1 and 2 <= exponent <= 4:
            return _product(node, (base,) * int(exponent))
        case FunctionCall("ratio", (antecedent, consequent)):
            return Product((antecedent, Power(consequent, MINUS_ONE)))
        case FunctionCall("det", (Matrix(rows),)) if len(rows) == len(rows[0]) <= MAX_DETERMINANT_SIDE:
            return _determinant(rows)
        case Collection("bracket", (Collection("bracket", first), *_) as rows) if _are_rows(rows, len(first)):
            return Matrix(tuple(row.items for row in rows if isinstance(row, Collection)))
        case Matrix(rows) if all(len(row) == 1 and isinstance(row[0], Relation) for row in rows):
            return Collection("list", tuple(row[0] for row in rows))
        case Collection("list", items) if _compound(items):
            return Sum(items)
        case Collection("list", (item,)):
            return item
        case _:
            return node


def _are_rows(nodes: Sequence[Node], width: int) -> bool:
    """[[1, 2], [3, 4]] is a matrix."""
    return all(isinstance(node, Collection) and node.kind == "bracket" and len(node.items) == width for node in nodes)


def _compound(items: tuple[Node, ...]) -> bool:
    """2 hours and 30 minutes are one quantity."""
    units = [item.unit for item in items if isinstance(item, Quantity)]
    return len(units) == len(items) > 1 and tuple(units) in _COMPOUNDS


def _measured(node: Node) -> bool:
    return isinstance(node, Quantity) and node.unit not in _PURE_UNITS


def _sum(node: Sum, terms: tuple[Node, ...]) -> Node:
    """5 m + 2 m is 7 m, matrices of one size are added, a set minus a set is their difference."""
    quantities = [term for term in terms if isinstance(term, Quantity)]
    if len(quantities) == len(terms):
        if {quantity.unit for quantity in quantities} <= _DEGREES.keys():
            degrees = (Product((Number(_DEGREES[quantity.unit]), quantity.value)) for quantity in quantities)
            return Quantity(Sum(tuple(degrees)), "degree")
        if len({quantity.unit for quantity in quantities}) == 1:
            return Quantity(Sum(tuple(quantity.value for quantity in quantities)), quantities[0].unit)
    match terms:
        case (whole, Product((Number(sign), Collection("set") as removed))) if sign == -1 and isinstance(whole, _SETS):
            return SetOperation("difference", (whole, removed))
    matrices = [term for term in terms if isinstance(term, Matrix)]
    if len(matrices) == len(terms) and len({_size(matrix) for matrix in matrices}) == 1:
        columns = zip(*(itertools.chain.from_iterable(matrix.rows) for matrix in matrices))
        return _matrix([Sum(entries) for entries in columns], _size(matrices[0])[1])
    return node


def _product(node: Node, factors: tuple[Node, ...]) -> Node:
    """2 (3 m) is 6 m, matrices are multiplied by numbers and by each other."""
    measured = [factor for factor in factors if _measured(factor)]
    divisors = [factor for factor in factors if isinstance(factor, Power) and _measured(factor.base)]
    if len(measured) == len(divisors) == 1 and divisors[0].exponent == MINUS_ONE:
        return _rate(factors, measured[0], divisors[0])
    if len(measured) == 1 and isinstance(measured[0], Quantity):
        quantity = measured[0]
        return Quantity(
            Product(tuple(quantity.value if factor is quantity else factor for factor in factors)), quantity.unit
        )
    matrices = [factor for factor in factors if isinstance(factor, Matrix)]
    if not matrices:
        return node
    result = matrices[0]
    for matrix in matrices[1:]:
        if len(result.rows[0]) != len(matrix.rows) or max(*_size(result), *_size(matrix)) > MAX_MATRIX_SIDE:
            return node
        result = _multiplied(result, matrix)
        if len(nodes_of(result)) > MAX_MATRIX_NODES:
            return node
    scalars = tuple(factor for factor in factors if not isinstance(factor, Matrix))
    if not scalars:
        return result
    return _matrix([Product((*scalars, entry)) for row in result.rows for entry in row], _size(result)[1])


def _rate(factors: tuple[Node, ...], above: Node, divisor: Node) -> Node:
    """6 m over 2 s is 3 meters per second, 6 m over 2 m is 3."""
    match above, divisor:
        case Quantity(value, unit), Power(Quantity(below, other), exponent):
            bare = {id(above): value, id(divisor): Power(below, exponent)}
            node = Product(tuple(bare.get(id(factor), factor) for factor in factors))
            return node if unit == other else Quantity(node, f"{unit} per {other}")
        case _:
            return Product(factors)


def _multiplied(left: Matrix, right: Matrix) -> Matrix:
    columns = tuple(zip(*right.rows))
    entries: list[Node] = []
    for row in left.rows:
        for column in columns:
            products = tuple(Product((a, b)) for a, b in zip(row, column))
            entries.append(_folded(products[0] if len(products) == 1 else Sum(products)))
    return _matrix(entries, len(columns))


def _folded(node: Node) -> Node:
    """Entries that are numbers are multiplied out, so that products of products stay small."""
    value = rational_or_none(node)
    return node if value is None else Number(value)


def _determinant(rows: tuple[tuple[Node, ...], ...]) -> Node:
    """By its first row."""
    if len(rows) == 1:
        return rows[0][0]
    terms: list[Node] = []
    for column, entry in enumerate(rows[0]):
        minor = _determinant(tuple(row[:column] + row[column + 1 :] for row in rows[1:]))
        terms.append(Product((MINUS_ONE, entry, minor) if column % 2 else (entry, minor)))
    return Sum(tuple(terms))


def _size(matrix: Matrix) -> tuple[int, int]:
    return len(matrix.rows), len(matrix.rows[0])


def _matrix(entries: list[Node], width: int) -> Matrix:
    return Matrix(tuple(tuple(entries[start : start + width]) for start in range(0, len(entries), width)))


def _has_plus_minus(node: Node) -> bool:
    """Whether a plus-minus sign is anywhere in it."""
    return any(isinstance(part, PlusMinus) for part in nodes_of(node))


def spread(node: Node, *, independent: bool) -> Node:
    r"""The node with its plus-minus signs written out, as a list if they are not within a list or set.

    All signs of one expression go together, as in 1 \pm \sqrt{2} \pm x, or are independent, as in (\pm 1, \pm 1).
    """
    if isinstance(node, Collection) and node.kind in ("list", "set"):
        items = (_values(item, independent) for item in node.items)
        return Collection(node.kind, tuple(itertools.chain.from_iterable(items)))
    if isinstance(node, Relation) and not _has_plus_minus(node.operands[0]):
        values = _values(node.operands[-1], independent)
        rest = node.operands[:-1]
        relations = tuple(Relation((*rest, value), node.operators) for value in values)
        return relations[0] if len(relations) == 1 else Collection("list", relations)
    values = _values(node, independent)
    return values[0] if len(values) == 1 else Collection("list", values)


def _values(node: Node, independent: bool) -> tuple[Node, ...]:
    count = sum(isinstance(part, PlusMinus) for part in nodes_of(node))
    if not count:
        return (node,)
    if count == 1 or not independent or count > MAX_SIGNS:
        choices = [(1,) * count, (-1,) * count]
    else:
        choices = list(itertools.product((1, -1), repeat=count))
    return tuple(dict.fromkeys(_chosen(node, iter(signs)) for signs in choices))


def _chosen(node: Node, signs: Iterator[int]) -> Node:
    """The node with one sign for each plus-minus, in the order in which they are written."""
    if isinstance(node, PlusMinus):
        sign = next(signs)
        left, right = _chosen(node.left, signs), _chosen(node.right, signs)
        right = right if sign > 0 else negated(right)
        return right if left == ZERO else Sum((left, right))
    return rebuilt(node, lambda part: _chosen(part, signs))
