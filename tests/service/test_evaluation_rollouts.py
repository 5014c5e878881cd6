"""Rollouts through a worker: in a learner's order, kept over pages, bounded, and never a 0 for a failure."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

import crucible_bridge
from crucible_bridge.rollouts import pad_rollouts
from crucible_bridge.types import Dataset, EvaluationState, EvaluatorSpec, Sample, SamplingParams, Verdict
from crucible_worker import evaluations
from crucible_worker.engine import sample_runner
from crucible_worker.server import Worker
from crucible_worker.testing import ScriptedModel
from tests.service.evaluation_kit import asked, failing, numbered, rig, samples_of
from tests.service.server_kit import settings_for
from tests.tables import rows

RANDOM = SamplingParams(max_tokens=8, temperature=1.0)


def rollout(**options: Any) -> EvaluatorSpec:
    """The evaluator `rollout` with options."""
    return EvaluatorSpec(kind="rollout", options=options)


async def test_answers_to_a_prompt_stand_together():
    """Rows come sample by sample, repeat by repeat, with prompt and answer in tokens; PARTIAL counts by its score."""
    samples = [*numbered(3), Sample(id="part", input="x y", targets=("X Z",))]
    evaluator = rollout(grader="f1", samples_per_prompt=2, intermediates=True)
    async with rig() as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=[evaluator], dataset=samples, sampling=RANDOM))
        results = await samples_of(r.worker.bridge)
    batch = pad_rollouts(results, pad_token=-1)

    assert batch.sample_ids == ("s0", "s0", "s1", "s1", "s2", "s2", "part", "part")
    assert [result.repeat for result in results] == [0, 1] * 4
    assert batch.rewards.tolist() == [1.0] * 6 + [0.5] * 2
    assert "".join(map(chr, batch.tokens[0][batch.padding_mask[0]])) == "q0Q0"
    assert "".join(map(chr, batch.tokens[7][batch.action_mask[7]])) == "X Y"
    assert batch.tokens[0].tolist()[:2] == [-1, -1]
    told = r.model.logprob(ord("Q"), 0)
    assert batch.logprobs[0][batch.action_mask[0]][0] == np.float32(told)
    assert evaluation.metrics.values["score_mean"] == pytest.approx(0.875)
    assert evaluation.metrics.values.keys() == {"score_mean", "score_mean_stderr"}


async def test_a_failure_is_no_reward_of_zero():
    """A prompt whose answers fail keeps its rows, with NaN, and does not count; the others stand."""
    evaluator = rollout(samples_per_prompt=2, intermediates=True, reduce="sum")
    async with rig(ScriptedModel(fault=failing("q1"))) as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=[evaluator], dataset=numbered(3), sampling=RANDOM))
        rewards = pad_rollouts(await samples_of(r.worker.bridge)).rewards.reshape(-1, 2)

    (found,) = evaluation.results
    assert (found.n, found.n_scored, found.n_errors) == (6, 4, 2)
    assert evaluation.metrics.values["score_sum"] == 4.0
    assert np.isnan(rewards).tolist() == [[False, False], [True, True], [False, False]]
    assert np.nansum(rewards) == 4.0


async def test_scores_alone_are_a_result():
    """With reduce none there is no metric, the evaluation is COMPLETED, and every sample has its score."""
    async with rig() as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=[rollout(reduce="none")]))
        results = await samples_of(r.worker.bridge)

    assert evaluation.state is EvaluationState.COMPLETED
    assert not evaluation.metrics.values
    assert not evaluation.metrics.undefined
    assert [result.score for result in results] == [1.0, 1.0]
    assert [result.group for result in results] == [None, None]


@rows("reduce", ["mean", "sum", "none"])
@rows("kind", ["nll", "perplexity", "bits_per_byte", "next_token_accuracy", "multiple_choice", "accuracy"])
async def test_no_evaluator_fails_by_its_reduction(kind, reduce):
    """Every evaluator that measures finishes with every value of `reduce`; with none, only the samples have scores."""
    samples = [Sample(input=f"q{at}", targets=("A",), choices=("A", "B")) for at in range(3)]
    options = {} if kind in ("nll", "accuracy") else {"reduce": reduce}
    evaluator = EvaluatorSpec(kind=kind, options=options)
    async with rig() as r:
        evaluation = await r.evaluation.evaluate(asked(evaluators=[evaluator], dataset=samples))

    (found,) = evaluation.results
    assert (evaluation.state, found.problem, found.n_scored) == (EvaluationState.COMPLETED, None, 3)
    assert (not found.metrics.values) == (options == {"reduce": "none"})


async def test_rollouts_larger_than_a_page_are_read_page_by_page(monkeypatch):
    """A page ends behind the result that fills it, however large that is; nothing is lost or doubled."""
    monkeypatch.setattr(evaluations, "SAMPLE_PAGE_BYTES", 100)
    async with rig() as r:
        await r.evaluation.evaluate(asked(evaluators=[rollout(intermediates=True)], dataset=numbered(4)))
        page = await r.evaluation.get_samples("e")
        batch = pad_rollouts(await samples_of(r.worker.bridge))

    assert len(page.items) == 1
    assert page.next_page_token
    assert batch.sample_ids == ("s0", "s1", "s2", "s3")
    assert batch.padding_mask.all()


async def test_rollouts_that_no_page_could_carry_are_an_error_of_their_sample(monkeypatch):
    """It says how large they were; the other samples are kept, and every page can be read."""
    monkeypatch.setattr(sample_runner, "MAX_GROUP_BYTES", 400)
    long = Sample(id="long", input="x" * 100, targets=("X" * 8,))
    async with rig() as r:
        evaluation = await r.evaluation.evaluate(
            asked(evaluators=[rollout(intermediates=True)], dataset=[*numbered(1), long])
        )
        fits, beyond = await samples_of(r.worker.bridge)

    assert fits.group is not None
    assert (beyond.verdict, beyond.score, beyond.group) == (Verdict.ERROR, None, None)
    assert beyond.problem is not None
    assert beyond.problem.reason == "GROUP_TOO_LARGE"
    assert evaluation.metrics.values["score_mean"] == 1.0


async def test_log_probabilities_are_those_of_the_model_that_answered(tmp_path):
    """On an embedded model: what each token was sampled with is what the model says of the whole sequence."""
    model = "embedded:arithmetic@320"
    async with Worker(settings_for(tmp_path)) as worker, crucible_bridge.connect(worker.address) as bridge:
        await bridge.evaluation.evaluate(
            evaluation_id="e",
            model=model,
            evaluators=[rollout(samples_per_prompt=3, intermediates=True, grader="numeric")],
            dataset=dataclasses.replace(Dataset.of("builtin:arithmetic"), limit=6),
            sampling=SamplingParams(max_tokens=8, temperature=1.0, seed=5),
        )
        batch = pad_rollouts(await samples_of(bridge), padding="right")
        sequences = [row[kept] for row, kept in zip(batch.tokens, batch.padding_mask)]
        answer = await bridge.models.compute_logprobs(model, sequences)

    assert len(sequences) == 18
    assert len({tuple(sequence) for sequence in sequences}) > 6  # each answer has a seed of its own
    for row, found in enumerate(answer.sequences):
        assert found.logprobs is not None
        acted = batch.action_mask[row]
        # Entry i of what the model says belongs to token i + 1.
        expected = np.concatenate(([math.nan], found.logprobs))[acted[: len(found.logprobs) + 1]]
        assert batch.logprobs[row][acted] == pytest.approx(expected, abs=1e-4)
