"""The evaluator `rubric`: an answer is sampled and judged, criteria have means with their spread, tokens count."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pytest

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.types import (
    Datum,
    EvaluatorSpec,
    Goal,
    ModelInput,
    OpenAIModel,
    Sample,
    SampleResult,
    SamplingParams,
    Verdict,
)
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.base import Outcome, SampleContext
from crucible_worker.testing import ScriptedModel
from tests.tables import rows
from tests.unit.evaluators.doubles import Double, Sampling

CRITERIA = [
    {"name": "correct", "description": "Is it right?", "weight": 3},
    {"name": "clear", "description": "Is it clear?", "min": 1, "max": 5},
]
SAMPLING = SamplingParams(max_tokens=4)
SAMPLE = Sample(id="s", input="Why?", targets=("because", " "))


def made(**options: Any) -> Any:
    """The evaluator with options."""
    given = {"judge": "openai:s/m", "criteria": CRITERIA, **options}
    return registry.create(EvaluatorSpec(kind="rubric", options=given), 0, SAMPLING)


def says(correct: Any, clear: Any) -> str:
    """A judgement."""
    return json.dumps({"correct": {"reason": "r", "score": correct}, "clear": {"reason": "s", "score": clear}})


async def run(answer: str, said: str = "", **options: Any) -> tuple[Outcome, list[str]]:
    """What becomes of an answer, and what the judge was asked."""
    asked: list[str] = []
    judge = ScriptedModel(answer=lambda prompt: asked.append(prompt) or said)
    model: Any = Double(sampling=Sampling(answers=(answer,)))
    context = SampleContext(model=model, repeat=0, seed=7, auxiliary_models={"judge": judge})
    return await made(**options).run(SAMPLE, context), asked


def result(sample_id: str, *scores: float, tokens: tuple[int | None, int] | None = (10, 2), repeat: int = 0) -> Any:
    """A sample's result: its whole score, then those by criterion; unscored without any."""
    measurements: dict[str, float] = {}
    measurements |= zip(("rubric/correct", "rubric/clear"), scores[1:])
    if tokens is not None:
        prompt, measurements["judge_completion_tokens"] = tokens
        measurements |= {} if prompt is None else {"judge_prompt_tokens": prompt}
    return SampleResult(
        evaluator="rubric",
        sample_id=sample_id,
        repeat=repeat,
        verdict=Verdict.MEASURED if scores else Verdict.ERROR,
        score=scores[0] if scores else None,
        measurements=measurements,
    )


async def test_an_answer_is_sampled_and_judged() -> None:
    """The judge sees question, answer behind its thoughts, and the targets that say something."""
    outcome, (asked,) = await run("<think>hm</think>so", says(5, 5))

    assert (outcome.verdict, outcome.score, outcome.output) == (Verdict.MEASURED, 0.625, "<think>hm</think>so")
    assert outcome.method == "judged: correct 5: r; clear 5: s"
    assert outcome.measurements == {
        "rubric/correct": 5.0,
        "rubric/clear": 5.0,
        "judge_prompt_tokens": float(len(asked)),
        "judge_completion_tokens": float(len(says(5, 5))),
    }
    for shown in ("question\n| Why?\n", "reference answer\n| because\n", "response\n| so\n"):
        assert shown in asked


@rows("answer", ["", "...", "<think>right: 10", "Solution:"])
async def test_an_answer_that_says_nothing_has_the_lowest_scores(answer: str) -> None:
    """It is measured, and nobody is asked."""
    outcome, asked = await run(answer)

    assert (outcome.verdict, outcome.score, asked) == (Verdict.MEASURED, 0.0, [])
    assert outcome.measurements["rubric/correct"] == 0
    assert outcome.measurements["rubric/clear"] == 1
    assert outcome.measurements["judge_completion_tokens"] == 0


async def test_an_unreadable_judgement_is_an_error() -> None:
    """The answer is kept, and what was spent."""
    outcome, _ = await run("so", "10 of 10")

    assert (outcome.verdict, outcome.score, outcome.output) == (Verdict.ERROR, None, "so")
    assert outcome.problem is not None
    assert outcome.problem.reason == "INVALID_JUDGEMENT"
    assert outcome.measurements["judge_completion_tokens"] == len("10 of 10")


async def test_too_much_is_undecided() -> None:
    """With its reason."""
    outcome, _ = await run("x" * 100_000)

    assert (outcome.verdict, outcome.score) == (Verdict.UNDECIDED, None)
    assert outcome.problem is not None
    assert outcome.problem.reason == "UNDECIDED"


