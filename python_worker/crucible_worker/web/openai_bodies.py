"""The bodies of OpenAI's API that the endpoint reads: each becomes a request of the worker, or is refused.

A parameter that no backend has is refused, unless it has the value that changes nothing. Nothing is left out without a
word, but what only names the caller.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from crucible_bridge.errors import InvalidField, NotFound, clipped
from crucible_bridge.problems import at_field
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ChatMessage, Conversation, ModelInput, ModelRef, SamplingParams
from crucible_bridge.types.messages import message_from_json
from crucible_bridge.types.models import parse_model
from crucible_worker.backends.base import MAX_MESSAGES, check_sampling
from crucible_worker.util.limits import WorkerLimits
from crucible_worker.util.parsing import parts_of, uncollected

__all__ = [
    "CHAT_TOKENS",
    "COMPLETION_TOKENS",
    "MAX_STOPS",
    "OpenAICall",
    "memory_of",
    "model_named",
    "read_chat",
    "read_completion",
]

CHAT_TOKENS = 4_096
"""Upper bound of the tokens of a message where the request has none, unless the context of its model is shorter."""
COMPLETION_TOKENS = 16
"""That of a completion, as OpenAI has it."""
MAX_VALUES = 2_000_000
"""Values in a body: a parser of JSON lets no other thread run, and takes 0.1 s for so many."""
_PART = 4
"""An object, a list or a text counts as so many values."""
MAX_STOPS = 64
"""Stop strings of a request."""

_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
"""Roles of messages, and what templates call them."""
_EMPTY_IN_MESSAGES = ("refusal", "annotations", "audio", "function_call")
"""Keys of a message that OpenAI's answers have, which say nothing if they are empty."""

_OF_THE_CALLER = frozenset({"user", "safety_identifier", "prompt_cache_key", "metadata"})
"""Parameters that only name the caller: no answer depends on them."""
_WITHOUT_EFFECT: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "logit_bias": ({},),
    "min_p": (0,),
    "modalities": (["text"],),
    "parallel_tool_calls": (),
    "prediction": (),
    "presence_penalty": (0,),
    "reasoning_effort": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "suffix": ("",),
    "tool_choice": ("none",),
    "tools": ([],),
    "verbosity": (),
    "web_search_options": (),
}
"""Parameters that no backend has, each with the values that change nothing."""

_SEED = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_COUNT = Annotated[int, Meta(ge=0, le=2**31 - 1)]


class StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    """What a stream has further."""

    include_usage: bool = False
    """A last piece with the usage."""
    include_obfuscation: bool = False
    """Accepted as false alone: nothing is padded."""


