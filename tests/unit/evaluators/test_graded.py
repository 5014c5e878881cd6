"""What evaluators with the option `grader` share: judges are named, checked, and bound to the question of a sample."""

from __future__ import annotations

import json
from typing import Any

import pytest

from crucible_bridge.errors import FailedPrecondition, InternalError, InvalidField
from crucible_bridge.types import (
    Datum,
    ModelInput,
    OpenAIModel,
    Problem,
    Sample,
    SampledSequence,
    SamplingParams,
    Verdict,
)
from crucible_worker.evaluators.accuracy import Accuracy
from crucible_worker.evaluators.answering import NO_ANSWER, NO_ANSWER_CUT, Answer
from crucible_worker.evaluators.base import SampleContext
from crucible_worker.evaluators.graded import (
    GRADER_JUDGE,
    check_question,
    grade_answer,
    grader_of,
    problem_of_grade,
)
from crucible_worker.grading.base import Grade
from crucible_worker.grading.registry import NO_GRADING_PARTS
from crucible_worker.testing import ScriptedModel
from tests.tables import rows
from tests.unit.evaluators.doubles import Double

PLAIN = grader_of("exact_match", {}, NO_GRADING_PARTS)
JUDGED = grader_of("rubric", {"judge": "openai:s/m"}, NO_GRADING_PARTS)
GREEDY = SamplingParams(max_tokens=4, temperature=0.0)
ASKING = Accuracy(grader="rubric", grader_options={"judge": "openai:s/m"}, sampling=GREEDY)
SAMPLE = Sample(id="s", input="Why?", targets=("because",))
TOKENS = Sample(input=Datum(model_input=ModelInput.of([1]), loss_fn_inputs={}), targets=("x",))


def answered(text: str, *, said: str | None = None, stop_reason: str = "stop") -> Answer:
    """An answer, of which this is to be graded."""
    whole = text if said is None else said
    sequence = SampledSequence(text=whole, tokens=(1,), stop_reason=stop_reason)
    why = NO_ANSWER_CUT if stop_reason == "length" else NO_ANSWER
    return Answer(prompt=None, sequence=sequence, output=whole, replaced=0, text=text, no_answer="" if text else why)


def context(judge: ScriptedModel | None = None) -> SampleContext:
    """What an evaluator has at hand, with this judge."""
    model: Any = Double()
    return SampleContext(model=model, repeat=0, seed=7, auxiliary_models={} if judge is None else {GRADER_JUDGE: judge})


def test_only_what_asks_a_judge_has_further_models() -> None:
    """By the option that names it."""
    assert Accuracy(sampling=GREEDY).auxiliary_models == {}
    assert ASKING.auxiliary_models == {"grader_options.judge": OpenAIModel("s", "m")}


def test_a_judge_has_to_sample() -> None:
    """Where there is one."""
    ASKING.check_auxiliary_models({})
    ASKING.check_auxiliary_models({GRADER_JUDGE: ScriptedModel()})
    with pytest.raises(FailedPrecondition, match="accuracy needs a sampling client, which the judge lacks"):
        ASKING.check_auxiliary_models({GRADER_JUDGE: ScriptedModel(sampled=False)})


async def test_a_judge_reads_no_tokens() -> None:
    """Other graders do not care what was asked."""
    check_question(PLAIN, TOKENS)
    with pytest.raises(InvalidField) as at_the_start:
        check_question(JUDGED, TOKENS)
    with pytest.raises(InvalidField) as later:
        await grade_answer(JUDGED, answered("x"), TOKENS, context(ScriptedModel()))
    assert (at_the_start.value.field, later.value.field) == ("datum", "datum")


async def test_a_judge_is_asked_about_the_samples_question() -> None:
    """And gets its answer and targets."""
    asked: list[str] = []
    said = json.dumps({"correct": {"reason": "So it is.", "score": 1}})
    judge = ScriptedModel(answer=lambda prompt: asked.append(prompt) or said)

    grade = await grade_answer(JUDGED, answered("so"), SAMPLE, context(judge))

    assert (grade.verdict, grade.score) == (Verdict.CORRECT, 1.0)
    assert all(f"| {text}\n" in asked[0] for text in ("Why?", "so", "because"))


@pytest.mark.parametrize(("stop_reason", "method"), [("stop", NO_ANSWER), ("length", NO_ANSWER_CUT)])
async def test_nothing_but_thought_is_wrong_and_not_judged(stop_reason: str, method: str) -> None:
    """Whoever grades."""
    judge = ScriptedModel()
    for grader in (PLAIN, JUDGED):
        answer = answered("", said="<think>because</think>", stop_reason=stop_reason)
        grade = await grade_answer(grader, answer, SAMPLE, context(judge))
        assert (grade.verdict, grade.score, grade.method) == (Verdict.INCORRECT, 0.0, method)
    assert judge.calls == 0


@rows("score", [None, -0.1, 1.1, float("nan")])
async def test_a_score_that_is_none_is_the_graders_fault(score: float | None) -> None:
    """It is between 0 and 1 where there is a verdict."""

    class Wrong:
        async def grade(self, response: str, targets: object, choices: object = ()) -> Grade:
            return Grade(verdict=Verdict.CORRECT, score=score)

    with pytest.raises(InternalError) as failed:
        await grade_answer(Wrong(), answered("x"), SAMPLE, context())
    assert failed.value.reason == "BAD_SCORE"


def test_why_a_grade_has_no_score() -> None:
    """Its own problem, or one that is made of its reason."""
    own = Problem(reason="INVALID_JUDGEMENT", message="no")

    assert problem_of_grade(Grade(verdict=Verdict.CORRECT, score=1.0)) is None
    assert problem_of_grade(Grade(verdict=Verdict.ERROR, reason="x", problem=own)) == own
    assert problem_of_grade(Grade(verdict=Verdict.ERROR, reason="x")) == Problem(reason="GRADER_FAILED", message="x")
    assert problem_of_grade(Grade(verdict=Verdict.UNDECIDED, reason="y")) == Problem(reason="UNDECIDED", message="y")
