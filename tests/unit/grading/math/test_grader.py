"""The grader of math around the mathematics: what it decides itself, what it asks, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest

from crucible_bridge.errors import FailedPrecondition, Unavailable
from crucible_bridge.types import Grade, GradeItem, MathPolicy, Verdict
from crucible_worker.grading.base import MAX_INLINE_CHARS, MAX_TEXT_BYTES
from crucible_worker.grading.children import ChildResult
from crucible_worker.grading.fanout.graders import math_grader_of
from crucible_worker.grading.math import grader as grader_module
from crucible_worker.grading.math.grader import (
    _ITEMS_A_PASS,
    _ITEMS_A_TURN,
    MAX_TARGETS,
    WHOLE_MARGIN,
    MathGrader,
    MathOptions,
)
from crucible_worker.grading.math.judging import Judgement, Question, give_up, judge, prove, search
from crucible_worker.grading.pool import GradingPool
from crucible_worker.util.options import checked_options, schema_of
from tests.tables import rows

MILLISECOND = 1_000_000
RIGHT = Judgement(Verdict.CORRECT, "identity", "")
WRONG = Judgement(Verdict.INCORRECT, "identity", "they differ at x = 2")
OPEN = Judgement(None, "identity", "", b"to be proven")
UNPROVEN = Judgement(Verdict.UNDECIDED, "symbolic", "equal as far as numbers tell")


@dataclasses.dataclass
class ScriptedPool:
    """Answers as it is told, in place of children, and remembers what it was asked."""

    judged: Mapping[str, ChildResult] = dataclasses.field(default_factory=dict)
    """By the answer of the question; any other is wrong."""
    proof: ChildResult = dataclasses.field(default_factory=ChildResult)
    """Of whatever is to be proven."""
    failure: Exception | None = None
    """Of every call."""
    asked: list[Question] = dataclasses.field(default_factory=list)
    proofs: int = 0
    searched: list[str] = dataclasses.field(default_factory=list)

    async def map(
        self, function: Callable[[Any], Any], items: Sequence[Any], weigh: Callable[[Any], int] = lambda item: 0
    ) -> list[ChildResult]:
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        if function is give_up:
            return [said(UNPROVEN) for _ in items]
        if function is search:
            self.searched += items
            return [
                self.judged.get("search", ChildResult(value=("7x", "box", ""), duration_ns=MILLISECOND)) for _ in items
            ]
        assert function is judge
        self.asked += items
        return [self.judged.get(item.answer, said(WRONG)) for item in items]

    async def run(self, function: Callable[[Any], Any], item: Any) -> ChildResult:
        assert (function, item) == (prove, OPEN.pending)
        self.proofs += 1
        return self.proof


def said(judgement: Judgement) -> ChildResult:
    """What a child says, in a millisecond."""
    return ChildResult(value=judgement, duration_ns=MILLISECOND)


def grader_on(pool: ScriptedPool) -> MathGrader:
    """A grader of its own cache."""
    return MathGrader(cast("GradingPool", pool))


async def graded(pool: ScriptedPool, *items: GradeItem, policy: MathPolicy | None = None) -> list[Grade]:
    """Grades of items by a fresh grader."""
    return await MathGrader(cast("GradingPool", pool)).grade_batch(items, policy)


def item(answer: str, *targets: str, identity: str = "") -> GradeItem:
    """An answer given alone."""
    return GradeItem(id=identity, answer=answer, targets=targets)


async def test_grades_are_in_the_order_of_the_items():
    """Whoever decides, and however often something is asked, each item has its grade in its place, under its id."""
    pool = ScriptedPool({"2x": said(RIGHT), "open": said(OPEN)}, proof=said(RIGHT))
    items = [
        item("2x", "x+x", identity="a"),
        item("7", "7", identity="b"),
        item("3x", "x+x", identity="c"),
        item("2x", "x+x", identity="d"),
        item("open", "x+x", identity="e"),
        item("8", "7", identity="f"),
    ]

    grades = await graded(pool, *items)

    assert [grade.id for grade in grades] == list("abcdef")
    assert [grade.verdict for grade in grades] == [
        Verdict.CORRECT,
        Verdict.CORRECT,
        Verdict.INCORRECT,
        Verdict.CORRECT,
        Verdict.CORRECT,
        Verdict.INCORRECT,
    ]
    assert [grade.score for grade in grades] == [1.0, 1.0, 0.0, 1.0, 1.0, 0.0]
    assert [grade.method for grade in grades] == ["identity", "literal", "identity", "identity", "identity", "literal"]
    assert [question.answer for question in pool.asked] == ["2x", "3x", "open"]


async def test_an_answer_is_taken_whole_and_found_in_a_response():
    """What is given as an answer is not searched; in a response the answer is looked for, and how is told."""
    pool = ScriptedPool()

    grades = await graded(
        pool,
        GradeItem(answer="so x is y", targets=("y",)),
        GradeItem(response=r"so it is \boxed{\frac{1}{2}}.", targets=(r"\frac{1}{2}",)),
    )

    assert [(grade.extracted, grade.extraction) for grade in grades] == [
        ("so x is y", "whole"),
        (r"\frac{1}{2}", "box"),
    ]


async def test_a_response_about_as_long_as_a_target_is_asked_about_as_a_whole():
    """What is said goes along with the answer, its thinking left aside, unless it is far longer than any target."""
    pool = ScriptedPool()
    target = "The sum is less than zero, by 3."

    await graded(
        pool,
        GradeItem(response="<think>7</think>" + target, targets=(target,)),
        GradeItem(response=target + " w" * (len(target) + WHOLE_MARGIN), targets=("x", target)),
        GradeItem(response=target + r" \boxed{3}", targets=(target,)),
    )

    assert [(question.answer, question.whole) for question in pool.asked] == [("3", target), ("3", ""), ("3", "")]


async def test_a_response_written_like_its_target_is_right_at_once():
    """No child is asked where a response is a target, though its answer is not."""
    pool = ScriptedPool()

    (grade,) = await graded(pool, GradeItem(response="$221,$8$", targets=("$221,$8$",)))

    assert (grade.verdict, grade.extracted, pool.asked) == (Verdict.CORRECT, "8", [])


async def test_a_long_response_is_searched_by_a_child():
    """Beyond what the event loop can stand still for, a child looks for the answer, and its time is counted."""
    pool = ScriptedPool({"7x": said(RIGHT)})
    long, short = " " * MAX_INLINE_CHARS + r"\boxed{x}", " " * (MAX_INLINE_CHARS - 9) + r"\boxed{x}"

    first, second = await graded(
        pool, GradeItem(response=long, targets=("x+0",)), GradeItem(response=short, targets=("x+0",))
    )

    assert pool.searched == [long]
    assert (first.extracted, first.extraction, first.verdict) == ("7x", "box", Verdict.CORRECT)
    assert first.duration_ns >= 2 * MILLISECOND
    assert (second.extracted, second.extraction) == ("x", "box")


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (ChildResult(lost="timeout", duration_ns=MILLISECOND), Verdict.UNDECIDED),
        (ChildResult(error="bug"), Verdict.ERROR),
    ],
)
async def test_a_response_that_cannot_be_searched_costs_only_itself(answer, verdict):
    """Where the child is lost over the search, the item is undecided; where it failed, the item is an error."""
    pool = ScriptedPool({"search": answer})

    lost, kept = await graded(
        pool, GradeItem(response="x" * (MAX_INLINE_CHARS + 1), targets=("x",)), item("7", "7", identity="kept")
    )

    assert (lost.verdict, lost.extracted) == (verdict, "")
    assert kept.verdict is Verdict.CORRECT


async def test_a_question_is_asked_once():
    """What was found is known when it is asked again, under the same policy only."""
    pool = ScriptedPool({"2x": said(RIGHT)})
    grader = grader_on(pool)

    for _ in range(3):
        (grade,) = await grader.grade_batch([item("2x", "x+x")])
        assert grade.verdict is Verdict.CORRECT
    await grader.grade_batch([item("2x", "x+x")], MathPolicy(rename_variables=True))

    assert len(pool.asked) == 2


@rows("lost", ["timeout", "stalled", "memory", "died"])
async def test_what_a_child_was_lost_over_is_undecided(lost):
    """The grade says why, and the time it took; as it may end otherwise another time, it is not remembered."""
    pool = ScriptedPool({"2x": ChildResult(lost=lost, duration_ns=300 * MILLISECOND)})
    grader = grader_on(pool)

    for _ in range(2):
        (grade,) = await grader.grade_batch([item("2x", "x+x")])
        assert (grade.verdict, grade.score, grade.problem) == (Verdict.UNDECIDED, None, None)
        assert (grade.method, bool(grade.reason)) == ("limit", True)
        assert grade.duration_ns >= 300 * MILLISECOND

    assert len(pool.asked) == 2


async def test_a_proof_that_does_not_end_leaves_what_numbers_said():
    """Without a proof the verdict is that of the numbers, with both reasons, and the time of all tries."""
    pool = ScriptedPool({"2x": said(OPEN)}, proof=ChildResult(lost="timeout", duration_ns=300 * MILLISECOND))

    (grade,) = await graded(pool, item("2x", "x+x"))

    assert (grade.verdict, grade.method) == (Verdict.UNDECIDED, "symbolic")
    assert grade.reason == "equal as far as numbers tell; it took longer than 0.3 s of processor time"
    assert grade.duration_ns >= 302 * MILLISECOND


async def test_a_bug_of_ours_is_an_error_with_a_problem():
    """What a function raises is an ERROR that says nothing of what the model wrote, and is not remembered."""
    pool = ScriptedPool({"2x": ChildResult(error="KeyError: '2x'", trace="...")})
    grader = grader_on(pool)

    for _ in range(2):
        (grade,) = await grader.grade_batch([item("2x", "x+x")])
        assert (grade.verdict, grade.score) == (Verdict.ERROR, None)
        assert grade.problem is not None
        assert grade.problem.reason == "GRADER_FAILED"
        assert "2x" not in grade.problem.message

    assert len(pool.asked) == 2


async def test_without_children_only_what_needs_them_fails():
    """A pool that does not work costs the items that need it, each with its problem; literal ones have their grade."""
    pool = ScriptedPool(failure=Unavailable("grading is closed", reason="GRADING_CLOSED", retryable=False))

    lost, kept = await graded(pool, item("2x", "x+x"), item("7", "7"))

    assert lost.verdict is Verdict.ERROR
    assert lost.problem is not None
    assert (lost.problem.reason, lost.problem.retryable) == ("GRADING_CLOSED", False)
    assert kept.verdict is Verdict.CORRECT


async def test_what_cannot_be_asked_is_undecided():
    """Without a target, with too many, or with targets that are too long nothing is asked: UNDECIDED, with a reason."""
    pool = ScriptedPool()

    grades = await graded(
        pool,
        item("x"),
        item("x", *["y"] * (MAX_TARGETS + 1)),
        item("x", "y" * (MAX_TEXT_BYTES + 1)),
        item("x" * (MAX_TEXT_BYTES + 1), "y" * (MAX_TEXT_BYTES + 1)),
        item("x" * (MAX_TEXT_BYTES + 1), " "),
    )

    assert {grade.verdict for grade in grades} == {Verdict.UNDECIDED}
    assert all(grade.reason for grade in grades)
    assert not pool.asked


async def test_a_text_beyond_the_bounds_is_not_sent():
    """Of an answer or response of more than `MAX_TEXT_BYTES` the children are sent the targets alone."""
    pool = ScriptedPool()
    long = "x" * (MAX_TEXT_BYTES + 1)

    grades = await graded(pool, item(long, "y"), GradeItem(response=long, targets=("y", "z")))

    assert [grade.verdict for grade in grades] == [Verdict.INCORRECT] * 2
    assert [(question.targets, question.answer, question.unsent) for question in pool.asked] == [
        (("y",), "", True),
        (("y", "z"), "", True),
    ]


async def test_what_is_just_within_bounds_is_asked():
    """At the limits of targets and size an item is still graded."""
    pool = ScriptedPool()

    grades = await graded(pool, item("x", *["y"] * MAX_TARGETS), item("x" * MAX_TEXT_BYTES, "y"))

    assert [grade.verdict for grade in grades] == [Verdict.INCORRECT] * 2
    assert len(pool.asked) == 2


async def test_a_cancelled_batch_leaves_the_grader_in_order():
    """A caller that goes away takes its batch along and nothing else."""
    pool = ScriptedPool({"2x": said(RIGHT)})
    grader = grader_on(pool)
    batch = asyncio.create_task(grader.grade_batch([item("2x", "x+x")] * 1_000))
    await asyncio.sleep(0)
    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch

    (grade,) = await grader.grade_batch([item("2x", "x+x")])

    assert grade.verdict is Verdict.CORRECT


async def test_a_long_batch_lets_others_run():
    """While thousands of items are read, whoever else waits for the event loop has it."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await graded(ScriptedPool(), *[item(str(number), "7") for number in range(4_000)])
    task.cancel()

    assert turns >= 10