class _Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What both kinds of request have."""

    model: str
    n: _COUNT = 1
    max_tokens: _COUNT | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: _SEED | None = None
    stop: str | Annotated[list[str], Meta(max_length=MAX_STOPS)] = []
    stream: bool = False
    stream_options: StreamOptions | None = None


class ChatBody(_Body, kw_only=True):
    """The body of a request for the next message of a conversation."""

    messages: Annotated[list[Any], Meta(min_length=1, max_length=MAX_MESSAGES)]
    max_completion_tokens: _COUNT | None = None
    logprobs: bool = False
    top_logprobs: _COUNT | None = None


class CompletionBody(_Body, kw_only=True):
    """The body of a request for continuations of texts or tokens."""

    prompt: Any
    echo: bool = False
    logprobs: _COUNT | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OpenAICall:
    """What a request asks for, whatever its kind."""

    model: ModelRef
    """The model."""
    name: str
    """What the request calls it."""
    prompts: Sequence[str | Conversation | ModelInput]
    """At least one."""
    sampling: SamplingParams | None
    """How to continue them; None if nothing is generated."""
    bounded: bool
    """Whether the request has an upper bound of tokens."""
    count: int
    """Continuations of each prompt."""
    logprobs: int | None
    """Likeliest tokens with the log-probability of each token; None if none of them is wanted."""
    echo: bool
    """Whether an answer begins with its prompt."""
    stream: bool
    """Whether the answer comes as server-sent events."""
    stream_usage: bool
    """Whether these end with the usage."""

    @property
    def chat(self) -> bool:
        """Whether it asks for messages."""
        return isinstance(self.prompts[0], Conversation)


def memory_of(body: bytes) -> int:
    """About how many bytes the values of a body need once it is parsed.

    Raises:
        InvalidField: there are more than `MAX_VALUES`.
    """
    parts, commas = parts_of(body), body.count(b",")
    if _PART * parts + commas > MAX_VALUES:
        raise InvalidField("", f"The body has more than {MAX_VALUES:,} values, such as token ids: send fewer at once")
    return 64 * parts + 40 * commas


def model_named(name: str) -> ModelRef:
    """The reference that a name of a model is.

    Raises:
        NotFound: it is none.
    """
    try:
        return parse_model(name)
    except InvalidField as error:
        raise NotFound(error.message, reason=Reason.UNKNOWN_MODEL, field=error.field) from None


def read_chat(data: bytes, limits: WorkerLimits) -> OpenAICall:
    """Read the body of a request for a message.

    Raises:
        InvalidField: the body cannot be read, or asks for something that no backend has.
        NotFound: its model is no reference.
    """
    body = _read(data, ChatBody)
    if body.max_tokens is not None and body.max_completion_tokens not in (None, body.max_tokens):
        raise InvalidField("max_completion_tokens", f"is not {body.max_tokens}, the max_tokens beside it")
    if body.top_logprobs is not None and not body.logprobs:
        raise InvalidField("top_logprobs", "needs logprobs")
    messages = tuple(_message(message, index) for index, message in enumerate(body.messages))
    most = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    return _call(
        body,
        [Conversation(messages)],
        CHAT_TOKENS if most is None else most,
        limits,
        bounded=most is not None,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )


def read_completion(data: bytes, limits: WorkerLimits) -> OpenAICall:
    """Read the body of a request for continuations; raises as `read_chat` does."""
    body = _read(data, CompletionBody)
    if body.max_tokens == 0 and not body.echo:
        raise InvalidField("max_tokens", "is 0, which needs echo: nothing would be answered")
    most = COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
    prompts = _prompts(body.prompt, limits)
    return _call(body, prompts, most, limits, bounded=True, logprobs=body.logprobs, echo=body.echo)


_B = TypeVar("_B", bound=_Body)


def _read(data: bytes, kind: type[_B]) -> _B:
    try:
        with uncollected(len(data)):
            given = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidField("", f"The body is not JSON: {why}", reason=Reason.MALFORMED_JSON) from None
    if not isinstance(given, dict):
        raise InvalidField("", "The body is no JSON object")
    known = kind.__struct_fields__
    for name in [name for name in given if name not in known or given[name] is None]:
        if given[name] is not None and name not in _OF_THE_CALLER:
            _refuse_unless_neutral(name, given[name])
        del given[name]
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$.")
        if missing := re.fullmatch(r"Object missing required field `(\w+)`", message):
            message, place = "is missing", missing[1]
        raise InvalidField(place.removesuffix("`"), message) from None


def _refuse_unless_neutral(name: str, value: Any) -> None:
    """Refuse a parameter that the endpoint has not, unless its value changes nothing."""
    if name not in _WITHOUT_EFFECT:
        raise InvalidField(clipped(name).strip("'"), "is unknown to this endpoint")
    neutral = _WITHOUT_EFFECT[name]
    if value not in neutral:
        accepted = f": only {' or '.join(map(repr, neutral))} is accepted" if neutral else ""
        # The text of a list may be megabytes.
        given = f"is {clipped(value)}" if isinstance(value, str | int | float) else "is given"
        raise InvalidField(name, f"{given}, and no backend of the worker has this parameter{accepted}")


def _call(
    body: _Body,
    prompts: Sequence[str | Conversation | ModelInput],
    most: int,
    limits: WorkerLimits,
    *,
    bounded: bool,
    logprobs: int | None,
    echo: bool = False,
) -> OpenAICall:
    if not 1 <= body.n <= limits.max_samples_per_item:
        raise InvalidField("n", f"is {body.n:,}, must be 1 to {limits.max_samples_per_item:,}")
    if (total := body.n * len(prompts)) > limits.max_model_items:
        raise InvalidField("n", f"makes {total:,} answers together, at most {limits.max_model_items:,} are accepted")
    if logprobs is not None and logprobs > limits.max_top_k:
        name = "logprobs" if isinstance(body, CompletionBody) else "top_logprobs"
        raise InvalidField(name, f"is {logprobs:,}, at most {limits.max_top_k:,} are accepted (max_top_k)")
    if body.stream_options is not None and not body.stream:
        raise InvalidField("stream_options", "needs stream")
    if body.stream_options is not None and body.stream_options.include_obfuscation:
        raise InvalidField("stream_options.include_obfuscation", "is true, and the worker has no such padding")
    stops = [body.stop] if isinstance(body.stop, str) else body.stop
    if any(not stop for stop in stops):
        raise InvalidField("stop", "has an empty text")
    sampling = None
    if most or not echo:
        sampling = SamplingParams(
            max_tokens=most,
            temperature=body.temperature,
            top_p=body.top_p,
            top_k=body.top_k,
            seed=body.seed,
            stop=tuple(stops),
        )
        check_sampling(sampling, body.n)
    return OpenAICall(
        model=model_named(body.model),
        name=body.model,
        prompts=prompts,
        sampling=sampling,
        bounded=bounded,
        count=body.n,
        logprobs=logprobs,
        echo=echo,
        stream=body.stream,
        stream_usage=body.stream_options is not None and body.stream_options.include_usage,
    )


def _message(value: Any, index: int) -> ChatMessage:
    if isinstance(value, dict):
        value = {key: item for key, item in value.items() if item or key not in _EMPTY_IN_MESSAGES}
        if value.get("content", "") is None:
            value["content"] = ""  # of a message that only calls tools
    try:
        message = message_from_json(value)
    except InvalidField as error:
        raise at_field(error, f"messages[{index}]") from None
    if message.role not in _ROLES:
        raise InvalidField(f"messages[{index}].role", f"is {clipped(message.role)}, not one of {', '.join(_ROLES)}")
    return dataclasses.replace(message, role=_ROLES[message.role])


def _prompts(given: Any, limits: WorkerLimits) -> Sequence[str | ModelInput]:
    """Prompts of any of the four forms."""
    if isinstance(given, str):
        return [given]
    if not isinstance(given, list) or not given:
        raise InvalidField("prompt", "is no text, no tokens, and no list of either")
    if _is_id(given[0]):
        return [_tokens(given, "prompt")]
    if len(given) > limits.max_model_items:
        raise InvalidField("prompt", f"has {len(given):,} prompts, at most {limits.max_model_items:,} are accepted")
    texts = isinstance(given[0], str)
    found: list[str | ModelInput] = []
    for index, prompt in enumerate(given):
        if texts and isinstance(prompt, str):
            found.append(prompt)
        elif not texts and isinstance(prompt, list):
            found.append(_tokens(prompt, f"prompt[{index}]"))
        else:
            raise InvalidField(f"prompt[{index}]", "is not text" if texts else "is no list of token ids")
    return found


def _tokens(ids: list[Any], place: str) -> ModelInput:
    if not ids:
        raise InvalidField(place, "has no tokens: a model needs at least one")
    if not all(map(_is_id, ids)):
        raise InvalidField(place, "holds something else than token ids")
    return ModelInput.of(np.array(ids, np.int64))


def _is_id(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**31
