"""Patterns of run ids: a star stands for any text, everything else for itself."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import EvaluationPlan
from crucible_bridge.types.bounds import EVALUATION_PLAN_PLAN_ID_MAX_BYTES as MAX_BYTES
from crucible_worker.planning.plans import PatternPlan, fits
from tests.tables import rows

TEXTS = st.text("ab*?[", max_size=12)


@rows(
    ("pattern", "text", "expected"),
    [
        ("lab-*", "lab-7", True),
        ("lab-*", "lab-", True),
        ("lab-*", "lab", False),
        ("lab-*", "my-lab-7", False),
        ("*", "", True),
        ("*-eval", "one-eval", True),
        ("a*b*a", "aba", True),
        ("a*a", "a", False),
        ("a?c", "abc", False),
        ("[ab]", "a", False),
        ("", "a", False),
    ],
)
def test_which_ids_fit(pattern: str, text: str, expected: bool):
    """Ends count, and a question mark or bracket is itself."""
    assert fits(pattern, text) is expected


@given(pattern=TEXTS, text=TEXTS)
def test_it_fits_as_the_regular_expression_does(pattern: str, text: str):
    """The one in which each star is `.*`."""
    expression = ".*".join(map(re.escape, pattern.split("*")))
    assert fits(pattern, text) is (re.fullmatch(expression, text, re.DOTALL) is not None)


def test_an_id_that_no_plan_can_have_fits_nothing():
    """A plan's id is bounded, in bytes."""
    pattern = PatternPlan(runs="*", plan=EvaluationPlan(plan_id="run", run_id="run"))
    assert pattern.fits("é" * (MAX_BYTES // 2))
    assert not pattern.fits("é" * (MAX_BYTES // 2) + "a")
    assert pattern.of("x").plan_id == pattern.of("x").run_id == "x"
