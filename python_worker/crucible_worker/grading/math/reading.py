"""Texts as trees of one shape: the readings of a target or an answer, and its flaw if it has none.

An answer that is too long to be read is wrong if the target is small, so that length cannot prevent a score. Only a
long target equals a long answer: one with a number of many digits, or one that abbreviates more than its characters.
Then it is unknown whether the answer is right, unless both are numerals.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from fractions import Fraction

from crucible_worker.grading.base import MAX_SMALL_CHARS, TOO_LONG
from crucible_worker.grading.math.evaluate import approximate
from crucible_worker.grading.math.exact import Undefined, rational, rational_or_none
from crucible_worker.grading.math.extras.sizes import DOTS, MAX_SMALL_DIGITS, Digits, digits_of, size_of
from crucible_worker.grading.math.grammar import TooLarge, Unreadable, parse
from crucible_worker.grading.math.identity import (
    MAX_SYMBOLS,
    ExpressionRelation,
    MathOutcome,
    Scope,
    different,
    equal,
    examine,
    unknown,
)
from crucible_worker.grading.math.text import (
    boxed,
    enclosed,
    ends_with,
    has_words,
    is_claim,
    last_amount,
    marked,
    may_drop,
)
from crucible_worker.grading.math.tree import (
    MINUS_ONE,
    ZERO,
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
    Text,
    children,
    free_symbols,
    nodes_of,
    rebuilt,
)

__all__ = [
    "EMPTY",
    "LEFT_OUT",
    "MAX_CACHED_CHARS",
    "MAX_DETERMINANT_SIDE",
    "MAX_MATRIX_NODES",
    "MAX_MATRIX_SIDE",
    "MAX_SIGNS",
    "MAX_SMALL_CHARS",
    "OUTSIZE",
    "TOO_LONG",
    "WITHOUT_VALUE",
    "ParsedText",
    "compare_by_size",
    "compare_digits",
    "compare_unread",
    "exact_key",
    "factors_of",
    "has_outsize",
    "in_words",
    "is_small",
    "leaves_out",
    "negated",
    "order_key",
    "read",
    "read_target",
    "readings_of",
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


# One shape for expressions with several spellings: units and matrices within arithmetic, ratios, plus-minus.


MAX_SIGNS = 4
"""Independent plus-minus signs of one expression, at most: 16 values."""
MAX_MATRIX_SIDE = 10
"""Rows and columns of matrices that are multiplied."""
MAX_MATRIX_NODES = 4_000
"""Nodes of a product of matrices; larger ones stay products."""
MAX_DETERMINANT_SIDE = 4
"""Rows of determinants that are written out."""

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


# The readings of a text.

MAX_CACHED_CHARS = 300
"""Longer targets are read again for each answer: all cached trees must fit into a child's memory."""
EMPTY = "is empty"
"""The flaw of a text without anything in it."""
WITHOUT_VALUE = "has no value"
"""The flaw of 1/0, and of everything that contains it."""

_CACHED_TARGETS = 4_096
# Few, as answers come from a model: trees of 4,000 nodes each would fill a child's memory.
_CACHED_LATELY = 16
_NO_VALUE = frozenset({"nan", "not a number"})
_MAY_LACK_VALUE = frozenset({FunctionCall, Power, Text})
_TINY = 1e-6


@dataclasses.dataclass(frozen=True, slots=True)
class ParsedText:
    """A text, read."""

    nodes: tuple[Node, ...]
    """Its trees: one, or two if its plus-minus signs may go together or be independent. None with a flaw."""
    flaw: str = ""
    """Why it has no reading: `EMPTY`, `WITHOUT_VALUE`, or "cannot be read" and why."""
    too_large: bool = False
    """It is beyond a budget of the parser."""
    digits: Digits | None = None
    """The digits of such a numeral."""
    chars: int = 0
    """Characters that were read."""
    kinds: frozenset[type] = frozenset()
    """The kinds of nodes in it, any number of levels deep."""


def read_target(text: str) -> ParsedText:
    """Read a target, from a cache if possible: groups of answers share it.

    For a whole solution, the target is its box, or the marked answer.
    """
    return _remembered_target(text) if len(text) <= MAX_CACHED_CHARS else _read_target(text)


@functools.lru_cache(maxsize=_CACHED_TARGETS)
def _remembered_target(text: str) -> ParsedText:
    return _read_target(text)


def _read_target(text: str) -> ParsedText:
    inner = boxed(text)
    if inner is not None:
        return read(inner)
    reading = read(text)
    if in_words(reading):
        inner = marked(text, numbers=False)
        if inner is not None and read(inner).nodes:
            return read(inner)
    return reading


