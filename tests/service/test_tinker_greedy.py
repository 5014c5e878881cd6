"""Likeliest tokens of a prompt: how a Tinker service is asked for them, and what it is told when it does not answer."""

import dataclasses

import numpy as np
import pytest

from crucible_bridge.errors import BackendError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Dataset, EvaluationState, EvaluatorSpec, ModelInput, Prompt, Sample
from crucible_worker.backends.base import Capability
from tests.service.evaluation_kit import samples_of
from tests.service.tinker_kit import (
    SAMPLER,
    ScriptedLibrary,
    foretold,
    likeliest,
    sampled,
    served,
    worker_on,
)

TOKENS = [5, 6, 7, 8]


def answered(answer):
    """A script: questions for likeliest tokens are answered like this, the rest plainly."""
    return lambda call: answer if call.kind == "greedy" else None


async def test_one_request_tells_of_every_place(tmp_path):
    """The first token has nothing before it; a prompt that is nothing else is not sent."""
    async with served(tmp_path) as (library, model):
        assert model.sampling is not None
        assert Capability.ARGMAX in model.capabilities
        found = await model.sampling.compute_argmax(ModelInput.of(TOKENS))
        alone = await model.sampling.compute_argmax(ModelInput.of([5]))
    assert found == (None, *(likeliest(token, place) for place, token in enumerate(TOKENS[1:], 1)))
    assert alone == (None,)
    assert [call.asked for call in library.of("greedy")] == [{"tokens": TOKENS}]


async def test_a_service_that_leaves_them_out_is_told_so(tmp_path):
    """An answer without them says that it does not know of them: no token is wrong for that."""
    async with served(tmp_path, answered(sampled([9], cut=True))) as (_, model):
        assert model.sampling is not None
        with pytest.raises(FailedPrecondition, match="'default' returns no likeliest tokens") as caught:
            await model.sampling.compute_argmax(ModelInput.of(TOKENS))
    assert caught.value.reason == Reason.NO_GREEDY_TOKENS


@pytest.mark.parametrize(
    "changed",
    [
        {"token_ids": np.zeros((3, 1), np.int32), "logprobs": np.zeros((3, 1), np.float32)},
        {"token_ids": np.zeros((4, 1), np.int32), "logprobs": np.full((4, 1), -99999.0, np.float32)},
        {"token_ids": np.full((4, 1), -3, np.int32), "logprobs": np.zeros((4, 1), np.float32)},
    ],
)
async def test_what_does_not_fit_the_prompt_is_nonsense(tmp_path, changed):
    """Another number of places, a place without a token, a token that is none: an error, not a wrong token."""
    async with served(tmp_path, answered(foretold(TOKENS, **changed))) as (_, model):
        assert model.sampling is not None
        with pytest.raises(BackendError) as caught:
            await model.sampling.compute_argmax(ModelInput.of(TOKENS))
    assert caught.value.reason == "BACKEND_ANSWER"


async def test_next_tokens_of_a_service_are_evaluated(tmp_path):
    """Through a worker: the target and the end of the sequence count; texts are cleaned by the service's tokenizer."""
    samples = [Sample(id="s", input="2+2=", targets=("4",))]
    library = ScriptedLibrary()
    async with worker_on(library, tmp_path) as bridge:
        evaluation = await bridge.evaluation.evaluate(
            model=SAMPLER,
            evaluators=EvaluatorSpec(kind="next_token_accuracy", options={"clean": ["strip"]}),
            dataset=dataclasses.replace(Dataset.of(samples), prompt=Prompt(target_delimiter="")),
            evaluation_id="e",
        )
        (sample,) = await samples_of(bridge)
    assert evaluation.state is EvaluationState.COMPLETED, evaluation.problem
    # "4" stands at place 4 and is foretold as "5"; the end of the sequence at place 5 is right.
    assert sample.score == 0.5
    assert evaluation.metrics.values == {"next_token_accuracy": 0.5, "sample_accuracy": 0.0}
