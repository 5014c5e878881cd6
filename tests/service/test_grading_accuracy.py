"""The evaluator `accuracy` with the math grader: a scripted model, real grading processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crucible_bridge.errors import Code
from crucible_bridge.types import EvaluateRequest, Sample, SamplingParams, Verdict
from crucible_worker.testing import ScriptedModel
from tests.service.evaluation_kit import accuracy, asked, refused, rig, samples_of
from tests.service.grading_kit import CHILDREN

SAID = {
    "half": "One of two parts: \\boxed{\\frac{1}{2}}.",
    "square": "The answer is (x+1)^2.",
    "wrong": "It must be \\boxed{7}.",
    "odd": "\\boxed{5}",
    "third": "About \\boxed{0.33}.",
}
SAMPLES = (
    Sample(id="half", input="half", targets=("0.5",)),
    Sample(id="square", input="square", targets=("x^2+2x+1",)),
    Sample(id="wrong", input="wrong", targets=("8",)),
    Sample(id="odd", input="odd", targets=("\\frac{1}{0}",)),
)


def model() -> ScriptedModel:
    """Says what it is told to."""
    return ScriptedModel(answer=SAID.__getitem__)


def math(samples: Sequence[Sample] = SAMPLES, evaluation_id: str = "e", **options: Any) -> EvaluateRequest:
    """An evaluation by the math grader."""
    return asked(
        evaluation_id=evaluation_id,
        evaluators=[accuracy(grader="math", **options)],
        dataset=samples,
        sampling=SamplingParams(max_tokens=100),
    )


async def test_answers_are_graded_as_mathematics():
    """Equal ones are right however they are written; a target without a meaning leaves its sample unscored."""
    async with rig(model(), grading_processes=CHILDREN) as worker:
        evaluation = await worker.evaluation.evaluate(math())
        results = {result.sample_id: result for result in await samples_of(worker.worker.bridge)}

    assert {name: result.verdict for name, result in results.items()} == {
        "half": Verdict.CORRECT,
        "square": Verdict.CORRECT,
        "wrong": Verdict.INCORRECT,
        "odd": Verdict.UNDECIDED,
    }
    assert results["half"].extracted == "\\frac{1}{2}"
    assert evaluation.metrics.values["accuracy"] == 2 / 3
    assert evaluation.results[0].n_unscored == 1


async def test_the_policy_is_an_option_of_the_grader():
    """By its schema: what is unknown is refused before anything runs."""
    samples = (Sample(id="third", input="third", targets=("1/3",)),)
    async with rig(model(), grading_processes=CHILDREN) as worker:
        await worker.evaluation.evaluate(math(samples, grader_options={"rounding_digits": 2}))
        (result,) = await samples_of(worker.worker.bridge)
        await refused(
            worker.evaluation.evaluate(math(evaluation_id="f", grader_options={"radians": True})),
            Code.INVALID_ARGUMENT,
            "UNKNOWN_OPTION",
            'evaluators[0].options["grader_options"]["radians"]',
        )

    assert result.verdict is Verdict.CORRECT
