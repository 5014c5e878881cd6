"""The tokenizer of a base model: queried in a child of the text host, which is killed when it exceeds a limit.

Chat templates and tokenizers are programs and data of the base model's authors. They may take any time and memory, so
none of them runs in the worker.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Protocol

from crucible_bridge.errors import BridgeError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ChatMessage, ParsedResponse, RawResponse, ToolSpec
from crucible_worker.backends.base import Rendered, Tokenizer
from crucible_worker.backends.local.process import HostProcess
from crucible_worker.backends.local.tokenizer import HostedTokenizer, LoneTokenizers
from crucible_worker.util.limits import WorkerLimits

__all__ = ["CODE_PREFIXES", "ServedTokenizer", "TextHost", "TokenizerName", "Tokenizers"]

CODE_PREFIXES = ("moonshotai/Kimi-",)
"""Base models with tokenizers that are programs, which the library would fetch and run: they are refused."""


@dataclasses.dataclass(frozen=True, slots=True)
class TokenizerName:
    """The names by which the library finds a tokenizer."""

    base_model: str
    """The base model it belongs to."""
    tokenizer_id: str | None = None
    """Its name on the Hugging Face hub, if the service reports one."""


class Tokenizers(Protocol):
    """Loads tokenizers."""

    async def load(self, name: TokenizerName) -> HostedTokenizer:
        """Load a tokenizer.

        Raises:
            BridgeError: it cannot be loaded.
        """
        ...

    async def aclose(self) -> None:
        """End what was started. Idempotent."""
        ...


class TextHost:
    """The tokenizers of all Tinker services: children of one process, which is started when the first is loaded.

    Args:
        limits: of the worker; the defaults if None.
    """

    def __init__(self, limits: WorkerLimits | None = None) -> None:
        # Xet's threads reserve more memory than a child may use.
        environment = {"HF_HUB_DISABLE_XET": "1"}
        self._host = HostProcess("crucible_worker.backends.tinker.host", environment=environment, limits=limits)
        self._tokenizers = LoneTokenizers(self._host, "open")

    async def load(self, name: TokenizerName) -> HostedTokenizer:
        """Load a tokenizer; it may be fetched from the Hugging Face hub, or come from the hub's offline cache.

        Raises:
            FailedPrecondition: it cannot be loaded, or not within a limit.
            BackendError: the host failed; retryable if it died.
        """
        return await self._tokenizers.open(_key(name), name.base_model, dataclasses.asdict(name))

    async def aclose(self) -> None:
        """End the host, within a second. Idempotent."""
        await self._host.aclose()


class ServedTokenizer(Tokenizer):
    """A tokenizer, or the reason why there is none, which each method raises: requests with tokens need none.

    Args:
        loaded: the tokenizer; None if there is none.
        why: the reason, if there is none.
    """

    def __init__(self, loaded: HostedTokenizer | None, why: str = "") -> None:
        self._loaded = loaded
        self._why = why

    @classmethod
    async def load(cls, tokenizers: Tokenizers, name: TokenizerName) -> ServedTokenizer:
        """Load a tokenizer.

        Raises:
            BackendError: only another attempt can show whether there is one (retryable).
        """
        for asked in (name.base_model, name.tokenizer_id or ""):
            if asked.startswith(CODE_PREFIXES):
                return cls(None, f"that of {asked!r} is a program, and the worker runs no such programs")
        try:
            return cls(await tokenizers.load(name))
        except BridgeError as error:
            if error.retryable:
                raise
            return cls(None, error.message)

    @property
    def is_there(self) -> bool:
        """Whether it can be queried."""
        return self._loaded is not None

    @property
    def eos_token_id(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """The end-of-sequence token."""
        return self.there().eos_token_id

    @property
    def bos_token_id(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """The token that begins a text."""
        return self.there().bos_token_id

    @property
    def has_chat_template(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """Whether it has a chat template."""
        return self.there().has_chat_template

    @property
    def vocabulary(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """Number of its tokens."""
        return self.there().vocabulary

    @property
    def tool_form(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """The form in which the model writes calls of tools."""
        return self.there().tool_form

    def with_special_tokens(self) -> ServedTokenizer:
        """The same tokenizer, which reads the names of special tokens in a text as these tokens."""
        return self if self._loaded is None else ServedTokenizer(self._loaded.with_special_tokens())

    async def encode(self, text: str) -> Sequence[int]:
        """Token ids of plain text, with the special tokens that the model wants before it.

        Raises:
            BackendError: it exceeds a limit (RENDERING_LIMIT), as may every method.
        """
        return await self.there().encode(text)

    async def encode_continuation(self, text: str) -> Sequence[int]:
        """Token ids of text that continues other text: no special tokens."""
        return await self.there().encode_continuation(text)

    async def encode_all(self, texts: Sequence[str], *, continuations: bool = False) -> Sequence[Sequence[int]]:
        """Encode several texts in one call, each like `encode` or `encode_continuation`."""
        return await self.there().encode_all(texts, continuations=continuations)

    async def encode_chat(self, messages: Sequence[ChatMessage], *, generation_prompt: bool) -> Sequence[int]:
        """Token ids of a conversation by the chat template.

        Raises:
            FailedPrecondition: there is none.
            InvalidField: it refuses the conversation, for instance roles that do not alternate.
        """
        return await self.there().encode_chat(messages, generation_prompt=generation_prompt)

    async def render_chat(
        self, messages: Sequence[ChatMessage], *, generation_prompt: bool, tools: Sequence[ToolSpec] = ()
    ) -> Rendered:
        """Encode a conversation like `encode_chat`, and return the template's text too; raises likewise."""
        return await self.there().render_chat(messages, generation_prompt=generation_prompt, tools=tools)

    async def render_cookbook(
        self,
        renderer: str,
        messages: Sequence[ChatMessage],
        *,
        train_on: str | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> Rendered:
        """Encode a conversation by a renderer of tinker-cookbook.

        Raises:
            FailedPrecondition: there is no tokenizer, or tinker-cookbook is not installed (EXTRA_NOT_INSTALLED), or has
                no such renderer for this tokenizer (UNKNOWN_RENDERER).
            InvalidField: the renderer refuses the conversation.
        """
        return await self.there().render_cookbook(renderer, messages, train_on=train_on, tools=tools)

    async def parse_cookbook(self, renderer: str, response: RawResponse) -> ParsedResponse:
        """Parse a response by a renderer of tinker-cookbook; raises as `render_cookbook` does."""
        return await self.there().parse_cookbook(renderer, response)

    async def tokenize(self, texts: Sequence[str], *, add_special_tokens: bool) -> Sequence[Sequence[int]]:
        """Token ids of each text, exactly as the tokenizer gives them."""
        return await self.there().tokenize(texts, add_special_tokens=add_special_tokens)

    async def detokenize(self, sequences: Sequence[Sequence[int]], *, skip_special_tokens: bool) -> Sequence[str]:
        """The text of each sequence."""
        return await self.there().detokenize(sequences, skip_special_tokens=skip_special_tokens)

    async def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without the special ones."""
        return await self.there().decode(tokens)

    async def decode_answer(self, tokens: Sequence[int]) -> str:
        """The text of generated tokens: without the special ones, except those that mark reasoning."""
        return await self.there().decode_answer(tokens)

    async def decode_calls(self, tokens: Sequence[int]) -> str:
        """The text of generated tokens, as of `decode_answer`, with the marks of calls of tools."""
        return await self.there().decode_calls(tokens)

    async def show(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones included."""
        return await self.there().show(tokens)

    def there(self) -> HostedTokenizer:
        """The tokenizer itself.

        Raises:
            FailedPrecondition: there is none (NO_TOKENIZER).
        """
        if self._loaded is None:
            raise FailedPrecondition(f"the model has no tokenizer: {self._why}", reason=Reason.NO_TOKENIZER)
        return self._loaded


def _key(name: TokenizerName) -> str:
    return json.dumps(dataclasses.astuple(name))
