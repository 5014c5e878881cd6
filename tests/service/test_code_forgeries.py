"""No program passes a test that it fails, whatever it does to whoever runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from crucible_bridge.types import Assertions, CallTest, CodeLimits, StdioTest, Verdict
from crucible_worker.grading.code.grader import CodeGrader
from tests.cases.code.forgeries import FORGERIES, SECRET
from tests.service.code_kit import code_grader, graded, needs_sandbox

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_sandbox]

TESTS = {
    "calls": Assertions(f"assert f([1]) == {SECRET!r}"),
    "json": CallTest(function="f", arguments_json="[[1]]", expected_json=f'"{SECRET}"'),
    "tests": Assertions(
        f"secret = {SECRET!r}\n"
        "def check(candidate):\n"
        "    try:\n"
        "        value = candidate([1])\n"
        "    except ValueError:\n"
        "        value = None\n"
        "    assert secret.startswith('zq') and value == secret and not value != secret\n"
        "check(f)"
    ),
    "methods": Assertions(f"got = f([1])\nassert got.startswith({SECRET[:4]!r})\nassert got.endswith({SECRET[4:]!r})"),
    "difference": Assertions(f"assert not set(f([1])) - set({SECRET!r})\nassert len(f([1])) == {len(SECRET)}"),
    "objects": Assertions(f"assert F().f([1]) == {SECRET!r}"),
    "stdio": StdioTest(stdin="1\n", stdout=SECRET),
}
IMPATIENT = CodeLimits(timeout_ms=300, memory_mb=64, output_bytes=1_000_000)
"""Some of them wait for their end."""
HONEST = f"def f(x):\n    return {SECRET!r}\nclass F:\n    def f(self, x): return f(x)\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grader() -> AsyncIterator[CodeGrader]:
    """One for all, so that what one program breaks another one would feel."""
    async with code_grader() as grader:
        yield grader


@pytest.mark.parametrize("kind", TESTS)
async def test_an_honest_program_passes(grader: CodeGrader, kind: str):
    """The tests can be passed."""
    program = f"{HONEST}if __name__ == '__main__':\n    print(f(0))\n"

    grade = await graded(grader, program, TESTS[kind])

    assert (grade.verdict, grade.score) == (Verdict.CORRECT, 1.0), grade.reason


@pytest.mark.parametrize("name", FORGERIES)
async def test_a_forgery_is_wrong(grader: CodeGrader, name: str):
    """In every kind of test, and never unscored; the next program is judged as if nothing had been."""
    for kind, test in TESTS.items():
        grade = await graded(grader, FORGERIES[name], test, limits=IMPATIENT)
        assert (kind, grade.verdict, grade.score) == (kind, Verdict.INCORRECT, 0.0), grade.reason
        assert grade.reason

    assert (await graded(grader, HONEST, TESTS["tests"])).verdict is Verdict.CORRECT
