"""Graders that stay with the caller of an evaluation, next to a model of the worker or of the caller."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest
import structlog

import crucible_bridge
from crucible_bridge.codec.evaluation import evaluate_request_to_v1
from crucible_bridge.errors import BackendError, BridgeError, Code
from crucible_bridge.types import (
    AnsweredGrade,
    Dataset,
    EvaluationPlan,
    EvaluationState,
    EvaluatorSpec,
    GradeQuestion,
    Limits,
    PlannedEvaluation,
    Sample,
    SamplingParams,
    Verdict,
)
from crucible_bridge.v1 import evaluation_pb2 as pb
from crucible_bridge.v1 import orchestrator_pb2, types_pb2
from crucible_worker.server import Worker
from tests.service.caller_kit import Counting, asked, game
from tests.service.evaluation_kit import SHOUT, accuracy, numbered, refused, rig, samples_of
from tests.service.orchestrator_kit import Shouter, opened, stands
from tests.service.server_kit import settings_for
from tests.tables import rows

GRADER = 'evaluators[0].options["grader"]'


def start_of(request: Any, *graders: str, window: int = 8) -> pb.EvaluateWithOrchestratorModelRequest:
    """The first frame of a caller that has graders, and no model."""
    start = pb.OrchestratorStart(request=evaluate_request_to_v1(request), window=window, graders=graders)
    return pb.EvaluateWithOrchestratorModelRequest(start=start)


async def run(it: Any, request: Any, **fields: Any) -> Any:
    """An evaluation to its end, on what this process has."""
    return await it.evaluation.evaluate_with_orchestrator_model(request, **fields)


async def test_a_grader_of_the_caller_sees_the_sample_and_the_answer():
    """The question has the evaluator, the sample and the answer, and the grade is in the sample's result."""
    grader = Counting()
    sample = Sample(
        id="x", input="a", targets=("A",), choices=("A", "B"), choice_labels=("A", "B"), metadata={"level": "2"}
    )
    async with rig() as it:
        evaluation = await run(it, asked(dataset=[sample]), graders={"mine": grader})
        (result,) = await samples_of(it.worker.bridge)
    (question,) = grader.questions
    assert question == GradeQuestion(grader="mine", evaluator="accuracy", sample=sample, response="A")
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert (result.verdict, result.score, result.method) == (Verdict.CORRECT, 1.0, "caller")
    assert threading.get_ident() not in grader.threads


async def test_a_grader_that_no_evaluator_names_is_reported(caplog: Any):
    """By the client, and in the worker's log; one that is named is not."""
    with structlog.testing.capture_logs() as logs:
        async with rig() as it:
            graders = {"mine": Counting(), "other": Counting()}
            fields = asked(dataset=numbered(1), evaluators=[accuracy(grader="caller:mine")])
            await run(it, fields, graders=graders)
    told = [record.getMessage() for record in caplog.records if "is not used" in record.getMessage()]
    assert told == ['graders["other"] is not used: no evaluator has the option grader "caller:other"']
    found = [(log["kind"], log["name"]) for log in logs if log["event"] == "caller_part_not_used"]
    assert found == [("grader", "other")]


async def _slow(question: GradeQuestion) -> float:
    await asyncio.sleep(0)
    return 0.25


class _Callable:
    async def __call__(self, question: GradeQuestion) -> Verdict:
        return Verdict.INCORRECT


def _whole(question: GradeQuestion) -> AnsweredGrade:
    return AnsweredGrade(
        verdict=Verdict.PARTIAL, score=0.5, reason="half of it", extracted="a", measurements={"length": 1.0}
    )


@rows(
    ("grader", "verdict", "score", "method"),
    [
        (_slow, Verdict.PARTIAL, 0.25, "caller"),
        (_Callable(), Verdict.INCORRECT, 0.0, "caller"),
        (lambda question: 1, Verdict.CORRECT, 1.0, "caller"),
        (lambda question: False, Verdict.INCORRECT, 0.0, "caller"),
        (_whole, Verdict.PARTIAL, 0.5, "caller: half of it"),
    ],
)
async def test_a_grader_may_be_anything_that_is_called(grader: Any, verdict: Verdict, score: float, method: str):
    """Functions, coroutines and objects; truths, scores, verdicts and whole grades."""
    async with rig() as it:
        await run(it, asked(dataset=SHOUT[:1]), graders={"g": grader})
        (result,) = await samples_of(it.worker.bridge)
    assert (result.verdict, result.score, result.method) == (verdict, score, method)
    if grader is _whole:
        assert (result.extracted, result.measurements) == ("a", {"length": 1.0})


