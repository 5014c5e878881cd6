"""The tokenizer of a model's base, as the library gives it: loaded, and asked, by a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.types import ChatMessage
from crucible_worker.backends.base import Rendered
from crucible_worker.rendering import tinker_cookbook

__all__ = ["CODE_PREFIXES", "ServedTokenizer"]

CODE_PREFIXES = ("moonshotai/Kimi-",)
"""Base models whose tokenizers are programs that the library would fetch and run: they are refused."""


class ServedTokenizer:
    """A tokenizer, or the reason why there is none: told to whoever asks it, as tokens alone can do without.

    Args:
        loaded: the tokenizer; None where there is none.
        why: then, the reason.
    """

    def __init__(self, loaded: Any | None, why: str = "") -> None:
        self._loaded = loaded
        self._why = why

    @classmethod
    def load(cls, load: Callable[[], Any], base_model: str) -> ServedTokenizer:
        """Load one, which blocks: it may be fetched from the Hugging Face hub, whose offline cache is honoured.

        Args:
            load: the library's loader.
            base_model: the model it belongs to.
        """
        if base_model.startswith(CODE_PREFIXES):
            return cls(None, f"that of {base_model!r} is a program, and none is run here")
        try:
            return cls(load())
        except Exception as error:
            # Loaders fail in many ways, all of which come to the same; their texts hold addresses and paths.
            return cls(None, f"that of {base_model!r} cannot be loaded ({type(error).__name__})")

    @property
    def is_there(self) -> bool:
        """Whether it can be asked."""
        return self._loaded is not None

    @property
    def eos_token_id(self) -> int | None:
        """The end-of-sequence token."""
        return self.there().eos_token_id

    @property
    def bos_token_id(self) -> int | None:
        """The token that begins a text."""
        return self.there().bos_token_id

    @property
    def has_chat_template(self) -> bool:
        """Whether it has a chat template."""
        return bool(getattr(self.there(), "chat_template", None))

    async def encode(self, text: str) -> Sequence[int]:
        """Token ids of plain text, with the special tokens that the model wants before it."""
        return await asyncio.to_thread(self.there().encode, text)

    async def encode_continuation(self, text: str) -> Sequence[int]:
        """Token ids of text that goes on: no special tokens."""
        return await asyncio.to_thread(self.there().encode, text, add_special_tokens=False)

    async def encode_chat(self, messages: Sequence[ChatMessage], *, generation_prompt: bool) -> Sequence[int]:
        """Token ids of a conversation by the chat template.

        Raises:
            FailedPrecondition: there is none.
            InvalidField: it refuses the conversation, for instance roles that do not alternate.
        """
        if not self.has_chat_template:
            raise FailedPrecondition("the model has no chat template", reason="NO_CHAT_TEMPLATE")
        plain = [{"role": message.role, "content": message.content} for message in messages]
        return await asyncio.to_thread(self._encode_chat, plain, generation_prompt)

    async def render_cookbook(
        self, renderer: str, messages: Sequence[ChatMessage], *, train_on: str | None = None
    ) -> Rendered:
        """A conversation as one of tinker-cookbook's renderers has it.

        Raises:
            FailedPrecondition: there is no tokenizer, or tinker-cookbook is not installed (EXTRA_NOT_INSTALLED), or has
                no such renderer for this tokenizer (UNKNOWN_RENDERER).
            InvalidField: the renderer refuses the conversation.
        """
        return await asyncio.to_thread(tinker_cookbook.render, self.there(), renderer, messages, train_on=train_on)

    async def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without the special ones."""
        return await asyncio.to_thread(
            self.there().decode, list(tokens), skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def _encode_chat(self, messages: list[dict[str, str]], generation_prompt: bool) -> Sequence[int]:
        from jinja2 import TemplateError  # comes with the extra; nobody else here needs it

        try:
            return self.there().apply_chat_template(
                messages, add_generation_prompt=generation_prompt, tokenize=True, return_dict=False
            )
        except TemplateError as error:
            raise InvalidField("messages", f"are refused by the chat template: {error}") from None

    def there(self) -> Any:
        """The tokenizer itself.

        Raises:
            FailedPrecondition: there is none (NO_TOKENIZER).
        """
        if self._loaded is None:
            raise FailedPrecondition(f"the model has no tokenizer: {self._why}", reason="NO_TOKENIZER")
        return self._loaded
