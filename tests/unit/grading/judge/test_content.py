"""Answers that say nothing are told from those that say little."""

from __future__ import annotations

import json

from crucible_worker.grading.judge.texts import says_nothing
from tests.tables import rows
from tests.unit.grading.judge.gullible import CASES, injections

NOTHING = [json.loads(line) for line in (CASES / "no_content.jsonl").read_text().splitlines()]


@rows("text", NOTHING)
def test_what_says_nothing_is_told(text: str) -> None:
    """However it is set, and however long."""
    assert says_nothing(text)
    assert says_nothing(f"  {text}\n\n")
    assert says_nothing(text.upper())


@rows(
    "text",
    [
        "4",
        "x",
        "+",
        "∞",
        "No",
        "Yes.",
        "Sure",
        "OK",
        "Solution: 4",
        "The answer is B",
        "solutions",
        "答案:四",
        "∅",
        "€",
        "🙂",
        "```\n+\n```",
        "```json\n{}\n4\n```",
        "json",
    ],
)
def test_what_says_something_is_left_alone(text: str) -> None:
    """A digit, a letter, a sign."""
    assert not says_nothing(text)


@rows("reference", ["Solution", " solution ", "A mixture", "..."])
def test_a_reference_is_never_nothing(reference: str) -> None:
    """Where it is what was asked for, but for case and white space."""
    assert not says_nothing(reference.upper(), ("another", reference))


def test_length_does_not_help() -> None:
    """A hundred thousand points say as little as one, and words behind them are seen."""
    assert says_nothing("." * 100_000)
    assert not says_nothing("." * 100_000 + "4")


def test_injections_are_for_the_judge() -> None:
    """They say something: the fence is what stands against them."""
    assert not any(map(says_nothing, injections().values()))
