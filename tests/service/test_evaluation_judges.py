"""Evaluations with a second model that judges: opened, counted, retried and stopped as the model itself."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import BackendError, Code
from crucible_bridge.types import EvaluationState, EvaluatorSpec, Limits, Sample, Verdict
from crucible_worker.testing import ScriptedModel, run_worker
from tests.service.evaluation_kit import HeldModel, accuracy, asked, refused, samples_of, state_of

pytestmark = pytest.mark.core

PAIRS = [Sample(id="0", input="a", targets=("x",)), Sample(id="1", input="b", targets=("y",))]


def likes(text: str) -> Any:
    """A judge's answer: the place where this text stands, a tie where it stands in none."""

    def answer(prompt: str) -> str:
        behind = prompt.split("answer A\n")[1]
        a, b = behind.split("answer B\n")
        return "A" if f"| {text}" in a.splitlines() else "B" if f"| {text}" in b.splitlines() else "tie"

    return answer


@contextlib.asynccontextmanager
async def judged(judge: ScriptedModel, **options: Any) -> AsyncIterator[Any]:
    """A worker with the model `m`, which answers in upper case, and this judge `j`."""
    async with run_worker({"m": ScriptedModel(), "j": judge}, **options) as worker:
        yield worker.bridge


def comparison(judge: str = "embedded:j") -> EvaluatorSpec:
    """The evaluator `comparison` with this judge."""
    return EvaluatorSpec(kind="comparison", options={"judge": judge})


async def test_a_judge_compares_answers_with_references():
    """In both orders: two calls of the judge to each of the model, all of them counted."""
    judge = ScriptedModel(answer=likes("A"))
    async with judged(judge) as bridge:
        evaluation = await bridge.evaluation.evaluate(asked(evaluators=[comparison(), accuracy()], dataset=PAIRS))
        samples = await samples_of(bridge)

    compared = [sample for sample in samples if sample.evaluator == "comparison"]
    assert evaluation.state is EvaluationState.COMPLETED
    assert evaluation.metrics.values["win_rate"] == 0.75
    assert evaluation.metrics.values["win_rate_stderr"] == 0.25
    assert [(sample.output, sample.score, sample.attempts) for sample in compared] == [("A", 1.0, 3), ("B", 0.5, 3)]
    assert judge.counts["sample"] == 4
    assert judge.loads > 0


async def test_a_judge_that_talks_nonsense_leaves_samples_unscored():
    """No win rate comes of it, and none is made up."""
    async with judged(ScriptedModel(answer=lambda prompt: "I would rather not say")) as bridge:
        evaluation = await bridge.evaluation.evaluate(asked(evaluators=[comparison()], dataset=PAIRS))
        verdicts = [
            (sample.verdict, None if sample.problem is None else sample.problem.reason)
            for sample in await samples_of(bridge)
        ]

    (result,) = evaluation.results
    assert verdicts == [(Verdict.ERROR, "INVALID_JUDGEMENT")] * 2
    assert (result.n, result.n_scored, result.n_errors) == (2, 0, 2)
    assert evaluation.metrics.undefined.keys() == {"win_rate", "win_rate_stderr"}


async def test_a_judge_is_retried_as_the_model_is():
    """A failure that may pass costs a call, not the sample."""

    def fault(call: Any) -> BackendError | None:
        return BackendError("is busy", reason="BUSY", retryable=True) if call.index == 0 else None

    async with judged(ScriptedModel(answer=likes("A"), fault=fault)) as bridge:
        evaluation = await bridge.evaluation.evaluate(
            asked(evaluators=[comparison()], dataset=PAIRS[:1], limits=Limits(concurrency=1))
        )
        (sample,) = await samples_of(bridge)

    assert evaluation.metrics.values["win_rate"] == 1.0
    assert sample.attempts == 4


async def test_what_a_judge_fails_at_is_told_as_the_judge_s():
    """Of two models that are asked for a sample, its problem says which it was."""
    async with judged(ScriptedModel(context_length=50)) as bridge:
        await bridge.evaluation.evaluate(asked(evaluators=[comparison()], dataset=PAIRS[:1]))
        (sample,) = await samples_of(bridge)

    assert sample.problem is not None
    assert (sample.problem.reason, sample.problem.field) == ("PROMPT_TOO_LONG", "judge.prompt")


async def test_a_judge_that_cannot_be_opened_refuses_the_request():
    """Before anything starts, at the option that names it."""
    async with judged(ScriptedModel()) as bridge:
        request = asked(evaluators=[accuracy(), comparison("embedded:nobody")], dataset=PAIRS)
        await refused(
            bridge.evaluation.start_evaluation(request), Code.NOT_FOUND, "UNKNOWN_MODEL", _judge_of_evaluator(1)
        )
        await refused(
            bridge.evaluation.start_evaluation(asked(evaluators=[comparison("openai:s/m")], dataset=PAIRS)),
            Code.FAILED_PRECONDITION,
            "NO_BACKEND",
            _judge_of_evaluator(0),
        )


