"""GradingService over the wire: verdicts in their order, what is refused, what is told afterwards."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest
import pytest_asyncio

from crucible_bridge.errors import Code, DeadlineExceeded
from crucible_bridge.events import EventKind
from crucible_bridge.types import (
    BoxedForm,
    ChoiceScorer,
    FormatScorer,
    GradeItem,
    JsonSchemaForm,
    MarksForm,
    MathPolicy,
    NumericScorer,
    RegexScorer,
    ScoreOptions,
    TextScorer,
    Verdict,
)
from crucible_bridge.v1 import grading_pb2 as pb
from crucible_bridge.v1 import grading_pb2_grpc
from crucible_worker.grading.base import MAX_EXTRACTED_CHARS, MAX_TEXT_BYTES
from crucible_worker.grading.json_schema import MAX_STEPS
from crucible_worker.rpc.grading import LARGE_REQUEST_BYTES, SLICE_SECONDS
from crucible_worker.testing import RunningWorker, record_events
from tests.service.evaluation_kit import refused
from tests.service.grading_kit import GRADING, HARD, grading_worker, math_item
from tests.tables import rows

pytestmark = [pytest.mark.core, pytest.mark.asyncio(loop_scope="module")]

CORRECT, INCORRECT, UNDECIDED = Verdict.CORRECT, Verdict.INCORRECT, Verdict.UNDECIDED
MAX_ITEMS = 600
FIXED = (
    *("max_answer_bytes", "max_math_chars", "max_math_digits", "max_math_targets", "max_score_targets"),
    *("max_math_cpu_seconds", "max_math_clock_seconds"),
    *("max_choices", "max_marks", "max_schema_bytes", "max_pattern_chars", "max_code_tests"),
    *("max_judged_chars", "max_rubric_criteria"),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker() -> AsyncIterator[RunningWorker]:
    """A worker that grades."""
    async with grading_worker(max_grading_items=MAX_ITEMS) as worker:
        yield worker


@pytest.fixture
def grading(worker: RunningWorker) -> Any:
    """Its graders."""
    return worker.bridge.grading


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stub(worker: RunningWorker) -> AsyncIterator[Any]:
    """The generated stub, for what the client would not send."""
    async with grpc.aio.insecure_channel(worker.address) as channel:
        yield grading_pb2_grpc.GradingServiceStub(channel)


def verdicts(grades: Any) -> list[Verdict]:
    """Of each grade."""
    return [grade.verdict for grade in getattr(grades, "grades", grades)]


async def test_each_item_has_its_grade(grading: Any):
    """In the order given, ids echoed; identical, equal, different and meaningless ones are told apart."""
    items = [
        GradeItem(id="same", answer="x^2", targets=("x^2",)),
        GradeItem(id="equal", answer="(x+1)^2", targets=("x^2+2x+1",)),
        GradeItem(id="other", answer="7", targets=("8",)),
        GradeItem(id="any", answer="0.5", targets=("1/3", "1/2")),
        GradeItem(id="empty", answer="5", targets=("",)),
        GradeItem(id="nothing", answer="", targets=("5",)),
    ]

    result = await grading.grade_math(items)

    assert [grade.id for grade in result.grades] == [item.id for item in items]
    assert verdicts(result) == [CORRECT, CORRECT, INCORRECT, CORRECT, UNDECIDED, INCORRECT]
    assert [grade.score for grade in result.grades] == [1.0, 1.0, 0.0, 1.0, None, 0.0]
    assert all(grade.duration_ns >= 0 and grade.problem is None for grade in result.grades)
    assert result.grades[0].method == "literal"
    assert result.grades[4].reason
    assert result.policy_version


async def test_the_answer_is_extracted_from_a_response(grading: Any):
    """An answer alone is taken whole."""
    text = "Half of 5 is 2.5, so the answer is \\boxed{\\frac{5}{2}}."

    from_response, from_answer = (
        await grading.grade_math(
            [GradeItem(response=text, targets=("2.5",)), GradeItem(answer="\\frac{5}{2}", targets=("2.5",))]
        )
    ).grades

    assert (from_response.verdict, from_response.extraction) == (CORRECT, "box")
    assert (from_response.extracted, from_answer.extracted) == ("\\frac{5}{2}",) * 2
    assert (from_answer.verdict, from_answer.extraction) == (CORRECT, "whole")


async def test_the_policy_of_a_call_holds_for_it(grading: Any):
    """Rules that are not said have their defaults."""
    pairs = [("1/3", "0.333"), ("(1,2)", "\\{1,2\\}")]

    assert verdicts(await grading.grade_math(pairs)) == [INCORRECT, INCORRECT]
    assert verdicts(await grading.grade_math(pairs, MathPolicy(rounding_digits=3))) == [CORRECT, INCORRECT]
    assert verdicts(await grading.grade_math(pairs, MathPolicy(tuple_or_set=True))) == [INCORRECT, CORRECT]


async def test_bytes_that_are_no_text_cost_nobody_anything(stub: Any):
    """They become U+FFFD in their own item, whose reason says so."""
    items = [math_item(b"5", "5"), math_item(b"\xff5", "5"), math_item(b"5", "5")]

    grades = (await stub.GradeMath(pb.GradeMathRequest(items=items))).grades
    scores = (await stub.Score(pb.ScoreRequest(items=items, options=pb.ScoreOptions(contains=pb.TextScorer())))).grades
    answers = (await stub.ExtractAnswer(pb.ExtractAnswerRequest(responses=[b"\xff \\boxed{5}", b"5"]))).answers

    for found in (grades, scores):
        assert (found[0].verdict, found[2].verdict) == (1, 1)
        assert "U+FFFD: 1" in found[1].reason
        assert "U+FFFD" not in found[0].reason + found[2].reason
    assert (answers[0].answer, "U+FFFD: 1" in answers[0].reason, answers[1].reason) == ("5", True, "")


async def test_an_answer_beyond_the_limit_is_not_read(worker: RunningWorker, grading: Any):
    """It is one byte too long, and its neighbours have their grades; the limit is told by GetInfo."""
    pad = " " * (MAX_TEXT_BYTES - 1)
    items = [("5", pad + "5"), ("5", pad + " 5"), ("5", "5")]

    graded = await grading.grade_math(items)
    assert verdicts(graded) == [CORRECT, INCORRECT, CORRECT]
    assert graded.grades[1].method == "too_long"
    assert verdicts(await grading.score(items, "contains")) == [CORRECT, INCORRECT, CORRECT]
    within, beyond = await grading.extract_answers([pad + "5", pad + " 5"])
    assert (within.answer, within.problem, beyond.answer) == ("5", None, "")
    assert beyond.problem is not None
    assert beyond.problem.reason == "RESPONSE_TOO_LONG"
    assert (await worker.bridge.worker.get_info()).limits["max_answer_bytes"] == MAX_TEXT_BYTES


async def test_a_replaced_sequence_counts_as_what_it_became(stub: Any):
    """Three bytes each, of an answer as of a response; one more than the limit holds is not read."""
    fitting = MAX_TEXT_BYTES // 3
    items = [math_item(b"\xff" * fitting, "5"), math_item(b"\xff" * (fitting + 1), "5")]

    request = pb.ScoreRequest(items=items, options=pb.ScoreOptions(exact_match=pb.TextScorer()))

    assert ["longer than" in grade.reason for grade in (await stub.Score(request)).grades] == [False, True]


@rows("targets", [("", "5"), ("5", " "), ("\x00", "5"), ("\x00",), ("5", "\u200b")])
async def test_a_blank_target_leaves_its_item_undecided(grading: Any, targets: tuple[str, ...]):
    """Whatever the answer and the other targets, by every grader; the neighbours have their grades."""
    items = [GradeItem(answer="5", targets=targets), GradeItem(answer=targets[0], targets=targets)]
    items.append(GradeItem(answer="5", targets=("5",)))

    for grades in (await grading.grade_math(items), await grading.score(items, "exact_match")):
        assert verdicts(grades) == [UNDECIDED, UNDECIDED, CORRECT]


async def test_fixed_limits_are_told(worker: RunningWorker):
    """Those that no setting changes stand in GetInfo beside those that one does."""
    from crucible_worker.grading import base, choice, format, json_schema, patterns, pool
    from crucible_worker.grading.code import grader as code
    from crucible_worker.grading.judge import rubric
    from crucible_worker.grading.math import grader, lexer, quantities

    limits = (await worker.bridge.worker.get_info()).limits

    assert {name: limits.get(name) for name in FIXED} == {
        "max_answer_bytes": base.MAX_TEXT_BYTES,
        "max_math_chars": lexer.MAX_CHARS,
        "max_math_digits": quantities.MAX_DIGITS,
        "max_math_targets": grader.MAX_TARGETS,
        "max_math_cpu_seconds": pool.SLOW_SECONDS,
        "max_math_clock_seconds": pool.CLOCK_FACTOR * pool.SLOW_SECONDS,
        "max_score_targets": base.MAX_TARGETS,
        "max_choices": choice.MAX_CHOICES,
        "max_marks": format.MAX_MARKS,
        "max_schema_bytes": json_schema.MAX_SCHEMA_BYTES,
        "max_pattern_chars": patterns.MAX_PATTERN_CHARS,
        "max_code_tests": code.MAX_TESTS,
        "max_judged_chars": rubric.MAX_JUDGED_CHARS,
        "max_rubric_criteria": rubric.MAX_CRITERIA,
    }


async def test_a_batch_at_its_limit_is_graded_and_one_beyond_is_refused(worker: RunningWorker, grading: Any):
    """Of every call; the limit is told by GetInfo."""
    pairs = [("5", "5")] * MAX_ITEMS

    assert verdicts(await grading.grade_math(pairs)) == [CORRECT] * MAX_ITEMS
    assert verdicts(await grading.score(pairs, "exact_match")) == [CORRECT] * MAX_ITEMS
    assert len(await grading.extract_answers(["5"] * MAX_ITEMS)) == MAX_ITEMS
    for call, field in (
        (grading.grade_math([*pairs, ("5", "5")]), "items"),
        (grading.score([*pairs, ("5", "5")], "exact_match"), "items"),
        (grading.extract_answers(["5"] * (MAX_ITEMS + 1)), "responses"),
    ):
        await refused(call, Code.INVALID_ARGUMENT, "INVALID_FIELD", field)
    assert (await worker.bridge.worker.get_info()).limits["max_grading_items"] == MAX_ITEMS


@rows(
    ("call", "field"),
    [
        (lambda stub: stub.GradeMath(pb.GradeMathRequest()), "items"),
        (lambda stub: stub.GradeMath(pb.GradeMathRequest(items=[math_item(b"5")])), "items[0].targets"),
        (
            lambda stub: stub.GradeMath(
                pb.GradeMathRequest(items=[math_item(b"5", "5")], policy=pb.MathPolicy(rounding_digits=-1))
            ),
            "policy.rounding_digits",
        ),
        (lambda stub: stub.ExtractAnswer(pb.ExtractAnswerRequest()), "responses"),
        (lambda stub: stub.Score(pb.ScoreRequest(items=[math_item(b"5", "5")])), "options"),
    ],
)
async def test_what_is_malformed_is_refused_at_its_field(stub: Any, call: Any, field: str):
    """The whole call, as its structure is wrong."""
    from crucible_bridge.status import from_rpc_error

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(stub)

    error = from_rpc_error(caught.value)
    assert (error.code, error.reason, error.field) == (Code.INVALID_ARGUMENT, "INVALID_FIELD", field)


async def test_a_schema_that_is_none_is_refused(grading: Any):
    """Of the whole call, before anything is scored."""
    call = grading.score([("", "5")], FormatScorer(JsonSchemaForm('{"type": "thing"}')))

    await refused(call, Code.INVALID_ARGUMENT, "INVALID_SCHEMA", "options.format.json_schema")


async def test_choices_that_cannot_be_told_apart_are_refused(grading: Any):
    """Of the whole call, at the choice that is wrong."""
    call = grading.score([("A", "A")], ChoiceScorer(choices=("red", "blue", "red")))

    await refused(call, Code.INVALID_ARGUMENT, "INVALID_FIELD", "options.multiple_choice.choices[2]")


async def test_bytes_that_are_no_request_are_malformed(worker: RunningWorker):
    """That is the caller's fault, whatever the size."""
    from crucible_bridge.status import from_rpc_error

    async with grpc.aio.insecure_channel(worker.address) as channel:
        for name in ("GradeMath", "ExtractAnswer", "Score", "ExtractCode"):
            for data in (b"\xff", b"\xff" * LARGE_REQUEST_BYTES):
                call: Any = channel.unary_unary(f"/{GRADING}/{name}", None, None)
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call(data)
                assert from_rpc_error(caught.value).reason == "MALFORMED_MESSAGE"


