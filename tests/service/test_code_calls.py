"""GradeCode over the wire, and the grader `code` in evaluations."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

import grpc.aio
import pytest
import pytest_asyncio

from crucible_bridge.errors import Code, DeadlineExceeded
from crucible_bridge.events import EventKind
from crucible_bridge.types import Assertions, CallTest, CodeItem, CodeLimits, Sample, SamplingParams, Verdict
from crucible_bridge.v1 import grading_pb2 as pb
from crucible_bridge.v1 import grading_pb2_grpc
from crucible_worker.grading.base import MAX_EXTRACTED_CHARS
from crucible_worker.grading.code import sandbox
from crucible_worker.grading.code.extract import NO_PROGRAM
from crucible_worker.grading.code.sandbox import SandboxSlots
from crucible_worker.testing import RunningWorker, ScriptedModel, record_events, run_worker
from crucible_worker.util.limits import WorkerLimits
from tests.service.code_kit import needs_sandbox, sandboxed
from tests.service.evaluation_kit import accuracy, asked, refused, rig, samples_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

GOOD, BAD = "def f(x): return x", "def f(x): return -x"
TEST = Assertions("assert f(1) == 1")
MAX_ITEMS = 20
DEEP = "[" * 102 + "]" * 102


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker() -> AsyncIterator[RunningWorker]:
    """A worker that runs programs."""
    limits = WorkerLimits(max_grading_items=MAX_ITEMS)
    async with run_worker({"m": ScriptedModel()}, code_sandboxes=1, limits=limits) as worker:
        yield worker


def item(program: str = GOOD, *, id: str = "", problem_id: str = "") -> CodeItem:
    """A program and its test."""
    return CodeItem(id=id, response=program, tests=(TEST,), problem_id=problem_id)


@needs_sandbox
async def test_programs_are_graded(worker: RunningWorker):
    """In order, with pass@k of the problems they name, and told of by an event."""
    began = time.time_ns()
    async with record_events(worker.bridge) as recorder:
        found = await worker.bridge.grading.grade_code(
            [item(id="a", problem_id="p"), item(BAD, id="b", problem_id="p")], k=[1]
        )
        event = await recorder.wait_for(
            lambda event: event.kind is EventKind.GRADING_COMPLETE and event.unix_time_ns > began
        )

    assert [(grade.id, grade.verdict, grade.method) for grade in found.grades] == [
        ("a", Verdict.CORRECT, "calls"),
        ("b", Verdict.INCORRECT, "calls"),
    ]
    assert found.grades[0].extracted == GOOD
    assert found.problems[0].samples == 2
    assert found.metrics.values == {"pass@1": 0.5}
    assert event.metadata == {"call": "GradeCode"}
    assert event.measurements == {"count": 2.0, "correct": 1.0, "unscored": 0.0}


@needs_sandbox
async def test_bytes_that_are_no_text_cost_nothing(worker: RunningWorker):
    """They become U+FFFD, and the reason says so."""
    async with grpc.aio.insecure_channel(worker.address) as channel:
        message = pb.CodeItem(response=GOOD.encode() + b"  # \xff", tests=[pb.CodeTest(assertions=TEST.source)])
        stub = grading_pb2_grpc.GradingServiceStub(channel)
        (grade,) = (await stub.GradeCode(pb.GradeCodeRequest(items=[message]))).grades

    assert grade.verdict == 1
    assert "U+FFFD: 1" in grade.reason


@needs_sandbox
@pytest.mark.parametrize(
    "bad",
    [
        CodeItem(
            response=GOOD, tests=(CallTest(function="f", arguments_json="[" * 102 + "]" * 102, expected_json="1"),)
        ),
        CodeItem(response=GOOD, tests=(Assertions("assert f(1) > 0"),), prefix="x = " + "1 + " * 1_500 + "1\n"),
    ],
    ids=["arguments of many levels", "a deep prefix"],
)
async def test_tests_that_cannot_be_passed_are_the_problem_of_their_item(worker: RunningWorker, bad: CodeItem):
    """The others of the batch have their grades."""
    found = await worker.bridge.grading.grade_code([item(), bad, item()])

    assert [grade.verdict for grade in found.grades] == [Verdict.CORRECT, Verdict.ERROR, Verdict.CORRECT]
    assert found.grades[1].problem is not None
    assert found.grades[1].problem.reason == "BAD_TESTS"


async def test_programs_are_extracted_without_a_sandbox(worker: RunningWorker, monkeypatch: pytest.MonkeyPatch):
    """Each response has the program that GradeCode would run, whole, or the reason why there is none."""
    monkeypatch.setattr(SandboxSlots, "place", None)  # a call that takes a place fails
    long = "x = 1\n" * MAX_EXTRACTED_CHARS
    two = "```python\ndef f(): pass\n```\n```python\nf()\n```"

    found = await worker.bridge.grading.extract_code([two, "x = 2", f"```\n{long}```", " \n", "#" * 1_000_001], ["f"])

    assert [(one.program, one.extraction) for one in found] == [
        ("def f(): pass\n", "block"),
        ("x = 2", "whole"),
        (long, "block"),
        ("", ""),
        ("", ""),
    ]
    assert [one.reason for one in found] == ["", "", "", NO_PROGRAM, ""]
    assert [one.problem and one.problem.reason for one in found] == [None, None, None, None, "RESPONSE_TOO_LONG"]
    (unnamed,) = await worker.bridge.grading.extract_code([two])
    assert unnamed.program == "f()\n"


async def test_extraction_that_is_malformed_is_refused_by_its_path(worker: RunningWorker):
    """As are batches beyond the limit; bytes that are no text are told in the reason."""
    grading = worker.bridge.grading
    for call, field in (
        (grading.extract_code([]), "responses"),
        (grading.extract_code(["x"] * (MAX_ITEMS + 1)), "responses"),
        (grading.extract_code(["x"], [""]), "names[0]"),
    ):
        await refused(call, Code.INVALID_ARGUMENT, "INVALID_FIELD", field)
    async with grpc.aio.insecure_channel(worker.address) as channel:
        stub = grading_pb2_grpc.GradingServiceStub(channel)
        first, second = (await stub.ExtractCode(pb.ExtractCodeRequest(responses=[b"\xff", b"x = 1"]))).programs
    assert ("U+FFFD: 1" in first.reason, second.reason) == (True, "")


async def test_what_is_malformed_is_refused_by_its_path(worker: RunningWorker):
    """Before anything is run."""
    grading = worker.bridge.grading
    for call, field in (
        (grading.grade_code([]), "items"),
        (grading.grade_code([item()] * (MAX_ITEMS + 1)), "items"),
        (grading.grade_code([item(), CodeItem(response=GOOD, tests=())]), "items[1].tests"),
        (grading.grade_code([item()], limits=CodeLimits(timeout_ms=9)), "limits.timeout_ms"),
        (grading.grade_code([item()], k=[1, 1]), "k[1]"),
    ):
        await refused(call, Code.INVALID_ARGUMENT, "INVALID_FIELD", field)


@needs_sandbox
async def test_a_call_that_ends_takes_its_programs_along(worker: RunningWorker):
    """At its deadline; whoever comes next does not wait for them."""
    endless = CodeItem(response="while True: pass", tests=(TEST,))

    with pytest.raises(DeadlineExceeded):
        await worker.bridge.grading.grade_code([endless] * MAX_ITEMS, limits=CodeLimits(timeout_ms=60_000), timeout=1.0)
    async with asyncio.timeout(20):
        (grade,) = (await worker.bridge.grading.grade_code([item()])).grades

    assert grade.verdict is Verdict.CORRECT


async def test_a_worker_that_is_to_run_no_programs_says_so():
    """By the call's error; the other calls of the service are as they were."""
    async with run_worker({"m": ScriptedModel()}, code_sandboxes=0) as worker:
        await refused(worker.bridge.grading.grade_code([item()]), Code.FAILED_PRECONDITION, "NO_SANDBOX")
        assert len(await worker.bridge.grading.score([("a", "a")], "exact_match")) == 1