def readings_of(answer: str, target: ParsedText) -> Iterator[ParsedText]:
    """The readings of an answer: unchanged, then without the words around it if they may be dropped."""
    if (inner := enclosed(answer)) is not None:
        yield read(inner)
        return
    inner = boxed(answer)
    text = answer if inner is None else inner
    whole = read(text)
    if whole.too_large:
        # A number in an unreadable formula is not its value; a response may have any length.
        inner = marked(text, numbers=False)
        yield whole if inner is None or not may_drop(text, inner) else read(inner)
        return
    yield whole
    if not in_words(whole):
        return
    inner, said = marked(text), whole
    if inner is not None:
        # An exclamation mark of prose is a factorial if the target has one.
        ending = text.rstrip().removesuffix("!")
        if ending.endswith(inner) and ending != text.rstrip():
            text, inner = (ending, inner) if not _has_factorial(target) else (text, f"{inner}!")
        if not may_drop(text, inner) or not (ends_with(text, inner) or marked(text, numbers=False)):
            return
        said = read(inner)
        yield said
        if not in_words(said):
            return
    if not in_words(target) and has_words(text) and not _has_claims(whole, said):
        amount = last_amount(text)
        if amount is not None and may_drop(text, amount.split()[0]):
            yield read(amount)


def _has_factorial(reading: ParsedText) -> bool:
    nodes = (part for node in reading.nodes for part in nodes_of(node))
    return any(isinstance(part, FunctionCall) and part.function == "factorial" for part in nodes)


def _has_claims(*readings: ParsedText) -> bool:
    """Whether one of several things is an answer in words: in "0.5, infinitely many" nothing may be dropped."""
    nodes = (node for reading in readings for node in reading.nodes)
    return any(any(map(is_claim, node.items if isinstance(node, Collection) else (node,))) for node in nodes)


def in_words(reading: ParsedText) -> bool:
    """Whether there are words in it, so that it may be more than the answer."""
    if not reading.nodes:
        return reading.flaw not in (EMPTY, WITHOUT_VALUE)
    if Text not in reading.kinds:
        return False
    node = reading.nodes[0]
    if isinstance(node, Relation):
        return any(isinstance(operand, Text) for operand in node.operands)
    return any(isinstance(part, Text) and (part is node or " " in part.words) for part in nodes_of(node))


@functools.lru_cache(maxsize=_CACHED_LATELY)
def read(text: str) -> ParsedText:
    """Read a text; the last few readings are cached, as one decision may need them again."""
    if not text.strip():
        return ParsedText((), EMPTY)
    try:
        node = tidy(parse(text))
    except TooLarge as error:
        return ParsedText((), f"is too large to be read: {error}", too_large=True, digits=digits_of(text))
    except Unreadable as error:
        return ParsedText((), f"cannot be read: {error}")
    kinds = frozenset(map(type, nodes_of(node)))
    if kinds & _MAY_LACK_VALUE and not _has_value(node):
        return ParsedText((), WITHOUT_VALUE)
    if PlusMinus not in kinds:
        return ParsedText((node,), chars=len(text), kinds=kinds)
    together, independent = spread(node, independent=False), spread(node, independent=True)
    nodes = (together,) if together == independent else (together, independent)
    return ParsedText(nodes, chars=len(text), kinds=kinds)


def _has_value(node: Node) -> bool:
    """Whether no part of it is without a value, as 1/0 is."""
    for part in nodes_of(node):
        if isinstance(part, Text) and part.words in _NO_VALUE:
            return False
        if isinstance(part, FunctionCall):
            if _undefined(part):
                return False
        elif isinstance(part, Power) and isinstance(part.exponent, Number) and part.exponent.value <= 0:
            if isinstance(part.base, Number) and part.base.value != 0:
                continue
            if _undefined(part) or _vanishes(part.base):
                return False
    return True


def _undefined(node: Node) -> bool:
    try:
        rational(node)
    except Undefined:
        return True
    return False


def _vanishes(node: Node) -> bool:
    """Whether a number that may be irrational is zero."""
    if isinstance(node, Number) or free_symbols(node):
        return False
    near = approximate(node)
    return near is not None and abs(near) < _TINY and examine(node, ZERO).identity is ExpressionRelation.EQUAL


# Answers that are too long to be read.


OUTSIZE = f"the answer has a number of more than {MAX_SMALL_DIGITS:,} digits"
"""Why an answer that was read is too long."""
LEFT_OUT = "the answer leaves a part out, and the target does not"
"""Why an answer with dots that no rule writes out is wrong."""

_MAX_SHORTENED = 200  # digits of a numeral that is rounded
_MAX_EXPANDED = 20  # powers of a sum that are not written out at great length
_GROWING = frozenset({"factorial", "double factorial", "binomial"})
_WRITTEN_OUT = frozenset({"sum", "product"})
_INFINITE = "infinity"
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53)


