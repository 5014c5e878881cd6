"""GradeRubric over the wire: every item has its grade or its problem, and nobody outside knows the mark of a fence."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio

from crucible_bridge.errors import BackendError, Code, DeadlineExceeded
from crucible_bridge.events import EventKind
from crucible_bridge.types import (
    BatchLimits,
    CriterionScore,
    OrchestratorModel,
    RubricCriterion,
    RubricItem,
    SamplingParams,
    Verdict,
)
from crucible_bridge.v1 import grading_pb2 as pb
from crucible_bridge.v1 import grading_pb2_grpc, types_pb2
from crucible_worker.grading.judge.rubric import MAX_CRITERIA, MAX_JUDGED_CHARS
from crucible_worker.testing import STALL, RunningWorker, ScriptedModel, record_events, run_worker
from crucible_worker.util.limits import WorkerLimits
from tests.service.evaluation_kit import refused
from tests.unit.grading.judge.gullible import Gullible, injections

pytestmark = [pytest.mark.core, pytest.mark.asyncio(loop_scope="module")]

MAX_ITEMS = 20
CORRECT = RubricCriterion(name="correct", description="Is it right?")
SAID = '{"correct": {"reason": "So it is.", "score": 8}}'
PROMPTS: list[str] = []


def answer(prompt: str) -> str:
    """What the judge says: 8 points, and nonsense where it is asked about that."""
    PROMPTS.append(prompt)
    return "nonsense" if "| nonsense" in prompt else SAID


def fault(call: Any) -> Any:
    """What goes wrong: a judge that fails for good, is busy at first, or never answers."""
    if "| broken" in call.text:
        return BackendError("is broken", reason="BACKEND_BROKEN", retryable=False)
    if "| busy" in call.text and PROMPTS.count(call.text) == 0:
        PROMPTS.append(call.text)
        return BackendError("is busy", reason="BACKEND_BUSY", retryable=True, retry_after=0.001)
    return STALL if "| stalls" in call.text else None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker() -> AsyncIterator[RunningWorker]:
    """A worker with a judge `j`, one that obeys what it reads, and one that does not sample."""
    models = {
        "j": ScriptedModel(answer=answer, fault=fault, fingerprint="judge-1"),
        "g": ScriptedModel(answer=Gullible().score),
        "mute": ScriptedModel(sampled=False),
        "short": ScriptedModel(answer=answer, context_length=1_000),
    }
    async with run_worker(models, limits=WorkerLimits(max_grading_items=MAX_ITEMS)) as worker:
        yield worker


@pytest.fixture
def grade(worker: RunningWorker) -> Any:
    """Has items judged by one criterion."""

    async def call(*items: RubricItem, judge: Any = "embedded:j", criteria: Any = (CORRECT,), **named: Any) -> Any:
        return await worker.bridge.grading.grade_rubric(judge, items, criteria, **named)

    return call


async def test_responses_are_judged(worker: RunningWorker, grade: Any):
    """In order, with tokens by item and in all, the judge's fingerprint, and told of by an event."""
    PROMPTS.clear()
    began = time.time_ns()
    async with record_events(worker.bridge) as recorder:
        found = await grade(
            RubricItem(id="a", question="Why?", response="so"),
            RubricItem(id="b", response="Solution:"),
            RubricItem(id="c", response="nonsense"),
            RubricItem(id="d", response="so", prior=Verdict.INCORRECT),
            limits=BatchLimits(concurrency=1),
        )
        event = await recorder.wait_for(
            lambda event: event.kind is EventKind.GRADING_COMPLETE and event.unix_time_ns > began
        )

    grades = [one.grade for one in found.grades]
    assert [(one.id, one.verdict, one.score, one.method) for one in grades] == [
        ("a", Verdict.CORRECT, 0.8, "judged"),
        ("b", Verdict.INCORRECT, 0.0, "no content"),
        ("c", Verdict.ERROR, None, "judged"),
        ("d", Verdict.INCORRECT, 0.0, "prior"),
    ]
    assert grades[2].problem is not None
    assert grades[2].problem.reason == "INVALID_JUDGEMENT"
    assert found.grades[0].criteria == (CriterionScore(name="correct", score=8.0, reason="So it is."),)
    asked = [len(prompt) for prompt in PROMPTS]
    assert [one.prompt_tokens for one in found.grades] == [asked[0], 0, asked[1], 0]
    assert [one.completion_tokens for one in found.grades] == [len(SAID), 0, len("nonsense"), 0]
    assert (found.prompt_tokens, found.completion_tokens) == (sum(asked), len(SAID) + len("nonsense"))
    assert found.judge_fingerprint == "judge-1"
    assert event.metadata == {"call": "GradeRubric"}
    assert event.measurements == {"count": 4.0, "correct": 1.0, "unscored": 1.0}