async def test_a_large_call_is_answered_as_small_ones(grading: Any):
    """What threads parse and write is what was sent, in order."""
    pairs = [(str(number), str(number + number % 2)) for number in range(MAX_ITEMS)]
    long = [("1", "1" + " " * LARGE_REQUEST_BYTES)]

    expected = [INCORRECT if number % 2 else CORRECT for number in range(MAX_ITEMS)]
    assert verdicts(await grading.grade_math(pairs + long[:0])) == expected
    assert verdicts(await grading.score(pairs, "exact_match")) == expected
    assert verdicts(await grading.grade_math(long)) == [CORRECT]


async def test_what_was_taken_for_the_answer_is_shown_in_part(grading: Any):
    """A grade holds its beginning, with an ellipsis; ExtractAnswer gives all."""
    answer = "1" * (MAX_EXTRACTED_CHARS + 1)
    response = f"\\boxed{{{answer}}}"

    (grade,) = (await grading.grade_math([GradeItem(response=response, targets=("5",))])).grades
    (extracted,) = await grading.extract_answers([response])

    assert (len(grade.extracted), grade.extracted[-1]) == (MAX_EXTRACTED_CHARS, "…")
    assert extracted.answer == answer


async def test_answers_are_found_by_their_kind(grading: Any):
    """Of each kind the last; where there is none, nothing is said."""
    answers = await grading.extract_answers(
        [
            "\\boxed{1}. No: \\boxed{2}",
            "The answer is 3.",
            "I take $x+1$ to be it",
            "There were 4 of them. Now there are 5 of them",
            "hm?",
        ]
    )

    assert [(found.extraction, found.answer) for found in answers[:4]] == [
        ("box", "2"),
        ("marker", "3"),
        ("math", "x+1"),
        ("number", "5"),
    ]


