"""Comparing two trees of any shape; vectors are compared by their components."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crucible_worker.grading.math.compare_collections import (
    compare_collections,
    compare_matrices,
    compare_text,
    is_empty_set,
    match,
)
from crucible_worker.grading.math.compare_relations import compare_equation_with_value, compare_relations, parts_of
from crucible_worker.grading.math.compare_sets import at_points, compare_sets, is_real_set
from crucible_worker.grading.math.compare_values import compare_values
from crucible_worker.grading.math.extras.moments import compare_durations
from crucible_worker.grading.math.outcome import MathOutcome, Scope, all_of, any_of, different, equal, unknown
from crucible_worker.grading.math.parsing import added, multiplied
from crucible_worker.grading.math.tidy import ONE, ZERO
from crucible_worker.grading.math.tree import (
    Based,
    Collection,
    Constant,
    FunctionCall,
    Interval,
    Matrix,
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
    walk,
)

__all__ = ["MAX_NODES", "compare", "in_components"]

# Vectors as sums of unit vectors, `2\hat{i} + 3\hat{j}`, and as components, `(2, 3)`.

MAX_NODES = 400
"""Nodes of a sum of unit vectors that is split."""

_MARKED = (
    (Symbol("hat i"), Symbol("hat j"), Symbol("hat k")),
    (Symbol("hat x"), Symbol("hat y"), Symbol("hat z")),
)
# Unmarked letters are unit vectors if j is among them: i alone is the imaginary unit.
_PLAIN = (Constant("i"), Symbol("j"), Symbol("k"))


def in_components(target: Node, answer: Node) -> tuple[Node, Node] | None:
    """Both as components, if one of them is a sum of unit vectors; otherwise None."""
    for one, other, reverse in ((target, answer, False), (answer, target, True)):
        if not isinstance(one, Sum | Product | Symbol):
            continue
        size = _size(other)
        components = _components(one, size) if size in (2, 3) else None
        if components is not None:
            vector = Collection(other.kind if isinstance(other, Collection) else "tuple", components)
            return (other, vector) if reverse else (vector, other)
    return None


def _size(node: Node) -> int:
    """How many components a vector has; 0 if it is not a vector."""
    match node:
        case Collection("tuple" | "bracket", items):
            return len(items)
        case Matrix(rows) if len(rows) == 1 or len(rows[0]) == 1:
            return max(len(rows), len(rows[0]))
        case _:
            return 0


def _components(node: Node, size: int) -> tuple[Node, ...] | None:
    parts = walk(node)
    if len(parts) > MAX_NODES:
        return None
    for basis in (*_MARKED, _PLAIN):
        if not any(unit in parts for unit in basis):
            continue
        if basis is _PLAIN and not (Symbol("j") in parts and (Constant("i") in parts or Symbol("k") in parts)):
            continue
        coefficients = _coefficients(node, basis)
        if coefficients is None or any(coefficients[unit] for unit in basis[size:]):
            return None
        return tuple(added(coefficients[unit] or [ZERO]) for unit in basis[:size])
    return None


def _coefficients(node: Node, basis: Sequence[Node]) -> Mapping[Node, list[Node]] | None:
    """The factors of each unit vector, as terms; None if a part has no unit vector, or more than one."""
    if node in basis:
        return {unit: [ONE] if unit == node else [] for unit in basis}
    if isinstance(node, Sum):
        found: dict[Node, list[Node]] = {unit: [] for unit in basis}
        for term in node.terms:
            coefficients = _coefficients(term, basis)
            if coefficients is None:
                return None
            for unit in basis:
                found[unit] += coefficients[unit]
        return found
    if isinstance(node, Product):
        vectors = [factor for factor in node.factors if any(unit in walk(factor) for unit in basis)]
        coefficients = _coefficients(vectors[0], basis) if len(vectors) == 1 else None
        if coefficients is None:
            return None
        scalars = [factor for factor in node.factors if factor is not vectors[0]]
        return {unit: [multiplied([*scalars, term]) for term in terms] for unit, terms in coefficients.items()}
    return None


# Two trees of any shape.


_NUMBERLESS = frozenset({FunctionCall, Sum})
_VALUES = frozenset({Number, Constant, Sum, Product, Power, FunctionCall, Based, Quantity})


def compare(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """Compare two trees: the target and the answer."""
    if not scope.charge():
        return unknown("too much to compare")
    if type(target) in _VALUES and type(answer) in _VALUES:
        return _compare_numberless(target, answer, scope) or compare_values(target, answer, scope)
    if target == answer:
        return equal("text" if isinstance(target, Text) else "structure")
    if isinstance(target, Text) or isinstance(answer, Text) or is_empty_set(target) or is_empty_set(answer):
        return _compare_text(target, answer, scope)
    if is_real_set(target) or is_real_set(answer):
        outcome = _compare_sets(target, answer, scope)
        if outcome is not None:
            return outcome
        outcome = _compare_shapes(target, answer, scope)
        described = is_real_set(target) and is_real_set(answer)
        open_still = outcome.kind != "equal" and not outcome.pairs
        return at_points(target, answer, outcome) if described and open_still else outcome
    return _compare_shapes(target, answer, scope)


def _compare_shapes(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """Compare two nodes, neither of which is words, by their parts."""
    if scope.policy.vector_notations and (components := in_components(target, answer)) is not None:
        return scope.compare(*components, scope)
    if isinstance(target, Relation) or isinstance(answer, Relation):
        return _compare_relations(target, answer, scope)
    if isinstance(target, Matrix) or isinstance(answer, Matrix):
        return compare_matrices(target, answer, scope)
    if isinstance(target, Collection) or isinstance(answer, Collection):
        return _compare_collections(target, answer, scope)
    if isinstance(target, Interval | SetOperation) or isinstance(answer, Interval | SetOperation):
        return _compare_parts(target, answer, scope)
    return compare_values(target, answer, scope)


def _compare_text(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """Words, or an equation whose value is words; or the empty set, which an inequality without solutions describes."""
    for one, other in ((target, answer), (answer, target)):
        if is_empty_set(one) and isinstance(other, Relation) and is_real_set(other):
            return compare_sets(Collection("set", ()), other, scope) or different("structure", "not of numbers")
    for one, other, reverse in ((target, answer, False), (answer, target, True)):
        if isinstance(one, Relation) and not isinstance(other, Relation):
            return compare_equation_with_value(one, other, scope, reverse=reverse)
        if isinstance(one, Collection) and len(one.items) == 1 and not isinstance(other, Collection):
            return scope.compare(other, one.items[0], scope) if reverse else scope.compare(one.items[0], other, scope)
    return compare_text(target, answer)


def _compare_sets(target: Node, answer: Node, scope: Scope) -> MathOutcome | None:
    outcome = compare_sets(target, answer, scope)
    if outcome is None or outcome.kind == "equal":
        return outcome
    if isinstance(target, Relation) and isinstance(answer, Relation):
        return any_of((compare_relations(target, answer, scope), outcome))
    return outcome


def _compare_relations(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """Two nodes at least one of which is a relation."""
    if isinstance(target, Relation) and isinstance(answer, Relation):
        return compare_relations(target, answer, scope)
    for one, other, reverse in ((target, answer, False), (answer, target, True)):
        if not isinstance(one, Relation):
            continue
        parts = parts_of(one)
        if parts is not None and isinstance(other, Collection):
            by_part = scope.compare(other, parts, scope) if reverse else scope.compare(parts, other, scope)
            if by_part.kind == "equal":
                return by_part
        if one.operators == ("=",) and isinstance(other, Collection) and other.items:
            solutions = compare_sets(target, answer, scope) if _are_relations(other.items) else None
            if solutions is not None and solutions.kind == "equal":
                return solutions
        if "in" in one.operators and one.operators == ("in",):
            value = one.operands[1]
            return scope.compare(other, value, scope) if reverse else scope.compare(value, other, scope)
        return compare_equation_with_value(one, other, scope, reverse=reverse)
    return different()


def _are_relations(nodes: Sequence[Node]) -> bool:
    return all(isinstance(node, Relation) for node in nodes)


def _compare_collections(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """Two nodes at least one of which is several things."""
    if isinstance(target, Collection) and isinstance(answer, Collection):
        return compare_collections(target, answer, scope)
    for one, other, reverse in ((target, answer, False), (answer, target, True)):
        if isinstance(one, Collection) and len(one.items) == 1:
            return scope.compare(other, one.items[0], scope) if reverse else scope.compare(one.items[0], other, scope)
    return different("structure", "several things on one side only")


def _compare_parts(target: Node, answer: Node, scope: Scope) -> MathOutcome:
    """Intervals and unions of other things than real numbers, as written."""
    match target, answer:
        case Interval(), Interval():
            if (target.low_closed, target.high_closed) != (answer.low_closed, answer.high_closed):
                return different("structure", "open and closed bounds")
            return all_of(scope.each((target.low, target.high), (answer.low, answer.high)))
        case SetOperation(operator, operands), SetOperation(other, others) if operator == other:
            if operator in ("union", "intersection"):
                return match(operands, others, scope)
            if len(operands) == len(others):
                return all_of(scope.each(operands, others))
    return different("structure", "sets of another form")


def _compare_residues(target: Node, answer: Node, scope: Scope) -> MathOutcome | None:
    """Values by a modulus: two moduli must be equal, a modulus on one side only is accepted."""
    match target, answer:
        case FunctionCall("mod" | "residue", (value, modulus)), FunctionCall("mod" | "residue", (said, other)):
            left, right = (FunctionCall("mod", (part, modulus)) for part in (value, said))
            return all_of((scope.compare(modulus, other, scope), compare_values(left, right, scope)))
        case (FunctionCall("residue"), Based()) | (Based(), FunctionCall("residue")):
            return different("structure", "a modulus on one side and a base on the other")
        case FunctionCall("residue", (value, _)), _:
            return compare_values(value, answer, scope)
        case _, FunctionCall("residue", (said, _)):
            return compare_values(target, said, scope)
        case _:
            return None


def _compare_numberless(target: Node, answer: Node, scope: Scope) -> MathOutcome | None:
    """Nodes that are not numbers: ratios of three and more, hours with minutes, formulas by cases, builders of sets."""
    if type(target) not in _NUMBERLESS and type(answer) not in _NUMBERLESS:
        return None
    if (isinstance(target, Sum) or isinstance(answer, Sum)) and scope.policy.dates_and_times:
        duration = compare_durations(target, answer, scope)
        if duration is not None:
            return duration
    match target, answer:
        case FunctionCall("ratio", (first, *parts)), FunctionCall("ratio", (other, *others)) if len(parts) > 1:
            if len(parts) != len(others):
                return different("structure", "ratios of different lengths")
            crosswise = ((Product((part, other)), Product((first, said))) for part, said in zip(parts, others))
            return all_of(scope.compare(left, right, scope) for left, right in crosswise)
        case (FunctionCall("ratio", parts), _) | (_, FunctionCall("ratio", parts)) if len(parts) > 2:
            return different("structure", "a ratio on one side only")
        case Sum(terms), Sum(others) if all(isinstance(term, Quantity) for term in (*terms, *others)):
            return match(terms, others, scope)
        case FunctionCall("cases", cases), FunctionCall("cases", others):
            return match(cases, others, scope)
        case FunctionCall("set", parts), FunctionCall("set", others) if len(parts) == len(others):
            return all_of(scope.each(parts, others))
        case FunctionCall("conjunction" | "disjunction" as logic, parts), FunctionCall(other, others):
            return match(parts, others, scope) if logic == other else different("structure", "other propositions")
        case (FunctionCall("mod" | "residue"), _) | (_, FunctionCall("mod" | "residue")):
            return _compare_residues(target, answer, scope)
        case FunctionCall("cross", parts), FunctionCall("cross", others):
            return all_of(scope.each(parts, others))
        case (FunctionCall("cases" | "set"), _) | (_, FunctionCall("cases" | "set")):
            return different("structure", "of another kind")
        case _:
            return None
