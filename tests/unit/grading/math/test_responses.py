"""Labelled responses, kept as data: the answer is found in each and compared with the target."""

import json
import re
from pathlib import Path

from crucible_bridge.types import MathPolicy, Verdict
from crucible_worker.evaluators.cleaning import Cleaning
from crucible_worker.grading.choice import ChoiceGrader
from crucible_worker.grading.extract import extract, spoken
from crucible_worker.grading.math.grader import whole_of
from crucible_worker.grading.math.judging import Question, judge
from crucible_worker.grading.numbers import Numeric
from crucible_worker.grading.text import F1, ExactMatch
from tests.tables import rows

ONE_NUMBER = ("tags", "json", "markers", "choices", "languages")
"""Files whose answers hold one number: the grader of numbers reads no more than that."""

CASES = sorted((Path(__file__).parents[3] / "cases" / "responses").glob("*.jsonl"))


@rows("path", CASES, ids=lambda path: path.stem)
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


def _rows(target: str, files: tuple[str, ...] = ()) -> list[dict[str, str]]:
    """The labelled responses whose whole target matches an expression, of some files or of all."""
    rows = [
        json.loads(line)
        for path in CASES
        if not files or path.stem in files
        for line in path.read_text(encoding="ascii").splitlines()
    ]
    return [row for row in rows if re.fullmatch(target, row["target"])]


def test_a_letter_is_named_to_the_grader_of_choices() -> None:
    """Where the target is a letter, `multiple_choice` gives the label by itself."""
    rows = _rows("[A-J]")

    failures = [
        row
        for row in rows
        if (ChoiceGrader().grade_now(row["response"], [row["target"]]).verdict is Verdict.CORRECT)
        is not bool(row["label"])
    ]

    assert len(rows) > 30
    assert not failures


async def test_a_number_that_is_extracted_first_is_graded_as_one() -> None:
    """Where the target is an integer, the step `extract` and the grader `numeric` give the label."""
    rows = _rows("-?[0-9]+", ONE_NUMBER)
    cleaning = Cleaning.of([{"extract": "answer"}], "clean")

    failures = [
        row
        for row in rows
        if (Numeric().grade_now(await cleaning.answer(row["response"]), [row["target"]]).verdict is Verdict.CORRECT)
        is not bool(row["label"])
    ]

    assert len(rows) > 100
    assert not failures


async def test_an_extracted_text_never_equals_a_wrong_target() -> None:
    """The step `extract`, then `exact_match` or `f1`: no wrong response is right, and plain answers are."""
    # f1 leaves out articles, of which "A" is one, and the sign of a factorial.
    rows = [row for row in _rows("[^A-Z]|..+") if "!" not in row["response"]]
    cleaning = Cleaning.of([{"extract": "answer"}], "clean")
    found = [(row, await cleaning.answer(row["response"])) for row in rows]

    for grader in (ExactMatch(), F1(threshold=1.0)):
        right = [row for row, answer in found if grader.grade_now(answer, [row["target"]]).verdict is Verdict.CORRECT]
        assert len(right) > 100
        assert not [row for row in right if not row["label"]]


def test_each_file_has_wrong_responses() -> None:
    """A file in which every response is right could not show what is accepted wrongly."""
    labels = {path.stem: {json.loads(line)["label"] for line in path.read_text().splitlines()} for path in CASES}

    assert labels
    assert all(found == {0, 1} for found in labels.values())
