"""One embedded checkpoint, asked by the worker itself and through its caller: the same samples, the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.types import (
    Dataset,
    Datum,
    EmbeddedModel,
    EvaluatorSpec,
    ModelInput,
    Sample,
    SampledSequence,
    SampleItem,
    SamplingParams,
)
from crucible_worker.backends.base import Model
from crucible_worker.backends.local.backend import LocalBackend
from crucible_worker.server import Worker
from tests.service.evaluation_kit import nll, samples_of
from tests.service.server_kit import settings_for

MODEL = "embedded:arithmetic@320"
GREEDY = SamplingParams(max_tokens=8)
COUNT = 30


class Behind:
    """The checkpoint as a model of the caller's: each call goes to ModelService."""

    def __init__(self, bridge: Bridge) -> None:
        self._models = bridge.models

    async def sample(self, prompt: Any, params: SamplingParams, num_samples: int) -> Sequence[SampledSequence]:
        item = SampleItem(prompt=prompt, num_samples=num_samples, seed=params.seed)
        (answer,) = (await self._models.sample(MODEL, [item], params)).items
        assert answer.problem is None
        return answer.sequences

    async def compute_logprobs(self, model_input: ModelInput) -> Sequence[float | None]:
        (answer,) = (await self._models.compute_logprobs(MODEL, [model_input])).sequences
        assert answer.logprobs is not None
        return [None, *answer.logprobs.tolist()]

    async def forward(self, data: Sequence[Datum]) -> list[np.ndarray | None]:
        return [output.logprobs for output in (await self._models.forward(MODEL, data)).outputs]


def sequences() -> list[Sample]:
    """Data of some tokens of the vocabulary, with weights."""
    random = np.random.default_rng(5)
    tokens = [random.integers(0, 15, 3 + index % 9) for index in range(COUNT)]
    return [
        Sample(
            input=Datum(
                model_input=ids[:-1],
                loss_fn_inputs={"target_tokens": ids[1:], "weights": random.random(len(ids) - 1).astype(np.float32)},
            )
        )
        for ids in tokens
    ]


async def test_a_checkpoint_is_the_same_here_and_with_its_caller(tmp_path):
    """Greedy samples are equal one by one, accuracy exactly, nll to 1e-5 by forward passes and by log-probabilities."""
    async with Worker(settings_for(tmp_path)) as worker, crucible_bridge.connect(worker.address) as bridge:
        behind = Behind(bridge)
        arithmetic = {
            "evaluators": "accuracy",
            "dataset": Dataset.of("builtin:arithmetic"),
            "sampling": GREEDY,
        }
        here = await bridge.evaluation.evaluate(evaluation_id="here", model=MODEL, **arithmetic)
        there = await bridge.evaluation.evaluate_with_orchestrator_model(
            evaluation_id="there", model=behind, name="arithmetic", **arithmetic
        )
        said_here = [(sample.sample_id, sample.output) for sample in await samples_of(bridge, "here")]
        said_there = [(sample.sample_id, sample.output) for sample in await samples_of(bridge, "there")]
        measured = {"evaluators": [nll("f"), nll("c", client="sampling")], "dataset": Dataset.of(sequences())}
        nll_here = await bridge.evaluation.evaluate(model=MODEL, **measured)
        nll_there = await bridge.evaluation.evaluate_with_orchestrator_model(
            model=behind, name="arithmetic", **measured
        )

    assert said_there == said_here
    assert there.metrics == here.metrics
    assert 0 < here.metrics.values["accuracy"] < 1
    assert set(nll_here.metrics.values) == {"f/nll", "c/nll"}
    assert dict(nll_there.metrics.values) == pytest.approx(dict(nll_here.metrics.values), abs=1e-5)


async def test_likeliest_tokens_are_the_same_here_and_with_its_caller(tmp_path):
    """next_token_accuracy has the same metrics, and the same record of each sample, wherever the model is."""
    backend = LocalBackend(device="cpu")
    behind = await backend.open(EmbeddedModel(MODEL.removeprefix("embedded:")))
    await behind.load()
    fields = {
        "evaluators": EvaluatorSpec(kind="next_token_accuracy"),
        "dataset": Dataset.of(sequences()),
    }
    async with Worker(settings_for(tmp_path)) as worker, crucible_bridge.connect(worker.address) as bridge:
        here = await bridge.evaluation.evaluate(evaluation_id="here", model=MODEL, **fields)
        there = await bridge.evaluation.evaluate_with_orchestrator_model(
            evaluation_id="there", model=_Likeliest(behind), name="arithmetic", **fields
        )
        records = [
            [(one.sample_id, one.score, one.measurements) for one in await samples_of(bridge, name)]
            for name in ("here", "there")
        ]
    await backend.aclose()
    assert there.metrics == here.metrics
    assert 0 < here.metrics.values["next_token_accuracy"] < 1
    assert records[0] == records[1]
    assert len(records[0]) == COUNT


class _Likeliest:
    """A model of the caller's with this one method."""

    def __init__(self, model: Model) -> None:
        self._model = model

    async def compute_argmax(self, model_input: ModelInput) -> Sequence[int | None]:
        return await self._model.compute_argmax(model_input)
