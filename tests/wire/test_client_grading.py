"""The grading client against canned replies: what it sends, and what it makes of what comes back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge import codec
from crucible_bridge.errors import InternalError, InvalidField
from crucible_bridge.types import (
    ExtractedAnswer,
    ExtractedProgram,
    Grade,
    GradeItem,
    MathGrades,
    MathPolicy,
    NumericScorer,
    Problem,
    ScoreOptions,
    TextScorer,
    Verdict,
)
from crucible_bridge.v1 import grading_pb2 as pb
from tests.tables import rows
from tests.wire.conftest import CannedWorker

GRADES = (
    Grade(id="a", verdict=Verdict.CORRECT, score=1.0, extracted="1/2", extraction="box", method="rational"),
    Grade(verdict=Verdict.UNDECIDED, reason="the target is empty", duration_ns=1_000),
    Grade(verdict=Verdict.ERROR, problem=Problem(reason="GRADER_FAILED", message="died", retryable=True)),
)
ITEM = GradeItem(id="a", response="so \\boxed{1/2}", targets=("1/2", "0.5"))


@pytest.fixture
def grades(worker: CannedWorker) -> MathGrades:
    """What the worker answers to GradeMath."""
    grades = MathGrades(grades=GRADES, policy_version="7")
    worker.replies["GradeMath"] = codec.math_grades_to_v1(grades)
    return grades


async def test_grades_come_back_as_they_are(worker: CannedWorker, address: str, grades: MathGrades):
    """Verdicts, absent scores and problems are those of the worker; items and policy are sent whole."""
    policy = MathPolicy(rounding_digits=3, degrees=False)

    async with crucible_bridge.connect(address) as bridge:
        assert await bridge.grading.grade_math([ITEM], policy=policy) == grades

    ((_, request),) = worker.requests
    decoded = codec.grade_math_request_from_v1(request)
    assert (decoded.items, decoded.policy) == ((ITEM,), policy)


async def test_pairs_are_items(worker: CannedWorker, address: str, grades: MathGrades):
    """A pair is a target, or several, and an answer; without a policy the default one holds."""
    async with crucible_bridge.connect(address) as bridge:
        await bridge.grading.grade_math([("1/2", "0.5"), (["1", "one"], "1")])

    decoded = codec.grade_math_request_from_v1(worker.requests[0][1])
    assert decoded.items == (GradeItem(answer="0.5", targets=("1/2",)), GradeItem(answer="1", targets=("1", "one")))
    assert decoded.policy == MathPolicy()


@rows(
    ("items", "field"),
    [
        (["1/2"], "items[0]"),
        ([("1", "1"), ("1", "1", "1")], "items[1]"),
        ([("1", "1"), 5], "items[1]"),
        ([(5, "5")], "items[0].targets"),
        ([(b"5", "5")], "items[0].targets"),
        ([(("5", b"5"), "5")], "items[0].targets[1]"),
        ([("1", "1"), ("5", 5)], "items[1].answer"),
        ([("5", "\ud800"), ("\ud800", "5")], "items[1].targets[0]"),
        (None, "items"),
        (GradeItem(answer="5", targets=("5",)), "items"),
        ("5", "items"),
    ],
)
async def test_what_is_no_item_is_refused_before_it_is_sent(items: Any, field: str, worker: CannedWorker, address: str):
    """The field says which one."""
    async with crucible_bridge.connect(address) as bridge:
        with pytest.raises(InvalidField) as refused:
            await bridge.grading.grade_math(items)

    assert refused.value.field == field
    assert worker.requests == []


async def test_answers_are_extracted(worker: CannedWorker, address: str):
    """Responses are sent as bytes, answers come back in their order."""
    answers = (
        ExtractedAnswer(answer="5", extraction="number"),
        ExtractedAnswer(problem=Problem(reason="RESPONSE_TOO_LONG", message="is too long")),
    )
    worker.replies["ExtractAnswer"] = codec.extracted_answers_to_v1(answers)

    async with crucible_bridge.connect(address) as bridge:
        assert await bridge.grading.extract_answers(["it is 5 \u20ac", "x"]) == answers
        for wrong in ("it is 5", b"it is 5", None):
            with pytest.raises(InvalidField, match=r"^responses "):
                await bridge.grading.extract_answers(wrong)  # pyright: ignore[reportArgumentType]

    assert [list(request.responses) for _, request in worker.requests] == [["it is 5 \u20ac".encode(), b"x"]]


async def test_programs_are_extracted(worker: CannedWorker, address: str):
    """Responses are sent as bytes with the names, programs come back in their order."""
    programs = (
        ExtractedProgram(program="x = 1", extraction="whole"),
        ExtractedProgram(problem=Problem(reason="RESPONSE_TOO_LONG", message="is too long")),
    )
    worker.replies["ExtractCode"] = codec.extracted_programs_to_v1(programs)

    async with crucible_bridge.connect(address) as bridge:
        assert await bridge.grading.extract_code(["x = 1", "\u20ac"], ["x"]) == programs

    ((_, request),) = worker.requests
    assert (list(request.responses), list(request.names)) == ([b"x = 1", "\u20ac".encode()], ["x"])
    assert request.language == "python3"


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("f1", ScoreOptions(scorer=TextScorer(kind="f1"))),
        (NumericScorer(absolute_tolerance=0.5), ScoreOptions(scorer=NumericScorer(absolute_tolerance=0.5))),
        (ScoreOptions(scorer=TextScorer(kind="rouge"), threshold=0.25),) * 2,
    ],
)
async def test_a_scorer_is_named_short_or_long(given: Any, sent: ScoreOptions, worker: CannedWorker, address: str):
    """A name and a scorer alone are options with their defaults."""
    worker.replies["Score"] = codec.scores_to_v1(GRADES)

    async with crucible_bridge.connect(address) as bridge:
        assert await bridge.grading.score([ITEM], given) == GRADES

    decoded = codec.score_request_from_v1(worker.requests[0][1])
    assert (decoded.items, decoded.options) == ((ITEM,), sent)


async def test_a_name_that_is_no_scorer_is_refused(address: str):
    """Before anything is sent, with the names that there are."""
    anything: Any = "f2"
    async with crucible_bridge.connect(address) as bridge:
        with pytest.raises(InvalidField, match=r"^options.*'f2'.*: exact_match, contains, f1, bleu, rouge, regex as "):
            await bridge.grading.score([ITEM], anything)


async def test_a_reply_without_a_verdict_is_no_fault_of_the_request(worker: CannedWorker, address: str):
    """A malformed reply is an InternalError that says where."""
    worker.replies["GradeMath"] = pb.GradeMathResponse(grades=[pb.Grade()])

    async with crucible_bridge.connect(address) as bridge:
        with pytest.raises(InternalError, match=r"grades\[0\]\.verdict"):
            await bridge.grading.grade_math([ITEM])


async def test_the_blocking_twin_grades_too(address: str, grades: MathGrades):
    """Without a second implementation."""

    def use() -> None:
        with crucible_bridge.connect_sync(address) as bridge:
            assert bridge.grading.grade_math([("1", "1")]) == grades
            assert {"grade_math", "extract_answers", "extract_code", "score"} <= set(dir(bridge.grading))

    await asyncio.wait_for(asyncio.to_thread(use), 20)
