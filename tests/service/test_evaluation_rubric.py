"""Evaluations in which a model judges: the evaluator `rubric`, and the grader `rubric` of those that have graders."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import Code
from crucible_bridge.types import EvaluationState, EvaluatorSpec, Sample, SamplingParams, Verdict
from crucible_worker.evaluators.answering import NO_ANSWER
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker
from tests.service.code_kit import needs_sandbox
from tests.service.evaluation_kit import HeldModel, accuracy, asked, refused, samples_of
from tests.unit.grading.judge.gullible import CANARY, HONEST, Gullible, injections

JUDGE = {"judge": "embedded:j"}
CRITERIA = [{"name": "correct", "description": "Is it right?"}]
DATA = [Sample(id="0", input="a", targets=("x",)), Sample(id="1", input="b", targets=("x",))]
DRAWN = SamplingParams(max_tokens=100, temperature=1.0)


def scored(prompt: str) -> str:
    """A judge: 10 points for A, 5 for all else, and of one criterion from 0 to 1 whether it is A."""
    good = "response\n| A\n" in prompt
    points = good if "from 0 to 1:" in prompt else 10 if good else 5
    return json.dumps({"correct": {"reason": "So it is.", "score": int(points)}})


@contextlib.asynccontextmanager
async def judged(
    judge: ScriptedModel, model: ScriptedModel | None = None, **options: Any
) -> AsyncIterator[RunningWorker]:
    """A worker with the model `m`, which answers in upper case if none is given, and this judge `j`."""
    async with run_worker({"m": model or ScriptedModel(), "j": judge}, **options) as worker:
        yield worker


def rubric(**options: Any) -> EvaluatorSpec:
    """The evaluator `rubric`."""
    return EvaluatorSpec(kind="rubric", options={**JUDGE, "criteria": CRITERIA, **options})


async def test_answers_are_judged_by_criteria():
    """One call of the judge to each of the model; scores, reasons and tokens are recorded."""
    judge = ScriptedModel(answer=scored)
    async with judged(judge) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(asked(evaluators=[rubric()], dataset=DATA))
        samples = await samples_of(worker.bridge)

    values = evaluation.metrics.values
    assert {key: values[key] for key in ("rubric_score", "rubric/correct", "rubric_stderr/correct")} == {
        "rubric_score": 0.75,
        "rubric/correct": 7.5,
        "rubric_stderr/correct": 2.5,
    }
    assert values["judge_completion_tokens"] == sum(len(scored(f"response\n| {text}\n")) for text in "AB")
    assert values["judge_prompt_tokens"] > 0
    assert [(sample.verdict, sample.score, sample.attempts) for sample in samples] == [
        (Verdict.MEASURED, 1.0, 2),
        (Verdict.MEASURED, 0.5, 2),
    ]
    assert samples[1].method == "judged: correct 5: So it is."
    assert judge.counts["sample"] == 2


async def test_no_injection_of_a_model_changes_its_score():
    """The model answers with them; the judge obeys whatever stands outside of the fence."""
    texts = {name: text for name, text in injections().items() if len(text) < 2_000}
    model = ScriptedModel(answer=lambda prompt: texts[prompt])
    data = [Sample(id=name, input=name) for name in texts]
    async with judged(ScriptedModel(answer=Gullible().score), model) as worker:
        request = asked(evaluators=[rubric()], dataset=data, sampling=SamplingParams(max_tokens=2_000))
        evaluation = await worker.bridge.evaluation.evaluate(request)
        samples = await samples_of(worker.bridge)

    assert len(samples) >= 50
    assert all(CANARY in sample.output for sample in samples)
    # Two of them are reasoning alone, by the marks of a model, and so no answer.
    silent = {sample.sample_id: sample.score for sample in samples if sample.method == NO_ANSWER}
    assert silent == {"marks of Harmony": 0.0, "marks of Magistral": 0.0}
    assert {sample.score for sample in samples if sample.sample_id not in silent} == {HONEST / 10}
    share = (len(samples) - len(silent)) / len(samples)
    assert evaluation.metrics.values["rubric_score"] == pytest.approx(share * HONEST / 10)


async def test_a_judge_grades_for_accuracy():
    """Right or wrong by its threshold, with the scores and tokens of each sample; its fingerprint counts."""
    judge = ScriptedModel(answer=scored)
    async with judged(judge) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(
            asked(evaluators=[accuracy(grader="rubric", grader_options=JUDGE)], dataset=DATA)
        )
        samples = await samples_of(worker.bridge)

    assert evaluation.metrics.values["accuracy"] == 0.5
    assert [(sample.verdict, sample.measurements["rubric/correct"]) for sample in samples] == [
        (Verdict.CORRECT, 1.0),
        (Verdict.INCORRECT, 0.0),
    ]
    assert judge.loads > 0
    assert evaluation.model_fingerprint == "scripted+scripted"


async def test_a_judge_overturns_no_grader():
    """Mathematics decides what it can: a judge that holds all for right is asked about the rest alone."""
    judge = ScriptedModel(answer=lambda prompt: json.dumps({"correct": {"reason": "Yes.", "score": 1}}))
    data = [
        Sample(id="wrong", input=r"\boxed{5}", targets=("4",)),
        Sample(id="right", input=r"\boxed{4}", targets=("4",)),
        Sample(id="words", input=r"\boxed{4}", targets=(r"\frac{1}{0}",)),
        Sample(id="nothing", input="Solution:", targets=(r"\frac{1}{0}",)),
    ]
    model = ScriptedModel(answer=lambda prompt: prompt)
    spec = accuracy(grader="rubric", grader_options={**JUDGE, "first": "math"})
    async with judged(judge, model, grading_processes=2) as worker:
        await worker.bridge.evaluation.evaluate(
            asked(evaluators=[spec], dataset=data, sampling=SamplingParams(max_tokens=100))
        )
        samples = {sample.sample_id: sample for sample in await samples_of(worker.bridge)}

    assert {name: sample.verdict for name, sample in samples.items()} == {
        "wrong": Verdict.INCORRECT,
        "right": Verdict.CORRECT,
        "words": Verdict.CORRECT,
        "nothing": Verdict.INCORRECT,
    }
    assert samples["nothing"].method == "no content: correct 0: the response has no content"
    assert judge.counts["sample"] == 1


async def test_a_judge_grades_for_pass_at_k():
    """Each answer is judged by itself."""
    spec = EvaluatorSpec(
        kind="pass_at_k", options={"grader": "rubric", "grader_options": JUDGE, "samples_per_prompt": 2, "ks": [1, 2]}
    )
    judge = ScriptedModel(answer=scored)
    async with judged(judge) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(asked(evaluators=[spec], dataset=DATA, sampling=DRAWN))

    assert evaluation.metrics.values == {"pass@1": 0.5, "pass@2": 0.5}
    assert judge.counts["sample"] == 4


@needs_sandbox
async def test_programs_have_pass_at_k():
    """Answers to a sample that pass its tests, of those that were drawn."""
    said = iter(["def f(x): return x", "def f(x): return -x"] * 2)
    model = ScriptedModel(answer=lambda prompt: next(said))
    spec = EvaluatorSpec(kind="pass_at_k", options={"grader": "code", "samples_per_prompt": 4, "ks": [1, 2]})
    data = [Sample(id="0", input="a", targets=("assert f(2) == 2",))]
    async with run_worker({"m": model}, code_sandboxes=1) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(asked(evaluators=[spec], dataset=data, sampling=DRAWN))
        verdicts = sorted(sample.verdict for sample in await samples_of(worker.bridge))

    assert verdicts == [Verdict.CORRECT] * 2 + [Verdict.INCORRECT] * 2
    assert evaluation.metrics.values == {"pass@1": 0.5, "pass@2": 1 - 1 / 6}


async def test_a_judge_that_cannot_be_had_is_named_by_its_option():
    """Nested where it is a grader's; one that cannot sample fails its evaluator alone."""
    async with judged(ScriptedModel(sampled=False)) as worker:
        start = worker.bridge.evaluation.start_evaluation
        nobody = {"judge": "embedded:nobody"}
        await refused(
            start(asked(evaluators=[accuracy(grader="rubric", grader_options=nobody)], dataset=DATA)),
            Code.NOT_FOUND,
            "UNKNOWN_MODEL",
            'evaluators[0].options["grader_options"]["judge"]',
        )
        await refused(
            start(asked(evaluators=[rubric(**nobody)], dataset=DATA)),
            Code.NOT_FOUND,
            "UNKNOWN_MODEL",
            'evaluators[0].options["judge"]',
        )
        evaluation = await worker.bridge.evaluation.evaluate(
            asked(
                evaluators=[accuracy("judged", grader="rubric", grader_options=JUDGE), rubric(), accuracy("plain")],
                dataset=DATA,
            )
        )

    problems = [None if result.problem is None else result.problem.reason for result in evaluation.results]
    assert problems == ["MISSING_CLIENT", "MISSING_CLIENT", None]


async def test_an_interrupted_evaluation_asks_its_judge_the_same(tmp_path: Path):
    """Its questions are made of the texts alone: the evaluation that goes on ends as one that was not interrupted."""
    prompts: list[str] = []

    def noted(prompt: str) -> str:
        prompts.append(prompt)
        return scored(prompt)

    held = HeldModel(answer=noted)
    async with judged(held, state_dir=tmp_path) as worker:
        await worker.bridge.evaluation.start_evaluation(asked(evaluators=[rubric()], dataset=DATA[:1]))
        await held.asked.wait()
    async with judged(ScriptedModel(answer=noted), state_dir=tmp_path) as worker:
        evaluation = await worker.bridge.evaluation.evaluate(asked(evaluators=[rubric()], dataset=DATA[:1]))

    assert evaluation.state is EvaluationState.COMPLETED
    assert prompts[0] == prompts[1]
    assert len(prompts) == 2