async def test_without_bubblewrap_nothing_is_run(monkeypatch: pytest.MonkeyPatch):
    """The error says what to install, and an evaluation is refused before anything is sampled."""
    before = sandboxed()
    monkeypatch.setattr(sandbox.shutil, "which", lambda *given, **more: None)
    model = ScriptedModel(answer=lambda prompt: GOOD)
    async with rig(model, code_sandboxes=1) as worker:
        grading = worker.worker.bridge.grading
        error = await refused(grading.grade_code([item()]), Code.FAILED_PRECONDITION, "NO_SANDBOX")
        evaluation = asked(
            evaluators=[accuracy(grader="code")],
            dataset=(Sample(id="a", input="a", targets=(TEST.source,)),),
            sampling=SamplingParams(max_tokens=100),
        )
        await refused(worker.evaluation.evaluate(evaluation), Code.FAILED_PRECONDITION, "NO_SANDBOX")

    assert "apt install bubblewrap" in error.message
    assert sandboxed() <= before


ANSWERS = {
    "right": f"Here:\n```python\n{GOOD}\n```",
    "wrong": BAD,
    "half": "def f(x): return 1",
    "output": "print(input())",
    "body": "    return x",
    "broken": GOOD,
}
HALF = (TEST.source, json.dumps({"function": "f", "arguments": [2], "expected": 2}))
SAMPLES = (
    Sample(id="right", input="right", targets=HALF),
    Sample(id="wrong", input="wrong", targets=HALF),
    Sample(id="half", input="half", targets=HALF),
    Sample(id="output", input="output", targets=('{"stdin": "a", "stdout": "a"}',)),
    Sample(id="body", input="body", targets=('{"prefix": "def f(x):\\n"}', TEST.source)),
    Sample(id="broken", input="broken", targets=('{"stdin": 1, "stdout": ""}',)),
)


