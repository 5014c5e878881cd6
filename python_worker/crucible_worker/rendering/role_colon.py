"""Conversations as plain text, a role and a colon before each message: the form for base models.

    User: <content>

    Assistant: <content>

The form, its tokens and its weights are those of tinker-cookbook's RoleColonRenderer. Each piece is encoded by itself,
so that a message has the same tokens at every position.
"""

from __future__ import annotations

from collections.abc import Sequence

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import ChatMessage
from crucible_worker.backends.base import Rendered, Tokenizer

__all__ = ["BEFORE", "STOP", "answer_of", "encode_prompt", "encode_weighted", "prompt_text"]

STOP = "\n\nUser:"
"""A model writes this after its answer: the user's next turn."""

BEFORE = " "
"""Separates every content from its role."""

_AFTER = "\n\n"
_NEXT = "User:"
"""The rest of STOP after the end of a message."""


def prompt_text(messages: Sequence[ChatMessage]) -> str:
    """A conversation with an answer opened, as text.

    Raises:
        InvalidField: there is no message.
    """
    _check(messages)
    return "".join(f"{_header(message.role)}{_content(message)}" for message in messages) + _header("assistant")


async def encode_prompt(tokenizer: Tokenizer, messages: Sequence[ChatMessage]) -> Rendered:
    """A conversation with an answer opened, after the token that begins a text, if the model has one.

    Raises:
        InvalidField: there is no message.
    """
    _check(messages)
    tokens = _begin(tokenizer)
    for message in messages:
        tokens += await tokenizer.encode_continuation(_header(message.role))
        tokens += await tokenizer.encode_continuation(_content(message))
    tokens += await tokenizer.encode_continuation(_header("assistant"))
    return Rendered(tokens=tokens, stop=(STOP,), text=prompt_text(messages))


async def encode_weighted(
    tokenizer: Tokenizer, messages: Sequence[ChatMessage], by_message: Sequence[float], *, headers: bool = False
) -> Rendered:
    """A conversation to measure: the contents of messages have their weights, with the line ends after them.

    If the last message is the assistant's, the rest of STOP follows it, with the same weight.

    Args:
        tokenizer: the model's.
        messages: the conversation.
        by_message: the weight of each message.
        headers: whether all the roles have weight 1 as well.

    Raises:
        InvalidField: there is no message.
    """
    _check(messages)
    tokens = _begin(tokenizer)
    weights = [0.0] * len(tokens)

    async def add(text: str, weight: float) -> None:
        piece = await tokenizer.encode_continuation(text)
        tokens.extend(piece)
        weights.extend([weight] * len(piece))

    for message, weight in zip(messages, by_message, strict=True):
        await add(_header(message.role), float(headers))
        await add(_content(message), weight)
    if messages[-1].role == "assistant":
        await add(_NEXT, by_message[-1])
    return Rendered(tokens=tokens, weights=weights)


def answer_of(output: str) -> str:
    """The content of the assistant's message: the output up to STOP, without the text around every content."""
    return output.partition(STOP)[0].removeprefix(BEFORE).removesuffix(_AFTER)


def _begin(tokenizer: Tokenizer) -> list[int]:
    return [] if tokenizer.bos_token_id is None else [tokenizer.bos_token_id]


def _header(role: str) -> str:
    return f"{role.capitalize()}:"


def _content(message: ChatMessage) -> str:
    return f"{BEFORE}{message.content}{_AFTER}"


def _check(messages: Sequence[ChatMessage]) -> None:
    if not messages:
        raise InvalidField("input.messages", "is empty")
