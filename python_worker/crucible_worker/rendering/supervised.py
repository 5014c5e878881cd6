"""The tokens on which a model is trained and measured: each with a weight, shifted by one.

They are those of an example, of a whole text, or of a window of a longer text.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ChatMessage, Conversation, Datum, ModelInput, Sample, ToolSpec
from crucible_worker.backends.base import Rendered, Tokenizer
from crucible_worker.rendering import role_colon
from crucible_worker.rendering.prompts import (
    AUTO,
    COOKBOOK,
    RAW,
    ROLE_COLON,
    check_input,
    encode_answered,
    encode_conversation,
    images_of,
    input_of,
    messages_of,
    plain_of,
    require_tokenizer,
    shifted,
    tools_of,
    weights_of,
    with_tools,
)
from crucible_worker.rendering.train_on import ALL_TOKENS, CUSTOMIZED, TrainOn, chosen, full_name, with_weights

__all__ = ["Window", "is_whole", "render_behind", "render_supervised", "render_weighted", "render_whole", "windows_of"]

# Windows that fit into a model's context, for longer texts: every token is measured once.
#
# The windows are those of lm-evaluation-harness's rolling log-likelihoods with one token of context: the first holds as
# many tokens as fit, each later one starts with the last token of the previous one. The last window has usually fewer
# tokens to measure, and reaches back as far as fits: these tokens have more context, never less.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A part of a datum, by indices of its targets."""

    start: int
    """The index where its input begins."""
    first: int
    """The index of the first target that is measured in it."""
    end: int
    """The index after the last one."""

    def cut(self, datum: Datum, targets: np.ndarray, weights: np.ndarray) -> Datum:
        """A part of a datum: input, `target_tokens` and `weights`, which are 0 for tokens of other windows.

        Args:
            datum: the whole datum; returned unchanged if the window covers all of it.
            targets: its `target_tokens`, shape (n,).
            weights: its `weights`, shape (n,).

        Raises:
            InvalidField: the datum contains an image, and has to be split.
        """
        if self.first == 0 and self.end == targets.size:
            return datum
        part = slice(self.start, self.end)
        own = weights[part].copy()
        own[: self.first - self.start] = 0
        return Datum(
            model_input=ModelInput.of(datum.model_input.tokens()[part]),
            loss_fn_inputs={"target_tokens": targets[part], "weights": own},
        )

    def measured(self, values: np.ndarray) -> np.ndarray:
        """The values of the targets that are measured in this window, from those of all its targets."""
        return values[self.first - self.start :]


def windows_of(count: int, size: int | None) -> list[Window]:
    """The windows in which so many targets are measured, in order: together they measure each of them once.

    Args:
        count: targets, at least one.
        size: targets that fit into a window; one window has all if this is None, or below 1.
    """
    if size is None or size < 1 or count <= size:
        return [Window(start=0, first=0, end=count)]
    ends = [*range(size, count, size), count]
    return [Window(start=end - size, first=first, end=end) for first, end in zip([0, *ends], ends)]


# Text to be measured as a whole: all its tokens and all its bytes count.


def is_whole(input: str | Conversation | Datum, targets: Sequence[str]) -> TypeGuard[str]:
    """Whether the input of a sample is text without a target, which is measured as a whole."""
    return isinstance(input, str) and not targets


async def render_whole(tokenizer: Tokenizer | None, text: str) -> Datum:
    """Render a text of which all tokens count; the first one follows the token that begins a text.

    That is the model's BOS token, or else its EOS token, which separates texts in training.

    Returns:
        `target_tokens` int64 and `weights` float32, shape (n,), n the text's tokens.

    Raises:
        FailedPrecondition: the model has no tokenizer (NO_TOKENIZER), or neither of those tokens (NO_PREFIX_TOKEN).
        InvalidField: the text has no tokens.
    """
    known = require_tokenizer(tokenizer)
    begin = known.eos_token_id if known.bos_token_id is None else known.bos_token_id
    if begin is None:
        raise FailedPrecondition(
            "the model has no token that begins a text: its first token cannot be measured",
            reason=Reason.NO_PREFIX_TOKEN,
        )
    tokens = list(await known.encode_continuation(text))
    if begin == known.bos_token_id:  # with special tokens, the text itself may begin with it
        tokens = tokens[next((index for index, token in enumerate(tokens) if token != begin), len(tokens)) :]
    if not tokens:
        raise InvalidField("input", "has no tokens: there is nothing to measure")
    return _counted([begin], tokens)


