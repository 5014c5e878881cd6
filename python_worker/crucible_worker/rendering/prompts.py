"""Prompts: the tokens of a sample's input, up to where the answer begins."""

from __future__ import annotations

from collections.abc import Sequence

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ChatMessage, Conversation, Datum, ModelInput
from crucible_worker.backends.base import Rendered, Tokenizer
from crucible_worker.rendering import role_colon
from crucible_worker.rendering.images import images_of, input_of
from crucible_worker.rendering.prompted import before_next, plain_text, stops_of
from crucible_worker.rendering.renderers import (
    AUTO,
    COOKBOOK,
    RAW,
    ROLE_COLON,
    SERVED,
    before_answer,
    check_input,
)

__all__ = [
    "encode_answered",
    "encode_conversation",
    "encode_joined",
    "encode_text",
    "measured_text",
    "messages_of",
    "plain_of",
    "render_prompt",
    "render_question",
    "require_tokenizer",
]


async def render_prompt(tokenizer: Tokenizer | None, input: str | Conversation | Datum) -> ModelInput:
    """Render a sample's input as a prompt.

    Text is one user message if the model has a chat template, else plain text; a conversation goes through the chat
    template, with the generation prompt; a Datum's input is not changed.

    Args:
        tokenizer: the model's, if it has one.
        input: the input of a Sample.

    Raises:
        FailedPrecondition: text or a conversation for a model without a tokenizer (NO_TOKENIZER), a conversation for
            one without a chat template (NO_CHAT_TEMPLATE).
        InvalidField: the prompt is empty: it has no message, or no token.
    """
    if isinstance(input, Datum):
        return input.model_input
    return input_of((await render_question(tokenizer, input, SERVED)).tokens, images_of(input))


async def render_question(tokenizer: Tokenizer | None, input: str | Conversation, renderer: str) -> Rendered:
    """Render text or a conversation as a prompt, with the stop sequences that the renderer brings.

    Text is plain for `raw`, and for `auto` if the model has no chat template; so is the conversation that a prompt
    makes of a row. For every other renderer text is one user message.

    Args:
        tokenizer: the model's, if it has one.
        input: the input of a Sample.
        renderer: see `renderers.py`.

    Raises:
        FailedPrecondition: the model has no tokenizer (NO_TOKENIZER), no chat template (NO_CHAT_TEMPLATE), or the
            renderer is one that cannot be used with it.
        InvalidField: the prompt is empty: it has no message, or no token; or the renderer accepts no conversation.
    """
    check_input(input, renderer)
    known = require_tokenizer(tokenizer)
    if renderer == ROLE_COLON:
        return await role_colon.encode_prompt(known, messages_of(input))
    if renderer.startswith(COOKBOOK):
        messages = messages_of(input)
        if not messages:
            raise InvalidField("input.messages", "is empty")
        return await known.render_cookbook(renderer.removeprefix(COOKBOOK), messages)
    if (text := plain_of(known, input, renderer)) is not None:
        return Rendered(tokens=await encode_text(known, text, plain=True), stop=stops_of(input), text=text)
    return await _rendered(known, messages_of(input), generation_prompt=True)


def plain_of(tokenizer: Tokenizer, input: str | Conversation, renderer: str) -> str | None:
    """The text that a model gets unchanged; None if a template makes the prompt of messages."""
    if renderer == RAW or (renderer == AUTO and not tokenizer.has_chat_template):
        return plain_text(input, tokenizer.target_delimiter)
    if renderer == SERVED and isinstance(input, str) and not tokenizer.has_chat_template:
        return input
    return None


async def encode_answered(
    tokenizer: Tokenizer,
    input: str | Conversation,
    answers: Sequence[str],
    renderer: str,
    delimiter: str | None = None,
) -> tuple[Sequence[int], Sequence[Sequence[int]]]:
    """The tokens of a prompt, and of each measured answer after it.

    Plain text is encoded together with the answer, with the delimiter between them. A template makes the whole prompt,
    and the answer follows it.

    Args:
        tokenizer: the model's.
        input: the input of a Sample.
        answers: texts, at least one.
        renderer: see `renderers.py`.
        delimiter: text before each answer; if None, the tokenizer's in plain text, and none after a template.

    Raises:
        FailedPrecondition: as of `render_question`; or the tokenizer joins the whole prompt with an answer (NO_PROMPT).
        InvalidField: as of `render_question`.
    """
    check_input(input, renderer)
    measured = [measured_text(tokenizer, input, answer, renderer, delimiter) for answer in answers]
    if (text := plain_of(tokenizer, input, renderer)) is not None:
        return await encode_joined(tokenizer, text, measured)
    prompt = (await render_question(tokenizer, input, renderer)).tokens
    return prompt, await tokenizer.encode_all(measured, continuations=True)


