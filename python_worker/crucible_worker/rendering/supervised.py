"""The tokens on which a model is trained and measured: each with a weight, shifted by one."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

import numpy as np

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ChatMessage, Conversation, Datum, Sample
from crucible_worker.backends.base import Rendered, Tokenizer
from crucible_worker.rendering import role_colon
from crucible_worker.rendering.images import images_of, input_of, shifted, weights_of
from crucible_worker.rendering.prompts import (
    encode_answered,
    encode_conversation,
    messages_of,
    plain_of,
    require_tokenizer,
)
from crucible_worker.rendering.renderers import AUTO, COOKBOOK, RAW, ROLE_COLON, check_input
from crucible_worker.rendering.train_on import ALL_TOKENS, CUSTOMIZED, TrainOn, chosen, full_name, with_weights

__all__ = ["render_supervised", "render_weighted"]

_PROBES = ("0", "x")
"""Two contents of a message that begin otherwise: what a template writes before them is the same."""


async def render_supervised(
    tokenizer: Tokenizer | None, sample: Sample, train_on: TrainOn = "last_assistant", renderer: str = AUTO
) -> Datum:
    """Render a sample as `target_tokens` and `weights`, of the model input's length.

    Input i is followed by target i: the model input is every token but the last, the targets every token but the first.

    - A Datum is passed through unchanged.
    - Text with targets: the prompt, weight 0, then the first target and the end-of-sequence token if the model has one,
      weight 1. In plain text the target delimiter stands before the target, with weight 1.
    - A conversation: through the chat template. A message counts with the tokens that close it, and without those that
      open it; `train_on` says which ones, and with which weight. If its last message is not the assistant's, the first
      target becomes one, if the sample has targets.

    `auto` and `chat_template` do that. With `raw`, text is plain and no end of sequence is added. With `role_colon` and
    tinker-cookbook's renderers, text with a target is a message of the user with its answer, and weights are those of
    tinker-cookbook.

    Args:
        tokenizer: the model's, if it has one.
        sample: the sample to render.
        train_on: which messages of a conversation count.
        renderer: see `renderers.py`.

    Returns:
        `target_tokens` int64 and `weights` float32, shape (n,).

    Raises:
        FailedPrecondition: no tokenizer, no chat template, or one that renders a message otherwise when others follow;
            or the renderer cannot be used with this model.
        InvalidField: there is no target, or no message of the assistant; or the renderer accepts no conversation.
    """
    if isinstance(sample.input, Datum):
        return sample.input
    tokens, weights = await render_weighted(tokenizer, sample, train_on, renderer)
    images = images_of(sample.input)
    if not images:
        return shifted(input_of(tokens, images), weights)
    return await asyncio.to_thread(lambda: shifted(input_of(tokens, images), weights_of(tokens, weights, images)))


async def render_weighted(
    tokenizer: Tokenizer | None, sample: Sample, train_on: TrainOn = "last_assistant", renderer: str = AUTO
) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of a text or a conversation, and the weight of each, before they are shifted.

    Args and errors are those of `render_supervised`; the sample is no Datum.

    Returns:
        Tokens int64 and weights float32, shape (n,); -1 is the place of the first image, -2 of the second one.
    """
    assert not isinstance(sample.input, Datum)
    check_input(sample.input, renderer)
    known = require_tokenizer(tokenizer)
    if renderer == ROLE_COLON or renderer.startswith(COOKBOOK):
        tokens, weights = await _messages(known, sample.input, sample.targets, train_on, renderer)
    elif isinstance(sample.input, Conversation) and plain_of(known, sample.input, renderer) is None:
        tokens, weights = await _conversation(known, _answered(sample.input.messages, sample.targets), train_on)
    else:
        tokens, weights = await _text(known, sample.input, sample.targets, renderer)
    return tokens, weights


async def _text(
    tokenizer: Tokenizer, input: str | Conversation, targets: Sequence[str], renderer: str
) -> tuple[np.ndarray, np.ndarray]:
    _check_targets(targets)
    if isinstance(input, Conversation) and any(message.weight for message in input.messages):
        raise InvalidField("input.messages", "has weights, and becomes a plain text, of which the target alone counts")
    prompt, (told,) = await encode_answered(tokenizer, input, targets[:1], renderer)
    answer = list(told)
    if tokenizer.eos_token_id is not None and renderer != RAW:
        answer.append(tokenizer.eos_token_id)
    if not answer:
        raise InvalidField("targets[0]", "has no tokens")
    weights = np.zeros(len(prompt) + len(answer), np.float32)
    weights[len(prompt) :] = 1
    return np.array([*prompt, *answer], np.int64), weights


