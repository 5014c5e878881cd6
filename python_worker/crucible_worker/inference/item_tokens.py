"""The tokens of items that direct calls of a model measure: tokens as they are, text, or a conversation."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from crucible_bridge.errors import BridgeError, InvalidField
from crucible_bridge.problems import at_field
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Conversation, Datum, LogprobsItem, ModelInput, Sample
from crucible_worker.backends.base import Model
from crucible_worker.rendering import render_supervised
from crucible_worker.rendering.prompts import encode_conversation, require_tokenizer
from crucible_worker.rendering.train_on import TrainOn

__all__ = ["ItemTokens", "datum_of", "tokens_of"]

LAST_ASSISTANT: TrainOn = "last_assistant"
"""What of a conversation has weight where the caller does not say."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ItemTokens:
    """The tokens of an item."""

    tokens: np.ndarray
    """All of them, shape (n,), int64, n at least 1."""
    measured: int
    """How many of the last ones are measured, if nothing else limits them: none is the first."""
    rendered: bool
    """Whether the worker made them, so that the caller does not know them."""


async def tokens_of(model: Model, item: LogprobsItem, *, add_special_tokens: bool) -> ItemTokens:
    """The tokens of an item that is measured.

    Args:
        model: whose tokenizer and chat template read it.
        item: the item.
        add_special_tokens: whether text gets the special tokens that the tokenizer puts around it.

    Raises:
        FailedPrecondition: text or a conversation for a model without a tokenizer (NO_TOKENIZER), or a conversation
            for one without a chat template (NO_CHAT_TEMPLATE).
        InvalidField: there is no token, or an image; or the continuation alone is longer than the context
            (PROMPT_TOO_LONG).
    """
    most = model.context_length
    if most is not None and len(item.continuation) > most:  # before anything is made of a message of millions
        message = f"has {len(item.continuation)} tokens; the model's context has {most}"
        raise InvalidField("continuation", message, reason=Reason.PROMPT_TOO_LONG)
    continuation = np.array(item.continuation, np.int64)
    match item.prompt:
        case ModelInput():
            prompt = item.prompt.tokens()
        case str():
            prompt = await text_tokens(model, item.prompt, add_special_tokens=add_special_tokens)
        case Conversation():
            prompt = await _conversation_tokens(model, item.prompt, opened=continuation.size > 0)
    tokens = np.concatenate([prompt, continuation])
    if tokens.size == 0:
        raise InvalidField("prompt", "is empty: a model needs at least one token")
    return ItemTokens(
        tokens=tokens,
        measured=min(continuation.size or tokens.size, tokens.size - 1),
        rendered=not isinstance(item.prompt, ModelInput),
    )


async def datum_of(model: Model, item: str | Conversation, train_on: str, *, add_special_tokens: bool) -> Datum:
    """Text or a conversation as a training example, with `target_tokens` and `weights`.

    Args:
        model: whose tokenizer and chat template read it.
        item: text, whose tokens but the first are targets, or a conversation.
        train_on: which tokens of a conversation have weight; those of the last message of the assistant if empty.
        add_special_tokens: whether text gets the special tokens that the tokenizer puts around it.

    Raises:
        FailedPrecondition: as of `tokens_of`; or the chat template does not tell its messages apart
            (CHAT_TEMPLATE_NOT_STABLE).
        InvalidField: no token can be predicted, or no message of the assistant is there.
    """
    if isinstance(item, Conversation):
        chosen: Any = train_on or LAST_ASSISTANT  # one of its values, as the request was checked
        try:
            return await render_supervised(require_tokenizer(model.tokenizer), Sample(input=item), chosen)
        except BridgeError as error:
            raise at_field(error, "conversation", own="input") from error
    tokens = await text_tokens(model, item, add_special_tokens=add_special_tokens)
    if tokens.size < 2:
        raise InvalidField("text", f"has {tokens.size} tokens, at least two are needed: none can be predicted")
    weights = np.ones(tokens.size - 1, np.float32)
    return Datum(model_input=tokens[:-1], loss_fn_inputs={"target_tokens": tokens[1:], "weights": weights})


async def text_tokens(model: Model, text: str, *, add_special_tokens: bool) -> np.ndarray:
    """Token ids of text, shape (n,), int64, as the call Tokenize returns them, and with one BOS token at most.

    Raises:
        FailedPrecondition: the model has no tokenizer at hand (NO_TOKENIZER).
    """
    tokenizer = require_tokenizer(model.tokenizer)
    try:
        (tokens,) = await tokenizer.tokenize([text], add_special_tokens=add_special_tokens)
    except BridgeError as error:
        raise at_field(error, "text", own="text") from error
    found = np.array(tokens, np.int64)
    begin = tokenizer.bos_token_id
    if add_special_tokens and begin is not None and found.size > 1 and (found[:2] == begin).all():
        # The text itself begins with the token that the tokenizer puts before every text.
        others = np.flatnonzero(found != begin)
        found = found[(int(others[0]) if others.size else found.size) - 1 :]
    return found


async def _conversation_tokens(model: Model, conversation: Conversation, *, opened: bool) -> np.ndarray:
    """Token ids of a conversation; if it is `opened`, up to where an answer begins."""
    try:
        tokens = await encode_conversation(
            require_tokenizer(model.tokenizer), conversation.messages, generation_prompt=opened
        )
    except BridgeError as error:
        raise at_field(error, "conversation", own="input") from error
    return np.array(tokens, np.int64)