async def test_the_grader_of_evaluations_judges_responses():
    """As a grader by name it judges one response with the policy of its options, on the worker's pool."""
    pool = ScriptedPool({"2x": said(RIGHT)})
    options = checked_options({"rounding_digits": 3.0, "degrees": False}, schema_of(MathOptions), "options")
    grader = math_grader_of(options, pool=cast("GradingPool", pool))

    grade = await grader.grade(r"thus \boxed{2x}", ["x+x"])

    assert (grade.verdict, grade.score) == (Verdict.CORRECT, 1.0)
    assert (grade.extracted, grade.extraction, grade.method) == ("2x", "box", "identity")
    assert pool.asked[0].policy == MathPolicy(rounding_digits=3, degrees=False)


def test_the_grader_of_evaluations_needs_a_pool():
    """It is refused as it is made, before anything is sampled."""
    with pytest.raises(FailedPrecondition, match="--grading-processes is 0") as caught:
        math_grader_of(checked_options({}, schema_of(MathOptions), "options"), pool=None)

    assert caught.value.reason == "NO_GRADING_POOL"


def test_options_are_the_policy():
    """The schema names every field of the policy, with its default, and nothing else."""
    defaults = {field.name: field.default for field in dataclasses.fields(MathPolicy)}

    assert checked_options({}, schema_of(MathOptions), "options") == defaults
    assert list(schema_of(MathOptions)["properties"]) == list(defaults)


