"""Labelled responses, kept as data: the answer is found in each and compared with the target."""

import json
from pathlib import Path

import pytest

from crucible_bridge.types import MathPolicy, Verdict
from crucible_worker.grading.extract import extract, spoken
from crucible_worker.grading.math.judging import Question, judge, whole_of

CASES = sorted((Path(__file__).parents[3] / "cases" / "responses").glob("*.jsonl"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_a_response_has_its_label(path: Path) -> None:
    """A response is CORRECT if its label is 1, and never if it is 0."""
    failures = []
    for row in map(json.loads, path.read_text(encoding="ascii").splitlines()):
        found = extract(row["response"])
        targets = (row["target"],)
        whole = whole_of(spoken(row["response"]), found.answer, targets)
        judgement = judge(Question(targets, found.answer, MathPolicy(), whole))
        if (judgement.verdict is Verdict.CORRECT) is not bool(row["label"]):
            failures.append((row, found.answer, found.how, judgement.verdict))

    assert not failures


def test_each_file_has_wrong_responses() -> None:
    """A file in which every response is right could not show what is accepted wrongly."""
    labels = {path.stem: {json.loads(line)["label"] for line in path.read_text().splitlines()} for path in CASES}

    assert labels
    assert all(found == {0, 1} for found in labels.values())
