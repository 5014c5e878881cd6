"""Lists in any order: matched by what they hold, in bounded time."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import MathPolicy
from crucible_worker.grading.math.compare_values import MAX_UNLIKE, covers, match
from crucible_worker.grading.math.decide import compare
from crucible_worker.grading.math.grammar import parse
from crucible_worker.grading.math.identity import Scope
from crucible_worker.grading.math.tree import Node, Number, Power, Product, Symbol

_HALF = Number(Fraction(1, 2))
_VALUES = st.one_of(
    st.fractions(max_denominator=20).map(Number),
    st.integers(2, 50).map(lambda radicand: Power(Number(Fraction(radicand)), _HALF)),
    st.sampled_from("xyz").map(Symbol),
)


def _scope() -> Scope:
    return Scope(MathPolicy(), compare)


def _rewritten(node: Node) -> Node:
    """The same value, written in another way."""
    return Product((Number(Fraction(2)), node, _HALF))


@given(st.data(), st.lists(_VALUES, max_size=8))
def test_order_does_not_matter(data: st.DataObject, nodes: list[Node]) -> None:
    """Any order of the same values, however they are written, is the same list."""
    answers = [_rewritten(node) for node in data.draw(st.permutations(nodes))]

    assert match(nodes, answers, _scope()).kind == "equal"
    assert covers(nodes, [*answers, *answers], _scope()).kind == "equal"


@given(st.lists(_VALUES, min_size=1, max_size=6), st.integers(0, 5))
def test_one_other_value_is_a_difference(nodes: list[Node], place: int) -> None:
    """A list in which one value is another is another list."""
    answers = [_rewritten(node) for node in nodes]
    answers[place % len(nodes)] = Number(Fraction(-1000))

    assert match(nodes, answers, _scope()).kind == "different"
    assert covers(nodes, answers, _scope()).kind == "different"


def test_repeats_count_in_lists_but_not_in_sets() -> None:
    """1, 1, 2 is not 1, 2, 2 as a list, and both are the set of 1 and 2, whichever way the numbers are written."""
    ones, twos = [parse(text) for text in ("1", "1.0", "2")], [parse(text) for text in ("1", "2", "\\sqrt{4}")]

    assert match(ones, twos, _scope()).kind == "different"
    assert covers(ones, twos, _scope()).kind == "equal"


@pytest.mark.parametrize(("count", "kind"), [(MAX_UNLIKE, "different"), (MAX_UNLIKE + 1, "unknown")])
def test_number_of_unlike_things_is_limited(count: int, kind: str) -> None:
    """Up to so many things without a partner of the same form or value are compared pair by pair."""
    targets = [Symbol(f"a_{number}") for number in range(count)]
    answers = [Symbol(f"b_{number}") for number in range(count)]

    assert match(targets, answers, _scope()).kind == kind
    assert covers(targets, answers, _scope()).kind == kind


def test_things_of_the_same_form_are_not_limited() -> None:
    """A thousand variables in another order are matched by hashing."""
    nodes = [Symbol(f"a_{number}") for number in range(1_000)]

    assert match(nodes, nodes[::-1], _scope()).kind == "equal"
