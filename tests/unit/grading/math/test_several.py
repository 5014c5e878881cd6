"""Responses with several answers, and targets given back as responses."""

import json
import os
from pathlib import Path

import pytest

from crucible_bridge.types import MathPolicy, Verdict
from crucible_worker.grading.extract import extract, spoken
from crucible_worker.grading.math.judging import Judgement, Question, judge, prove, whole_of

# A folder with sets of labelled pairs, `gold` among the fields of each; beside the checkout where nothing else is said.
_DATA = Path(os.environ.get("GRADING_DATA") or Path(__file__).parents[5] / "shared" / "data" / "grading")


def _judged(target: str, response: str) -> Judgement:
    """What the grader of math says of a response, as it and its children do together."""
    answer = extract(response).answer
    judgement = judge(Question((target,), answer, MathPolicy(), whole_of(spoken(response), answer, (target,))))
    return prove(judgement.pending) if judgement.pending else judgement


def test_every_target_is_right_as_a_response() -> None:
    """A target of a labelled set, given back as the whole response, is right."""
    files = sorted(_DATA.glob("*.jsonl"))
    if not files:
        pytest.skip(f"TARGETS OF LABELLED SETS ARE NOT TESTED: there are none in {_DATA}")
    golds = {
        gold: path.name
        for path in files
        for line in path.read_text(encoding="utf-8").splitlines()
        if isinstance(gold := json.loads(line).get("gold"), str)
    }

    wrong = [(name, gold) for gold, name in golds.items() if _judged(gold, gold).verdict is not Verdict.CORRECT]

    assert len(golds) > 2_000
    assert wrong == []
