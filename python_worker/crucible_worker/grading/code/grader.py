"""Grades programs: each is extracted from its response and run against its tests, in sandboxes."""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import structlog

from crucible_bridge.errors import BridgeError
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Assertions,
    CallTest,
    CodeGrades,
    CodeItem,
    CodeLimits,
    CodeTest,
    Grade,
    GradeCodeRequest,
    InputOutputTests,
    Metrics,
    Problem,
    ProblemCounts,
    StdioTest,
    Verdict,
)
from crucible_bridge.types.code_tests import BadTests
from crucible_worker.grading.base import MAX_TEXT_BYTES, Cache, exceeds
from crucible_worker.grading.code.assertions import Plain, Proxied, read_assertions, with_modules
from crucible_worker.grading.code.extract import NO_PROGRAM, program_of
from crucible_worker.grading.code.images import CodeImage
from crucible_worker.grading.code.inside.wire import SOLUTION
from crucible_worker.grading.code.judging import CaseResult, Expected, Ready, run_test
from crucible_worker.grading.code.reading import check_prefix, read_apart
from crucible_worker.grading.code.records import read_call, read_input_output
from crucible_worker.grading.code.sandbox import SandboxSlot, SandboxSlots
from crucible_worker.metrics.pass_at_k import pass_at_k
from crucible_worker.util.error_reporter import logged, with_id

__all__ = ["MAX_TESTS", "MAX_TIMEOUTS", "CodeGrader", "check_ks", "counts_of", "metrics_of"]

MAX_TESTS = 1_000
"""Tests of one item; with more it is UNDECIDED."""
MAX_TIMEOUTS = 3
"""After so many tests in which a program takes too long, it is not run again; the other tests count as failed."""

_CACHED_TESTS, _CACHED_CHARS = 1_024, 4_000_000
_LARGE_CHARS = 4_000  # tests from here on are read by a thread
_LARGE_RESPONSE_CHARS = 20_000  # responses likewise
_HUGE_CHARS = 50_000  # and from here on by a process, because Python's parser blocks the interpreter

_TOO_MANY = f"there are more than {MAX_TESTS:,} tests, and no more are run"
_METHODS: Mapping[type[Any], str] = {Plain: "calls", Expected: "calls", Proxied: "tests", StdioTest: "stdio"}


