"""What passes between a program and its tests besides plain values."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from crucible_bridge.types import Assertions, Verdict
from crucible_worker.grading.code.grader import CodeGrader
from tests.cases.code.crossing import NOT_PASSED, PASSED, UNPASSABLE
from tests.service.code_kit import code_grader, graded, needs_sandbox
from tests.tables import rows

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_sandbox]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grader() -> AsyncIterator[CodeGrader]:
    """One for all."""
    async with code_grader() as grader:
        yield grader


@rows("name", PASSED)
async def test_what_crosses_is_what_it_was(grader: CodeGrader, name: str):
    """With its type, its order, its identity and what has changed in it."""
    program, test = PASSED[name]

    grade = await graded(grader, program, Assertions(test))

    assert grade.verdict is Verdict.CORRECT, grade.reason


@rows("name", NOT_PASSED)
async def test_what_crosses_equals_what_it_equals_in_python(grader: CodeGrader, name: str):
    """And nothing more."""
    program, test = NOT_PASSED[name]

    grade = await graded(grader, program, Assertions(test))

    assert (grade.verdict, grade.score) == (Verdict.INCORRECT, 0.0), grade.reason


@rows("name", UNPASSABLE)
async def test_what_cannot_cross_is_an_error(grader: CodeGrader, name: str):
    """As an argument, and as a result of which the tests need more than a value."""
    program, test = UNPASSABLE[name]

    grade = await graded(grader, program, Assertions(test))

    assert (grade.verdict, grade.problem and grade.problem.reason) == (Verdict.ERROR, "NOT_PASSABLE"), grade.reason