async def _messages(
    tokenizer: Tokenizer, input: str | Conversation, targets: Sequence[str], train_on: TrainOn, renderer: str
) -> tuple[np.ndarray, np.ndarray]:
    """Render messages with a renderer that sets its own weights."""
    if isinstance(input, str):
        _check_targets(targets)
        train_on = "last_assistant"
    answered = _answered(messages_of(input), targets)
    if not answered:
        raise InvalidField("input.messages", "is empty")
    messages, weights = chosen(answered, train_on)
    if renderer == ROLE_COLON:
        rendered = await role_colon.encode_weighted(
            tokenizer, messages, weights, headers=full_name(train_on) == ALL_TOKENS
        )
    else:
        given = with_weights(messages, weights) if train_on == CUSTOMIZED else messages
        rendered = await tokenizer.render_cookbook(renderer.removeprefix(COOKBOOK), given, train_on=full_name(train_on))
    return _weighted(rendered)


def _weighted(rendered: Rendered) -> tuple[np.ndarray, np.ndarray]:
    if len(rendered.tokens) < 2:
        raise InvalidField("input.messages", "renders to less than two tokens: none can be predicted")
    return np.array(rendered.tokens, np.int64), np.array(rendered.weights, np.float32)


def _check_targets(targets: Sequence[str]) -> None:
    if not targets:
        raise InvalidField("targets", "is empty: there is no text to measure")


def _answered(messages: Sequence[ChatMessage], targets: Sequence[str]) -> Sequence[ChatMessage]:
    if messages and messages[-1].role != "assistant" and targets:
        return (*messages, ChatMessage("assistant", targets[0]))
    return messages


async def _conversation(
    tokenizer: Tokenizer, messages: Sequence[ChatMessage], train_on: TrainOn
) -> tuple[np.ndarray, np.ndarray]:
    messages, weighted = chosen(messages, train_on) if messages else ((), ())
    tokens = list(await encode_conversation(tokenizer, messages, generation_prompt=False))
    if len(tokens) < 2:
        raise InvalidField("input.messages", "renders to less than two tokens: none can be predicted")
    if full_name(train_on) == ALL_TOKENS:
        return np.array(tokens, np.int64), np.ones(len(tokens), np.float32)
    weights = np.zeros(len(tokens), np.float32)
    for index, weight in enumerate(weighted):
        if weight:
            start, end = await _span(tokenizer, messages, index, tokens)
            weights[start:end] = weight
    return np.array(tokens, np.int64), weights


async def _span(
    tokenizer: Tokenizer, messages: Sequence[ChatMessage], index: int, tokens: Sequence[int]
) -> tuple[int, int]:
    """The start of a message, after the tokens that open it, and its end.

    Only the chat template determines this, so it renders the conversation before the message and up to it; both have to
    be prefixes of the whole. Templates that drop earlier reasoning, or insert text before the last message, fail.
    """
    before = messages[:index]
    if messages[index].role != "assistant":
        opening = await _opening(tokenizer, messages, index)
    elif before:
        opening = await encode_conversation(tokenizer, before, generation_prompt=True)
    else:  # the opening of its message cannot be separated from the message
        opening = ()
    closing = await encode_conversation(tokenizer, messages[: index + 1], generation_prompt=False)
    for part in (opening, closing):
        if list(part) != list(tokens[: len(part)]):
            raise FailedPrecondition(
                f"the chat template renders messages before message {index} otherwise when others follow: "
                "its tokens cannot be told from the rest",
                reason=Reason.CHAT_TEMPLATE_NOT_STABLE,
            )
    return len(opening), len(closing)


async def _opening(tokenizer: Tokenizer, messages: Sequence[ChatMessage], index: int) -> Sequence[int]:
    """The tokens up to the content of a message for which there is no generation prompt."""
    first, second = [
        await encode_conversation(
            tokenizer,
            (*messages[:index], dataclasses.replace(messages[index], content=probe, parts=(), tool_calls=())),
            generation_prompt=False,
        )
        for probe in _PROBES
    ]
    pairs = enumerate(zip(first, second, strict=False))
    return first[: next((place for place, (one, other) in pairs if one != other), len(first))]
