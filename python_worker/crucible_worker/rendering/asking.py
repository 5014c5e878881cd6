"""How a model is queried for answers: in tokens if its tokenizer is at hand, in words if only its server has it.

What comes back is separated here, for every backend: reasoning, answer, and what a server sent after a stop string.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Conversation, Datum, ModelInput, SampledSequence, SamplingParams, TokensChunk
from crucible_worker.backends.base import ANSWERING, Capability, Model, Tokenizer
from crucible_worker.rendering import role_colon
from crucible_worker.rendering.images import images_of, input_of
from crucible_worker.rendering.prompted import plain_text, stops_of
from crucible_worker.rendering.prompts import messages_of, render_question
from crucible_worker.rendering.renderers import AUTO, CHAT_TEMPLATE, RAW, ROLE_COLON, SERVED, check_input
from crucible_worker.util.parsing import aside_if_large
from crucible_worker.util.reasoning import OPENING_TOKENS, opening_of_prompt, parted

__all__ = ["Answered", "Finished", "ask", "finished", "opening_of_tokens", "resolved", "sample_answers"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A continuation, separated."""

    sequence: SampledSequence
    """It: its text ends at the first stop string after its reasoning, and `reasoning` has all of that."""
    answer: str
    """The text without the reasoning; empty if that is not finished."""
    whole: str
    """The text with the reasoning, also if a server returned that apart."""
    unfinished: bool
    """Whether it ends within its reasoning: then it has no answer."""
    rest: str
    """What a server sent from the stop string on."""


@dataclasses.dataclass(slots=True, kw_only=True)
class Answered:
    """A model's prompt, and its answers."""

    prompt: ModelInput | None
    """The prompt in tokens; None if the model's server made them."""
    answers: Sequence[Finished]
    """Its answers."""


def finished(sequence: SampledSequence, stops: Sequence[str], opening: str = "") -> Finished:
    """Separate what a model generated.

    A server that returns reasoning apart, and nothing else, has stopped within it: at its token limit, or at a stop
    string, which servers apply to reasoning as well.

    Args:
        sequence: what the backend returned; its tokens are not changed.
        stops: the stop strings.
        opening: the tag of reasoning with which the prompt ended, see `opening_of_prompt`.
    """
    text, apart = sequence.text, sequence.reasoning
    parts = parted(text, opening="" if apart else opening, stops=stops, truncated=sequence.stop_reason == "length")
    ended = parts.end < len(text)
    told = text[: parts.end]
    silent = bool(apart) and not (parts.answer.strip() or sequence.refusal or sequence.tool_calls)
    if ended or parts.reasoning:
        sequence = dataclasses.replace(
            sequence,
            text=told,
            reasoning="\n\n".join(filter(None, (apart, parts.reasoning))),
            stop_reason="stop" if ended else sequence.stop_reason,
        )
    return Finished(
        sequence=sequence,
        answer=parts.answer,
        whole=f"<think>\n{apart}\n</think>\n\n{told}" if apart else told,
        unfinished=parts.unfinished or silent,
        rest=text[parts.end :],
    )


async def sample_answers(
    model: Model,
    input: str | Conversation | Datum | ModelInput,
    params: SamplingParams,
    num_samples: int = 1,
    *,
    renderer: str = AUTO,
) -> Sequence[SampledSequence]:
    """The answers of `ask`, each with its reasoning in its text; raises what that raises."""
    asked = await ask(model, input, params, num_samples, renderer=renderer)
    return [answer.sequence for answer in asked.answers]


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
        opening = await opening_of_tokens(tokenizer, prompt)
    elif Capability.SAMPLE_TEXT in able and (tokenizer is None or Capability.SAMPLE not in able):
        chosen = resolved(model, renderer)
        if renderer == AUTO and chosen == RAW and plain_text(input) is None:
            chosen = CHAT_TEMPLATE  # the setting for text does not apply to messages with roles
        return Answered(prompt=None, answers=await _in_words(model, input, params, num_samples, chosen))
    else:
        begun = model.resolved_renderer == SERVED
        rendered = await render_question(tokenizer, input, SERVED if begun and renderer == AUTO else renderer)
        prompt, params = input_of(rendered.tokens, images_of(input)), _stopped(params, rendered.stop)
        if rendered.text is None:
            opening = await opening_of_tokens(tokenizer, prompt)
        else:
            opening = opening_of_prompt(rendered.text)
    sampled = await model.sample(prompt, params, num_samples)
    return Answered(prompt=prompt, answers=await _all_finished(sampled, params.stop, opening))


async def _all_finished(
    sampled: Sequence[SampledSequence], stops: Sequence[str], opening: str = ""
) -> Sequence[Finished]:
    size = sum(len(one.text) for one in sampled)
    return await aside_if_large(size, lambda: [finished(one, stops, opening) for one in sampled])


async def opening_of_tokens(tokenizer: Tokenizer | None, prompt: ModelInput) -> str:
    """The tag of reasoning with which a prompt in tokens ends; empty if there is none, or if its text is not known."""
    last = prompt.chunks[-1] if prompt.chunks else None
    if tokenizer is None or not isinstance(last, TokensChunk):
        return ""
    return opening_of_prompt(await tokenizer.show([int(token) for token in last.tokens[-OPENING_TOKENS:]]))


async def _in_words(
    model: Model, input: str | Conversation, params: SamplingParams, num_samples: int, renderer: str
) -> Sequence[Finished]:
    check_input(input, renderer)
    if renderer in (AUTO, SERVED, CHAT_TEMPLATE):
        # The server makes the prompt: whether it opens reasoning is not known.
        asked = Conversation(tuple(messages_of(input))) if renderer == CHAT_TEMPLATE else input
        sampled = await model.sample_text(asked, params, num_samples)
        return await _all_finished(sampled, params.stop)
    if renderer == ROLE_COLON:
        text, stop = role_colon.prompt_text(messages_of(input)), (role_colon.STOP,)
    elif renderer == RAW and (plain := plain_text(input, model.reading.target_delimiter)) is not None:
        text, stop = plain, stops_of(input)
    else:
        raise _no_cookbook()
    params, opening = _stopped(params, stop), opening_of_prompt(text)
    sampled = await model.sample_text(text, params, num_samples, plain=True)
    return await _all_finished(sampled, params.stop, opening)


def _no_cookbook() -> FailedPrecondition:
    return FailedPrecondition(
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