async def render_behind(tokenizer: Tokenizer | None, sample: Sample, renderer: str = AUTO) -> Datum:
    """Render text with a target (the first of several): only the target's tokens count, and nothing follows them.

    The delimiter before the target counts too, and so does the space of `role_colon`.

    Raises:
        FailedPrecondition: the model has no tokenizer, or the renderer cannot be used with it.
        InvalidField: the target has no tokens.
    """
    assert not isinstance(sample.input, Datum)  # the evaluators of bytes refuse it before
    known = require_tokenizer(tokenizer)
    prompt, (answer,) = await encode_answered(known, sample.input, sample.targets[:1], renderer)
    if not answer:
        raise InvalidField("targets[0]", "has no tokens")
    return _counted(list(prompt), list(answer))


def _counted(before: list[int], tokens: list[int]) -> Datum:
    whole = np.array([*before, *tokens], np.int64)
    weights = np.zeros(whole.size - 1, np.float32)
    weights[len(before) - 1 :] = 1
    inputs = {"target_tokens": whole[1:], "weights": weights}
    return Datum(model_input=ModelInput.of(whole[:-1]), loss_fn_inputs=inputs)


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
        tokens, weights = await _conversation(
            known, _answered(sample.input.messages, sample.targets), train_on, sample.input.tools
        )
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
        rendered = await tokenizer.render_cookbook(
            renderer.removeprefix(COOKBOOK), given, train_on=full_name(train_on), **with_tools(tools_of(input))
        )
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
    tokenizer: Tokenizer, messages: Sequence[ChatMessage], train_on: TrainOn, tools: Sequence[ToolSpec]
) -> tuple[np.ndarray, np.ndarray]:
    messages, weighted = chosen(messages, train_on) if messages else ((), ())
    tokens = list(await encode_conversation(tokenizer, messages, generation_prompt=False, tools=tools))
    if len(tokens) < 2:
        raise InvalidField("input.messages", "renders to less than two tokens: none can be predicted")
    if full_name(train_on) == ALL_TOKENS:
        return np.array(tokens, np.int64), np.ones(len(tokens), np.float32)
    weights = np.zeros(len(tokens), np.float32)
    for index, weight in enumerate(weighted):
        if weight:
            start, end = await _span(tokenizer, messages, index, tokens, tools)
            weights[start:end] = weight
    return np.array(tokens, np.int64), weights


async def _span(
    tokenizer: Tokenizer,
    messages: Sequence[ChatMessage],
    index: int,
    tokens: Sequence[int],
    tools: Sequence[ToolSpec],
) -> tuple[int, int]:
    """The start of a message, after the tokens that open it, and its end.

    Only the chat template determines this, so it renders the conversation before the message and up to it; both have to
    be prefixes of the whole. Templates that drop earlier reasoning, or insert text before the last message, fail.
    """
    before = messages[:index]
    if messages[index].role != "assistant":
        opening = await _opening(tokenizer, messages, index, tools)
    elif before:
        opening = await encode_conversation(tokenizer, before, generation_prompt=True, tools=tools)
    else:  # the opening of its message cannot be separated from the message
        opening = ()
    closing = await encode_conversation(tokenizer, messages[: index + 1], generation_prompt=False, tools=tools)
    for part in (opening, closing):
        if list(part) != list(tokens[: len(part)]):
            raise FailedPrecondition(
                f"the chat template renders messages before message {index} otherwise when others follow: "
                "its tokens cannot be told from the rest",
                reason=Reason.CHAT_TEMPLATE_NOT_STABLE,
            )
    return len(opening), len(closing)


async def _opening(
    tokenizer: Tokenizer, messages: Sequence[ChatMessage], index: int, tools: Sequence[ToolSpec]
) -> Sequence[int]:
    """The tokens up to the content of a message for which there is no generation prompt."""
    first, second = [
        await encode_conversation(
            tokenizer,
            (*messages[:index], dataclasses.replace(messages[index], content=probe, parts=(), tool_calls=())),
            generation_prompt=False,
            tools=tools,
        )
        for probe in _PROBES
    ]
    pairs = enumerate(zip(first, second, strict=False))
    return first[: next((place for place, (one, other) in pairs if one != other), len(first))]
