"""Exceptions of a program are seen by what catches them in the tests, and by nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from crucible_bridge.types import Assertions, Verdict
from crucible_worker.grading.code.grader import CodeGrader
from tests.cases.code.exceptions import CAUGHT, ERRORS, PROTOCOLS, UNCAUGHT
from tests.service.code_kit import code_grader, graded, needs_sandbox
from tests.tables import rows

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_sandbox]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def grader() -> AsyncIterator[CodeGrader]:
    """One for all."""
    async with code_grader() as grader:
        yield grader


RAISED = (
    *("StopIteration", "StopAsyncIteration", "GeneratorExit", "IndexError", "AttributeError", "TypeError", "KeyError"),
    *("SystemExit", "KeyboardInterrupt"),
)


@rows("name", PROTOCOLS)
async def test_no_protocol_swallows_what_a_program_raises(grader: CodeGrader, name: str):
    """Neither an exception of these types nor one below them; the tests can be passed."""
    test = Assertions(PROTOCOLS[name])
    if name != "until":  # it ends at once where f is right
        assert (await graded(grader, "def f(x): return 1", test)).verdict is Verdict.CORRECT
    passed = []
    programs = [f"def f(x): raise {raised}" for raised in RAISED]
    for program in [*programs, "class Mine(StopIteration, IndexError): pass\ndef f(x): raise Mine('no')"]:
        grade = await graded(grader, program, test)
        if (grade.verdict, grade.score) != (Verdict.INCORRECT, 0.0):
            passed.append((program, grade.verdict, grade.reason))

    assert passed == []


@rows("name", CAUGHT)
async def test_tests_catch_what_a_program_raises(grader: CodeGrader, name: str):
    """By its type or one above it, with its text and its arguments."""
    grade = await graded(grader, ERRORS, Assertions(CAUGHT[name]))

    assert grade.verdict is Verdict.CORRECT, grade.reason


@rows("name", UNCAUGHT)
async def test_tests_do_not_catch_more(grader: CodeGrader, name: str):
    """What they do not catch, the program has failed by."""
    grade = await graded(grader, ERRORS, Assertions(UNCAUGHT[name]))

    assert (grade.verdict, grade.score) == (Verdict.INCORRECT, 0.0), grade.reason
