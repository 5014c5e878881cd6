"""The evaluator pass_at_k: what counts as drawn, what as right."""

import dataclasses

import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import EvaluatorSpec, Sample, SampleResult, SamplingParams, Verdict
from crucible_worker.evaluators import registry
from tests.unit.evaluators.doubles import Double, Sampling, context

RANDOM = SamplingParams(max_tokens=4, temperature=1.0)


def made(sampling=RANDOM, **options):
    """One of `pass_at_k` with these options."""
    return registry.create(EvaluatorSpec(kind="pass_at_k", options=options), 0, sampling)


def results(**verdicts):
    """Results by sample: one letter an answer, c correct, i incorrect, p partial, u undecided, e error."""
    kinds = {verdict.value[0]: verdict for verdict in Verdict}
    return [
        SampleResult(evaluator="pass_at_k", sample_id=name, repeat=repeat, verdict=kinds[letter])
        for name, letters in verdicts.items()
        for repeat, letter in enumerate(letters)
    ]


def test_the_estimator_runs_over_samples():
    """pass@k is the mean over samples of 1 - C(n - c, k) / C(n, k)."""
    metrics = made(samples_per_prompt=4, ks=[1, 2, 4]).aggregate(results(a="ciii", b="ccii", d="iiii"))

    assert metrics.values == pytest.approx(
        {"pass@1": (1 / 4 + 2 / 4) / 3, "pass@2": (1 / 2 + 5 / 6) / 3, "pass@4": 2 / 3}
    )


def test_an_unscored_answer_was_not_drawn():
    """It counts neither as right nor as wrong; a sample with fewer than k answers left out of pass@k."""
    metrics = made(samples_per_prompt=4, ks=[1, 3]).aggregate(results(a="ciue", b="cciu"))

    assert metrics.values == pytest.approx({"pass@1": (1 / 2 + 2 / 3) / 2, "pass@3": 1.0})


def test_partly_right_is_not_right():
    """Only CORRECT passes."""
    assert made(samples_per_prompt=2).aggregate(results(a="pc")).values == {"pass@1": 0.5}


def test_without_a_scored_answer_there_is_no_chance():
    """Every k is undefined, with the reason."""
    metrics = made(samples_per_prompt=2, ks=[1, 2]).aggregate(results(a="ue"))

    assert not metrics.values
    assert metrics.undefined == dict.fromkeys(["pass@1", "pass@2"], "no sample was scored")


async def test_each_answer_is_sampled_by_itself_and_graded():
    """An answer is one run with its own seed, judged by the grader of the options."""
    sampling = Sampling(answers=["It is 46."])
    evaluator = made(grader="numeric", samples_per_prompt=3)

    outcome = await evaluator.run(
        Sample(id="a", input="12+34=", targets=("46",)), context(Double(sampling=sampling), seed=7)
    )

    assert evaluator.repeats == 3
    assert outcome.verdict is Verdict.CORRECT
    assert sampling.asked[0][1].seed == 7


def test_equal_answers_are_refused():
    """Several greedy answers would be one answer: the temperature is refused; one greedy answer is fine."""
    greedy = dataclasses.replace(RANDOM, temperature=0.0)
    with pytest.raises(InvalidField) as refused:
        made(greedy)
    assert refused.value.field == "sampling.temperature"
    assert made(greedy, samples_per_prompt=1).repeats == 1


def test_sampling_is_needed():
    """Without sampling parameters there is nothing to ask by."""
    with pytest.raises(InvalidField, match="pass_at_k samples answers"):
        registry.create(EvaluatorSpec(kind="pass_at_k"), 0, None)