def test_means_have_their_errors() -> None:
    """By criterion in points of its scale; what is unscored has no part in them, but its tokens are counted."""
    metrics = made().aggregate([result("a", 0.5, 4, 3), result("b", 1.0, 10, 5), result("c")])

    assert metrics.values == {
        "rubric_score": 0.75,
        "rubric_score_stderr": pytest.approx(0.25),
        "rubric/correct": 7,
        "rubric_stderr/correct": pytest.approx(3),
        "rubric/clear": 4,
        "rubric_stderr/clear": pytest.approx(1),
        "judge_prompt_tokens": 30,
        "judge_completion_tokens": 6,
    }
    assert metrics.undefined == {}


def test_repeats_are_one_cluster() -> None:
    """Two samples asked twice: the spread is that between samples."""
    scores = {("a", 0): 0.0, ("a", 1): 0.0, ("b", 0): 1.0, ("b", 1): 1.0}
    metrics = made().aggregate([result(name, score, 0, 1, repeat=i) for (name, i), score in scores.items()])

    assert metrics.values["rubric_score_stderr"] == pytest.approx(math.sqrt(2 * (1 + 1) / 16))


def test_without_a_score_there_is_no_mean() -> None:
    """Only tokens are known then."""
    metrics = made().aggregate([result("a"), result("b", tokens=None)])

    assert metrics.values == {"judge_prompt_tokens": 10, "judge_completion_tokens": 2}
    assert metrics.undefined["rubric_score"] == metrics.undefined["rubric/clear"] == "no sample was scored"


def test_without_a_judgement_there_are_no_tokens() -> None:
    """Where every call failed nobody knows what it took: that is no 0. Who was not asked took 0."""
    failed = made().aggregate([result("a", tokens=None)])
    unasked = made().aggregate([result("a", 0, 0, 1, tokens=(0, 0))])

    assert failed.values == {}
    assert (
        failed.undefined["judge_prompt_tokens"]
        == failed.undefined["judge_completion_tokens"]
        == ("there was no judgement")
    )
    assert unasked.values["judge_prompt_tokens"] == unasked.values["judge_completion_tokens"] == 0


def test_prompts_that_nobody_counted_have_no_sum() -> None:
    """One of them is enough."""
    metrics = made().aggregate([result("a", 1, 10, 5), result("b", 1, 10, 5, tokens=(None, 3))])

    assert metrics.values["judge_completion_tokens"] == 5
    assert "judge_prompt_tokens" in metrics.undefined


def test_a_judgement_of_which_nothing_is_counted_leaves_no_sum() -> None:
    """Beside one whose tokens are known."""
    uncounted = dataclasses.replace(result("b", 1, 10, 5), measurements={"rubric/correct": 10.0, "rubric/clear": 5.0})
    metrics = made().aggregate([result("a", 1, 10, 5), uncounted])

    assert {"judge_prompt_tokens", "judge_completion_tokens"} <= metrics.undefined.keys()


def test_a_judge_is_any_model_of_the_worker() -> None:
    """It is opened beside the model, and a higher score is better."""
    assert made().auxiliary_models == {"judge": OpenAIModel("s", "m")}
    assert registry.info("rubric").score_goal is Goal.HIGHER
    with pytest.raises(FailedPrecondition, match="which the judge lacks"):
        made().check_auxiliary_models({"judge": Double()})
    with pytest.raises(FailedPrecondition, match="which the model lacks"):
        made().check(Double())


@rows(
    ("options", "field"),
    [
        ({"judge": "orchestrator:m"}, 'options["judge"]'),
        ({"criteria": []}, 'options["criteria"]'),
        ({"criteria": [*CRITERIA, CRITERIA[0]]}, 'options["criteria"][2].name'),
        ({"criteria": [{"name": "x"}]}, 'options["criteria"][0]["description"]'),
        ({"samples_per_prompt": 0}, 'options["samples_per_prompt"]'),
    ],
)
def test_wrong_options_are_named_by_their_path(options: dict[str, Any], field: str) -> None:
    """Before anything is sampled."""
    with pytest.raises(InvalidField) as refused:
        made(**options)
    assert refused.value.field == f"evaluators[0].{field}"


def test_a_judge_reads_no_tokens() -> None:
    """A Datum is refused at the start."""
    sample = Sample(input=Datum(model_input=ModelInput.of([1]), loss_fn_inputs={}))
    with pytest.raises(InvalidField) as refused:
        made().check_sample(sample)
    assert refused.value.field == "datum"
