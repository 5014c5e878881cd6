"""How a model is queried for answers: in tokens if its tokenizer is at hand, in words if only its server has it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Conversation, Datum, ModelInput, SampledSequence, SamplingParams
from crucible_worker.backends.base import ANSWERING, Capability, Model
from crucible_worker.rendering import role_colon
from crucible_worker.rendering.images import images_of, input_of
from crucible_worker.rendering.prompted import plain_text, stops_of
from crucible_worker.rendering.prompts import messages_of, render_question
from crucible_worker.rendering.renderers import AUTO, CHAT_TEMPLATE, RAW, ROLE_COLON, SERVED, check_input

__all__ = ["Answered", "ask", "resolved", "sample_answers"]


@dataclasses.dataclass(slots=True, kw_only=True)
class Answered:
    """A model's prompt, and its answers."""

    prompt: ModelInput | None
    """The prompt in tokens; None if the model's server made them."""
    answers: Sequence[SampledSequence]
    """Its answers."""


async def sample_answers(
    model: Model,
    input: str | Conversation | Datum | ModelInput,
    params: SamplingParams,
    num_samples: int = 1,
    *,
    renderer: str = AUTO,
) -> Sequence[SampledSequence]:
    """The answers of `ask`; raises what it raises."""
    return (await ask(model, input, params, num_samples, renderer=renderer)).answers


async def ask(
    model: Model,
    input: str | Conversation | Datum | ModelInput,
    params: SamplingParams,
    num_samples: int = 1,
    *,
    renderer: str = AUTO,
) -> Answered:
    """Sample answers of a model to an input.

    Tokens are sent unchanged. Text and conversations are rendered here if the model has a tokenizer. If its sampling
    side takes words, its server gets messages; with `role_colon` and `raw` it gets a text to complete. Stop sequences
    of the renderer follow those of the parameters.

    Args:
        model: the model to query.
        input: the input of a Sample, or tokens.
        params: how to sample.
        num_samples: how many answers.
        renderer: see `renderers.py`.

    Raises:
        FailedPrecondition: the model has no sampling client (MISSING_CLIENT), or the input cannot be rendered for it.
        InvalidField: the prompt is empty, or longer than the context; the renderer accepts no conversation.
        BackendError: the model could not be queried.
    """
    able, tokenizer = model.capabilities, model.tokenizer
    if able.isdisjoint(ANSWERING):
        raise FailedPrecondition("the model has no sampling client", reason=Reason.MISSING_CLIENT)
    if isinstance(input, ModelInput | Datum):
        prompt = input.model_input if isinstance(input, Datum) else input
    elif Capability.SAMPLE_TEXT in able and (tokenizer is None or Capability.SAMPLE not in able):
        chosen = resolved(model, renderer)
        if renderer == AUTO and chosen == RAW and plain_text(input) is None:
            chosen = CHAT_TEMPLATE  # the setting for text does not apply to messages with roles
        return Answered(prompt=None, answers=await _in_words(model, input, params, num_samples, chosen))
    else:
        begun = model.resolved_renderer == SERVED
        rendered = await render_question(tokenizer, input, SERVED if begun and renderer == AUTO else renderer)
        prompt, params = input_of(rendered.tokens, images_of(input)), _stopped(params, rendered.stop)
    return Answered(prompt=prompt, answers=await model.sample(prompt, params, num_samples))


async def _in_words(
    model: Model, input: str | Conversation, params: SamplingParams, num_samples: int, renderer: str
) -> Sequence[SampledSequence]:
    check_input(input, renderer)
    if renderer in (AUTO, SERVED):
        return await model.sample_text(input, params, num_samples)
    if renderer == CHAT_TEMPLATE:
        return await model.sample_text(Conversation(tuple(messages_of(input))), params, num_samples)
    if renderer == ROLE_COLON:
        text = role_colon.prompt_text(messages_of(input))
        return await model.sample_text(text, _stopped(params, (role_colon.STOP,)), num_samples, plain=True)
    if renderer == RAW and (text := plain_text(input, model.reading.target_delimiter)) is not None:
        return await model.sample_text(text, _stopped(params, stops_of(input)), num_samples, plain=True)
    raise FailedPrecondition(
        "the model's tokenizer lies with its server, and tinker-cookbook's renderers need one at hand, as local models "
        "have it",
        reason=Reason.NO_COOKBOOK_TOKENIZER,
    )


def _stopped(params: SamplingParams, stop: Sequence[str]) -> SamplingParams:
    further = tuple(text for text in stop if text not in params.stop)
    return dataclasses.replace(params, stop=(*params.stop, *further)) if further else params


def resolved(model: Model, renderer: str) -> str:
    """The renderer for a loaded model that is to answer.

    `auto` becomes the renderer that the evaluation recorded before, if it did; else the chat template of the model or
    its server; else plain text. It stays `auto` if an orchestrator renders.
    """
    if renderer != AUTO:
        return renderer
    if model.resolved_renderer is not None:
        return model.resolved_renderer
    if model.tokenizer is not None:
        return CHAT_TEMPLATE if model.tokenizer.has_chat_template else RAW
    return model.renderer