class CodeGrader:
    """Judges whether programs pass their tests.

    Args:
        places: the places where programs run.
    """

    def __init__(self, places: SandboxSlots) -> None:
        self._places = places
        self._read: Cache[tuple[str, str], Plain | Proxied] = Cache(max_entries=_CACHED_TESTS, max_size=_CACHED_CHARS)
        self._log = structlog.get_logger("crucible_worker.grading")

    async def grade_batch(self, request: GradeCodeRequest) -> CodeGrades:
        """Judge programs, one in each place at a time; returns a grade for each item, in order.

        Raises:
            FailedPrecondition: no sandbox starts here (reason NO_SANDBOX): nothing is ever run without one.
            InvalidField: a k cannot be used, or there is no such image.
        """
        check_ks(request.k)
        image = self._places.image(request.image, "image")
        waiting = iter(enumerate(request.items))
        grades: dict[int, Grade] = {}

        async def work() -> None:
            for index, item in waiting:
                grades[index] = await self._graded(item, request.limits, image)

        # At most one for each place: a later call waits for some programs, not for the whole batch.
        tasks = [asyncio.create_task(work()) for _ in range(min(self._places.count, len(request.items)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        ordered = tuple(grades[index] for index in range(len(request.items)))
        problems = counts_of(request.items, ordered)
        return CodeGrades(grades=ordered, problems=problems, metrics=metrics_of(problems, request.k))

    async def _graded(self, item: CodeItem, limits: CodeLimits, image: CodeImage | None) -> Grade:
        """Like `grade`; the worker's own fault in one item does not affect the others."""
        try:
            return await self.grade(item, limits, image)
        except BridgeError:
            raise
        except Exception as error:
            message = with_id(f"{type(error).__name__} in the grader", logged(self._log, "code_item_failed", error))
            return _failed(item, Reason.INTERNAL, message, 0)

    async def grade(self, item: CodeItem, limits: CodeLimits, image: CodeImage | None = None) -> Grade:
        """Judge one program, which can import the packages of an image.

        Raises:
            FailedPrecondition: no sandbox starts here (reason NO_SANDBOX).
        """
        if (reason := _unreadable(item)) is not None:
            return Grade(id=item.id, verdict=Verdict.UNDECIDED, reason=reason)
        try:
            tests = [ready for test in item.tests for ready in await self._ready(test, item.prefix)]
        except BadTests as error:
            return _failed(item, Reason.BAD_TESTS, str(error), 0)
        if len(tests) > MAX_TESTS:
            return Grade(id=item.id, verdict=Verdict.UNDECIDED, reason=_TOO_MANY)
        order = item.response, {name for test in tests for name in _names(test)}
        large = len(item.response) >= _LARGE_RESPONSE_CHARS
        program, extraction = await asyncio.to_thread(program_of, *order) if large else program_of(*order)
        if not program.strip():
            return Grade(id=item.id, verdict=Verdict.INCORRECT, score=0.0, reason=NO_PROGRAM)
        tests = [with_modules(test, program) if isinstance(test, Proxied) else test for test in tests]
        async with self._places.place(image) as place:
            started = time.perf_counter_ns()
            findings = await _findings(place, _joined(item.prefix, program, extraction), tests, limits)
            duration_ns = time.perf_counter_ns() - started
        if item.prefix and any(finding.too_deep for finding in findings):
            try:
                await check_prefix(item.prefix)
            except BadTests as error:
                return _failed(item, Reason.BAD_TESTS, str(error), duration_ns)
        unknown = next((finding for finding in findings if finding.passed is None), None)
        if unknown is not None and not unknown.problem:
            return Grade(id=item.id, verdict=Verdict.UNDECIDED, reason=unknown.reason, duration_ns=duration_ns)
        if unknown is not None:
            return _failed(item, unknown.problem, unknown.reason, duration_ns)
        return _graded(item, program, extraction, tests, findings, duration_ns)

    async def _ready(self, test: CodeTest, prefix: str) -> Sequence[Ready]:
        """What is run for a test: the test itself, or each test that it contains."""
        match test:
            case StdioTest():
                return (test,)
            case CallTest():
                return (read_call(test),)
            case InputOutputTests(json=source):
                order, large = (test, MAX_TESTS + 1), len(source) >= _LARGE_CHARS
                return await asyncio.to_thread(read_input_output, *order) if large else read_input_output(*order)
            case Assertions(source=source):
                return (await self._assertions(source, prefix),)

    async def _assertions(self, source: str, prefix: str) -> Plain | Proxied:
        key, size = (source, prefix), len(source) + len(prefix)
        if (known := self._read.get(key)) is not None:
            return known
        if size >= _HUGE_CHARS:
            read = await read_apart(*key)
        elif size >= _LARGE_CHARS:
            read = await asyncio.to_thread(read_assertions, *key)
        else:
            await asyncio.sleep(0)  # an item may have a thousand
            read = read_assertions(*key)
        self._read.put(key, read, size)
        return read


def check_ks(ks: Sequence[int]) -> None:
    """Refuse values of k that `pass_at_k` would refuse, before anything is run.

    Raises:
        InvalidField: names the k.
    """
    if ks:
        pass_at_k(np.array([1]), np.array([1]), ks)


def counts_of(items: Sequence[CodeItem], grades: Sequence[Grade]) -> tuple[ProblemCounts, ...]:
    """Counts of the samples of each problem that items name."""
    verdicts: dict[str, collections.Counter[str]] = {}
    for item, grade in zip(items, grades):
        if item.problem_id:
            kind = "unscored" if not grade.verdict.scored else grade.verdict.value
            verdicts.setdefault(item.problem_id, collections.Counter())[kind] += 1
    return tuple(
        ProblemCounts(
            problem_id=problem_id,
            samples=count.total() - count["unscored"],
            correct=count[Verdict.CORRECT.value],
            unscored=count["unscored"],
        )
        for problem_id, count in verdicts.items()
    )


def metrics_of(problems: Sequence[ProblemCounts], ks: Sequence[int]) -> Metrics:
    """`pass@<k>` over problems."""
    if not ks:
        return Metrics.of({})
    if not problems:
        return Metrics.all_undefined([f"pass@{k}" for k in ks], "no item names its problem")
    samples = np.array([problem.samples for problem in problems])
    return pass_at_k(samples, np.array([problem.correct for problem in problems]), ks)


async def _findings(place: SandboxSlot, program: str, tests: Sequence[Ready], limits: CodeLimits) -> list[CaseResult]:
    findings: list[CaseResult] = []
    timeouts = 0
    for test in tests:
        if timeouts == MAX_TIMEOUTS:
            findings.append(CaseResult(passed=False, reason="not run: the program took too long before"))
            continue
        findings.append(await run_test(place, program, test, limits))
        if findings[-1].passed is None:
            break  # the item stays undecided, whatever the other tests give
        timeouts += findings[-1].timed_out
    return findings


def _unreadable(item: CodeItem) -> str | None:
    if exceeds((item.response,)):
        return f"the response is longer than {MAX_TEXT_BYTES:,} bytes"
    if len(item.tests) > MAX_TESTS:
        return _TOO_MANY
    if exceeds((item.prefix, *(text for test in item.tests for text in _texts(test)))):
        return f"prefix and tests are longer than {MAX_TEXT_BYTES:,} bytes"
    return None


def _texts(test: CodeTest) -> Sequence[str]:
    match test:
        case Assertions(source=source):
            return (source,)
        case StdioTest(stdin=stdin, stdout=stdout):
            return stdin, stdout
        case CallTest(arguments_json=arguments, expected_json=expected):
            return arguments, expected
        case InputOutputTests(json=source):
            return (source,)


def _names(test: Ready) -> frozenset[str]:
    match test:
        case Plain() | Proxied():
            return test.names
        case Expected(call=call, in_solution=in_solution):
            return frozenset({call.function, SOLUTION} if in_solution else {call.function})
        case StdioTest():
            return frozenset()


def _joined(prefix: str, program: str, extraction: str) -> str:
    """The program after its prefix: a block begins a new line; a response without a block continues the prefix."""
    between = "\n" if extraction == "block" and prefix and not prefix.endswith("\n") else ""
    return f"{prefix}{between}{program}"


def _graded(
    item: CodeItem,
    program: str,
    extraction: str,
    tests: Sequence[Ready],
    findings: Sequence[CaseResult],
    duration_ns: int,
) -> Grade:
    passed = sum(finding.passed is True for finding in findings)
    failed = next((at for at, finding in enumerate(findings) if not finding.passed), None)
    reason = ""
    if failed is not None:
        which = f"test {failed + 1} of {len(findings)}: " if len(findings) > 1 else ""
        reason = shorten(which + findings[failed].reason, MAX_PROBLEM_BYTES)
    verdict = Verdict.CORRECT if failed is None else Verdict.PARTIAL if passed else Verdict.INCORRECT
    return Grade(
        id=item.id,
        verdict=verdict,
        score=passed / len(findings),
        extracted=program,
        extraction=extraction,
        method=_METHODS[type(tests[failed or 0])],
        reason=reason,
        duration_ns=duration_ns,
    )


def _failed(item: CodeItem, reason: str, message: str, duration_ns: int) -> Grade:
    problem = Problem(reason=reason, message=shorten(message, MAX_PROBLEM_BYTES))
    return Grade(id=item.id, verdict=Verdict.ERROR, reason=problem.message, duration_ns=duration_ns, problem=problem)