async def test_each_request_has_a_mark_of_its_own(grade: Any):
    """The same for its items, another one the next time: who has seen one has seen none."""
    PROMPTS.clear()
    for _ in range(2):
        await grade(RubricItem(response="x"), RubricItem(response="y"))

    marks = [re.findall(r"^==== ([0-9a-f]{16}) end$", prompt, re.MULTILINE) for prompt in PROMPTS]
    assert marks[0] == marks[1] != marks[2] == marks[3]


async def test_no_injection_changes_a_score(grade: Any):
    """As models' bytes over the wire; the judge obeys whatever stands outside of the fence."""
    texts = list(injections().values())
    scores: list[float | None] = []
    for start in range(0, len(texts), MAX_ITEMS):
        found = await grade(
            *(RubricItem(response=text) for text in texts[start : start + MAX_ITEMS]), judge="embedded:g"
        )
        scores += [one.grade.score for one in found.grades]

    assert scores == [0.2] * len(texts)


async def test_an_item_that_fails_costs_the_others_nothing(grade: Any):
    """Its problem is the judge's; what may pass is tried again."""
    found = await grade(RubricItem(id="a", response="broken"), RubricItem(response="busy"), RubricItem(response="x"))

    (failed, *others) = found.grades
    assert failed.grade.problem is not None
    assert (failed.grade.id, failed.grade.verdict) == ("a", Verdict.ERROR)
    assert (failed.grade.problem.reason, failed.prompt_tokens) == ("BACKEND_BROKEN", None)
    assert [one.grade.verdict for one in others] == [Verdict.CORRECT] * 2
    assert found.prompt_tokens is None


async def test_what_is_longer_than_the_judges_context_has_a_problem(grade: Any):
    """At the item: of the question that is made of it, the caller knows nothing."""
    found = await grade(RubricItem(response="x"), RubricItem(response="x" * 1_000), judge="embedded:short")

    short, long = (one.grade for one in found.grades)
    assert short.verdict is Verdict.CORRECT
    assert long.problem is not None
    assert (long.problem.reason, long.problem.field) == ("PROMPT_TOO_LONG", "items[1]")


async def test_what_is_not_judged_at_the_deadline_has_a_problem(grade: Any):
    """What was judged before keeps its grade."""
    found = await grade(
        RubricItem(response="x"), RubricItem(response="stalls"), limits=BatchLimits(deadline_ms=500, concurrency=1)
    )

    done, late = (one.grade for one in found.grades)
    assert done.verdict is Verdict.CORRECT
    assert late.problem is not None
    assert (late.verdict, late.problem.reason) == (Verdict.ERROR, "DEADLINE_EXCEEDED")