def measured_text(
    tokenizer: Tokenizer, input: str | Conversation, answer: str, renderer: str, delimiter: str | None = None
) -> str:
    """An answer with the text that stands between it and its prompt, and is measured with it.

    The arguments are those of `encode_answered`; plain text has nothing before an empty answer.
    """
    if (text := plain_of(tokenizer, input, renderer)) is None:
        return f"{before_answer(renderer)}{delimiter or ''}{answer}"
    known = tokenizer.target_delimiter if delimiter is None else delimiter
    return f"{before_next(text, answer, known)}{answer}" if answer else ""


async def encode_joined(
    tokenizer: Tokenizer, prompt: str, continuations: Sequence[str]
) -> tuple[Sequence[int], Sequence[Sequence[int]]]:
    """The tokens of a text and of each continuation, encoded together as lm-evaluation-harness does.

    A tokenizer may join the last characters of the prompt with the first ones of a continuation, such as a space with
    the word after it: such a token belongs to the continuation, and the prompt is the common beginning of all these
    texts in tokens. White space that ends the prompt as a token by itself belongs to the prompt, where
    lm-evaluation-harness measures it: a template that ends with a space says that a model was trained so.

    Raises:
        FailedPrecondition: nothing is left before a continuation (NO_PROMPT).
        InvalidField: the prompt has no tokens.
    """
    asked, *wholes = await tokenizer.encode_all([prompt, *(f"{prompt}{text}" for text in continuations)])
    if not asked:
        raise InvalidField("input", "has no tokens: a model needs at least one")
    seam = min(_common(asked, whole) for whole in wholes)
    if seam == 0:
        raise FailedPrecondition(
            "the tokenizer joins the whole prompt with an answer: nothing is left before it", reason=Reason.NO_PROMPT
        )
    return asked[:seam], [whole[seam:] for whole in wholes]


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """The number of equal tokens at the start of two sequences."""
    pairs = enumerate(zip(first, second))
    return next((index for index, (one, other) in pairs if one != other), min(len(first), len(second)))


def messages_of(input: str | Conversation) -> Sequence[ChatMessage]:
    """The messages of a conversation; text is one message of the user."""
    return input.messages if isinstance(input, Conversation) else (ChatMessage("user", input),)


def require_tokenizer(tokenizer: Tokenizer | None) -> Tokenizer:
    """The tokenizer, if there is one.

    Raises:
        FailedPrecondition: the model has none.
    """
    if tokenizer is None:
        raise FailedPrecondition(
            "the model has no tokenizer: only tokens can be sent to it", reason=Reason.NO_TOKENIZER
        )
    return tokenizer


async def encode_text(tokenizer: Tokenizer, text: str, *, plain: bool = False) -> Sequence[int]:
    """Tokens of a prompt in text, at least one; `plain` text is no message, even if the model has a chat template.

    Raises:
        InvalidField: the text has no tokens.
    """
    if tokenizer.has_chat_template and not plain:
        return await encode_conversation(tokenizer, (ChatMessage("user", text),), generation_prompt=True)
    tokens = await tokenizer.encode(text)
    if not tokens:
        raise InvalidField("input", "has no tokens: a model needs at least one")
    return tokens


async def encode_conversation(
    tokenizer: Tokenizer, messages: Sequence[ChatMessage], *, generation_prompt: bool
) -> Sequence[int]:
    """Tokens of a conversation by the model's chat template.

    Raises:
        FailedPrecondition: the model has no chat template.
        InvalidField: there is no message, or the template refuses them.
    """
    return (await _rendered(tokenizer, messages, generation_prompt=generation_prompt)).tokens


async def _rendered(tokenizer: Tokenizer, messages: Sequence[ChatMessage], *, generation_prompt: bool) -> Rendered:
    if not tokenizer.has_chat_template:
        raise FailedPrecondition(
            "the model has no chat template: a conversation cannot be rendered for it; the renderer role_colon needs "
            "none",
            reason=Reason.NO_CHAT_TEMPLATE,
        )
    if not messages:
        raise InvalidField("input.messages", "is empty")
    return await tokenizer.render_chat(messages, generation_prompt=generation_prompt)