def compare_unread(expected: ParsedText, said: ParsedText, scope: Scope) -> MathOutcome:
    """Compare the target with an answer that is beyond a budget of the parser."""
    outcome = compare_digits(expected, said)
    if outcome is not None and outcome.kind == "equal":
        return outcome
    if said.digits is not None and scope.policy.rounding_digits:
        value = said.digits.shortened(_MAX_SHORTENED)
        rounded = Number(value, True) if value is not None and said.digits.decimals else None
        if rounded and any(scope.compare(node, rounded, scope).kind == "equal" for node in expected.nodes):
            return equal("rational", "equal when rounded")
    reason = f"the answer {said.flaw}"
    if is_small(expected):
        return different(TOO_LONG, reason)
    return outcome or unknown(reason, method="structure")


def compare_digits(expected: ParsedText, said: ParsedText) -> MathOutcome | None:
    """Compare a numeral that is too long to be read with another, or with a number; None if one of them is neither."""
    if expected.digits is not None and said.digits is not None:
        return equal("rational") if expected.digits == said.digits else different("rational")
    for one, other in ((expected, said), (said, expected)):
        if one.digits is None or not other.nodes:
            continue
        values = [rational_or_none(node) for node in other.nodes]
        if any(value is not None and one.digits.equals(value) for value in values):
            return equal("rational")
        if None not in values:
            return different("rational")
    return None


def compare_by_size(target: Node, answer: Node) -> MathOutcome | None:
    """Different, if one formula has a value with very many digits and the other has not; None otherwise."""
    names = sorted(free_symbols(target) | free_symbols(answer))
    if len(names) > MAX_SYMBOLS:
        return None
    values = dict(zip(names, _PRIMES))
    said = size_of(answer, values)
    expected = None if said is None else size_of(target, values)
    if said is None or expected is None or not expected.apart(said):
        return None
    if said.outsize and expected.small:
        return different(TOO_LONG, OUTSIZE)
    return different("identity", "of another size") if said.outsize or expected.outsize else None


def is_small(target: ParsedText) -> bool:
    """Whether a target was read, is short, and has no part that is longer when it is written out."""
    if not target.nodes or target.chars > MAX_SMALL_CHARS:
        return False
    return not any(map(is_longer, target.nodes))


def is_longer(node: Node) -> bool:
    """Whether something in a tree may stand for a text, or for a number, that is much longer."""
    return any(map(_is_longer, nodes_of(node)))


def has_outsize(answer: ParsedText) -> bool:
    """Whether there is a number of very many digits in an answer, as a power or a factorial."""
    return any(
        isinstance(part, Power | FunctionCall)
        and not free_symbols(part)
        and (size := size_of(part)) is not None
        and size.outsize
        for node in answer.nodes
        for part in nodes_of(node)
    )


def leaves_out(answer: ParsedText, target: ParsedText) -> bool:
    r"""Whether there are dots in an answer that cannot mean the target.

    Dots may stand for anything. `1 + 2 + \cdots + n` may be `n(n + 1)/2`, and `\{3, 9, \ldots, 243\}` a set that begins
    and ends so; `1 + \cdots + n` is not 42.
    """
    dotted = Symbol in answer.kinds and any(part == DOTS for node in answer.nodes for part in nodes_of(node))
    return dotted and not any(_may_be(said, node) for said in answer.nodes for node in target.nodes)


def _may_be(answer: Node, target: Node) -> bool:
    match answer, target:
        case (Sum(shown) | Product(shown), _) if _has_dots_within(shown):
            names = free_symbols(answer) - {DOTS.name}
            return bool(names) and names == free_symbols(target)
        case Collection(items=shown), Collection(items=items) if _has_dots_within(shown):
            place = shown.index(DOTS)
            end = shown[place + 1 :]
            return len(items) >= len(shown) and items[:place] == shown[:place] and items[-len(end) :] == end
        case _:
            return False


def _has_dots_within(shown: tuple[Node, ...]) -> bool:
    return shown.count(DOTS) == 1 and DOTS not in (shown[0], shown[-1])


def _is_longer(node: Node) -> bool:
    match node:
        case Number():
            size = size_of(node)
            return size is None or not size.small
        case Symbol():
            return node == DOTS
        case FunctionCall(function, (_, _, last, _)) if function in _WRITTEN_OUT:
            return getattr(last, "name", "") != _INFINITE
        case Power(Sum() as base, Number(times)) if free_symbols(base):
            return times > _MAX_EXPANDED
        case Power(_, exponent) if not free_symbols(node):
            size = size_of(node)
            if size is None:
                return not (isinstance(exponent, Number) and abs(exponent.value) <= Fraction(_MAX_EXPANDED))
            return not size.small
        case FunctionCall(function) if function in _GROWING and not free_symbols(node):
            size = size_of(node)
            return size is None or not size.small
        case _:
            return False
