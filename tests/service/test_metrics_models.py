"""Metrics whose log-probabilities a model is asked for."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import pytest

import crucible_bridge
from crucible_bridge.errors import BackendError, BridgeError, Code, FailedPrecondition, InvalidField
from crucible_bridge.types import Datum, LocalModel, Usage
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from crucible_worker.testing import STALL, ScriptedModel, run_worker
from crucible_worker.util.limits import WorkerLimits
from tests.service.evaluation_kit import refused

pytestmark = pytest.mark.core

REPLY_SECONDS = 0.1
"""How long after its deadline a call is answered, by the contract."""
SLACK_SECONDS = 2.0
"""What a loaded machine may add to that."""


def datum(first: int, length: int = 3) -> Datum:
    """Consecutive token ids, all of which count."""
    tokens = list(range(first, first + length + 1))
    inputs = {"logprobs": np.full(length, -1.0), "mask": np.ones(length), "advantages": np.zeros(length)}
    return Datum(model_input=tokens[:-1], loss_fn_inputs={**inputs, "target_tokens": tokens[1:]})


def scripted(data: list[Datum], model: ScriptedModel) -> list[list[float]]:
    """What a scripted model says of the targets of data."""
    return [
        [model.logprob(token, index) for index, token in enumerate(datum.loss_fn_inputs["target_tokens"].tolist())]  # type: ignore[union-attr]
        for datum in data
    ]


@pytest.mark.parametrize("sampled", [True, False], ids=["sampling", "training"])
async def test_a_models_log_probabilities_are_those_given(sampled: bool):
    """Asking a model is the same as giving what it says, whichever side it has, in the order of the data."""
    model, data = ScriptedModel(sampled=sampled), [datum(first, 2 + first % 5) for first in range(60)]
    async with run_worker({"m": model}) as worker:
        metrics = worker.bridge.metrics
        asked = await metrics.compute_kl_post_update(data, "embedded:m")
        given = await metrics.compute_kl_post_update(data, scripted(data, model))
        asked_penalty = await metrics.incorporate_kl_penalty(data, "embedded:m", coef=0.1, discount=0.9)
        given_penalty = await metrics.incorporate_kl_penalty(data, scripted(data, model), coef=0.1, discount=0.9)

    assert dataclasses.replace(asked, usage=None) == given
    # Each sequence is read once; forward passes do not see the last token.
    tokens = sum(each.model_input.tokens().size + sampled for each in data)
    assert asked.usage == asked_penalty.usage == Usage(prompt_tokens=tokens, output_tokens=0, calls=len(data))
    assert given_penalty.usage is None
    assert asked_penalty.metrics == given_penalty.metrics
    for one, other in zip(asked_penalty.advantages, given_penalty.advantages, strict=True):
        np.testing.assert_array_equal(one, other)


async def test_a_model_is_asked_for_each_sequence_once_and_several_at_a_time():
    """As many at once as the worker's limit says, and no more."""
    model, data = ScriptedModel(latency=0.01), [datum(first) for first in range(20)]
    async with run_worker({"m": model}, limits=WorkerLimits(default_concurrency=4)) as worker:
        await worker.bridge.metrics.compute_kl_post_update(data, "embedded:m")

    assert (model.counts["compute_logprobs"], model.counts["peak"], model.loads) == (20, 4, 1)


async def test_a_retryable_failure_is_asked_again():
    """The result does not tell."""
    model, data = ScriptedModel(), [datum(first) for first in range(4)]
    down = BackendError("is out of order", reason="BACKEND_DOWN", retry_after=0.0)
    model.fault = lambda call: down if call.index == 1 else None
    async with run_worker({"m": model}) as worker:
        asked = await worker.bridge.metrics.compute_kl_post_update(data, "embedded:m")
        given = await worker.bridge.metrics.compute_kl_post_update(data, scripted(data, model))

    assert dataclasses.replace(asked, usage=None) == given
    assert model.counts["compute_logprobs"] == 5


FAILURES: list[tuple[BridgeError, Code, str]] = [
    (BackendError("is out of order", reason="BACKEND_DOWN", retryable=False), Code.UNAVAILABLE, "data[2]"),
    (InvalidField("prompt", "has 4 tokens, the context holds 3"), Code.INVALID_ARGUMENT, "data[2].model_input"),
]


@pytest.mark.parametrize(("failure", "code", "field"), FAILURES, ids=["backend", "input"])
async def test_a_failure_names_its_datum(failure: BridgeError, code: Code, field: str):
    """The error is the backend's, at the place of the request that it is about; no other call starts after it."""
    model, data = ScriptedModel(), [datum(first) for first in range(40)]
    model.fault = lambda call: failure if call.text.startswith(chr(2)) else None
    async with run_worker({"m": model}, limits=WorkerLimits(default_concurrency=2)) as worker:
        call = worker.bridge.metrics.compute_kl_post_update(data, "embedded:m")
        await refused(call, code, failure.reason, field)

    assert model.counts["compute_logprobs"] < len(data)