async def test_a_fault_of_the_pool_stays_what_it_is() -> None:
    """An evaluation has to know that another attempt may go well."""
    pool = cast("GradingPool", ScriptedPool(failure=Unavailable("no child answers", reason="GRADING_POOL")))

    grade = await MathGrader(pool).grade("x + 1", ["1 + x"])

    assert grade.problem is not None
    assert (grade.verdict, grade.problem.reason, grade.problem.retryable) == (Verdict.ERROR, "GRADING_POOL", True)
    assert grade.reason == "no child answers"


async def test_calls_share_the_passes_of_the_event_loop(monkeypatch: pytest.MonkeyPatch):
    """However many calls are open, few items are read in one pass, so that a health check waits for no more."""
    passes, read_in = 0, collections.Counter[int]()
    literally = grader_module.literally

    def counted(*order: Any) -> Verdict | None:
        read_in[passes] += 1
        return literally(*order)

    monkeypatch.setattr(grader_module, "literally", counted)
    grader = MathGrader(cast("GradingPool", ScriptedPool()))
    items = [GradeItem(answer="1", targets=("1",))] * 210
    grading = asyncio.gather(*(grader.grade_batch(items) for _ in range(40)))
    while not grading.done():
        await asyncio.sleep(0)
        passes += 1

    assert {grade.verdict for grades in await grading for grade in grades} == {Verdict.CORRECT}
    assert read_in.total() == 40 * 210
    # The turn that reaches the limit is the last of its pass; renewal and turns may fall into one pass of this test.
    assert max(read_in.values()) <= 2 * (_ITEMS_A_PASS + _ITEMS_A_TURN)
