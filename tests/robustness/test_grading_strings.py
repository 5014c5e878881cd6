"""A hundred thousand strings through what reads answers: nothing but a refusal escapes, and work grows as they do."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings

from crucible_bridge.types import MathPolicy, Verdict
from crucible_worker.grading.extract import MAX_STEPS_PER_CHARACTER, extract
from crucible_worker.grading.math.decide import decide
from crucible_worker.grading.math.grammar import Unreadable, parse, steps_of
from tests.unit.grading.math.test_parse_bounds import TEXTS
from tests.unit.grading.test_extract import responses

STRINGS = 100_000
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
MANY = settings(max_examples=STRINGS, deadline=None, suppress_health_check=SLOW)
COPIES = 20
"""Of a text, and twice as many: far enough from the fixed cost of one."""


@pytest.mark.torture
@MANY
@given(TEXTS)
def test_the_parser_reads_or_refuses(text: str) -> None:
    """Any text is read or refused, and twice as much of it is at most twice the work, a little aside."""
    with contextlib.suppress(Unreadable):
        parse(text)
    half, whole = (steps_of(text * count) for count in (COPIES, 2 * COPIES))

    assert whole <= 2 * half + 2 * len(text) + 16


@pytest.mark.torture
@MANY
@given(responses)
def test_the_extractor_finds_or_not(text: str) -> None:
    """Of any response there is an extraction, within so many steps a character."""
    for copies in (1, 2):
        assert extract(text * copies).steps <= MAX_STEPS_PER_CHARACTER * len(text) * copies + 16


@pytest.mark.torture
@settings(max_examples=STRINGS // 10, deadline=None, suppress_health_check=SLOW)
@given(TEXTS, TEXTS)
def test_any_two_texts_are_compared(target: str, answer: str) -> None:
    """No pair of texts makes the comparison raise; it says how it came to what it says, or why it cannot tell."""
    found = decide(target, answer, MathPolicy())

    assert found.method or (found.verdict is Verdict.UNDECIDED and found.reason)
