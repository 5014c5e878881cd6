"""The likeliest tokens, and given ones, by a Tinker service: one request for all of it."""

from __future__ import annotations

import dataclasses
import math
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.types import ModelInput, SamplingParams
from crucible_worker.backends.distributions import Wanted
from tests.service.tinker_kit import Call, ScriptedLibrary, distributions, logprob, sampled, served, top_of, worker_on
from tests.tables import rows

TOKENS = [104, 101, 108, 108, 111]
PROMPT = ModelInput.of(TOKENS)
TARGETS = np.array([[101, -1], [99, 98]])


async def test_all_of_it_is_one_request(tmp_path: Path):
    """In the order of the contract; what the service left out is -1, and a target that is none NaN."""
    async with served(tmp_path) as (library, model):
        found = await model.compute_distributions(PROMPT, Wanted(last=2, top_k=3, targets=TARGETS))

    (call,) = library.of("distributions")
    assert (call.asked["top"], call.asked["last"]) == (3, 2)
    assert found.logprobs.tolist() == [logprob(108, 3), logprob(111, 4)]
    assert found.top_tokens is not None
    assert found.top_tokens.tolist() == [[108, 109, -1], [111, 112, -1]]
    assert found.top_logprobs is not None
    assert found.top_logprobs.tolist() == [[-1.0, -1.0, -math.inf]] * 2
    assert found.target_logprobs is not None
    expected = [[logprob(101, 3), math.nan], [logprob(99, 4), logprob(98, 4)]]
    np.testing.assert_array_equal(found.target_logprobs, expected)


@rows("last", [1, 2, 4])
async def test_targets_are_sent_dense_or_sparse(tmp_path: Path, last: int):
    """Whichever is less to send: the values are the same."""
    tokens = [104 + index % 7 for index in range(40)]
    targets = np.array([[100, 101, 102]] * last)
    async with served(tmp_path) as (library, model):
        found = await model.compute_distributions(ModelInput.of(tokens), Wanted(last=last, targets=targets))

    assert library.of("distributions")[0].asked["targets"].sparse_crow_indices is not None
    assert found.target_logprobs is not None
    expected = [[logprob(token, 40 - last + row) for token in (100, 101, 102)] for row in range(last)]
    assert found.target_logprobs.tolist() == expected
    assert found.top_tokens is None


async def test_targets_take_memory_of_the_measured_rows(tmp_path: Path):
    """Not of all tokens of a long prompt, of which only the last ones have targets."""
    tokens, targets = [104] * 4_000, np.arange(4_000)[None]
    async with served(tmp_path) as (library, model):
        tracemalloc.start()
        try:
            await model.compute_distributions(ModelInput.of(tokens), Wanted(last=1, targets=targets))
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert len(library.of("distributions")[0].asked["targets"].data) == targets.size
    assert most < 8 * len(tokens) * targets.size / 2


async def test_targets_without_a_token_send_none(tmp_path: Path):
    """There is nothing to ask for."""
    async with served(tmp_path) as (library, model):
        found = await model.compute_distributions(PROMPT, Wanted(last=1, top_k=2, targets=np.array([[-1]])))

    assert library.of("distributions")[0].asked["targets"] is None
    assert found.target_logprobs is not None
    assert np.isnan(found.target_logprobs).all()


def changed(**fields: Any) -> Any:
    """A script whose answer about distributions is changed."""

    def script(call: Call) -> Any:
        if call.kind != "distributions":
            return None
        asked = {name: call.asked[name] for name in ("top", "last", "targets")}
        return dataclasses.replace(distributions(TOKENS, **asked), **fields)

    return script


@rows(
    ("script", "reason"),
    [
        (changed(topk_prompt_logprobs_np=None), "NO_TOP_LOGPROBS"),
        (changed(target_prompt_logprobs=None), "NO_TARGET_LOGPROBS"),
        (changed(prompt_logprobs_np=None), "BACKEND_ANSWER"),
        (changed(prompt_logprobs_np=np.array([np.nan] * 5, np.float32)), "BACKEND_ANSWER"),
        (changed(topk_prompt_logprobs_np=top_of(TOKENS[:2], 3)), "BACKEND_ANSWER"),
        (changed(topk_prompt_logprobs_np=top_of(TOKENS, 4)), "BACKEND_ANSWER"),
        (changed(topk_prompt_logprobs_np=top_of(TOKENS, 1)), "BACKEND_ANSWER"),
    ],
)
async def test_an_answer_that_lacks_something_is_no_answer(tmp_path: Path, script: Any, reason: str):
    """By its reason: what the service does not return, and what does not fit."""
    async with served(tmp_path, script) as (_, model):
        with pytest.raises((FailedPrecondition, BackendError)) as caught:
            await model.compute_distributions(PROMPT, Wanted(last=2, top_k=3, targets=TARGETS))
    assert caught.value.reason == reason


async def test_targets_that_are_no_tokens_are_refused(tmp_path: Path):
    """Before they are sent."""
    async with served(tmp_path) as (library, model):
        with pytest.raises(InvalidField) as caught:
            await model.compute_distributions(PROMPT, Wanted(last=1, targets=np.array([[5, -2]])))
    assert caught.value.field == "targets[0][1]"
    assert not library.of("distributions")


async def test_samples_have_the_likeliest_tokens(tmp_path: Path):
    """As many rows as tokens, the end of sequence included; a service without them refuses by name."""
    library = ScriptedLibrary()
    async with worker_on(library, tmp_path) as bridge:
        answer = await bridge.models.sample(
            "tinker://run/sampler_weights/final", [TOKENS], SamplingParams(max_tokens=9), top_logprobs=3
        )
        library.script = lambda call: sampled([65]) if call.kind == "sample" else None
        refused = await bridge.models.sample(
            "tinker://run/sampler_weights/final", [TOKENS], SamplingParams(max_tokens=9), top_logprobs=3
        )

    (sequence,) = answer.items[0].sequences
    assert sequence.top_tokens is not None
    assert sequence.top_tokens[:, 0].tolist() == list(sequence.tokens)
    assert (sequence.top_tokens[:, -1] == -1).all()
    problem = refused.items[0].problem
    assert problem is not None
    assert problem.reason == "NO_TOP_LOGPROBS"


async def test_a_training_state_alone_refuses_columns(tmp_path: Path):
    """It answers forward passes, and no other question."""
    async with worker_on(ScriptedLibrary(), tmp_path) as bridge:
        with pytest.raises(FailedPrecondition) as caught:
            await bridge.models.compute_logprobs("tinker://run/weights/final", [TOKENS], top_k=2)
    assert (caught.value.reason, caught.value.field) == ("MISSING_CLIENT", "model")
