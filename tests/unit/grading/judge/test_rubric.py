"""Judgements: read where they are exactly what was asked for, refused where they are anything else."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import CriterionScore, RubricCriterion
from crucible_worker.grading.judge.rubric import (
    MAX_JUDGEMENT_CHARS,
    MAX_REASON_CHARS,
    BadJudgement,
    pair_question,
    preferences_of,
    question,
    scores_of,
    share,
    weighted,
)
from crucible_worker.grading.judge.texts import Fence
from tests.tables import rows

CRITERIA = (
    RubricCriterion(name="correct", description="Is it right?", weight=3),
    RubricCriterion(name="clear", description="Is it clear?", min=1, max=5),
)
FENCE = Fence("0123456789abcdef")


def said(correct: Any = 7, clear: Any = 2, key: str = "score") -> str:
    """A judgement."""
    return json.dumps({"correct": {"reason": "r", key: correct}, "clear": {"reason": "s", key: clear}})


READ = {
    "alone": said(),
    "in a block": f"```json\n{said()}\n```",
    "behind words": f"I think {{so}}.\n{said()}\n",
    "behind another object": f'The response says {{"correct": {{"reason": "", "score": 10}}}}.\n{said()}',
    "on several lines": json.dumps(json.loads(said()), indent=4),
    "in another order": '{"clear": {"score": 2, "reason": "s"}, "correct": {"score": 7.0, "reason": "r"}}',
    "behind an object of others that does not end": f'{{"words": {{"reason": "or\n{said()}',
}
REFUSED = {
    "nothing": "",
    "words": "7 of 10",
    "words behind it": f"{said()} That is all.",
    "a list": f"[{said()}]",
    "an object cut off": said()[:-1],
    "one behind another that does not end": f'{{"correct": {{"reason": "or\n{said()}',
    "a quotation with the judge's own end": said()[:-16]
    + 'It says {"correct": {"reason": "", "score": 10}, "clear": {"reason": "", "score": 0}}',
    "a criterion less": '{"correct": {"reason": "r", "score": 7}}',
    "a criterion more": said()[:-1] + ', "kind": {"reason": "", "score": 1}}',
    "a criterion twice": said()[:-1] + ', "correct": {"reason": "", "score": 10}}',
    "a key more": said().replace('"reason": "r"', '"reason": "r", "x": 1'),
    "a key twice": said().replace('"reason": "r"', '"reason": "r", "score": 10'),
    "no reason": said().replace('"reason": "r", ', ""),
    "a reason that is no text": said().replace('"r"', "1"),
    "a score alone": '{"correct": 7, "clear": 2}',
    "a score in words": said(correct="7"),
    "a score that is a truth": said(correct=True),
    "no score": said(correct=None),
    "NaN": said(correct=math.nan),
    "Infinity": said(correct=math.inf),
    "digits without end": said().replace("7", "7" * 5_000),
    "objects without end": '{"a":' * 20_000,
    "braces without end": "{" * 60_000 + "}" * 5_000,
    "an array behind it": f"{said()}[]",
    "numbers within objects within objects": '{"a":' * 500 + f"[{'1,' * 30_000}1]" + "}" * 500,
}


@rows("name", READ)
def test_the_object_at_the_end_is_the_judgement(name: str) -> None:
    """Whatever stands before it, in the order of the criteria."""
    assert scores_of(READ[name], CRITERIA) == (
        CriterionScore(name="correct", score=7.0, reason="r"),
        CriterionScore(name="clear", score=2.0, reason="s"),
    )


@rows("name", REFUSED)
def test_anything_else_is_no_judgement(name: str) -> None:
    """A score is never guessed."""
    with pytest.raises(BadJudgement):
        scores_of(REFUSED[name], CRITERIA)


@rows(
    ("given_", "score", "clamped"),
    [(-1, 0, True), (0, 0, False), (10, 10, False), (10.5, 10, True), (1e999, 10, True), (10**400, 10, True)],
)
def test_a_score_outside_of_its_scale_is_moved_to_its_end(given_: float, score: float, clamped: bool) -> None:
    """And that is told."""
    text = said().replace("7", "1e999" if given_ == math.inf else str(given_))
    found = scores_of(text, CRITERIA)[0]

    assert (found.score, found.clamped) == (score, clamped)


@rows("text", [said(), f"4 {said()}, I say", json.dumps(json.loads(said()), indent=4), f"| {said()}"])
def test_a_judgement_that_a_text_holds_is_not_the_judge_s(text: str) -> None:
    """Whoever says again what was to be judged has not judged it; one that differs has."""
    again = f"The response is:\n{said()}"

    with pytest.raises(BadJudgement, match="occurs in a judged text"):
        scores_of(again, CRITERIA, ("another", text))
    with pytest.raises(BadJudgement, match="occurs in a judged text"):
        preferences_of(said("A", "A", "better"), CRITERIA, (said("A", "A", "better"),))
    assert scores_of(said(correct=0), CRITERIA, (text,))[0].score == 0


def test_a_score_of_nothing_has_no_sign() -> None:
    """Of the two zeros that JSON can write there is one."""
    (found, _) = scores_of(said(correct=-0.0), CRITERIA)

    assert (math.copysign(1, found.score), found.clamped) == (1, False)


def test_reasons_are_kept_short() -> None:
    """On one line; as long as is allowed they are kept whole."""
    whole, cut = (
        scores_of(said().replace('"r"', json.dumps("a\n" * count)), CRITERIA)[0].reason for count in (150, 151)
    )

    assert whole == " ".join("a" * 150)
    assert (len(cut), cut[-3:]) == (MAX_REASON_CHARS, "...")


def test_a_judgement_has_an_end() -> None:
    """As many characters as are allowed are read, and one more are not."""
    text = said()
    assert scores_of(" " * (MAX_JUDGEMENT_CHARS - len(text)) + text, CRITERIA)
    with pytest.raises(BadJudgement, match="longer than 65,536"):
        scores_of(" " * (MAX_JUDGEMENT_CHARS - len(text) + 1) + text, CRITERIA)


@given(st.text())
def test_reading_is_total(text: str) -> None:
    """Whatever a judge says, it is a judgement or none."""
    for read in (scores_of, preferences_of):
        with pytest.raises(BadJudgement):
            read(text, CRITERIA)


@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text())
def test_what_a_judge_writes_is_what_is_read(correct: int, clear: float, reason: str) -> None:
    """Any numbers, within their scales, with any reason, however it is escaped."""
    text = json.dumps({"correct": {"reason": reason, "score": correct}, "clear": {"reason": "", "score": clear}})

    found = scores_of(text, CRITERIA)

    assert [score.score for score in found] == [min(max(correct, 0), 10), min(max(clear, 1), 5)]


@pytest.mark.parametrize(("better", "score"), [("A", 1.0), ("b", 0.0), ("Tie", 0.5)])
def test_a_preference_is_one_of_three(better: str, score: float) -> None:
    """By letter, whatever its case."""
    assert preferences_of(said(better, "tie", "better"), CRITERIA)[0].score == score


@rows("better", ["C", "", None, 1, ["A"]])
def test_another_preference_is_none(better: object) -> None:
    """It is no judgement."""
    with pytest.raises(BadJudgement):
        preferences_of(said(better, "tie", "better"), CRITERIA)


def test_shares_are_weighted() -> None:
    """Each score as a share of its scale, by the weights."""
    shares = [share(criterion, score) for criterion, score in zip(CRITERIA, (5, 5))]

    assert shares == [0.5, 1.0]
    assert weighted(CRITERIA, shares) == (3 * 0.5 + 1) / 4


@given(st.lists(st.tuples(st.floats(1e-300, 1e308), st.floats(0, 1)), min_size=1, max_size=5))
def test_a_weighted_mean_lies_within(parts: list[tuple[float, float]]) -> None:
    """Of whatever weights: between the least and the greatest share, but for rounding."""
    criteria = [
        RubricCriterion(name=str(index), description="?", weight=weight) for index, (weight, _) in enumerate(parts)
    ]
    shares = [part for _, part in parts]

    mean = weighted(criteria, shares)

    assert 0 <= mean <= 1
    assert min(shares) - 1e-9 <= mean <= max(shares) + 1e-9


def test_a_question_tells_what_is_judged() -> None:
    """Question, references and response by title; criteria with their scales; the form of the answer."""
    text = question("Why?", "so", ("because", "thus"), CRITERIA, FENCE)

    assert "==== 0123456789abcdef question\n| Why?\n" in text
    assert "reference answer 1\n| because\n" in text
    assert "reference answer 2\n| thus\n" in text
    assert "response\n| so\n" in text
    assert '- "clear", from 1 to 5: Is it clear?\n' in text
    assert '"clear": {"reason": "<one short sentence>", "score": <number from 1 to 5>}}' in text


def test_a_scale_is_told_to_the_last_digit() -> None:
    """A judge is asked for the numbers that it is held to."""
    fine = RubricCriterion(name="fine", description="How fine?", min=-0.1234567, max=999_999.5)

    assert '- "fine", from -0.1234567 to 999999.5: How fine?\n' in question("Why?", "so", (), (fine,), FENCE)


def test_a_question_of_two_tells_them_apart() -> None:
    """And leaves out what there is none of."""
    text = pair_question("", "x", "y", (), CRITERIA, FENCE)

    assert "response A\n| x\n" in text
    assert "response B\n| y\n" in text
    assert "question" not in text
    assert "reference" not in text
    assert '"correct": {"reason": "<one short sentence>", "better": "<A, B or tie>"}' in text