def _raises(question: GradeQuestion) -> bool:
    raise ValueError("a secret of the caller")


def _refuses(question: GradeQuestion) -> bool:
    raise BackendError("the compiler is missing", reason="NO_COMPILER", retryable=False)


@rows(
    ("grader", "reason", "message"),
    [
        (_raises, "BACKEND_FAILED", "ValueError in the caller's grader 'g'; see its log"),
        (_refuses, "NO_COMPILER", "the compiler is missing"),
        (lambda question: "right", "BACKEND_ANSWER", "returned a str"),
        (lambda question: 2.0, "BACKEND_ANSWER", "not from 0 to 1"),
        (lambda question: float("nan"), "BACKEND_ANSWER", "not from 0 to 1"),
        (lambda question: AnsweredGrade(), "BACKEND_ANSWER", "neither a verdict nor a score"),
        (lambda question: AnsweredGrade(verdict=Verdict.PARTIAL), "BACKEND_ANSWER", "partial without a score"),
        (lambda question: Verdict.MEASURED, "BACKEND_ANSWER", "measured"),
        (lambda question: AnsweredGrade(verdict=Verdict.ERROR, score=1.0), "BACKEND_ANSWER", "with a score"),
        (lambda question: AnsweredGrade(verdict=Verdict.ERROR, reason="it hung"), "GRADER_FAILED", "it hung"),
    ],
)
async def test_a_grader_that_fails_costs_its_sample_alone(grader: Any, reason: str, message: str):
    """The verdict is ERROR with the reason, next to the answer, and the other evaluator stands."""
    async with rig() as it:
        request = asked(evaluators=[accuracy("mine", grader="caller:g"), accuracy("theirs")], dataset=SHOUT[:1])
        evaluation = await run(it, request, graders={"g": grader})
        mine, theirs = await samples_of(it.worker.bridge)
    assert evaluation.state is EvaluationState.COMPLETED
    assert theirs.verdict is Verdict.CORRECT
    assert (mine.verdict, mine.output) == (Verdict.ERROR, "A")
    assert mine.problem is not None
    assert mine.problem.reason == reason
    assert message in mine.problem.message
    assert "secret" not in mine.problem.message


def _finds_nothing(question: GradeQuestion) -> bool:
    return next(iter(()))


def _exits(question: GradeQuestion) -> bool:
    sys.exit(1)


def _interrupts(question: GradeQuestion) -> bool:
    raise KeyboardInterrupt


async def _exits_later(question: GradeQuestion) -> bool:
    await asyncio.sleep(0)
    sys.exit(1)


async def _awaits_what_is_cancelled(question: GradeQuestion) -> bool:
    task = asyncio.create_task(asyncio.Event().wait())
    task.cancel()
    return await task


@rows(
    ("grader", "raised"),
    [
        (_finds_nothing, "StopIteration"),
        (_exits, "SystemExit"),
        (_interrupts, "KeyboardInterrupt"),
        (_exits_later, "SystemExit"),
        (_awaits_what_is_cancelled, "CancelledError"),
    ],
)
async def test_no_exception_of_a_grader_leaves_its_question_open(grader: Any, raised: str):
    """What would end a thread, a task or the process is a failure of the grader, answered at once."""
    async with rig() as it:
        request = asked(dataset=SHOUT[:1], limits=Limits(sample_timeout_ms=60_000, max_unscored_share=1.0))
        evaluation = await run(it, request, graders={"g": grader})
        (result,) = await samples_of(it.worker.bridge)
    assert evaluation.state is EvaluationState.COMPLETED
    assert result.problem is not None
    assert result.problem.message == f"{raised} in the caller's grader 'g'; see its log"


async def test_a_grader_that_cannot_answer_now_is_asked_again():
    """A retryable failure is retried within the budget, as that of a model is."""
    failures = [OSError("line lost"), OSError("line lost")]

    def grader(question: GradeQuestion) -> bool:
        if failures:
            raise failures.pop()
        return True

    async with rig() as it:
        evaluation = await run(it, asked(dataset=SHOUT[:1]), graders={"g": grader})
    assert evaluation.metrics.values["accuracy"] == 1.0


