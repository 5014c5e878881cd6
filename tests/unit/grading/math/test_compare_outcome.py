"""Putting outcomes together, and the budgets that every decision has."""

from fractions import Fraction

import pytest

from crucible_bridge.types import MathPolicy, Verdict
from crucible_worker.grading.math.decide import MAX_SEARCHED_CHARS, compare, decide
from crucible_worker.grading.math.grammar import parse
from crucible_worker.grading.math.identity import (
    MAX_IDENTITIES,
    MAX_PAIRS,
    ExpressionRelation,
    Scope,
    all_of,
    any_of,
    different,
    equal,
    unknown,
)
from crucible_worker.grading.math.reading import order_key
from crucible_worker.grading.math.tree import Number, Symbol
from tests.tables import rows

_PAIR = (Symbol("x"), Symbol("y"))
_OPEN = unknown("open", (_PAIR,), agrees=True)
_HOPELESS = unknown("hopeless")


def test_all_must_be_equal() -> None:
    """One difference is enough, and what is open must be proven of each."""
    assert all_of([equal(), equal("identity")]) == equal("identity")
    assert all_of([equal(), _OPEN, different("text")]) == different("text")
    assert all_of([]).kind == "equal"

    outcome = all_of([_OPEN, equal("identity"), _OPEN])
    assert (outcome.kind, outcome.pairs, outcome.agrees, outcome.method) == (
        "unknown",
        (_PAIR, _PAIR),
        True,
        "identity",
    )


def test_what_cannot_be_proven_makes_the_whole_unprovable() -> None:
    """With a part that no proof can settle, or with too many parts, there is nothing to be proven."""
    assert all_of([_OPEN, _HOPELESS]).pairs == ()
    assert len(all_of([_OPEN] * MAX_PAIRS).pairs) == MAX_PAIRS
    assert all_of([_OPEN] * (MAX_PAIRS + 1)).pairs == ()


def test_any_may_be_equal() -> None:
    """One reading that is equal is enough; one that is open is better than one that is different."""
    assert any_of([different(), equal()]).kind == "equal"
    assert any_of([different(), _OPEN, different()]) == _OPEN
    assert any_of([different("text"), different("identity")]) == different("text")
    assert any_of([]).kind == "different"


def test_nothing_is_compared_beyond_the_budget() -> None:
    """When all comparisons are used up, what is left cannot be told."""
    spent, last = Scope(MathPolicy(), compare, comparisons=0), Scope(MathPolicy(), compare, comparisons=1)

    assert compare(Number(Fraction(1)), Number(Fraction(2)), spent).kind == "unknown"
    assert compare(Number(Fraction(1)), Number(Fraction(2)), last).kind == "different"


def test_numbers_are_asked_no_more_often_than_the_budget_allows() -> None:
    """When all looks at formulas are used up, the next one tells nothing."""
    scope = Scope(MathPolicy(), compare)
    found = [scope.examine(*_PAIR).identity for _ in range(MAX_IDENTITIES + 1)]

    assert found == [ExpressionRelation.DIFFERENT] * MAX_IDENTITIES + [ExpressionRelation.UNKNOWN]


@pytest.mark.parametrize(("beyond", "verdict"), [(0, Verdict.CORRECT), (len("\\boxed{5"), Verdict.INCORRECT)])
def test_answer_is_searched_for_at_the_end(beyond: int, verdict: Verdict) -> None:
    """A box that stands before the last so many characters is not seen, and the rest is too long to be read."""
    box = "\\boxed{5}"
    answer = box + " the" + " " * (MAX_SEARCHED_CHARS - len(box) - len(" the end") + beyond) + " end"

    assert decide("5", answer, MathPolicy()).verdict is verdict


@rows(
    ("left", "right", "same"),
    [
        ("f(x)+g(x)", "g(x)+f(x)", True),
        ("a(b(c d))", "d c b a", True),
        ("a+(b+c)", "c+b+a", True),
        ("\\gcd(a, b)", "\\gcd(b, a)", True),
        ("\\log_a b", "\\log_b a", False),
        ("a^b", "b^a", False),
        ("f(a, b)", "f(b, a)", False),
        ("ab+c", "a+bc", False),
    ],
)
def test_order_of_terms_and_factors_does_not_matter(left: str, right: str, same: bool) -> None:
    """Sums and products are the same in any order, however nested; powers and calls are not."""
    assert (order_key(parse(left)) == order_key(parse(right))) is same
