"""GradeRubric of the client against canned replies: what it sends, and what it makes of what comes back."""

from __future__ import annotations

from typing import Any

import pytest

import crucible_bridge
from crucible_bridge import codec
from crucible_bridge.errors import InternalError, InvalidField
from crucible_bridge.types import (
    DEFAULT_JUDGE_SAMPLING,
    BatchLimits,
    CriterionScore,
    Grade,
    GradeRubricRequest,
    OpenAIModel,
    RubricCriterion,
    RubricGrade,
    RubricGrades,
    RubricItem,
    SamplingParams,
    Verdict,
)
from crucible_bridge.v1 import grading_pb2 as pb
from tests.tables import rows
from tests.wire.conftest import CannedWorker

ITEM = RubricItem(id="a", question="Why?", response="so \ud800", references=("because",), prior=Verdict.UNDECIDED)
CRITERION = RubricCriterion(name="clear", description="Is it?", weight=2, max=5)
FOUND = RubricGrades(
    grades=(
        RubricGrade(
            grade=Grade(id="a", verdict=Verdict.PARTIAL, score=0.4, method="judged"),
            criteria=(CriterionScore(name="clear", score=2, reason="Hardly.", clamped=True),),
            prompt_tokens=90,
            completion_tokens=9,
        ),
        RubricGrade(grade=Grade(verdict=Verdict.UNDECIDED, reason="too long"), prompt_tokens=0),
    ),
    completion_tokens=9,
    judge_fingerprint="f",
)


@pytest.fixture
def found(worker: CannedWorker) -> RubricGrades:
    """What the worker answers to GradeRubric."""
    worker.replies["GradeRubric"] = codec.rubric_grades_to_v1(FOUND, 1 << 20)
    return FOUND


async def test_everything_is_sent_and_comes_back(worker: CannedWorker, address: str, found: RubricGrades) -> None:
    """Scores, reasons and tokens are those of the worker; what models said crosses as bytes."""
    asked = GradeRubricRequest(
        judge=OpenAIModel("s", "m"),
        items=(ITEM,),
        criteria=(CRITERION,),
        threshold=0.25,
        sampling=SamplingParams(max_tokens=7, temperature=0.5),
        renderer="raw",
        limits=BatchLimits(concurrency=3),
    )
    async with crucible_bridge.connect(address) as bridge:
        answer = await bridge.grading.grade_rubric(
            "openai:s/m",
            [ITEM],
            [CRITERION],
            threshold=asked.threshold,
            sampling=asked.sampling,
            renderer=asked.renderer,
            limits=asked.limits,
        )

    ((_, request),) = worker.requests
    assert answer == found
    assert request == codec.grade_rubric_request_to_v1(asked)
    assert request.items[0].response == b"so \xed\xa0\x80"


async def test_what_is_not_said_has_its_default(worker: CannedWorker, address: str, found: RubricGrades) -> None:
    """Threshold, sampling, renderer; no bounds."""
    async with crucible_bridge.connect(address) as bridge:
        await bridge.grading.grade_rubric(OpenAIModel("s", "m"), iter([ITEM]), iter([CRITERION]))

    ((_, request),) = worker.requests
    decoded = codec.grade_rubric_request_from_v1(request)
    assert (decoded.threshold, decoded.sampling, decoded.renderer) == (0.5, DEFAULT_JUDGE_SAMPLING, "auto")
    assert not request.HasField("limits")


@rows(
    ("wrong", "field"),
    [
        ({"judge": "gpt"}, "judge"),
        ({"items": "so"}, "items"),
        ({"criteria": "clear"}, "criteria"),
        ({"items": [RubricItem(response=b"so")]}, "items[0].response"),  # pyright: ignore[reportArgumentType]
        ({"criteria": [RubricCriterion(name="x", description="?", weight="1")]}, "criteria[0].weight"),  # pyright: ignore[reportArgumentType]
        ({"threshold": "half"}, "threshold"),
    ],
)
async def test_what_cannot_be_sent_is_refused_at_its_field(
    worker: CannedWorker, address: str, wrong: dict[str, Any], field: str
) -> None:
    """And never sent."""
    given: dict[str, Any] = {"judge": "openai:s/m", "items": [ITEM], "criteria": [CRITERION]} | wrong
    async with crucible_bridge.connect(address) as bridge:
        with pytest.raises(InvalidField) as refused:
            await bridge.grading.grade_rubric(**given)

    assert (refused.value.field, worker.requests) == (field, [])


async def test_a_reply_that_is_malformed_is_the_workers_fault(worker: CannedWorker, address: str) -> None:
    """A score that is no number names its path."""
    grade = pb.RubricGrade(
        grade=pb.Grade(verdict=1),  # pyright: ignore[reportArgumentType]
        criteria=[pb.CriterionScore(name="clear", score=float("nan"))],
    )
    worker.replies["GradeRubric"] = pb.GradeRubricResponse(grades=[grade])
    async with crucible_bridge.connect(address) as bridge:
        with pytest.raises(InternalError, match=r"grades\[0\].criteria\[0\].score"):
            await bridge.grading.grade_rubric("openai:s/m", [ITEM], [CRITERION])
