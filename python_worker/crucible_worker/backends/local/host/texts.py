"""Chat templates, tokenizers and renderers of one model: programs and data that are not trusted."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, InvalidField
from crucible_bridge.problems import shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ChatMessage, RawResponse
from crucible_worker.backends.base import MAX_TEXT_BYTES, Rendered
from crucible_worker.backends.local.arrays import tokens_from_bytes, tokens_to_bytes
from crucible_worker.backends.local.chat_messages import from_plain
from crucible_worker.backends.local.host.decoding import decoded_answer, marks_of
from crucible_worker.backends.local.host.special_tokens import SpecialTokens
from crucible_worker.backends.local.host.template_messages import place_of_images, template_messages, with_places
from crucible_worker.rendering import tinker_cookbook

__all__ = ["MAX_DECODERS", "MAX_TOKENS_PER_CHAR", "MAX_TOKEN_CHARS", "Texts", "check_tokenizer", "facts_of"]

MAX_TOKEN_CHARS = 4_096
"""Most characters of a token; the longest one of common tokenizers is 128 blanks."""
MAX_TOKENS_PER_CHAR = 4
"""Tokens per character that are accepted, as a byte-level tokenizer makes; `max_rendered_chars` tokens always are."""
MAX_DECODERS = 32
"""Most decoding steps from tokens to text."""

_LINEAR_DECODERS = frozenset(
    {"BPEDecoder", "ByteFallback", "ByteLevel", "CTC", "Fuse", "Metaspace", "Replace", "Sequence", "Strip", "WordPiece"}
)
_MAX_SHOWN_BYTES = 300


class Texts:
    """Answers requests to a tokenizer."""

    def __init__(self, tokenizer: Any, max_rendered_chars: int) -> None:
        self._tokenizer = tokenizer
        self._max_rendered_chars = max_rendered_chars
        self._special = SpecialTokens(tokenizer)
        self._marks = marks_of(tokenizer)

    def answer(self, message: dict[str, Any]) -> Any:
        """Answer a request: encode, encode_chat, decode, decode_answer, decode_all, render or parse.

        Raises:
            InvalidField: the chat template refuses the messages.
            BackendError: a limit is exceeded (RENDERING_LIMIT).
        """
        match message["op"]:
            case "encode":
                encode = self._encoded if message["closed"] else self._encode_texts
                found = encode(message["texts"], special=message["special"], named=message["named"])
                return [_packed(tokens) for tokens in found]
            case "encode_chat":
                messages = [from_plain(plain) for plain in message["messages"]]
                return self._encode_chat(messages, prompted=message["generation_prompt"], named=message["named"])
            case "decode":
                tokens = tokens_from_bytes(message["tokens"]).tolist()
                return self._decoded(tokens, special=message["special"])
            case "decode_answer":
                tokens = tokens_from_bytes(message["tokens"]).tolist()
                return self._bounded(decoded_answer(self._tokenizer, self._marks, tokens), tokens)
            case "decode_all":
                sequences = [tokens_from_bytes(tokens).tolist() for tokens in message["sequences"]]
                return [self._decoded(tokens, special=message["special"]) for tokens in sequences]
            case "parse":
                response = RawResponse(**{**message["response"], "tokens": tuple(message["response"]["tokens"])})
                return dataclasses.asdict(tinker_cookbook.parse(self._tokenizer, message["renderer"], response))
            case _:
                messages = [from_plain(plain) for plain in message["messages"]]
                rendered, text = self._rendered(messages, message)
                return {**dataclasses.asdict(rendered), "text": text}

    def _rendered(self, messages: list[ChatMessage], message: dict[str, Any]) -> tuple[Rendered, str]:
        """A conversation by a renderer of tinker-cookbook, and its text."""
        renderer, train_on = message["renderer"], message["train_on"]
        hidden = None if message["named"] else self._special.hide(messages)
        if hidden is None:
            found = tinker_cookbook.render(self._tokenizer, renderer, messages, train_on=train_on)
            return found, self._shown(found)
        parted = tinker_cookbook.render(self._special.reader(), renderer, hidden, train_on=train_on)
        if not self._special.hides(text := self._shown(parted)):
            return parted, text
        # This renderer has a separate tokenizer for messages: it must find no special tokens in them.
        found = tinker_cookbook.render(self._tokenizer, renderer, messages, train_on=train_on)
        self._special.check(found.tokens, self._special.count(parted.tokens))
        return found, self._shown(found)

    def _shown(self, rendered: Rendered) -> str:
        return self._decoded([token for token in rendered.tokens if token >= 0], special=True)

    def _encode_chat(self, messages: list[ChatMessage], *, prompted: bool, named: bool) -> dict[str, Any]:
        hidden = None if named else self._special.hide(messages)
        given = template_messages(messages if hidden is None else hidden, self._tokenizer.chat_template)
        images = sum(len(message.images) for message in messages)
        place = place_of_images(self._tokenizer, messages) if images else None
        try:
            text = self._tokenizer.apply_chat_template(given, add_generation_prompt=prompted, tokenize=False)
        except (BridgeError, MemoryError):
            raise
        except Exception as error:  # a foreign program: any error of it is about these messages
            said = shorten(f"{error}" or type(error).__name__, _MAX_SHOWN_BYTES)
            raise InvalidField("messages", f"are refused by the chat template: {said}") from error
        if len(text) > self._max_rendered_chars:
            raise _beyond(f"the chat template makes {len(text):,} characters of the messages", self._max_rendered_chars)
        if hidden is None:
            (tokens,) = self._encoded([text], special=False, named=True)
        else:
            tokens, text = self._special.encode(text), self._special.restore(text)
        tokens = self._begun_once(tokens)
        return {"tokens": _packed(tokens if place is None else with_places(tokens, place, images)), "text": text}

    def _encode_texts(self, texts: list[str], *, special: bool, named: bool) -> list[list[int]]:
        wholes = self._encoded(texts, special=special, named=named)
        if special:
            # Some tokenizers also append an end token; a prompt must stay open.
            end = [self._tokenizer.eos_token_id]
            closed = [index for index, tokens in enumerate(wholes) if tokens[-1:] == end]
            bares = self._encoded([texts[index] for index in closed], special=False, named=named)
            for index, bare in zip(closed, bares, strict=True):
                if bare[-1:] != end:
                    wholes[index].pop()
            wholes = [self._begun_once(tokens) for tokens in wholes]
        return wholes

    def _begun_once(self, tokens: list[int]) -> list[int]:
        """A prompt with one BOS token at its start, if there are several."""
        begin = self._tokenizer.bos_token_id
        if begin is None or tokens[:2] != [begin, begin]:
            return tokens
        return tokens[next((index for index, token in enumerate(tokens) if token != begin), len(tokens)) - 1 :]

    @functools.cached_property
    def _marks_around(self) -> int:
        """Special tokens that the tokenizer puts around every text."""
        return len(self._tokenizer("", add_special_tokens=True)["input_ids"])

    def _encoded(self, texts: list[str], *, special: bool, named: bool) -> list[list[int]]:
        if not texts:
            return []
        asked = {"return_attention_mask": False, "return_token_type_ids": False, "verbose": False}
        if not named:
            asked |= self._special.as_text(texts)
        found: list[list[int]] = self._tokenizer(texts, add_special_tokens=special, **asked)["input_ids"]
        for text, tokens in zip(texts, found, strict=True):
            if not named:
                self._special.check(tokens, self._marks_around if special else 0)
            most = max(self._max_rendered_chars, MAX_TOKENS_PER_CHAR * len(text))
            if len(tokens) > most:
                raise _beyond(f"the tokenizer makes {len(tokens):,} tokens of {len(text):,} characters", most)
        return found

    def _decoded(self, tokens: Sequence[int], *, special: bool = False) -> str:
        text = self._tokenizer.decode(tokens, skip_special_tokens=not special, clean_up_tokenization_spaces=False)
        return self._bounded(text, tokens)

    def _bounded(self, text: str, tokens: Sequence[int]) -> str:
        most = max(self._max_rendered_chars, 2 * MAX_TEXT_BYTES)
        if len(text) > most:
            raise _beyond(f"the tokenizer makes {len(text):,} characters of {len(tokens):,} tokens", most)
        return text


def _beyond(what: str, most: int) -> BackendError:
    message = f"{what}, {most:,} are accepted (max_rendered_chars)"
    return BackendError(message, reason=Reason.RENDERING_LIMIT, retryable=False)


def facts_of(tokenizer: Any) -> dict[str, Any]:
    """Facts that the worker needs about a tokenizer."""
    return {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "has_chat_template": bool(getattr(tokenizer, "chat_template", None)),
        "vocabulary": len(tokenizer),
    }


def check_tokenizer(tokenizer: Any, directory: Path) -> None:
    """Refuse a tokenizer that does not decode tokens in linear time: decoding runs in the process of the models.

    Raises:
        FailedPrecondition: it has a token of more than `MAX_TOKEN_CHARS`, or decoders that may take any time or make
            any text (MODEL_REFUSED).
    """
    longest = max(map(len, tokenizer.get_vocab()), default=0)
    if longest > MAX_TOKEN_CHARS:
        raise _refused(directory, f"has a token of {longest:,} characters, {MAX_TOKEN_CHARS:,} are accepted")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = getattr(backend, "decoder", None)
    if decoder is None:
        return
    decoders = _flat(json.loads(decoder.__getstate__()))
    if len(decoders) > MAX_DECODERS:
        raise _refused(directory, f"has {len(decoders):,} decoders, {MAX_DECODERS} are accepted")
    for one in decoders:
        if one["type"] not in _LINEAR_DECODERS or (one["type"] == "Replace" and not _shortens(one)):
            raise _refused(
                directory,
                f"has a decoder {shorten(json.dumps(one), _MAX_SHOWN_BYTES)}: only decoders without regular "
                "expressions are accepted, and decoders that replace text must not make it longer",
            )


def _flat(decoder: dict[str, Any]) -> Sequence[dict[str, Any]]:
    if decoder["type"] != "Sequence":
        return [decoder]
    return [each for one in decoder["decoders"] for each in _flat(one)]


def _shortens(decoder: dict[str, Any]) -> bool:
    pattern = decoder["pattern"].get("String")
    return pattern is not None and len(decoder["content"]) <= len(pattern)


def _refused(directory: Path, why: str) -> FailedPrecondition:
    return FailedPrecondition(f"the tokenizer of {directory.name!r} {why}", reason=Reason.MODEL_REFUSED)


def _packed(tokens: list[int]) -> bytes:
    return tokens_to_bytes(np.array(tokens, dtype=np.int64))