async def test_undecided_is_no_mistake():
    """A grader may leave an answer undecided: it is unscored, with the reason."""
    async with rig() as it:
        await run(
            it,
            asked(dataset=SHOUT[:1]),
            graders={"g": lambda question: AnsweredGrade(verdict=Verdict.UNDECIDED, reason="two readings")},
        )
        (result,) = await samples_of(it.worker.bridge)
    assert result.verdict is Verdict.UNDECIDED
    assert result.problem is not None
    assert (result.problem.reason, result.problem.message) == ("UNDECIDED", "two readings")


async def test_names_choose_among_several_graders():
    """Each evaluator gets the grader that its option names; the repeat is that of the answer."""
    first, second = Counting(), Counting()
    async with rig() as it:
        request = asked(
            evaluators=[accuracy("one", grader="caller:a"), accuracy("two", grader="caller:b", samples_per_prompt=2)],
            sampling=SamplingParams(max_tokens=8, temperature=1.0),
        )
        await run(it, request, graders={"a": first, "b": second})
    assert {question.grader for question in first.questions} == {"a"}
    assert sorted((question.sample.id, question.repeat) for question in second.questions) == [
        ("0", 0),
        ("0", 1),
        ("1", 0),
        ("1", 1),
    ]
    assert {question.evaluator for question in second.questions} == {"two"}


@rows(
    ("grader", "graders", "message"),
    [
        ("caller:x", ("a",), "caller has: caller:a"),
        ("caller", ("a", "b"), "caller has: caller:a, caller:b"),
    ],
)
async def test_a_grader_that_the_caller_does_not_have_is_refused(grader: str, graders: Any, message: str):
    """The error names the option, and what the caller has; nothing was started."""
    async with rig() as it:
        held = dict.fromkeys(graders, Counting())
        error = await refused(run(it, asked(grader), graders=held), Code.INVALID_ARGUMENT, "UNKNOWN_GRADER", GRADER)
        assert (await it.evaluation.list_evaluations()).items == ()
    assert message in error.message


async def test_a_grader_of_no_caller_is_refused_by_other_calls():
    """Evaluate, StartEvaluation and plans have no stream: they name the option and the call that has one."""
    async with rig() as it:
        request = asked("caller:a")
        for call in (it.evaluation.evaluate(request), it.evaluation.start_evaluation(request)):
            error = await refused(call, Code.FAILED_PRECONDITION, "NEEDS_CALLER", GRADER)
            assert "EvaluateWithOrchestratorModel" in error.message
        planned = PlannedEvaluation(evaluators=request.evaluators, dataset=request.dataset, sampling=request.sampling)
        with pytest.raises(BridgeError) as caught:
            await it.evaluation.register_plan(EvaluationPlan(plan_id="p", run_id="r", evaluations=(planned,)))
        assert caught.value.reason == "NEEDS_CALLER"
        spec = game("caller:a")
        await refused(
            it.evaluation.evaluate(asked(evaluators=[spec])),
            Code.FAILED_PRECONDITION,
            "NEEDS_CALLER",
            'evaluators[0].options["environment"]',
        )


@rows(
    ("options", "field"),
    [
        ({"grader": "rubric", "grader_options": {"judge": "embedded:m", "first": "caller"}}, "first"),
        ({"grader": "caller", "grader_options": {"x": 1}}, "grader_options"),
        ({"grader": "caller:"}, "grader"),
    ],
)
async def test_a_grader_of_the_caller_stands_in_the_option_grader_alone(options: Any, field: str):
    """Other options cannot name it, it has no options, and a name after the colon is needed."""
    async with rig() as it:
        with pytest.raises(BridgeError) as caught:
            await run(it, asked(evaluators=[accuracy(**options)]), graders={"a": Counting()})
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert field in caught.value.field


async def test_model_and_grader_may_both_stay_with_the_caller():
    """One stream carries both kinds of questions, in one window."""
    grader = Counting()
    async with rig() as it:
        evaluation = await run(
            it, asked(dataset=numbered(20)), model=Shouter(), name="policy", graders={"g": grader}, window=3
        )
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert sorted(grader.ids) == sorted(f"s{number}" for number in range(20))


