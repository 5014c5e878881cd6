"""How outputs are compared, tests as APPS has them, and how large a value may be, in real sandboxes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from crucible_bridge.types import (
    Assertions,
    CallTest,
    CodeTest,
    InputOutputTests,
    OutputComparison,
    StdioTest,
    Verdict,
)
from crucible_worker.grading.code.grader import MAX_TESTS, CodeGrader
from crucible_worker.grading.code.inside.wire import ENVELOPE_BYTES
from tests.service.code_kit import SMALL, code_grader, graded, needs_sandbox
from tests.tables import rows

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
    "the value of a call without a tolerance": (
        "def f(n): return [i / n for i in range(n)]",
        apps({"fn_name": "f", "inputs": [[3]], "outputs": [[0, 0.3333, 0.6667]]}),
        INCORRECT,
        0.0,
    ),
    "the value of a call within a tolerance": (
        "class Solution:\n    def f(self, n): return {'a': tuple(i / n for i in range(n))}",
        apps({"fn_name": "f", "inputs": [[3]], "outputs": [{"a": [0, 0.3333, 0.6667]}]}, absolute_tolerance=1e-4),
        CORRECT,
        1.0,
    ),
    "the value of a call beyond a tolerance": (
        "def f(n): return [i / n for i in range(n)]",
        apps({"fn_name": "f", "inputs": [[3]], "outputs": [[0, 0.333, 0.666]]}, absolute_tolerance=1e-4),
        INCORRECT,
        0.0,
    ),
    "a value in a list of one, within a tolerance": (
        "def f(n): return 1 / n",
        apps({"fn_name": "f", "inputs": [[3]], "outputs": [[0.3333]]}, relative_tolerance=1e-3),
        CORRECT,
        1.0,
    ),
    "integers within a tolerance": (
        "def f(n): return n + 1",
        apps({"fn_name": "f", "inputs": [[1000]], "outputs": [1000]}, relative_tolerance=0.1),
        INCORRECT,
        0.0,
    ),
    "one call within a tolerance": (
        "def f(n): return 1 / n",
        CallTest(
            function="f",
            arguments_json="[3]",
            expected_json="0.333",
            comparison=OutputComparison(absolute_tolerance=1e-3),
        ),
        CORRECT,
        1.0,
    ),
    "a draft in reasoning": (
        "<think>\n```python\ndef f(): return 1\n```\nOr is it two?",
        Assertions("assert f() == 1"),
        INCORRECT,
        0.0,
    ),
    "a program behind a draft, before another turn": (
        "<think>\n```python\ndef f(): return 2\n```\n</think>\nSo:\n\ndef f(): return 1\n<|im_end|>\n<|im_start|>user",
        Assertions("assert f() == 1"),
        CORRECT,
        1.0,
    ),
    "names that LeetCode gives": (
        "class Solution:\n    def f(self, xs: List[int]) -> Optional[int]:\n"
        "        heap = list(Counter(xs))\n        heapify(heap)\n"
        "        return min(inf, heapq.heappop(heap), gcd(8, 12))",
        apps({"fn_name": "f", "inputs": [[[3, 2, 2]]], "outputs": [2]}),
        CORRECT,
        1.0,
    ),
    "names of its own": (
        "def gcd(a, b): return 7\ndef f(): return gcd(8, 12) + pow(2, 3, 5)",
        apps({"fn_name": "f", "inputs": [[]], "outputs": [10]}),
        CORRECT,
        1.0,
    ),
    "a function that is a given name": (
        "x = 1",
        apps({"fn_name": "gcd", "inputs": [[8, 12]], "outputs": [4]}),
        INCORRECT,
        0.0,
    ),
    "no given names in a call": (
        "def f(): return gcd(8, 12)",
        CallTest(function="f", expected_json="4"),
        INCORRECT,
        0.0,
    ),
    "no given names in a script": ("print(gcd(8, 12))", apps({"inputs": [""], "outputs": ["4"]}), INCORRECT, 0.0),
    "no given names in assertions": ("def f(): return gcd(8, 12)", Assertions("assert f() == 4"), INCORRECT, 0.0),
    "a dict of integers": (
        "def f(x): return x[1]",
        apps({"fn_name": "f", "inputs": [[{"1": 2}]], "outputs": [2]}),
        CORRECT,
        1.0,
    ),
}


@rows("name", GRADED)
async def test_a_program_has_its_grade(grader: CodeGrader, name: str):
    """Each input with its output is a test of its own, and the score is the share of those passed."""
    program, test, verdict, score = GRADED[name]

    grade = await graded(grader, program, test)

    assert (grade.verdict, grade.score) == (verdict, score), grade.reason
    assert (grade.reason == "") is (verdict is CORRECT)


LIMIT = 1_000
AT_THE_LIMIT = {
    "text": ("'a' * {}", LIMIT - 2),
    "letters of two bytes": ("'\u00e9' * {} + 'a'", (LIMIT - 3) // 2),
    "letters of three bytes": ("'\u6f22' * {} + 'aa'", (LIMIT - 4) // 3),
    "halves of surrogate pairs": ("chr(0xd800) * {} + 'aa'", (LIMIT - 4) // 3),
    "a list": ("[1] * {} + [11]", (LIMIT - 4) // 2),
    "keys and values": ("{{'a' * {}: 1}}", LIMIT - len('{"d":[["",1]]}')),
}


@rows("name", AT_THE_LIMIT)
async def test_a_returned_value_may_be_as_large_as_the_limit_says(grader: CodeGrader, name: str):
    """It is counted as JSON in UTF-8, whatever else the message holds; one byte more is too much."""
    form, count = AT_THE_LIMIT[name]
    limits = dataclasses.replace(SMALL, output_bytes=LIMIT)
    value = form.format(count)
    test = Assertions(f"assert f() == {value}")

    fits = await graded(grader, f"def f(): return {value}", test, limits=limits)
    above = await graded(grader, f"def f(): return {form.format(count + 1)}", test, limits=limits)

    assert (fits.verdict, fits.reason) == (CORRECT, "")
    assert (above.verdict, "more than is allowed" in above.reason) == (INCORRECT, True)


async def test_a_returned_value_may_be_handed_over_again(grader: CodeGrader):
    """Tests call with arguments as large as a value may be, where that is more than they may have otherwise."""
    program, size = "def f(x): return x", 4_500_000
    test = Assertions(f"x = 'a' * {size}\nfor _ in range(2):\n    x = f(x)\nassert len(x) == {size}")

    fits = await graded(grader, program, test, limits=dataclasses.replace(SMALL, memory_mb=512, output_bytes=5_000_000))
    above = await graded(grader, program, test, limits=SMALL)

    assert (fits.verdict, fits.reason) == (CORRECT, "")
    assert above.problem is not None
    assert above.problem.reason == "NOT_PASSABLE"


async def test_what_a_call_changes_counts_by_itself(grader: CodeGrader):
    """A value and the arguments that the call changed may each be as large as the limit says."""
    limits = dataclasses.replace(SMALL, output_bytes=LIMIT)
    program = "def f(x):\n    x.append('b' * {})\n    return 'a' * 900"
    test = Assertions("x = []\nassert len(f(x)) == 900\nassert len(x[0]) > 0")

    fits = await graded(grader, program.format(900), test, limits=limits)
    above = await graded(grader, program.format(1_100), test, limits=limits)

    assert (fits.verdict, fits.reason) == (CORRECT, "")
    assert above.verdict is INCORRECT


async def test_what_a_program_writes_past_its_interpreter_is_bounded(grader: CodeGrader):
    """A message that it makes itself has the same bound, with room for what a message holds besides values."""
    forged = (
        "import json, os, sys\n"
        "def f():\n"
        "    frame = sys._getframe()\n"
        "    while frame.f_back and 'nonce' not in frame.f_locals: frame = frame.f_back\n"
        "    data = json.dumps({'nonce': frame.f_locals['nonce'], 'value': 'a' * %d}).encode()\n"
        "    frame.f_locals['channel'].sendall(len(data).to_bytes(4, 'little') + data)\n"
        "    os._exit(0)"
    )
    limits = dataclasses.replace(SMALL, output_bytes=LIMIT)

    short, long = LIMIT // 2, LIMIT + ENVELOPE_BYTES
    fits = await graded(grader, forged % short, Assertions(f"assert f() == 'a' * {short}"), limits=limits)
    above = await graded(grader, forged % long, Assertions(f"assert f() == 'a' * {long}"), limits=limits)

    assert fits.verdict is CORRECT
    assert (above.verdict, f"more than {LIMIT:,} bytes" in above.reason) == (INCORRECT, True)


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
