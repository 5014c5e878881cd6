"""Programs whose output is compared by token or within a tolerance, and tests as APPS has them, in real sandboxes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from crucible_bridge.types import CallTest, CodeTest, InputOutputTests, OutputComparison, StdioTest, Verdict
from crucible_worker.grading.code.grader import MAX_TESTS, CodeGrader
from tests.service.code_kit import SMALL, code_grader, graded, needs_sandbox

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_sandbox]

CORRECT, INCORRECT, PARTIAL = Verdict.CORRECT, Verdict.INCORRECT, Verdict.PARTIAL
ADD = "def add(x, y): return x + y"
METHOD = "class Solution:\n    def add(self, x, y): return x + y"
SUMS = {"fn_name": "add", "inputs": [[1, 2], [3, 4]]}
READ_SUMS = "print(sum(map(int, input().split())))"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grader() -> AsyncIterator[CodeGrader]:
    """One for all."""
    async with code_grader() as grader:
        yield grader


def apps(record: dict[str, Any], **comparison: Any) -> InputOutputTests:
    """Tests as APPS has them."""
    return InputOutputTests(json=json.dumps(record), comparison=OutputComparison(**comparison))


GRADED: dict[str, tuple[str, CodeTest, Verdict, float]] = {
    "a float without a tolerance": ("print(1 / 3)", StdioTest(stdout="0.333"), INCORRECT, 0.0),
    "a float within a tolerance": (
        "print(1 / 3)",
        StdioTest(stdout="0.333", comparison=OutputComparison(absolute_tolerance=0.001)),
        CORRECT,
        1.0,
    ),
    "a float beyond a tolerance": (
        "print(1 / 3)",
        StdioTest(stdout="0.333", comparison=OutputComparison(relative_tolerance=0.0001)),
        INCORRECT,
        0.0,
    ),
    "no number": (
        "print(float('nan'))",
        StdioTest(stdout="0.333", comparison=OutputComparison(relative_tolerance=1e300)),
        INCORRECT,
        0.0,
    ),
    "tokens on other lines": (
        "print(1)\nprint(2)",
        StdioTest(stdout="1 2", comparison=OutputComparison(by_token=True)),
        CORRECT,
        1.0,
    ),
    "many numbers": (
        "print('0.5001 ' * 100_000)",
        StdioTest(stdout="0.5 " * 100_000, comparison=OutputComparison(by_token=True, absolute_tolerance=0.001)),
        CORRECT,
        1.0,
    ),
    "inputs and outputs": (READ_SUMS, apps({"inputs": ["1 2\n", ["3 4"]], "outputs": ["3\n", ["7"]]}), CORRECT, 1.0),
    "one of two outputs": (READ_SUMS, apps({"inputs": ["1 2\n", "3 4"], "outputs": ["3\n", "8"]}), PARTIAL, 0.5),
    "outputs within a tolerance": (
        "print(1 / int(input()))",
        apps({"inputs": ["3", "4"], "outputs": ["0.3333", "0.25001"]}, absolute_tolerance=0.001),
        CORRECT,
        1.0,
    ),
    "a function": (ADD, apps({**SUMS, "outputs": [3, 7]}), CORRECT, 1.0),
    "values in lists of one": (ADD, apps({**SUMS, "outputs": [[3], [7]]}), CORRECT, 1.0),
    "values that are lists of one": (
        "def add(x, y): return [x + y]",
        apps({**SUMS, "outputs": [[3], [7]]}),
        CORRECT,
        1.0,
    ),
    "a list where a value is expected": (
        "def add(x, y): return [x + y]",
        apps({**SUMS, "outputs": [3, 7]}),
        INCORRECT,
        0.0,
    ),
    "a value where lists of several lengths are expected": (
        "def add(x, y): return x + y",
        apps({**SUMS, "outputs": [[3], [7, 7]]}),
        INCORRECT,
        0.0,
    ),
    "another value": (ADD, apps({**SUMS, "outputs": [[3], [8]]}), PARTIAL, 0.5),
    "a method": (METHOD, apps({**SUMS, "outputs": [3, 7]}), CORRECT, 1.0),
    "a method in the block before the last": (
        f"```python\n{METHOD}\n```\nUse it so:\n```python\nprint(Solution().add(1, 2))\n```",
        apps({**SUMS, "outputs": [3, 7]}),
        CORRECT,
        1.0,
    ),
    "a function beside a class": (
        f"class Solution:\n    def add(self, x, y): return 0\n{ADD}",
        apps({**SUMS, "outputs": [3, 7]}),
        CORRECT,
        1.0,
    ),
    "a method where a call is a function's": (
        METHOD,
        CallTest(function="add", arguments_json="[1, 2]", expected_json="3"),
        INCORRECT,
        0.0,
    ),
    "neither": ("class Solution: pass", apps({**SUMS, "outputs": [3, 7]}), INCORRECT, 0.0),
    "a class that cannot be made": (
        "class Solution:\n    def __init__(self): 1 / 0\n    def add(self, x, y): return x + y",
        apps({**SUMS, "outputs": [3, 7]}),
        INCORRECT,
        0.0,
    ),
    "a dict of integers": (
        "def f(x): return x[1]",
        apps({"fn_name": "f", "inputs": [[{"1": 2}]], "outputs": [2]}),
        CORRECT,
        1.0,
    ),
}


@pytest.mark.parametrize("name", GRADED)
async def test_a_program_has_its_grade(grader: CodeGrader, name: str):
    """Each input with its output is a test of its own, and the score is the share of those passed."""
    program, test, verdict, score = GRADED[name]

    grade = await graded(grader, program, test)

    assert (grade.verdict, grade.score) == (verdict, score), grade.reason
    assert (grade.reason == "") is (verdict is CORRECT)


async def test_where_output_differs_is_told(grader: CodeGrader):
    """By line or by token, of the first test that failed."""
    rows = [
        (StdioTest(stdout="1\n3", comparison=OutputComparison(absolute_tolerance=0.5)), "something else on line 2"),
        (StdioTest(stdout="1 3", comparison=OutputComparison(by_token=True)), "something else on token 2"),
        (apps({"inputs": ["", ""], "outputs": ["1\n2", "1\n3"]}), "test 2 of 2: wrote something else on line 2"),
    ]

    reasons = [(await graded(grader, "print(1)\nprint(2)", test)).reason for test, _ in rows]

    assert [told for (_, told), reason in zip(rows, reasons) if told not in reason] == []


async def test_tests_that_cannot_be_read_are_the_problem_of_their_item(grader: CodeGrader):
    """BAD_TESTS says what is wrong; more tests than are run are UNDECIDED, as where they are given one by one."""
    bad = await graded(grader, ADD, InputOutputTests(json='{"inputs": ["1"], "outputs": []}'))
    many = {"inputs": [""] * (MAX_TESTS + 1), "outputs": [""] * (MAX_TESTS + 1)}
    above = await graded(grader, ADD, apps(many), limits=SMALL)

    assert bad.problem is not None
    assert (bad.verdict, bad.problem.reason, "1 inputs and 0 outputs" in bad.reason) == (
        Verdict.ERROR,
        "BAD_TESTS",
        True,
    )
    assert (above.verdict, f"more than {MAX_TESTS:,} tests" in above.reason) == (Verdict.UNDECIDED, True)
