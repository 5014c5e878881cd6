"""What a model is asked: tokens of a sample's input, up to where its answer begins."""

from __future__ import annotations

from collections.abc import Sequence

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.types import ChatMessage, Conversation, Datum, ModelInput
from crucible_worker.backends.base import Tokenizer

__all__ = ["encode_conversation", "encode_text", "render_prompt", "require_tokenizer"]


async def render_prompt(tokenizer: Tokenizer | None, input: str | Conversation | Datum) -> ModelInput:
    """Render a sample's input as a prompt.

    Text is one user message where the model has a chat template, else plain text; a conversation goes through the chat
    template, with the generation prompt; a Datum's input is taken as it is.

    Args:
        tokenizer: the model's, where it has one.
        input: of a Sample.

    Raises:
        FailedPrecondition: text or a conversation for a model without a tokenizer (NO_TOKENIZER), a conversation for
            one without a chat template (NO_CHAT_TEMPLATE).
        InvalidField: nothing is left to ask: no message, or no token.
    """
    if isinstance(input, Datum):
        return input.model_input
    known = require_tokenizer(tokenizer)
    if isinstance(input, Conversation):
        tokens = await encode_conversation(known, input.messages, generation_prompt=True)
    else:
        tokens = await encode_text(known, input)
    return ModelInput.of(tokens)


def require_tokenizer(tokenizer: Tokenizer | None) -> Tokenizer:
    """The tokenizer, if there is one.

    Raises:
        FailedPrecondition: the model has none.
    """
    if tokenizer is None:
        raise FailedPrecondition("the model has no tokenizer: only tokens can be sent to it", reason="NO_TOKENIZER")
    return tokenizer


async def encode_text(tokenizer: Tokenizer, text: str) -> Sequence[int]:
    """Tokens of a text that asks something, never none.

    Raises:
        InvalidField: the text has no tokens.
    """
    if tokenizer.has_chat_template:
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
    if not tokenizer.has_chat_template:
        raise FailedPrecondition(
            "the model has no chat template: a conversation cannot be rendered for it", reason="NO_CHAT_TEMPLATE"
        )
    if not messages:
        raise InvalidField("input.messages", "is empty")
    return await tokenizer.encode_chat(messages, generation_prompt=generation_prompt)
