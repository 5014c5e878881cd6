"""Chat templates, tokenizers and renderers of one model: programs and data that are not trusted."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, InvalidField
from crucible_bridge.problems import shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ChatMessage, MessagePart, RawResponse, ReasoningPart, ToolCall, ToolSpec, tool_to_json
from crucible_bridge.types.messages import REASONING_KEYS
from crucible_worker.backends.base import MAX_TEXT_BYTES, Rendered
from crucible_worker.backends.local.protocol import tokens_from_bytes, tokens_to_bytes
from crucible_worker.rendering import tinker_cookbook
from crucible_worker.rendering.tool_calls import CALL_MARKS, form_of_template
from crucible_worker.util.message_values import message_from_value, tools_from_values
from crucible_worker.util.reasoning import CHANNEL, CHANNEL_MARKS, TAGS, refuse_parted_reasoning

__all__ = [
    "MAX_ARGUMENT_CHARS",
    "MAX_DECODERS",
    "MAX_TOKENS_PER_CHAR",
    "MAX_TOKEN_CHARS",
    "SpecialTokens",
    "Texts",
    "check_tokenizer",
    "decoded_answer",
    "facts_of",
    "marks_of",
    "place_of_images",
    "template_messages",
    "template_tools",
    "with_places",
]

# Special tokens whose names stand in texts: they are text there, and tokens only where a template writes them.
#
# A chat template makes one text of its markers and of the messages. Before it runs, the names in messages are hidden;
# after it, each marker gets the name of a stand-in token, and each hidden name is restored:
#
#     messages    what is <|im_end|>?                                 what is (hidden 2)?
#     template    <|im_start|>user what is (hidden 2)?<|im_end|>      (token 1)user what is <|im_end|>?(token 2)
#
# The tokenizer then splits this text as it does with the markers, and reads the names in messages as any other text.

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
                raise _refused_name(names[0])
        return {}

    def check(self, tokens: Sequence[int], most: int = 0) -> None:
        """Refuse tokens of a text with more special ones than its markers, and those around every text, are.

        Raises:
            InvalidField: it reads the name of one as the token in any case (SPECIAL_TOKEN_IN_TEXT).
        """
        if self.count(tokens) > most:
            last = next(token for token in reversed(tokens) if token in self._marks)
            raise _refused_name(next(text for text, index in self._ids.items() if index == last))

    def count(self, tokens: Sequence[int]) -> int:
        """The number of special tokens among some, except the one for unknown text."""
        return sum(token in self._marks for token in tokens)

    def hide(
        self, messages: Sequence[ChatMessage], tools: Sequence[ToolSpec] = ()
    ) -> tuple[list[ChatMessage], list[ToolSpec]] | None:
        """Messages and tools with hidden names; None if they name no special token."""
        found = [self._hidden_message(message) for message in messages]
        shown = [self._hidden_tool(tool) for tool in tools]
        return None if found == list(messages) and shown == list(tools) else (found, shown)

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
            raise _refused_name(hidden[0] if hidden else marked[0])
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

    def _hidden_tool(self, tool: ToolSpec) -> ToolSpec:
        texts = {
            "name": self._hidden_text(tool.name),
            "description": self._hidden_text(tool.description),
            **{key: self._hidden_schema(getattr(tool, key)) for key in ("parameters", "returns")},
        }
        return dataclasses.replace(tool, **texts)

    def _hidden_schema(self, schema: str) -> str:
        # In JSON, a name may have escaped characters, which a template writes unescaped.
        shown = json.dumps(json.loads(schema), ensure_ascii=False) if "\\" in schema else schema
        return schema if (hidden := self._hidden_text(shown)) == shown else hidden


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


def _refused_name(name: str) -> InvalidField:
    return InvalidField(
        "input",
        f"names the special token {name!r}, which this tokenizer cannot read as text: special_tokens = true of the "
        "data set reads it as the token",
        reason=Reason.SPECIAL_TOKEN_IN_TEXT,
    )


# The text of generated tokens: without special tokens, except those that mark where reasoning begins and ends.


def marks_of(tokenizer: Any, *, calls: bool = False) -> Mapping[int, str]:
    """The special tokens of a tokenizer that mark reasoning, by id: without them it would look like an answer.

    Args:
        tokenizer: of transformers.
        calls: whether those that mark calls of tools are among them.
    """
    added = getattr(tokenizer, "added_tokens_decoder", None) or {}
    special = {index: token.content for index, token in added.items() if token.special}
    marks = TAGS | CHANNEL_MARKS if CHANNEL in special.values() else TAGS
    marks |= CALL_MARKS if calls else frozenset()
    return {index: content for index, content in special.items() if content in marks}


def decoded_answer(tokenizer: Any, marks: Mapping[int, str], tokens: Sequence[int]) -> str:
    """The text of tokens, with the marks that `marks_of` returned."""
    if not marks or marks.keys().isdisjoint(tokens):  # as a rule
        return _decoded(tokenizer, tokens)
    pieces: list[str] = []
    begin = 0
    for place, token in enumerate(tokens):
        if token in marks:
            pieces += (_decoded(tokenizer, tokens[begin:place]), marks[token])
            begin = place + 1
    return "".join((*pieces, _decoded(tokenizer, tokens[begin:])))


def _decoded(tokenizer: Any, tokens: Sequence[int]) -> str:
    return tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False) if tokens else ""


# Messages as chat templates of transformers accept them, with images, calls of tools and reasoning.

MAX_ARGUMENT_CHARS = 256 * 1024
"""Of the arguments of a call of a tool."""
_PLACES = ("<|image_pad|>", "<|image|>", "<image_soft_token>", "<start_of_image>", "<|media_pad|>", "[IMG]", "<image>")
"""Tokens that templates write in the place of an image: those of Qwen-VL, Llama, Gemma, Kimi, Pixtral, LLaVA."""


_READS_REASONING = re.compile(rf"""[.'"](?:{"|".join(REASONING_KEYS)})\b""")
"""Where a template reads the reasoning of a message, as a field or by its key."""


_READS_TOOLS = re.compile(r"\btools\b")
"""Where a template reads tools: their variable."""


def template_messages(messages: Sequence[ChatMessage], template: object) -> list[dict[str, Any]]:
    """Messages for `apply_chat_template`; one of text alone has a role and a content.

    Reasoning has every key that templates read. A template that has no form for names leaves them out.

    Args:
        messages: the conversation.
        template: the template's text; one that is no text, such as one of several by name, is not examined.

    Raises:
        InvalidField: the arguments of a call of a tool are no JSON object, or the template has no form for reasoning.
    """
    reads = not isinstance(template, str) or _READS_REASONING.search(template) is not None
    found: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if message.reasoning and not reads:
            problem = "is given, and the model's chat template has no form for it: leave it out, or name another"
            raise InvalidField(f"{path}.reasoning", f"{problem} renderer")
        found.append(_template_message(message, path))
    return found


def template_tools(tools: Sequence[ToolSpec], template: object) -> list[dict[str, Any]] | None:
    """Tools for `apply_chat_template`; None if there are none.

    Args:
        tools: of the conversation, checked.
        template: the template's text; or several by name, of which transformers takes "tool_use", else "default".

    Raises:
        InvalidField: the template has no form for tools.
    """
    if not tools:
        return None
    if isinstance(template, Mapping):
        template = template.get("tool_use", template.get("default"))
    if not isinstance(template, str) or _READS_TOOLS.search(template) is None:
        raise InvalidField("tools", "is given, and the model's chat template has no form for tools")
    return [tool_to_json(tool, returns=True) for tool in tools]


def place_of_images(tokenizer: Any, messages: Sequence[ChatMessage]) -> int:
    """The token that the template writes in the place of an image.

    Raises:
        InvalidField: the tokenizer has none, or a text contains it.
    """
    known = tokenizer.get_vocab()
    own = getattr(tokenizer, "image_token", None)
    texts = [text for text in (own, *_PLACES) if isinstance(text, str) and text in known]
    if not texts:
        raise InvalidField("messages", "has images, and the model's tokenizer has no token for an image")
    if any(texts[0] in message.content for message in messages):
        raise InvalidField("messages", f"has images, and a text with {texts[0]!r}, which is the place of one")
    return known[texts[0]]


def with_places(tokens: Sequence[int], place: int, images: int) -> list[int]:
    """The tokens with -1, -2 and so on in the places of images.

    Raises:
        InvalidField: there are more or fewer places than images.
    """
    found: list[int] = []
    count = 0
    for token in tokens:
        count += token == place
        found.append(-count if token == place else token)
    if count != images:
        raise InvalidField(
            "messages", f"has {images} images, and the chat template writes the places of {count}: it takes text alone"
        )
    return found


def _template_message(message: ChatMessage, path: str) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.parts:
        refuse_parted_reasoning(message, path)
        plain["content"] = [
            {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"} for part in message.parts
        ]
    if message.tool_calls:
        plain["tool_calls"] = [
            _template_call(call, f"{path}.tool_calls[{index}]") for index, call in enumerate(message.tool_calls)
        ]
    if message.tool_call_id:
        plain["tool_call_id"] = message.tool_call_id
    if message.name:
        plain["name"] = message.name
    if message.reasoning:
        plain |= dict.fromkeys(REASONING_KEYS, message.reasoning)
    return plain


def _template_call(call: ToolCall, path: str) -> dict[str, Any]:
    named = {"id": call.id} if call.id else {}
    return {**named, "type": "function", "function": {"name": call.name, "arguments": _arguments(call, path)}}


def _arguments(call: ToolCall, path: str) -> dict[str, Any]:
    """The arguments as an object: templates write them as JSON again."""
    path = f"{path}.arguments"
    if len(call.arguments) > MAX_ARGUMENT_CHARS:
        raise InvalidField(path, f"has {len(call.arguments):,} characters; at most {MAX_ARGUMENT_CHARS:,} are accepted")
    try:
        found = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise InvalidField(path, f"is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise InvalidField(path, "is no JSON object")
    return found


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
        self._marks, self._marks_of_calls = marks_of(tokenizer), marks_of(tokenizer, calls=True)

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
                messages = [message_from_value(value) for value in message["messages"]]
                tools = tools_from_values(message.get("tools", ()))
                return self._encode_chat(messages, tools, prompted=message["generation_prompt"], named=message["named"])
            case "decode":
                tokens = tokens_from_bytes(message["tokens"]).tolist()
                return self._decoded(tokens, special=message["special"])
            case "decode_answer":
                tokens = tokens_from_bytes(message["tokens"]).tolist()
                marks = self._marks_of_calls if message.get("calls") else self._marks
                return self._bounded(decoded_answer(self._tokenizer, marks, tokens), tokens)
            case "decode_all":
                sequences = [tokens_from_bytes(tokens).tolist() for tokens in message["sequences"]]
                return [self._decoded(tokens, special=message["special"]) for tokens in sequences]
            case "parse":
                response = RawResponse(**{**message["response"], "tokens": tuple(message["response"]["tokens"])})
                return dataclasses.asdict(tinker_cookbook.parse(self._tokenizer, message["renderer"], response))
            case _:
                messages = [message_from_value(value) for value in message["messages"]]
                rendered, text = self._rendered(messages, message)
                return {**dataclasses.asdict(rendered), "text": text}

    def _rendered(self, messages: list[ChatMessage], message: dict[str, Any]) -> tuple[Rendered, str]:
        """A conversation by a renderer of tinker-cookbook, and its text."""
        renderer, train_on, tools = (
            message["renderer"],
            message["train_on"],
            tools_from_values(message.get("tools", ())),
        )
        hidden = None if message["named"] else self._special.hide(messages, tools)
        if hidden is None:
            found = tinker_cookbook.render(self._tokenizer, renderer, messages, train_on=train_on, tools=tools)
            return found, self._shown(found)
        reader = self._special.reader()
        parted = tinker_cookbook.render(reader, renderer, hidden[0], train_on=train_on, tools=hidden[1])
        if not self._special.hides(text := self._shown(parted)):
            return parted, text
        # This renderer has a separate tokenizer for messages: it must find no special tokens in them.
        found = tinker_cookbook.render(self._tokenizer, renderer, messages, train_on=train_on, tools=tools)
        self._special.check(found.tokens, self._special.count(parted.tokens))
        return found, self._shown(found)

    def _shown(self, rendered: Rendered) -> str:
        return self._decoded([token for token in rendered.tokens if token >= 0], special=True)

    def _encode_chat(
        self, messages: list[ChatMessage], tools: Sequence[ToolSpec], *, prompted: bool, named: bool
    ) -> dict[str, Any]:
        hidden = None if named else self._special.hide(messages, tools)
        shown, with_tools = (messages, tools) if hidden is None else hidden
        given = template_messages(shown, self._tokenizer.chat_template)
        listed = template_tools(with_tools, self._tokenizer.chat_template)
        images = sum(len(message.images) for message in messages)
        place = place_of_images(self._tokenizer, messages) if images else None
        try:
            text = self._tokenizer.apply_chat_template(
                given, tools=listed, add_generation_prompt=prompted, tokenize=False
            )
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
        "tool_form": form_of_template(getattr(tokenizer, "chat_template", None)),
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