class Unloadable(ScriptedModel):
    """Opens, and cannot be loaded."""

    async def load(self) -> None:
        """Fail."""
        raise BackendError("the weights are damaged", reason="WEIGHTS_DAMAGED", retryable=False)


async def test_a_judge_that_does_not_load_fails_its_evaluator_alone():
    """No answer is sampled for it in vain; the others finish and stand."""
    model = ScriptedModel()
    async with run_worker({"m": model, "j": Unloadable()}) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(
            asked(evaluators=[comparison(), accuracy()], dataset=PAIRS)
        )
        alone = await worker.bridge.evaluation.evaluate(
            asked(evaluation_id="alone", evaluators=[comparison()], dataset=PAIRS)
        )

    broken, sound = evaluation.results
    assert broken.problem is not None
    assert (broken.problem.reason, broken.problem.field) == ("WEIGHTS_DAMAGED", _judge_of_evaluator(0))
    assert (sound.problem, sound.n_scored) == (None, 2)
    assert evaluation.state is EvaluationState.COMPLETED
    assert alone.state is EvaluationState.FAILED
    assert model.counts["sample"] == 2


async def test_a_judge_that_does_not_load_costs_the_samples_that_need_it():
    """What another grader decides first stands; what would be the judge's is an ERROR with the reason."""
    options = {"judge": "embedded:j", "first": "numeric"}
    spec = EvaluatorSpec(kind="accuracy", options={"grader": "rubric", "grader_options": options})
    dataset = [Sample(id="decided", input="7", targets=("7",)), Sample(id="judged", input="a", targets=("A",))]
    async with judged(Unloadable()) as bridge:
        evaluation = await bridge.evaluation.evaluate(asked(evaluators=[spec], dataset=dataset))
        decided, left = await samples_of(bridge)

    assert evaluation.state is EvaluationState.COMPLETED
    assert evaluation.metrics.values["accuracy"] == 1.0
    assert (decided.verdict, left.verdict) == (Verdict.CORRECT, Verdict.ERROR)
    assert left.problem is not None
    assert left.problem.reason == "WEIGHTS_DAMAGED"


async def test_a_judge_that_cannot_sample_fails_its_evaluator_alone():
    """The others finish and stand."""
    async with judged(ScriptedModel(sampled=False)) as bridge:
        evaluation = await bridge.evaluation.evaluate(asked(evaluators=[comparison(), accuracy()], dataset=PAIRS))

    broken, sound = evaluation.results
    assert broken.problem is not None
    assert (broken.problem.reason, sound.problem) == ("MISSING_CLIENT", None)
    assert evaluation.state is EvaluationState.COMPLETED


async def test_a_cancelled_evaluation_asks_its_judge_no_more():
    """The gate closes for the judge as for the model."""
    judge = HeldModel()
    async with judged(judge) as bridge:
        await bridge.evaluation.start_evaluation(asked(evaluators=[comparison()], dataset=PAIRS))
        await judge.asked.wait()
        cancelled = await bridge.evaluation.cancel_evaluation("e", "enough")
        calls = judge.calls
        judge.let_go.set()

    assert cancelled.state is EvaluationState.CANCELLED
    assert judge.calls == calls <= 2


async def test_an_interrupted_evaluation_goes_on_with_the_same_judge_alone(tmp_path: Path):
    """Another judge would judge the rest by another measure: MODEL_CHANGED."""
    request = asked(evaluators=[comparison()], dataset=PAIRS)
    held = HeldModel(answer=likes("A"), fingerprint="judge-1")
    async with judged(held, state_dir=tmp_path) as bridge:
        await bridge.evaluation.start_evaluation(request)
        await held.asked.wait()
    async with judged(ScriptedModel(answer=likes("A"), fingerprint="judge-2"), state_dir=tmp_path) as bridge:
        await refused(bridge.evaluation.evaluate(request), Code.FAILED_PRECONDITION, "MODEL_CHANGED", "model")
    async with judged(ScriptedModel(answer=likes("A"), fingerprint="judge-1"), state_dir=tmp_path) as bridge:
        evaluation = await bridge.evaluation.evaluate(request)

    assert state_of(evaluation) == (EvaluationState.COMPLETED, None)
    assert evaluation.metrics.values["win_rate"] == 0.75
    assert evaluation.model_fingerprint == "scripted+judge-1"


def _judge_of_evaluator(index: int) -> str:
    return f'evaluators[{index}].options["judge"]'
