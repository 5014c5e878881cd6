"""Letters with an index that is summed over: functions of it, or separate letters if there are few terms."""

from __future__ import annotations

from fractions import Fraction

from crucible_worker.grading.math.tree import FunctionCall, Node, Number, Symbol
from crucible_worker.grading.math.walk import nodes_of, rebuilt, replaced

__all__ = ["MAX_EXPANDED_NODES", "MAX_EXPANDED_TERMS", "expanded", "stems", "with_index"]

MAX_EXPANDED_TERMS = 16
"""Terms of a sum or product over indexed letters that is written out."""
MAX_EXPANDED_NODES = 256
"""Nodes of a written-out sum or product: nested sums do not grow beyond it."""

_PLACE = "#"
_DIGITS = 10


def with_index(node: Node, variable: str) -> Node:
    """The summand, with x_i as a function of i if the sum is over i; a_ij as a function of both."""
    match node:
        case Symbol(name):
            return _indexed(name, (), variable) or node
        case FunctionCall(name, arguments) if _PLACE in name:
            return _indexed(name, arguments, variable) or node
        case _:
            return rebuilt(node, lambda part: with_index(part, variable))


def _indexed(name: str, arguments: tuple[Node, ...], variable: str) -> Node | None:
    stem, _, index = name.partition("_")
    if variable not in index:
        return None
    # Each position of the index has an argument, in order.
    known = iter(arguments)
    order: list[Node] = []
    for number, part in enumerate(index.split(variable)):
        if number:
            order.append(Symbol(variable))
        order.extend(next(known) for _ in range(part.count(_PLACE)))
    return FunctionCall(f"{stem}_{index.replace(variable, _PLACE)}", tuple(order))


def expanded(variable: str, low: Node, high: Node, body: Node) -> list[Node] | None:
    """The terms of a sum over indexed letters; None if there are none, too many, or their indices are computed."""
    match low, high:
        case Number(first), Number(last) if first.denominator == last.denominator == 1:
            count = int(last - first) + 1
        case _:
            return None
    if not 1 <= count <= MAX_EXPANDED_TERMS:
        return None
    parts = nodes_of(body)
    own = [part for part in parts if isinstance(part, FunctionCall) and _PLACE in part.function]
    own = [part for part in own if Symbol(variable) in part.arguments]
    if not own or len(parts) * count > MAX_EXPANDED_NODES or not all(map(_is_plain, own)):
        return None
    if (first < 0 or last >= _DIGITS) and any(len(part.arguments) > 1 for part in own):
        return None  # a_{1 10} or a_{11 0}
    return [_term(body, variable, Fraction(value)) for value in range(int(first), int(last) + 1)]


def _is_plain(call: FunctionCall) -> bool:
    """Whether an index consists of letters and digits: not x_{i+1}, which is computed, nor x_{2i}."""
    _, _, index = call.function.partition("_")
    before = index[: index.index(_PLACE)]
    return all(sign in (_PLACE, ",") or sign.isalnum() for sign in index) and not before[-1:].isdigit()


def _term(node: Node, variable: str, value: Fraction) -> Node:
    """A term at a value of the index, its letters spelled with it."""
    match node:
        case Symbol():
            return replaced(node, {variable: Number(value)})
        case FunctionCall(name, arguments) if _PLACE in name and Symbol(variable) in arguments:
            stem, _, index = name.partition("_")
            head, *tails = index.split(_PLACE)
            here = [argument == Symbol(variable) for argument in arguments]
            places = (str(value) if is_here else _PLACE for is_here in here)
            spelled = f"{stem}_{head}" + "".join(place + tail for place, tail in zip(places, tails))
            left = tuple(argument for argument, is_here in zip(arguments, here) if not is_here)
            return FunctionCall(spelled, left) if left else Symbol(spelled)
        case _:
            return rebuilt(node, lambda part: _term(part, variable, value))


def stems(node: Node) -> frozenset[str]:
    """The letters whose index is summed over: x of a sum of x_i."""
    calls = [part for part in nodes_of(node) if isinstance(part, FunctionCall) and _PLACE in part.function]
    return frozenset([call.function.partition("_")[0] for call in calls])
