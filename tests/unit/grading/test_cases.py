"""Grading cases, kept as data: what each grader says of a response, and what is taken for its answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from crucible_worker.grading import registry
from crucible_worker.grading.extract import extract
from tests.tables import rows

_CASES = Path(__file__).parents[2] / "cases"


def _cases(folder: str) -> list[Any]:
    return [
        pytest.param(path.stem, case, id=f"{path.stem}: {case['id']}")
        for path in sorted((_CASES / folder).glob("*.jsonl"))
        for case in map(json.loads, path.read_text(encoding="ascii").splitlines())
    ]


@rows(("grader", "case"), _cases("grading"))
async def test_verdict_is_the_recorded_one(grader: str, case: dict[str, Any]) -> None:
    """Every recorded response has its recorded verdict, and a reason where it is undecided."""
    made = registry.create(grader, case.get("options", {}), name_field="grader", options_field="options")

    grade = await made.grade(case["response"], case["targets"], case.get("choices", []))

    assert grade.verdict.value == case["verdict"], grade
    score = case.get("score", {"correct": 1.0, "incorrect": 0.0, "undecided": None}.get(case["verdict"], -1.0))
    assert grade.score == (score if score is None else pytest.approx(score, abs=5e-5))
    assert grade.reason or case["verdict"] != "undecided"


def test_every_grader_has_cases() -> None:
    """A grader without recorded cases is a grader that nobody looked at; some have more than cases of their own."""
    recorded = {path.stem for path in (_CASES / "grading").glob("*.jsonl")}

    assert recorded == set(registry.GRADERS) - {"math", "code", "rubric"}


@rows(("name", "case"), _cases("extraction"))
def test_the_answer_is_the_recorded_one(name: str, case: dict[str, Any]) -> None:
    """Every recorded response has its recorded answer, found as recorded."""
    found = extract(case["response"])

    assert (found.answer, found.how) == (case["answer"], case["how"])