async def test_a_model_that_cannot_be_loaded_is_named():
    """The error is at the model, not at the first datum that would have asked it."""
    model = ScriptedModel()

    async def load() -> None:
        raise FailedPrecondition("is refused", reason="MODEL_REFUSED")

    async with run_worker({"m": model}) as worker:
        model.load = load  # type: ignore[method-assign]
        call = worker.bridge.metrics.compute_kl_post_update([datum(1)], "embedded:m")
        await refused(call, Code.FAILED_PRECONDITION, "MODEL_REFUSED", "updated.model")


async def test_a_model_that_answers_nonsense_is_not_believed():
    """Too few values are the backend's error; NaN is a value, and the metric is undefined."""
    model = ScriptedModel(logprob=lambda token, position: float("nan"))

    async def short(prompt: Any) -> list[float | None]:
        return [None, -1.0]

    async with run_worker({"nan": model, "short": (dull := ScriptedModel())}) as worker:
        dull.compute_logprobs = short  # type: ignore[method-assign]
        undefined = await worker.bridge.metrics.compute_kl_post_update([datum(1)], "embedded:nan")
        await refused(
            worker.bridge.metrics.compute_kl_post_update([datum(1)], "embedded:short"),
            Code.UNAVAILABLE,
            "BACKEND_ANSWER",
            "data[0]",
        )

    assert "3 of 3 log-probabilities are NaN" in undefined.metrics.undefined["kl_pre_post_v1"]


async def test_at_its_deadline_a_call_ends_and_asks_no_more():
    """DEADLINE_EXCEEDED with the field, shortly after; what is under way is given up, nothing new starts."""
    model, data = ScriptedModel(), [datum(first) for first in range(10)]
    model.fault = lambda call: STALL if call.index >= 2 else None
    async with run_worker({"m": model}, limits=WorkerLimits(default_concurrency=2)) as worker:
        started = time.monotonic()
        call = worker.bridge.metrics.incorporate_kl_penalty(data, "embedded:m", coef=1.0, deadline_ms=200)
        error = await refused(call, Code.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", "deadline_ms")
        taken = time.monotonic() - started

    assert "2 of 10" in str(error)
    assert 0.2 <= taken < 0.2 + REPLY_SECONDS + SLACK_SECONDS
    assert model.counts["compute_logprobs"] == 4
    assert model.counts["in_flight"] == 0


async def test_a_deadline_bounds_the_model_alone():
    """Where log-probabilities are given there is nothing to wait for."""
    async with run_worker({}) as worker:
        answer = await worker.bridge.metrics.compute_kl_post_update([datum(1)], [[-1.0, -1.0, -1.0]], deadline_ms=1)

    assert answer.action_tokens == 3


async def test_models_that_cannot_be_asked_are_refused():
    """Unknown, of a kind that this worker has no place for, or with neither side."""
    mute = ScriptedModel(sampled=False, trained=False)
    async with run_worker({"mute": mute}) as worker:
        post, penalty = worker.bridge.metrics.compute_kl_post_update, worker.bridge.metrics.incorporate_kl_penalty
        await refused(post([datum(1)], "embedded:nobody"), Code.NOT_FOUND, "UNKNOWN_MODEL", "updated.model")
        await refused(post([datum(1)], LocalModel("x")), Code.FAILED_PRECONDITION, "NO_BACKEND", "updated.model")
        await refused(
            penalty([datum(1)], "embedded:mute", coef=1.0), Code.FAILED_PRECONDITION, "MISSING_CLIENT", "base.model"
        )


async def test_an_embedded_model_is_asked(tmp_path):
    """A checkpoint differs from another one, and not from itself."""
    tokens = [4, 5, 13, 6, 7, 14, 7, 9, 1]
    settings = Settings(port=0, state_dir=tmp_path).validate()
    async with Worker(settings) as worker, crucible_bridge.connect(worker.address) as bridge:

        async def advantages(logprobs: Any, model: str) -> Any:
            inputs = {"logprobs": logprobs, "mask": np.ones(8), "advantages": np.zeros(8)}
            data = [Datum(model_input=tokens[:-1], loss_fn_inputs={**inputs, "target_tokens": tokens[1:]})] * 3
            return await bridge.metrics.incorporate_kl_penalty(data, model, coef=-1.0)

        # Advantages against zeros tell the model's log-probabilities, but for their mean.
        probe = await advantages(np.zeros(8), "embedded:arithmetic@600")
        mean = -probe.metrics.values["kl_policy_base"]
        logprobs = mean - probe.advantages[0]
        itself = await advantages(logprobs, "embedded:arithmetic@600")
        earlier = await advantages(logprobs, "embedded:arithmetic@180")

    assert np.all(logprobs < 0)
    assert itself.metrics.values["kl_policy_base"] == pytest.approx(0, abs=1e-6)
    assert np.max(np.abs(itself.advantages[0])) < 1e-5
    assert np.max(np.abs(earlier.advantages[0])) > 0.1