async def test_pairs_are_judged_in_both_orders(worker: RunningWorker):
    """A judge that always says A gives half."""
    said = json.dumps({"correct": {"reason": "First.", "better": "A"}})
    judge = ScriptedModel(answer=lambda prompt: said)
    async with run_worker({"j": judge}) as other:
        found = await other.bridge.grading.grade_rubric(
            "embedded:j", [RubricItem(response="x", other="y")], [CORRECT], threshold=0.6
        )

    grade = found.grades[0].grade
    assert (grade.verdict, grade.score, grade.method) == (Verdict.PARTIAL, 0.5, "both orders")
    assert (judge.counts["sample"], found.completion_tokens) == (2, 2 * len(said))


async def test_sampling_at_random_has_seeds_by_item(grade: Any):
    """Drawn from the request's seed, so that a request can be made again; and a judge is cut where it is told to be."""
    cut = await grade(RubricItem(response="x"), sampling=SamplingParams(max_tokens=5, temperature=1.0, seed=3))

    assert cut.grades[0].grade.verdict is Verdict.ERROR
    assert cut.completion_tokens == 5


async def test_bytes_that_are_no_text_cost_nothing(worker: RunningWorker):
    """They become U+FFFD, and the reason says so."""
    request = pb.GradeRubricRequest(
        judge=types_pb2.ModelRef(embedded="j"),
        items=[pb.RubricItem(response=b"so \xff")],
        criteria=[pb.RubricCriterion(name="correct", description="Is it?")],
    )
    async with grpc.aio.insecure_channel(worker.address) as channel:
        (found,) = (await grading_pb2_grpc.GradingServiceStub(channel).GradeRubric(request)).grades

    assert found.grade.score == 0.8
    assert "U+FFFD: 1" in found.grade.reason


async def test_too_much_for_a_judge_is_undecided(grade: Any):
    """One character beyond what it is shown."""
    found = await grade(RubricItem(response="x" * MAX_JUDGED_CHARS), RubricItem(response="x" * (MAX_JUDGED_CHARS + 1)))

    assert [one.grade.verdict for one in found.grades] == [Verdict.CORRECT, Verdict.UNDECIDED]


async def test_what_is_malformed_is_refused_by_its_path(grade: Any):
    """Before anything is asked."""
    item = RubricItem(response="x")
    many = [RubricCriterion(name=str(index), description="?") for index in range(MAX_CRITERIA + 1)]
    PROMPTS.clear()
    for call, field in (
        (grade(), "items"),
        (grade(*[item] * (MAX_ITEMS + 1)), "items"),
        (grade(item, criteria=()), "criteria"),
        (grade(item, criteria=many), "criteria"),
        (grade(item, criteria=[CORRECT, CORRECT]), "criteria[1].name"),
        (grade(item, judge="gpt"), "judge"),
        (grade(item, judge=OrchestratorModel("m")), "judge"),
        (grade(item, threshold=2), "threshold"),
        (grade(item, renderer="chatml"), "renderer"),
        (grade(item, renderer="raw\n"), "renderer"),
        (grade(item, limits=BatchLimits(concurrency=100_000)), "limits.concurrency"),
    ):
        await refused(call, Code.INVALID_ARGUMENT, "INVALID_FIELD", field)
    assert PROMPTS == []


async def test_a_judge_that_cannot_be_had_refuses_the_call(grade: Any):
    """At the field that names it."""
    item = RubricItem(response="x")
    await refused(grade(item, judge="embedded:nobody"), Code.NOT_FOUND, "UNKNOWN_MODEL", "judge")
    await refused(grade(item, judge="openai:s/m"), Code.FAILED_PRECONDITION, "NO_BACKEND", "judge")
    await refused(grade(item, judge="embedded:mute"), Code.FAILED_PRECONDITION, "MISSING_CLIENT", "judge")


async def test_a_call_that_ends_asks_no_more(grade: Any):
    """Whoever goes away is not judged for."""
    PROMPTS.clear()
    with pytest.raises(DeadlineExceeded):
        await grade(
            RubricItem(response="stalls"), RubricItem(response="y"), limits=BatchLimits(concurrency=1), timeout=0.5
        )
    assert PROMPTS == []
