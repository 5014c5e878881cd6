"""No sample is dropped, whatever the batch size: counts that no batch divides, at every concurrency and over pages.

A loop that runs whole batches alone leaves out the rest, or refuses a data set that no batch size divides, as
`find_accumulation_steps` of theseus does.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import crucible_bridge
from crucible_bridge.rollouts import pad_rollouts
from crucible_bridge.types import Evaluation, EvaluatorSpec, Limits, LocalModel, Sample, SampleResult, SamplingParams
from crucible_worker.embedded import registry
from crucible_worker.embedded.arithmetic import training_problems
from crucible_worker.server import Worker
from crucible_worker.testing import ScriptedModel
from tests import needs
from tests.service.evaluation_kit import asked, rig, samples_of
from tests.service.server_kit import settings_for

KEPT = ("next_token_accuracy", "perplexity", "bits_per_byte")
PRIME = 13
"""Samples that divide into no batches."""


def evaluators() -> list[EvaluatorSpec]:
    """All that have the options, each by a name of its own."""
    kinds = [*KEPT, "multiple_choice"]
    made = [EvaluatorSpec(kind=kind, name=kind, options={"intermediates": True}) for kind in kinds]
    return [*made, EvaluatorSpec(kind="rollout", name="rollout", options={"grader": "contains"})]


def questions(count: int) -> list[Sample]:
    """So many sums, each with three choices; no two have the same length and numbers."""
    problems = training_problems()[:count]
    return [
        Sample(id=f"s{index}", input=question, targets=(answer,), choices=(answer, f"{answer}9", f"{answer}8"))
        for index, (question, answer) in enumerate(problems)
    ]


def check(evaluation: Evaluation, results: Sequence[SampleResult], samples: Sequence[Sample]) -> None:
    """Every evaluator has a scored result of every sample, once, in the data set's order, with all of its tokens."""
    for spec, found in zip(evaluators(), evaluation.results, strict=True):
        own = [result for result in results if result.evaluator == spec.label]
        assert [result.sample_id for result in own] == [sample.id for sample in samples], spec.label
        assert (found.n, found.n_scored, found.n_unscored) == (len(samples), len(samples), 0), spec.label
        if spec.kind == "rollout":
            continue
        batch = pad_rollouts(own)
        assert batch.scored.all(), spec.label
        rows = sum(len(sample.choices) for sample in samples) if spec.kind == "multiple_choice" else len(samples)
        assert batch.tokens.shape[0] == rows, spec.label
        assert batch.action_mask.any(axis=1).all(), spec.label


async def test_no_concurrency_drops_a_sample() -> None:
    """From one at a time to more than there are samples; the metrics are the same, bit for bit."""
    samples = questions(PRIME)
    metrics = []
    async with rig(ScriptedModel(answer=lambda prompt: "7", latency=0.001)) as r:
        for concurrency in (1, 2, 3, 5, PRIME - 1, PRIME, PRIME + 1):
            name = f"e{concurrency}"
            evaluation = await r.evaluation.evaluate(
                asked(
                    evaluation_id=name,
                    evaluators=evaluators(),
                    dataset=samples,
                    limits=Limits(concurrency=concurrency),
                )
            )
            check(evaluation, await samples_of(r.worker.bridge, name), samples)
            metrics.append(evaluation.metrics)
        assert r.model.counts["peak"] > 1

    assert metrics[0].values["perplexity/perplexity"] > 1
    assert all(other == metrics[0] for other in metrics)


async def test_no_batch_of_a_local_model_drops_a_sample(tmp_path) -> None:
    """Around what it takes at once; the numbers are those of one sample at a time."""
    pytest.importorskip("torch", reason=needs.MISSING["torch"])
    from crucible_worker.backends.local.host.engine import MAX_ROWS

    found, directory = {}, registry.path("arithmetic@320")
    settings = settings_for(tmp_path, model_roots=(directory.parent,))
    async with Worker(settings) as worker, crucible_bridge.connect(worker.address) as bridge:
        for count, concurrency in (
            (1, 2),
            (MAX_ROWS - 1, 200),
            (MAX_ROWS, 200),
            (MAX_ROWS + 1, 200),
            (MAX_ROWS + 1, 1),
        ):
            samples, name = questions(count), f"e{count}-{concurrency}"
            evaluation = await bridge.evaluation.evaluate(
                evaluation_id=name,
                model=LocalModel(directory.name),
                evaluators=evaluators(),
                dataset=samples,
                sampling=SamplingParams(max_tokens=4),
                limits=Limits(concurrency=concurrency),
            )
            check(evaluation, await samples_of(bridge, name), samples)
            found[count, concurrency] = evaluation.metrics

    one, many = found[MAX_ROWS + 1, 1], found[MAX_ROWS + 1, 200]
    assert one.undefined.keys() == many.undefined.keys()
    assert many.values == pytest.approx(one.values, rel=1e-5, abs=1e-6)
