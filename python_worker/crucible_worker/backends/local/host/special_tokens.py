"""Special tokens whose names stand in texts: they are text there, and tokens only where a template writes them.

A chat template makes one text of its markers and of the messages. Before it runs, the names in messages are hidden;
after it, each marker gets the name of a stand-in token, and each hidden name is restored:

    messages    what is <|im_end|>?                                 what is (hidden 2)?
    template    <|im_start|>user what is (hidden 2)?<|im_end|>      (token 1)user what is <|im_end|>?(token 2)

The tokenizer then splits this text as it does with the markers, and reads the names in messages as any other text.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import secrets
from collections.abc import Sequence
from typing import Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ChatMessage, MessagePart, ReasoningPart, ToolCall
from crucible_worker.backends.local.host.template_messages import MAX_ARGUMENT_CHARS

__all__ = ["SpecialTokens"]

_READ_BY_TEMPLATES = frozenset({"<think>", "</think>", "<thinking>", "</thinking>"})
"""Tags of reasoning: in an answer, chat templates look for them."""


class SpecialTokens:
    """The special tokens of a tokenizer of transformers."""

    def __init__(self, tokenizer: Any) -> None:
        added: dict[int, Any] = dict(getattr(tokenizer, "added_tokens_decoder", {}))
        self._tokenizer = tokenizer
        self._tokens = {token.content: token for token in added.values() if token.special and token.content}
        self._ids = {token.content: index for index, token in added.items() if token.special}
        self._marks = frozenset(self._ids.values()) - {getattr(tokenizer, "unk_token_id", None)}
        # Only these tokenizers can leave special tokens unread, and all others that they know read.
        self._can_split = bool(getattr(tokenizer, "is_fast", False))
        name = secrets.token_hex(8)  # no text contains it by chance
        self._hidden = {text: f"\ue000{name}x{index}\ue001" for index, text in enumerate(self._tokens)}
        self._stand_ins = {text: f"\ue002{name}x{index}\ue003" for index, text in enumerate(self._tokens)}
        self._stand_in_ids: dict[str, int] = {}

    def as_text(self, texts: Sequence[str]) -> dict[str, Any]:
        """The option of a tokenizer to read texts without special tokens.

        Raises:
            InvalidField: a text names one, and the tokenizer has no such option (SPECIAL_TOKEN_IN_TEXT).
        """
        if self._can_split:
            return {"split_special_tokens": True}
        for text in texts:
            if names := self._named_in(text):
                raise _refused(names[0])
        return {}

    def check(self, tokens: Sequence[int], most: int = 0) -> None:
        """Refuse tokens of a text with more special ones than its markers, and those around every text, are.

        Raises:
            InvalidField: it reads the name of one as the token in any case (SPECIAL_TOKEN_IN_TEXT).
        """
        if self.count(tokens) > most:
            last = next(token for token in reversed(tokens) if token in self._marks)
            raise _refused(next(text for text, index in self._ids.items() if index == last))

    def count(self, tokens: Sequence[int]) -> int:
        """The number of special tokens among some, except the one for unknown text."""
        return sum(token in self._marks for token in tokens)

    def hide(self, messages: Sequence[ChatMessage]) -> list[ChatMessage] | None:
        """The messages with hidden names; None if they name no special token."""
        found = [self._hidden_message(message) for message in messages]
        return None if found == list(messages) else found

    def reader(self) -> Any:
        """The tokenizer, which reads a text with hidden names as `encode` does."""
        return _MarkerTokenizer(self._tokenizer, self)

    def hides(self, text: str) -> bool:
        """Whether a text has a hidden name."""
        return any(hidden in text for hidden in self._hidden.values())

    def restore(self, text: str) -> str:
        """A text with the names that were hidden."""
        for name, hidden in self._hidden.items():
            if hidden in text:
                text = text.replace(hidden, name)
        return text

    def encode(self, text: str) -> list[int]:
        """The tokens of a text whose special tokens are markers, except the hidden ones, which are text.

        Raises:
            InvalidField: the tokenizer cannot read them as text (SPECIAL_TOKEN_IN_TEXT).
        """
        hidden = [name for name, stand_in in self._hidden.items() if stand_in in text]
        marked = self._named_in(text)
        if not self._can_split:
            raise _refused(hidden[0] if hidden else marked[0])
        swapped = {self._hidden[name]: name for name in hidden} | {name: self._stand_ins[name] for name in marked}
        if swapped:
            # The longest first, as a tokenizer finds them.
            names = sorted(swapped, key=len, reverse=True)
            text = re.sub("|".join(map(re.escape, names)), lambda match: swapped[match[0]], text)
        ids = {self._stand_in_id(name): self._ids[name] for name in marked}
        tokens: list[int] = self._tokenizer(
            text, add_special_tokens=False, split_special_tokens=True, return_attention_mask=False, verbose=False
        )["input_ids"]
        self.check(tokens)
        return [ids.get(token, token) for token in tokens]

    def _stand_in_id(self, name: str) -> int:
        """The token that stands in for a special one; it is found in a text like that one, and is not special."""
        if name not in self._stand_in_ids:
            from tokenizers import AddedToken

            like, text = self._tokens[name], self._stand_ins[name]
            made = AddedToken(
                text,
                special=False,
                normalized=like.normalized,
                lstrip=like.lstrip,
                rstrip=like.rstrip,
                single_word=like.single_word,
            )
            self._tokenizer.add_tokens([made])
            self._stand_in_ids[name] = self._tokenizer.convert_tokens_to_ids(text)
        return self._stand_in_ids[name]

    def _named_in(self, text: str) -> list[str]:
        return [name for name in self._tokens if name in text]

    def _hidden_text(self, text: str, left: frozenset[str] = frozenset()) -> str:
        names = [name for name in self._named_in(text) if name not in left]
        if not names:
            return text
        pattern = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
        return re.sub(pattern, lambda match: self._hidden[match[0]], text)

    def _hidden_message(self, message: ChatMessage) -> ChatMessage:
        left = _READ_BY_TEMPLATES if message.role == "assistant" else frozenset[str]()
        return dataclasses.replace(
            message,
            role=self._hidden_text(message.role),
            content="" if message.parts else self._hidden_text(message.content, left),
            parts=tuple(self._hidden_part(part, left) for part in message.parts),
            name=self._hidden_text(message.name),
            reasoning=self._hidden_text(message.reasoning, left),
            tool_calls=tuple(map(self._hidden_call, message.tool_calls)),
            tool_call_id=self._hidden_text(message.tool_call_id),
        )

    def _hidden_part(self, part: MessagePart, left: frozenset[str]) -> MessagePart:
        if isinstance(part, ReasoningPart):
            return ReasoningPart(self._hidden_text(part.text, left))
        return self._hidden_text(part, left) if isinstance(part, str) else part

    def _hidden_call(self, call: ToolCall) -> ToolCall:
        return ToolCall(
            name=self._hidden_text(call.name),
            arguments=self._hidden_text(_unescaped(call.arguments)),
            id=self._hidden_text(call.id),
        )


class _MarkerTokenizer:
    """A tokenizer for renderers of tinker-cookbook, which encode markers and messages together."""

    def __init__(self, tokenizer: Any, special: SpecialTokens) -> None:
        self._tokenizer, self._special = tokenizer, special

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Tokens of a text, with those that the tokenizer puts around every text if `add_special_tokens`."""
        before, after = self._around if add_special_tokens else ([], [])
        return [*before, *self._special.encode(text), *after]

    @functools.cached_property
    def _around(self) -> tuple[list[int], list[int]]:
        (bare, whole) = (self._tokenizer.encode("a", add_special_tokens=add) for add in (False, True))
        start = next((at for at in range(len(whole)) if whole[at : at + len(bare)] == bare), 0)
        return whole[:start], whole[start + len(bare) :]


def _unescaped(arguments: str) -> str:
    """JSON in which a name of a special token has no escaped characters."""
    if "\\" not in arguments or len(arguments) > MAX_ARGUMENT_CHARS:
        return arguments
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except (ValueError, RecursionError):  # refused where it is read
        return arguments


def _refused(name: str) -> InvalidField:
    return InvalidField(
        "input",
        f"names the special token {name!r}, which this tokenizer cannot read as text: special_tokens = true of the "
        "data set reads it as the token",
        reason=Reason.SPECIAL_TOKEN_IN_TEXT,
    )
