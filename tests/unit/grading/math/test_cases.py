"""Pairs of a target and an answer, kept as data by category: what is equal, what is not, what nobody can tell."""

import json
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.types import MathPolicy, Verdict
from crucible_worker.grading.math.decide import Decision, decide, settle
from crucible_worker.grading.math.symbolic import prove
from tests.tables import rows

_ONE_SIDED = ("prose", "undefined", "rounding", "reduced", "choices", "commas", "letter_units", "left_out")
_CASES = Path(__file__).parents[3] / "cases" / "math"


def _records() -> list[tuple[str, dict[str, Any]]]:
    return [
        (path.stem, json.loads(line))
        for path in sorted(_CASES.glob("*.jsonl"))
        for line in path.read_text(encoding="ascii").splitlines()
    ]


def _cases() -> list[Any]:
    return [
        pytest.param(case, id=f"{category}: {case['target']} | {case['answer']} {case.get('policy', '')}")
        for category, case in _records()
    ]


def _decide(target: str, answer: str, policy: MathPolicy) -> Decision:
    decision = decide(target, answer, policy)
    if decision.pending is None:
        return decision
    return settle(decision.pending, [prove(left, right) for left, right in decision.pending.pairs])


@rows("case", _cases())
def test_verdict_is_the_recorded_one(case: dict[str, Any]) -> None:
    """Every recorded pair has its recorded verdict, and a reason where it is undecided."""
    decision = _decide(case["target"], case["answer"], MathPolicy(**case.get("policy", {})))

    assert decision.verdict is not None
    assert decision.verdict.value == case["verdict"], decision
    assert decision.method
    assert decision.reason or decision.verdict is not Verdict.UNDECIDED


def test_targets_with_a_value_equal_themselves() -> None:
    """A target that has a value is right as an answer, under every category's rules."""
    wrong = [
        case["target"]
        for _, case in _records()
        if case["verdict"] != "undecided" and not case.get("policy")
        if _decide(case["target"], case["target"], MathPolicy()).verdict is not Verdict.CORRECT
    ]

    assert wrong == []


def test_equality_is_symmetric_but_for_answers_in_words() -> None:
    """Equal pairs are equal the other way round: nothing depends on which side is the model's.

    Words around an answer are taken away from answers only, a target without a value is nobody's fault, and a comma, a
    lower-case choice or a unit in italics is forgiven where a model wrote it. What an answer leaves out is not.
    """
    asymmetric = [
        (case["target"], case["answer"])
        for category, case in _records()
        if category not in _ONE_SIDED and not case.get("policy")
        if _decide(case["answer"], case["target"], MathPolicy()).verdict is not Verdict(case["verdict"])
    ]

    assert asymmetric == []


def test_every_option_of_the_policy_is_tried_both_ways() -> None:
    """Each option has pairs that are right with a value of it, and pairs that are wrong with one."""
    tried: dict[str, set[str]] = {}
    for _, case in _records():
        for option in case.get("policy", {}):
            tried.setdefault(option, set()).add(case["verdict"])

    assert tried.keys() == set(MathPolicy.__slots__)
    assert all(verdicts >= {"correct", "incorrect"} for verdicts in tried.values()), tried
