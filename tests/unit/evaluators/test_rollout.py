"""The evaluator rollout: what is graded, what is kept, and what the scores become."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.types import (
    Datum,
    EvaluatorSpec,
    OpenAIModel,
    Sample,
    SampledSequence,
    SampleResult,
    SamplingParams,
    Verdict,
)
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.graded import GRADER_JUDGE
from crucible_worker.evaluators.rollout import RolloutEvaluator
from crucible_worker.grading.base import MAX_TEXT_BYTES
from tests.unit.evaluators.doubles import Double, Sampling, Training, context

SAMPLE = Sample(id="a", input="12+34=", targets=("46",))
RANDOM = SamplingParams(max_tokens=9, temperature=1.0)
ANSWER = SampledSequence(text="so 46", tokens=(7, 8, 9), logprobs=(-0.5, -1.0, -2.0), stop_reason="length")


@dataclasses.dataclass
class Told(Sampling):
    """Gives one sequence as it is."""

    sequence: SampledSequence = ANSWER

    async def sample(self, prompt: Any, params: SamplingParams, num_samples: int = 1) -> list[SampledSequence]:
        self.asked.append((prompt.tokens().tolist(), params))
        return [self.sequence]


def made(sampling: SamplingParams | None = RANDOM, **options: Any) -> RolloutEvaluator:
    """One of `rollout` with these options."""
    evaluator = registry.create(EvaluatorSpec(kind="rollout", options=options), 0, sampling)
    assert isinstance(evaluator, RolloutEvaluator)
    return evaluator


def result(sample_id: str, score: float | None, repeat: int = 0) -> SampleResult:
    """A result; without a score it is UNDECIDED."""
    verdict = Verdict.UNDECIDED if score is None else Verdict.PARTIAL
    return SampleResult(evaluator="rollout", sample_id=sample_id, repeat=repeat, verdict=verdict, score=score)


async def test_an_answer_is_cleaned_and_graded() -> None:
    """What the steps leave is what the grader gets; the record has the whole of it."""
    model = Double(sampling=Sampling(answers=["46 is 12 and 34. #### 46 \n#### 47"]))

    outcome = await made(clean=[{"until": "\n"}, {"after": "####"}]).run(SAMPLE, context(model))

    assert (outcome.verdict, outcome.score, outcome.extracted) == (Verdict.CORRECT, 1.0, "46")
    assert outcome.output.endswith("#### 47")
    assert outcome.group is None


async def test_an_answer_of_which_nothing_is_left_is_wrong() -> None:
    """It has no answer where the steps look for one; that is not taken for mere thought."""
    model = Double(sampling=Sampling(answers=["<think>46</think>It is 46."]))

    outcome = await made(clean=[{"extract": "box"}]).run(SAMPLE, context(model))

    assert (outcome.verdict, outcome.score) == (Verdict.INCORRECT, 0.0)
    assert "thought" not in outcome.method


async def test_an_answer_too_long_to_clean_is_unscored() -> None:
    """Nobody knows what would be left of it: it is not wrong, and none of it is kept."""
    model = Double(sampling=Sampling(answers=["4" * (MAX_TEXT_BYTES + 1)]))

    outcome = await made(clean=[{"strip": ""}], intermediates=True).run(SAMPLE, context(model))

    assert (outcome.verdict, outcome.score, outcome.group) == (Verdict.UNDECIDED, None, None)
    assert outcome.problem is not None
    assert "1,000,000 bytes" in outcome.problem.message


async def test_intermediates_are_tokens_and_log_probabilities() -> None:
    """One turn: the prompt as it was sent, what was generated, and its score as the reward."""
    evaluator = made(intermediates=True, clean=[{"extract": "number"}])

    outcome = await evaluator.run(SAMPLE, context(Double(sampling=Told())))

    assert outcome.group is not None
    (trajectory,) = outcome.group.trajectories
    (turn,) = trajectory.transitions
    assert (turn.reward, trajectory.total_reward, turn.stop_reason) == (1.0, 1.0, "length")
    assert (turn.observation_tokens, turn.action_tokens) == (6, 3)
    assert turn.observation is not None
    assert turn.action is not None
    assert turn.action_logprobs is not None
    assert turn.observation.tolist() == [ord(character) for character in "12+34="]
    assert turn.action.tolist() == [7, 8, 9]
    assert turn.action_logprobs.tolist() == [-0.5, -1.0, -2.0]


async def test_the_reward_is_the_score() -> None:
    """What is partly right counts by its score, not by its verdict."""
    evaluator = made(intermediates=True, grader="f1")

    outcome = await evaluator.run(Sample(id="a", input="q", targets=("46 apples",)), context(Double(sampling=Told())))

    assert outcome.group is not None
    assert outcome.group.trajectories[0].total_reward == outcome.score == 0.5


async def test_tokens_of_a_model_without_a_tokenizer_are_not_asked_for() -> None:
    """Before anything is sampled; a datum is tokens already."""
    client = Told()
    model = Double(sampling=client, tokenizer=None)
    datum = Datum(model_input=[1, 2], loss_fn_inputs={"target_tokens": np.array([2, 3])})
    evaluator = made(intermediates=True)

    with pytest.raises(FailedPrecondition) as caught:
        await evaluator.run(SAMPLE, context(model))
    assert (caught.value.reason, client.asked) == ("NO_TOKENIZER", [])

    outcome = await evaluator.run(dataclasses.replace(SAMPLE, input=datum), context(model))
    assert outcome.group is not None
    assert outcome.group.trajectories[0].transitions[0].observation_tokens == 2


@pytest.mark.parametrize(
    "sequence",
    [
        SampledSequence(text="46", tokens=(), token_count=2),
        SampledSequence(text="46", tokens=(7, 8), logprobs=(-0.5,)),
    ],
)
async def test_tokens_that_are_not_told_are_an_error(sequence: SampledSequence) -> None:
    """Not an answer without tokens, which a learner would take for an empty one; without intermediates it is fine."""
    model = Double(sampling=Told(sequence=sequence))

    with pytest.raises(BackendError) as caught:
        await made(intermediates=True).run(SAMPLE, context(model))
    assert (caught.value.reason, caught.value.retryable) == ("BACKEND_ANSWER", False)

    assert (await made().run(SAMPLE, context(model))).verdict is Verdict.CORRECT


@pytest.mark.parametrize(("reduce", "key", "value"), [("mean", "score_mean", 0.5), ("sum", "score_sum", 1.5)])
def test_scores_are_reduced_over_the_scored(reduce: str, key: str, value: float) -> None:
    """An unscored answer is no 0; a key says how."""
    results = [result("a", 1.0), result("a", None, 1), result("b", 0.25), result("b", 0.25, 1)]

    metrics = made(reduce=reduce, samples_per_prompt=2).aggregate(results)

    assert metrics.values[key] == value
    assert metrics.values.keys() == {key, f"{key}_stderr"}


def test_scores_may_be_left_as_they_are() -> None:
    """Then there is no metric, and none is undefined."""
    metrics = made(reduce="none").aggregate([result("a", 1.0), result("b", None)])

    assert (metrics.values, metrics.undefined) == ({}, {})


def test_equal_answers_are_refused() -> None:
    """Several greedy answers would be one answer; one is fine."""
    greedy = SamplingParams(max_tokens=4)
    with pytest.raises(InvalidField) as caught:
        made(greedy, samples_per_prompt=2)

    assert caught.value.field == "sampling.temperature"
    assert made(greedy).repeats == 1


def test_sampling_is_needed() -> None:
    """Without sampling parameters there is nothing to ask by."""
    with pytest.raises(InvalidField, match="rollout samples answers"):
        made(None)


async def test_a_judge_gets_what_is_left_of_an_answer() -> None:
    """The grader's judge is named among the models that are opened, and reads what the steps leave, no more."""
    evaluator = made(grader="rubric", grader_options={"judge": "openai:server/judge"}, clean=[{"after": "####"}])
    model, judge = Double(sampling=Sampling(answers=["secret #### 46"])), Double(sampling=Sampling(answers=["what?"]))

    evaluator.check_auxiliary_models({GRADER_JUDGE: judge})
    outcome = await evaluator.run(SAMPLE, dataclasses.replace(context(model), auxiliary_models={GRADER_JUDGE: judge}))

    assert evaluator.auxiliary_models == {GRADER_JUDGE: OpenAIModel("server", "judge")}
    assert judge.sampling is not None
    asked = "".join(map(chr, judge.sampling.asked[0][0]))
    assert " 46" in asked
    assert "secret" not in asked
    assert (outcome.verdict, outcome.score, outcome.group) == (Verdict.ERROR, None, None)
    with pytest.raises(FailedPrecondition, match="rollout needs a sampling client, which the judge lacks"):
        evaluator.check_auxiliary_models({GRADER_JUDGE: Double(training=Training([]))})


def test_a_model_that_does_not_generate_is_refused() -> None:
    """With the kind's own name."""
    with pytest.raises(FailedPrecondition, match="rollout needs a sampling client"):
        made().check(Double(training=Training([])))