async def test_a_caller_without_anything_is_refused():
    """Without a model, graders or environments of its own, a caller needs no stream."""
    async with rig() as it:
        await refused(run(it, asked("exact_match")), Code.INVALID_ARGUMENT, "INVALID_FIELD", "model")
        for name in ("", "a b", "a:b"):
            with pytest.raises(BridgeError):
                await run(it, asked(), graders={name: Counting()})
        with pytest.raises(BridgeError) as caught:
            await run(it, asked(), graders={"a": "no function"})
    assert caught.value.field == 'graders["a"]'


@rows(
    ("fields", "field"),
    [
        ({"graders": ["a", "a"]}, "start.graders[1]"),
        ({"graders": ["a b"]}, "start.graders[0]"),
        ({"graders": ["a"], "calls": [orchestrator_pb2.ORCHESTRATOR_CALL_SAMPLE]}, "start.calls"),
        ({"environments": ["x" * 201]}, "start.environments[0]"),
        ({}, "model"),
    ],
)
async def test_a_start_that_does_not_fit_is_refused(fields: Any, field: str):
    """Names are names, each once; calls are those of a model that the caller has."""
    start = pb.OrchestratorStart(request=evaluate_request_to_v1(asked()), window=1, **fields)
    async with rig() as it, opened(it.worker.address, pb.EvaluateWithOrchestratorModelRequest(start=start)) as stream:
        error = await stream.error()
    assert (error.code, error.field) == (Code.INVALID_ARGUMENT, field)


def _graded(**fields: Any) -> orchestrator_pb2.OrchestratorAnswer:
    return orchestrator_pb2.OrchestratorAnswer(grade=orchestrator_pb2.AnsweredGrade(**fields))


@rows(
    ("answer", "message"),
    [
        (_graded(score=float("nan")), "answer.grade.score"),
        (_graded(score=1.5), "answer.grade.score"),
        (_graded(verdict=99), "answer.grade.verdict"),
        (_graded(score=1, measurements={"m": float("inf")}), 'answer.grade.measurements["m"]'),
        (_graded(score=1, measurements={str(n): 1.0 for n in range(257)}), "answer.grade.measurements"),
        (orchestrator_pb2.OrchestratorAnswer(), "holds none"),
        (orchestrator_pb2.OrchestratorAnswer(logprobs=types_pb2.Tensor(dtype=types_pb2.DTYPE_F32)), "another kind"),
    ],
)
async def test_a_foreign_answer_is_checked(answer: orchestrator_pb2.OrchestratorAnswer, message: str):
    """What is no grade costs its sample, with the field; the evaluation ends."""
    request = asked(dataset=SHOUT[:1])
    async with rig() as it, opened(it.worker.address, start_of(request, "g")) as stream:
        await stream.accepted()
        number, question = await stream.question()
        assert isinstance(question, GradeQuestion)
        answer.id = number
        await stream.raw_answer(answer)
        ended = await stream.ended()
        (result,) = await samples_of(it.worker.bridge)
    assert ended.evaluation.state == pb.EVALUATION_STATE_COMPLETED
    assert result.problem is not None
    assert result.problem.reason == "BACKEND_ANSWER"
    assert message in result.problem.message


async def test_a_grader_that_never_answers_is_bounded_by_the_samples_time():
    """The question is withdrawn, and the sample is ERROR."""
    request = asked(dataset=SHOUT[:1], limits=Limits(sample_timeout_ms=200))
    async with rig() as it, opened(it.worker.address, start_of(request, "g")) as stream:
        await stream.accepted()
        number, _ = await stream.question()
        await stream.ended()
        (result,) = await samples_of(it.worker.bridge)
    assert stream.withdrawn == [number]
    assert result.problem is not None
    assert result.problem.reason == "SAMPLE_TIMEOUT"


async def test_no_more_questions_are_open_than_the_window():
    """The window bounds graders as it bounds a model."""
    async with rig() as it, opened(it.worker.address, start_of(asked(dataset=numbered(9)), "g", window=2)) as stream:
        await stream.accepted()
        first, _ = await stream.question()
        await stream.question()
        third = asyncio.create_task(stream.question())
        done, _ = await asyncio.wait({third}, timeout=0.2)
        assert not done
        await stream.answer(first, AnsweredGrade(score=1.0))
        await third


