"""Tokenizers in a host: that of a model, which is there with it, and those that are open without a model."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.errors import BridgeError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    ChatMessage,
    ImageChunk,
    ParsedResponse,
    RawResponse,
    ReasoningPart,
    Termination,
    ToolCall,
    ToolSpec,
    UnparsedToolCall,
)
from crucible_worker.backends.base import Rendered, Tokenizer
from crucible_worker.backends.local.process import HostProcess
from crucible_worker.backends.local.protocol import tokens_from_bytes, tokens_to_bytes
from crucible_worker.util.message_values import message_to_value, tools_to_values

__all__ = ["HostedTokenizer", "LoneTokenizers", "to_plain"]


_PLACE = ImageChunk(data=b"", format="png")
"""Stands for every image: a tokenizer needs its place alone."""


def to_plain(message: ChatMessage) -> list[Any]:
    """A message as plain values for the process of a tokenizer, with an empty image in the place of each."""
    if message.images:
        parts = (part if isinstance(part, str | ReasoningPart) else _PLACE for part in message.parts)
        message = dataclasses.replace(message, parts=tuple(parts))
    return message_to_value(message)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HostedTokenizer(Tokenizer):
    """The tokenizer next to a model's weights."""

    call: Callable[..., Awaitable[Any]]
    """Calls the host for the model, with an operation and its fields by name."""
    bos_token_id: int | None
    """The token that begins a text."""
    eos_token_id: int | None
    """The end-of-sequence token."""
    has_chat_template: bool
    """Whether the model has a chat template."""
    vocabulary: int | None = None
    """Number of its tokens: ids are below it; None if unknown."""
    alone: bool = False
    """Whether it was opened without its model."""
    tool_form: str = ""
    """See `Tokenizer`."""
    target_delimiter: str | None = None
    """See `Tokenizer`."""
    special_tokens: bool = False
    """Whether the names of special tokens in a text are these tokens."""

    def with_special_tokens(self) -> HostedTokenizer:
        """The same tokenizer, which reads the names of special tokens in a text as these tokens."""
        return dataclasses.replace(self, special_tokens=True)

    async def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of plain text, with the special tokens that the model wants before it."""
        return (await self.encode_all([text]))[0]

    async def encode_continuation(self, text: str) -> tuple[int, ...]:
        """Token ids of text that continues other text: no special tokens."""
        return (await self.encode_all([text], continuations=True))[0]

    async def encode_all(self, texts: Sequence[str], *, continuations: bool = False) -> tuple[tuple[int, ...], ...]:
        """Encode several texts in one call, each like `encode` or `encode_continuation`."""
        answers = await self._ask(
            "encode", texts=list(texts), special=not continuations, closed=False, named=self.special_tokens
        )
        return _all_unpacked(answers)

    async def encode_chat(self, messages: Sequence[ChatMessage], *, generation_prompt: bool) -> tuple[int, ...]:
        """Token ids of a conversation by the model's own chat template.

        Raises:
            FailedPrecondition: the model has no chat template.
            InvalidField: the template refuses the conversation, for instance roles that do not alternate.
        """
        return tuple((await self.render_chat(messages, generation_prompt=generation_prompt)).tokens)

    async def render_chat(
        self, messages: Sequence[ChatMessage], *, generation_prompt: bool, tools: Sequence[ToolSpec] = ()
    ) -> Rendered:
        """Encode a conversation like `encode_chat`, and return the template's text too; raises likewise."""
        if not self.has_chat_template:
            raise FailedPrecondition(
                "the model has no chat template; the renderer role_colon needs none", reason=Reason.NO_CHAT_TEMPLATE
            )
        answer = await self._ask(
            "encode_chat",
            messages=[to_plain(message) for message in messages],
            generation_prompt=generation_prompt,
            tools=tools_to_values(tools),
            named=self.special_tokens,
        )
        return Rendered(tokens=tuple(tokens_from_bytes(answer["tokens"]).tolist()), text=answer["text"])

    async def tokenize(self, texts: Sequence[str], *, add_special_tokens: bool) -> tuple[tuple[int, ...], ...]:
        """Token ids of each text, exactly as the tokenizer gives them."""
        answers = await self._ask("encode", texts=list(texts), special=add_special_tokens, closed=True, named=True)
        return await asyncio.to_thread(_all_unpacked, answers)

    async def detokenize(self, sequences: Sequence[Sequence[int]], *, skip_special_tokens: bool) -> tuple[str, ...]:
        """The text of each sequence."""
        packed = await asyncio.to_thread(_all_packed, sequences)
        return tuple(await self._ask("decode_all", sequences=packed, special=not skip_special_tokens))

    async def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without the special ones."""
        return await self._ask("decode", tokens=tokens_to_bytes(np.array(tokens, np.int64)), special=False)

    async def decode_answer(self, tokens: Sequence[int]) -> str:
        """The text of generated tokens: without the special ones, except those that mark reasoning."""
        return await self._ask("decode_answer", tokens=tokens_to_bytes(np.array(tokens, np.int64)))

    async def decode_calls(self, tokens: Sequence[int]) -> str:
        """The text of generated tokens, as of `decode_answer`, with the marks of calls of tools."""
        return await self._ask("decode_answer", tokens=tokens_to_bytes(np.array(tokens, np.int64)), calls=True)

    async def show(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones included."""
        return await self._ask("decode", tokens=tokens_to_bytes(np.array(tokens, np.int64)), special=True)

    async def render_cookbook(
        self,
        renderer: str,
        messages: Sequence[ChatMessage],
        *,
        train_on: str | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> Rendered:
        """Encode a conversation by a renderer of tinker-cookbook, see `Tokenizer`."""
        answer = await self._ask(
            "render",
            renderer=renderer,
            messages=[to_plain(message) for message in messages],
            train_on=train_on,
            tools=tools_to_values(tools),
            named=self.special_tokens,
        )
        return Rendered(**answer)

    async def parse_cookbook(self, renderer: str, response: RawResponse) -> ParsedResponse:
        """Parse a response by a renderer of tinker-cookbook, see `Tokenizer`."""
        found = await self._ask("parse", renderer=renderer, response=dataclasses.asdict(response))
        return ParsedResponse(
            text=found["text"],
            reasoning=found["reasoning"],
            tool_calls=tuple(ToolCall(**call) for call in found["tool_calls"]),
            unparsed_tool_calls=tuple(UnparsedToolCall(**call) for call in found["unparsed_tool_calls"]),
            termination=Termination(found["termination"]),
        )

    async def _ask(self, op: str, **fields: Any) -> Any:
        return await self.call(op, alone=self.alone, **fields)


def _all_packed(sequences: Sequence[Sequence[int]]) -> list[bytes]:
    return [tokens_to_bytes(np.array(tokens, np.int64)) for tokens in sequences]


def _all_unpacked(answers: Sequence[bytes]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(tokens_from_bytes(tokens).tolist()) for tokens in answers)


# Tokenizers that are open without a model: each in a child of a host, which is killed when it exceeds a limit.


class LoneTokenizers:
    """The tokenizers of a host: opens them, and opens them again after the host died or evicted them.

    Args:
        host: the process.
        opening: its operation that opens one.
    """

    def __init__(self, host: HostProcess, opening: str) -> None:
        self._host = host
        self._opening = opening

    async def open(self, key: str, name: str, load: Mapping[str, Any]) -> HostedTokenizer:
        """Open a tokenizer, or find the one that is open.

        Args:
            key: what tells it from all others.
            name: for errors.
            load: what the child loads.

        Raises:
            FailedPrecondition: there is none, it cannot be loaded, or not within a limit.
            BackendError: the host failed; retryable if it died.
        """

        async def opened() -> Mapping[str, Any]:
            return await self._host.call(self._opening, model=key, name=name, load=load)

        async def call(op: str, **fields: Any) -> Any:
            while True:
                try:
                    return await self._host.call(op, model=key, **fields)
                except BridgeError as error:
                    if error.reason != Reason.MODEL_NOT_OPEN:
                        raise
                # Its process was killed or evicted, or the host was restarted.
                await opened()

        return HostedTokenizer(call=call, alone=True, **await opened())
