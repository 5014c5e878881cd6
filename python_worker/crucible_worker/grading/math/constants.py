"""Letters that stand for any number: constants of integration, and the integers of a family of solutions."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from crucible_worker.grading.math.tree import Constant, FunctionCall, Node, Power, Product, Relation, Sum, Symbol
from crucible_worker.grading.math.walk import children, free_symbols, nodes_of, ordered_symbols, replaced

__all__ = ["MAX_CONSTANTS", "constant_levels", "same_family"]

MAX_CONSTANTS = 3
"""Constants of one solution that may be permuted."""

_PI = Constant("pi")
# Letters that stand for any integer in the solutions of trigonometric equations.
_INTEGER_LETTERS = frozenset("klmn")
# Names of such constants: one side must use the usual name.
_USUAL = re.compile(r"C(?:_[0-9])?")
_NUMBERED = re.compile(r"[Cc]_[1-9]")
_OTHER = re.compile(r"[CcKkDAB](?:_[0-9])?")
# Names of a function's variable. Sums of only other letters are not antiderivatives.
_VARIABLE = re.compile(r"[r-z]|theta|phi")
_SOLUTIONS = frozenset({"exp", "sin", "cos", "sinh", "cosh", "ln"})


def same_family(target: Node, answer: Node, *, constants: bool) -> Iterator[Node]:
    """The answer with the target's letters, if they may stand for anything of their kind.

    Such are the integer of a family, a + k pi with any k, l, m or n, and with `constants` those of integration: C or K
    of an antiderivative, C_1 and C_2 or A and B of a solution.
    """
    names, others = free_symbols(target), free_symbols(answer)
    if not (names and others):
        return
    own, others_own = names - others, others - names
    if len(own) == len(others_own) == 1:
        (name,), (other,) = own, others_own
        integers = names | others <= _INTEGER_LETTERS and all(_PI in nodes_of(node) for node in (target, answer))
        if integers or (
            constants and _are_constants(name, other) and _is_added(target, name) and _is_added(answer, other)
        ):
            yield replaced(answer, {other: Symbol(name)})
    if constants:
        yield from _same_solution(target, answer, names, others)


def _same_solution(target: Node, answer: Node, names: frozenset[str], others: frozenset[str]) -> Iterator[Node]:
    """The answer with its constants in place of each of the target's: C_1 and C_2 in either order, or A and B."""
    shared = frozenset(filter(_NUMBERED.fullmatch, names & others))
    own, others_own = names - others | shared, others - names | shared
    if not 1 < len(own) == len(others_own) <= MAX_CONSTANTS:
        return
    if not (all(map(_NUMBERED.fullmatch, own)) or all(map(_NUMBERED.fullmatch, others_own))):
        return
    if not all(map(_OTHER.fullmatch, own | others_own)):
        return
    if not (_is_combination(target, own) and _is_combination(answer, others_own)):
        return
    ordered = tuple(name for name in ordered_symbols(answer) if name in others_own)
    for chosen in itertools.permutations(name for name in ordered_symbols(target) if name in own):
        if chosen != ordered:
            yield replaced(answer, {other: Symbol(name) for other, name in zip(ordered, chosen)})


def constant_levels(target: Relation, answer: Relation) -> Relation | None:
    """The answer with the target's letter, if both say that a formula in x and y is constant: x^2 + y^2 = C."""
    match target, answer:
        case Relation((formula, Symbol(name)), ("=",)), Relation((said, Symbol(other)), ("=",)):
            levels = {"x", "y"} <= free_symbols(formula) & free_symbols(said)
            if levels and _are_constants(name, other) and name not in free_symbols(said):
                return Relation((said, Symbol(name)), ("=",))
    return None


def _are_constants(name: str, other: str) -> bool:
    """Whether one has a usual name of constants, and the other may be one."""
    if {name, other} == {"C", "c"}:
        return True
    return any(_USUAL.fullmatch(one) and _OTHER.fullmatch(two) for one, two in ((name, other), (other, name)))


def _is_added(node: Node, name: str) -> bool:
    """Whether a constant is a term of a formula in some variable, and does not occur elsewhere in it."""
    if not isinstance(node, Sum) or node.terms.count(Symbol(name)) != 1:
        return False
    rest = [term for term in node.terms if term != Symbol(name)]
    names = frozenset[str]().union(*map(free_symbols, rest))
    return name not in names and any(map(_VARIABLE.fullmatch, names))


def _is_combination(node: Node, names: frozenset[str]) -> bool:
    """Whether each constant is a factor of one term, and these are terms of one variable or solutions of equations."""
    parts = nodes_of(node)
    solution = any(
        (isinstance(part, Power) and part.base == Constant("e"))
        or (isinstance(part, FunctionCall) and part.function in _SOLUTIONS)
        for part in parts
    )
    if not solution and len(free_symbols(node) - names) != 1:
        return False
    return all(parts.count(Symbol(name)) == 1 and _is_factor(node, Symbol(name)) for name in names)


def _is_factor(node: Node, constant: Symbol) -> bool:
    """Whether a constant that occurs once is only multiplied and added."""
    while node != constant:
        if not isinstance(node, Sum | Product):
            return False
        node = next(part for part in children(node) if constant in nodes_of(part))
    return True
