"""Grading cases, kept as data: what each grader says of a response."""

import json
from pathlib import Path
from typing import Any

import pytest

from crucible_worker.grading import registry

_CASES = Path(__file__).parents[2] / "cases" / "grading"


def _cases() -> list[Any]:
    return [
        pytest.param(path.stem, case, id=f"{path.stem}: {case['id']}")
        for path in sorted(_CASES.glob("*.jsonl"))
        for case in map(json.loads, path.read_text(encoding="ascii").splitlines())
    ]


@pytest.mark.parametrize(("grader", "case"), _cases())
async def test_verdict_is_the_recorded_one(grader: str, case: dict[str, Any]) -> None:
    """Every recorded response has its recorded verdict, and a reason where it is undecided."""
    made = registry.create(grader, case.get("options", {}), name_field="grader", options_field="options")

    grade = await made.grade(case["response"], case["targets"], case.get("choices", []))

    assert grade.verdict.value == case["verdict"], grade
    assert grade.score == {"correct": 1.0, "incorrect": 0.0, "undecided": None}[case["verdict"]]
    assert grade.reason or case["verdict"] != "undecided"


def test_every_grader_has_cases() -> None:
    """A grader without recorded cases is a grader that nobody looked at."""
    assert {path.stem for path in _CASES.glob("*.jsonl")} == set(registry.GRADERS)