@needs_sandbox
@pytest.mark.parametrize("partial", [False, True])
async def test_a_models_programs_are_evaluated(partial: bool):
    """Targets are tests, all of which must be passed, unless a share is to count; tests that are none are no fault."""
    async with rig(ScriptedModel(answer=ANSWERS.__getitem__), code_sandboxes=2) as worker:
        evaluation = await worker.evaluation.evaluate(
            asked(
                evaluators=[accuracy(grader="code", grader_options={"partial": partial, "timeout_ms": 20_000})],
                dataset=SAMPLES,
                sampling=SamplingParams(max_tokens=100),
            )
        )
        results = {result.sample_id: result for result in await samples_of(worker.worker.bridge)}

    assert {name: result.score for name, result in results.items()} == {
        "right": 1.0,
        "wrong": 0.0,
        "half": 0.5 if partial else 0.0,
        "output": 1.0,
        "body": 1.0,
        "broken": None,
    }
    assert results["broken"].verdict is Verdict.ERROR
    assert results["right"].extracted == f"{GOOD}\n"
    assert evaluation.metrics.values["accuracy"] == pytest.approx((3.5 if partial else 3.0) / 5)


@needs_sandbox
async def test_output_of_a_models_program_is_compared_as_the_grader_is_told():
    """By the grader's options where a target has no comparison; tests as APPS has them are a target as they are."""
    targets = {
        "as told": {"inputs": [""], "outputs": ["0.333"]},
        "too far": {"inputs": [""], "outputs": ["0.334"]},
        "its own": {"stdout": "0.334", "absolute_tolerance": 0.01},
    }
    samples = tuple(Sample(id=name, input=name, targets=(json.dumps(target),)) for name, target in targets.items())
    async with rig(ScriptedModel(answer=lambda prompt: "print(1 / 3)"), code_sandboxes=1) as worker:
        await worker.evaluation.evaluate(
            asked(
                evaluators=[accuracy(grader="code", grader_options={"absolute_tolerance": 0.0005})],
                dataset=samples,
                sampling=SamplingParams(max_tokens=100),
            )
        )
        results = {result.sample_id: result.score for result in await samples_of(worker.worker.bridge)}

    assert results == {"as told": 1.0, "too far": 0.0, "its own": 1.0}
