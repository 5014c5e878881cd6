"""How a model is asked for answers: in tokens where its tokenizer is at hand, in words where its server has it."""

from __future__ import annotations

from collections.abc import Sequence

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.types import Conversation, Datum, ModelInput, SampledSequence, SamplingParams
from crucible_worker.backends.base import Model, TextSamplingClient
from crucible_worker.rendering.prompts import render_prompt

__all__ = ["sample_answers"]


async def sample_answers(
    model: Model, input: str | Conversation | Datum | ModelInput, params: SamplingParams, num_samples: int = 1
) -> Sequence[SampledSequence]:
    """Have a model answer an input.

    Tokens are sent as they are. Text and conversations are rendered by `render_prompt` where the model has a tokenizer;
    where its sampling side takes words, they are left to its server.

    Args:
        model: who is asked.
        input: of a Sample, or tokens.
        params: how to sample.
        num_samples: how many answers.

    Raises:
        FailedPrecondition: the model has no sampling client (MISSING_CLIENT), or the input cannot be rendered for it.
        InvalidField: there is nothing to ask, or more than fits.
        BackendError: the model could not be asked.
    """
    client = model.sampling
    if client is None:
        raise FailedPrecondition("the model has no sampling client", reason="MISSING_CLIENT")
    if isinstance(input, ModelInput):
        return await client.sample(input, params, num_samples)
    if isinstance(client, TextSamplingClient) and model.tokenizer is None and not isinstance(input, Datum):
        return await client.sample_text(input, params, num_samples)
    return await client.sample(await render_prompt(model.tokenizer, input), params, num_samples)