async def test_a_caller_that_leaves_interrupts_and_resumes_where_it_was():
    """What was graded is kept: the next stream is asked about the other samples alone, and metrics are the same."""
    request = asked(dataset=numbered(40), limits=Limits(concurrency=4))
    first, second = Counting(), Counting()
    twelve = asyncio.Event()

    async def leaves(question: GradeQuestion) -> bool:
        if len(first.questions) == 12:
            twelve.set()
            await asyncio.Event().wait()
        return first(question)

    async with rig() as it:
        call = asyncio.create_task(run(it, request, graders={"g": leaves}))
        await twelve.wait()

        async def kept() -> int:
            return (await it.evaluation.get_evaluation("e")).done

        while await kept() < 12:
            await asyncio.sleep(0.01)
        call.cancel()
        await stands(it.worker.bridge, EvaluationState.INTERRUPTED)
        await refused(it.evaluation.evaluate(request), Code.FAILED_PRECONDITION, "NEEDS_CALLER", GRADER)
        evaluation = await run(it, request, graders={"g": second})
        whole = await run(it, asked(dataset=numbered(40), evaluation_id="whole"), graders={"g": Counting()})
        again = await run(it, request, graders={"g": _raises})
    assert len(first.questions) == 12
    assert not set(first.ids) & set(second.ids)
    assert len(second.questions) == 28
    assert evaluation.metrics == whole.metrics
    assert again.metrics == evaluation.metrics


async def test_another_stream_takes_over():
    """As with a held model: the second caller goes on, the first one is told."""
    request = asked(dataset=SHOUT[:1])
    async with rig() as it, opened(it.worker.address, start_of(request, "g")) as stream:
        await stream.accepted()
        await stream.question()
        evaluation = await run(it, request, graders={"g": Counting()})
        error = await stream.error()
    assert evaluation.state is EvaluationState.COMPLETED
    assert error.reason == "TAKEN_OVER"


async def test_an_evaluation_without_graders_of_the_caller_asks_for_none():
    """A caller of before, which knows only models, gets no question that it does not know."""
    grader = Counting()
    async with rig() as it:
        await run(it, asked("exact_match"), model=Shouter(), name="policy", graders={"g": grader})
    assert grader.questions == []


async def test_two_workers_in_one_process_ask_their_own_callers():
    """Each stream's grader sees the samples of its own evaluation."""
    first, second = Counting(), Counting()
    async with rig() as one, rig() as two:
        await asyncio.gather(
            run(one, asked(dataset=numbered(10)), graders={"g": first}),
            run(two, asked(dataset=SHOUT), graders={"g": second}),
        )
    assert sorted(first.ids) == sorted(f"s{number}" for number in range(10))
    assert sorted(second.ids) == ["0", "1"]


async def test_the_blocking_client_has_graders_too():
    """The same parameters, and plain functions."""
    grader = Counting()
    async with rig() as it:

        def evaluate() -> Any:
            with crucible_bridge.connect_sync(it.worker.address) as bridge:
                return bridge.evaluation.evaluate_with_orchestrator_model(asked(), graders={"g": grader})

        evaluation = await asyncio.to_thread(evaluate)
    assert evaluation.metrics.values["accuracy"] == 1.0


async def test_an_embedded_model_is_graded_by_its_caller(tmp_path: Any):
    """A whole worker and a trained checkpoint: a grader that compares text gets what `exact_match` gets."""
    arithmetic = {
        "model": "embedded:arithmetic@320",
        "dataset": Dataset.of("builtin:arithmetic"),
        "sampling": SamplingParams(max_tokens=8),
    }

    async def same(question: GradeQuestion) -> bool:
        return question.response.strip() == question.sample.targets[0].strip()

    async with Worker(settings_for(tmp_path)) as worker, crucible_bridge.connect(worker.address) as bridge:
        here = await bridge.evaluation.evaluate(evaluators=[accuracy()], **arithmetic)
        there = await bridge.evaluation.evaluate_with_orchestrator_model(
            evaluators=[accuracy(grader="caller:same")], graders={"same": same}, **arithmetic
        )
    assert there.metrics == here.metrics
    assert 0 < there.metrics.values["accuracy"] < 1


async def test_a_rewarded_problem_is_graded_by_the_caller():
    """`rl_test_set` takes the caller's grader for its problems: `correct` is its score."""
    async with rig() as it:
        spec = EvaluatorSpec(kind="rl_test_set", options={"grader": "caller", "format_coef": 0.0})
        evaluation = await run(it, asked(evaluators=[spec]), graders={"g": lambda question: 0.5})
    assert evaluation.metrics.values["env/all/correct"] == 0.5