@rows(
    ("scorer", "right", "wrong"),
    [
        (TextScorer(kind="exact_match"), ("Paris", "paris"), ("Paris", "London")),
        (TextScorer(kind="contains"), ("Paris", "it is Paris."), ("Paris", "it is London.")),
        (TextScorer(kind="f1"), ("the red house", "a red house"), ("the red house", "cows")),
        (TextScorer(kind="bleu"), ("a b c d e", "a b c d e"), ("a b c d e", "v w x y z")),
        (TextScorer(kind="rouge"), ("a b c d e", "a b c d f"), ("a b c d e", "v w x y z")),
        (RegexScorer(full=True), ("[a-c]+", "abc"), ("[a-c]+", "xyz")),
        (NumericScorer(absolute_tolerance=0.5), ("2", "2.5"), ("2", "2.6")),
        (ChoiceScorer(choices=("red", "blue")), ("B", "blue"), ("B", "A")),
        (FormatScorer(BoxedForm()), ("", "\\boxed{1}"), ("", "1")),
        (FormatScorer(MarksForm(("Step 1", "Answer"))), ("", "Step 1: x. Answer: 1"), ("", "Answer: 1. Step 1")),
        (FormatScorer(JsonSchemaForm('{"type": "integer"}')), ("", "5"), ("", '"five"')),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
async def test_every_scorer_scores(grading: Any, scorer: Any, right: tuple[str, str], wrong: tuple[str, str]):
    """One answer that it takes for right, and one that it does not."""
    items = [GradeItem(response=said, targets=(target,) if target else ()) for target, said in (right, wrong)]

    grades = await grading.score(items, scorer)

    assert verdicts(grades) == [CORRECT, INCORRECT]
    assert [grade.score for grade in grades] == [pytest.approx(grades[0].score), 0.0]


@rows(
    ("grader", "options", "pair"),
    [
        ("numeric", {"relative_tolerance": 0.1}, ("10", "about 10.5")),
        ("multiple_choice", {"choices": ["red", "blue"]}, ("blue", "It is B.")),
        ("math", {"rounding_digits": 2}, ("0.3333333", "so \\boxed{0.33}")),
    ],
)
async def test_a_named_grader_scores(grading: Any, grader: str, options: Any, pair: tuple[str, str]):
    """One that decides at once, and one that asks the worker's processes."""
    grades = await grading.score([pair, (pair[0], "?")], ScoreOptions(grader=grader, grader_options=options))

    assert grades[0].verdict is CORRECT, grades[0]
    assert grades[1].verdict is not CORRECT
    assert {grade.method for grade in grades} == {grader}


async def test_a_threshold_decides_what_is_correct(grading: Any):
    """A score below it, but above 0, is partial."""
    pairs = [("v b c d", "v b x y")]

    for threshold, verdict in ((0.5, CORRECT), (0.51, Verdict.PARTIAL)):
        (grade,) = await grading.score(pairs, ScoreOptions(scorer=TextScorer(kind="f1"), threshold=threshold))
        assert (grade.verdict, grade.score) == (verdict, 0.5)


async def test_each_call_that_grades_is_told_of(worker: RunningWorker, grading: Any):
    """GRADING_COMPLETE counts what was found, and belongs to no evaluation; extraction grades nothing."""
    began = time.time_ns()
    async with record_events(worker.bridge) as log:
        result = await grading.grade_math([("1", "1"), ("1", "2"), ("", "1")])
        await grading.extract_answers(["1"])
        await grading.score([("1", "1")], "exact_match")
        await log.wait_for(lambda event: event.unix_time_ns > began and event.metadata.get("call") == "Score")

    graded, scored = [event for event in log.events if event.unix_time_ns > began]
    assert {graded.kind, scored.kind} == {EventKind.GRADING_COMPLETE}
    assert dict(graded.measurements) == {"count": 3.0, "correct": 1.0, "unscored": 1.0}
    assert dict(graded.metadata) == {"call": "GradeMath", "policy_version": result.policy_version}
    assert dict(scored.measurements) == {"count": 1.0, "correct": 1.0, "unscored": 0.0}
    assert graded.duration_ns > 0
    assert (graded.evaluation_id, graded.unix_time_ns > 0) == ("", True)


async def test_a_deadline_ends_a_call_and_nothing_else(grading: Any):
    """The caller is answered in time, and the next call finds everything in order."""
    slow = [(f"{HARD}+{number}", f"{HARD}+{number}+z") for number in range(MAX_ITEMS)]

    with pytest.raises(DeadlineExceeded):
        await grading.grade_math(slow, timeout=0.2)

    assert verdicts(await grading.grade_math([("1/2", "0.5")])) == [CORRECT]


async def test_calls_that_have_ended_hold_nobody_up(grading: Any):
    """Each thread of theirs looks after the item it is at whether anyone still waits."""
    doubling = {f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(40)}
    schema = json.dumps({"$defs": {**doubling, "d40": True}, "$ref": "#/$defs/d0"})
    scorer = FormatScorer(JsonSchemaForm(schema))
    (grade,) = await grading.score([("", "1")], scorer)
    assert f"more than {MAX_STEPS:,} steps" in grade.reason
    item_seconds = grade.duration_ns / 1e9

    ended = [grading.score([("", "1")] * MAX_ITEMS, scorer, timeout=0.3) for _ in range(4)]
    for outcome in await asyncio.gather(*ended, return_exceptions=True):
        assert isinstance(outcome, DeadlineExceeded)
    began = time.perf_counter()
    assert verdicts(await grading.score([("5", "5")], "exact_match")) == [CORRECT]
    assert (await grading.extract_answers(["5"]))[0].answer == "5"

    # Were each held by one chunk of all its items, it would be hundreds of times as long.
    assert time.perf_counter() - began < 30 * (item_seconds + SLICE_SECONDS)


async def test_a_call_that_is_cancelled_leaves_everything_in_order(grading: Any):
    """Whoever comes next is graded."""
    slow = [(f"{HARD}+{number}", f"{HARD}-{number}+z") for number in range(MAX_ITEMS)]
    call = asyncio.create_task(grading.grade_math(slow))
    other = asyncio.create_task(grading.grade_math([("1/2", "0.5")]))

    assert verdicts(await other) == [CORRECT]
    call.cancel()
    await asyncio.wait((call,))

    assert verdicts(await grading.grade_math([("1/2", "0.5")])) == [CORRECT]


async def test_calls_run_side_by_side(grading: Any):
    """Answers are not mixed up."""
    calls = [grading.grade_math([(f"x+{number}", f"{number}+x"), ("1", "2")]) for number in range(32)]

    for result in await asyncio.gather(*calls):
        assert verdicts(result) == [CORRECT, INCORRECT]
