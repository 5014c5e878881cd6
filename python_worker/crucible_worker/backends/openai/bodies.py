"""Request bodies: our sampling parameters as fields of the OpenAI API, without those that a server has refused.

Servers differ in which fields they support, and some refuse a request because of a field that they do not know. So
fields at their neutral value are left out, except for programs that would put other values in their place.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import types
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from crucible_bridge.types import ChatMessage, Conversation, SamplingParams, message_to_json, tool_to_json
from crucible_worker.backends.base import ToolChoice
from crucible_worker.backends.openai.failures import RefusedParameter
from crucible_worker.util.reasoning import refuse_parted_reasoning

__all__ = [
    "MAX_MODELS",
    "MAX_SEED",
    "MAX_VALUES",
    "NEUTRAL",
    "Adjustments",
    "Dialect",
    "Dialects",
    "chat_body",
    "completion_body",
    "echo_body",
    "prompt_logprobs_body",
    "sampling_defaults",
    "seeded",
]

# What the server of a model refuses in requests, learned from its refusals and never from the name of a model.
#
# OpenAI's reasoning models refuse `max_tokens` and name `max_completion_tokens` in its place, and accept only the
# default temperature. The first refused request learns what else is refused while the other refused ones wait: each of
# them is sent once more. What was left out of a request is recorded with its evaluation.

MAX_MODELS = 1_024
"""Models of a server whose refusals are remembered; the one that was used least recently is forgotten first."""
MAX_VALUES = 64
"""Refused values of a parameter that are remembered; with more, the next refusal is learned anew."""

_RENAMED: Mapping[str, str] = {"max_tokens": "max_completion_tokens"}
"""Parameters, each with the one that a refusal may name in its place."""
_AT_VALUES = frozenset({"temperature"})
"""Left out at each value that was refused: the server's default takes its place, which changes what is measured."""
_AT_ANY_VALUE = frozenset({"seed"})
"""Left out: answers are drawn alike, and are not repeatable."""
_APPLIED_HERE = frozenset({"stop"})
"""Left out: the worker applies it to every answer itself."""
_NEUTRAL: Mapping[str, float] = {"top_p": 1.0}
"""Left out at this value alone, which changes nothing; another value is what the caller wants, and stays refused."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Adjustments:
    """How a request differs from the one that was wanted."""

    not_applied: frozenset[str] = frozenset()
    """Parameters that were left out."""
    sent_as: frozenset[tuple[str, str]] = frozenset()
    """Parameters that were sent under another name; with an empty name, those that only the worker applies."""


_NONE = Adjustments()
_Send = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class Dialect:
    """What the server of one model refuses, as far as it is known."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._renamed: dict[str, str] = {}
        self._refused: dict[str, set[float]] = {}
        self._learning = asyncio.Lock()

    async def ask(self, body: dict[str, Any], send: _Send) -> tuple[dict[str, Any], Adjustments]:
        """Send a request without what the server refuses; one that it refuses for another parameter is sent again.

        Args:
            body: the request that is wanted.
            send: sends a request, and returns its answer.

        Returns:
            The answer, and how its request differed.

        Raises:
            RefusedParameter: the server refuses a parameter that cannot be left out.
            BridgeError: as `send`.
        """
        while True:
            sent, adjustments = self._adapted(body)
            try:
                return await send(sent), adjustments
            except RefusedParameter as error:
                refusal = error
            async with self._learning:
                # If another request has learned it meanwhile, this one is sent again at once, next to all others.
                while self._adapted(body)[1] == adjustments:
                    if not self._learn(refusal, sent):
                        raise refusal
                    sent, adjustments = self._adapted(body)
                    try:
                        return await send(sent), adjustments
                    except RefusedParameter as error:
                        refusal = error

    def _adapted(self, body: dict[str, Any]) -> tuple[dict[str, Any], Adjustments]:
        """A request without what is refused, and how it differs."""
        if not self._renamed and not self._refused:  # as a rule
            return body, _NONE
        adapted: dict[str, Any] = {}
        not_applied: set[str] = set()
        sent_as: set[tuple[str, str]] = set()
        for name, value in body.items():
            if name in self._renamed:
                adapted[self._renamed[name]] = value
                sent_as.add((name, self._renamed[name]))
            elif not self._refuses(name, value):
                adapted[name] = value
            elif name in _APPLIED_HERE:
                sent_as.add((name, ""))
            else:
                not_applied.add(name)
        return adapted, Adjustments(not_applied=frozenset(not_applied), sent_as=frozenset(sent_as))

    def _refuses(self, name: str, value: Any) -> bool:
        """Whether a parameter at this value is to be left out."""
        if name not in self._refused:
            return False
        return value in self._refused[name] if name in _AT_VALUES else _NEUTRAL.get(name, value) == value

    def _learn(self, refusal: RefusedParameter, sent: Mapping[str, Any]) -> bool:
        """Whether a request that was refused can be sent in another way now."""
        name, value = refusal.parameter, sent.get(refusal.parameter)
        if value is None:
            return False
        if refusal.instead and _RENAMED.get(name) == refusal.instead:
            self._renamed[name] = refusal.instead
            return True
        if name not in _AT_VALUES | _AT_ANY_VALUE | _APPLIED_HERE and _NEUTRAL.get(name) != value:
            return False
        values = self._refused.setdefault(name, set())
        if name in _AT_VALUES:
            if len(values) >= MAX_VALUES:
                values.clear()
            values.add(value)
        return True


class Dialects:
    """The dialects of a server's models."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: collections.OrderedDict[str, Dialect] = collections.OrderedDict()

    def of(self, model: str) -> Dialect:
        """That of a model, by its name there."""
        if (dialect := self._known.get(model)) is None:
            dialect = self._known[model] = Dialect()
        self._known.move_to_end(model)
        if len(self._known) > MAX_MODELS:
            self._known.popitem(last=False)
        return dialect


MAX_SEED = (1 << 31) - 1
"""Seeds are masked to this: the widest number that every server accepts."""

_AS_VLLM: Mapping[str, float] = types.MappingProxyType(
    {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
)
NEUTRAL: Mapping[str, Mapping[str, float]] = types.MappingProxyType(
    {
        "vllm": _AS_VLLM,
        "sglang": _AS_VLLM,
        "llama.cpp": types.MappingProxyType(
            {
                "top_p": 1.0,
                "top_k": 0,
                "min_p": 0.0,
                "typical_p": 1.0,
                "repeat_penalty": 1.0,
                "presence_penalty": 0.0,
                "frequency_penalty": 0.0,
                "dry_multiplier": 0.0,
                "xtc_probability": 0.0,
                "dynatemp_range": 0.0,
                "mirostat": 0,
            }
        ),
        "transformers": types.MappingProxyType({"top_p": 1.0}),
    }
)
"""By program, the neutral values of what it takes from elsewhere if a request lacks it: vLLM (from 0.7), SGLang and
`transformers serve` from the model's generation_config.json, llama.cpp from its command line, its own defaults (top_k
40, top_p 0.95, min_p 0.05) and the model's file. `transformers serve` accepts no field for the others."""

_NAMED: dict[str, Any] = {"return_tokens_as_token_ids": True}
"""Has vLLM write tokens as "token_id:N": two tokens may have one text."""


def sampling_defaults(program: str) -> str:
    """Whether a program may apply sampling parameters of its own to these requests, as of `ServerEngine`."""
    if program == "transformers":
        return "partly_sent"
    if program in NEUTRAL:
        return "sent"
    return "none" if program == "openai" else "unknown"


def completion_body(
    model: str, prompt: str | list[int], params: SamplingParams, *, logprobs: bool, top: int = 0, program: str = ""
) -> dict[str, Any]:
    """Request a continuation of text or tokens.

    Args:
        model: its name.
        prompt: what is continued.
        params: sampling parameters.
        logprobs: whether those of its tokens are requested.
        top: number of the likeliest tokens in place of each of its own.
        program: which serves the model; empty if that is not known.
    """
    body = {"model": model, "prompt": prompt, **_sampling(params, program)}
    if top:
        return {**body, "logprobs": top, **_NAMED}
    if logprobs:
        body["logprobs"] = 1
    return body


def chat_body(
    model: str, input: str | Conversation, params: SamplingParams, *, logprobs: bool, top: int = 0, program: str = ""
) -> dict[str, Any]:
    """Request an answer to a conversation, or to text as a user's only message; the rest as of `completion_body`."""
    messages = (
        [_message(message) for message in input.messages]
        if isinstance(input, Conversation)
        else [{"role": "user", "content": input}]
    )
    body = {"model": model, "messages": messages, **_tools(input), **_sampling(params, program)}
    if top:
        return {**body, "logprobs": True, "top_logprobs": top, **_NAMED}
    if logprobs:
        body["logprobs"] = True
    return body


def _message(message: ChatMessage) -> dict[str, Any]:
    """A message in the API's own form: what our JSON adds about images is left out, and weights of training.

    `reasoning_content` is no field of the API: servers that render reasoning read it.

    Raises:
        InvalidField: reasoning is not all before the text, for which the API has no form.
    """
    body = message_to_json(message)
    body.pop("weight", None)
    if message.parts:
        refuse_parted_reasoning(message, "input.messages")
        body["content"] = [
            {"type": "image_url", "image_url": {"url": part["image_url"]["url"]}} if "image_url" in part else part
            for part in body["content"]
        ]
    if message.tool_calls and not message.content:
        body["content"] = None
    return body


def _tools(input: str | Conversation) -> dict[str, Any]:
    """The fields of a conversation's tools."""
    if not isinstance(input, Conversation) or not input.tools:
        return {}
    fields: dict[str, Any] = {"tools": [tool_to_json(tool) for tool in input.tools]}
    if isinstance(input, ToolChoice):
        named = {"type": "function", "function": {"name": input.choice}}
        fields["tool_choice"] = input.choice if input.choice in ("none", "required") else named
    return fields


def prompt_logprobs_body(model: str, tokens: Sequence[int], top: int = 0) -> dict[str, Any]:
    """Request a prompt's log-probabilities in vLLM's form; with the `top` likeliest tokens in place of each."""
    return {**_scoring(model, tokens), "prompt_logprobs": top or 1}


def echo_body(model: str, tokens: Sequence[int], top: int = 0) -> dict[str, Any]:
    """Likewise in the form of the early completions API, which echoes the prompt."""
    return {**_scoring(model, tokens), "echo": True, "logprobs": top or 1, **(_NAMED if top else {})}


def seeded(params: SamplingParams, index: int) -> SamplingParams:
    """The parameters of sample `index` of several: with a different seed for each, if sampling has a seed."""
    return params if params.seed is None else dataclasses.replace(params, seed=(params.seed + index) & MAX_SEED)


def _scoring(model: str, tokens: Sequence[int]) -> dict[str, Any]:
    # One token, as some servers do not accept zero; it is discarded.
    return {"model": model, "prompt": list(tokens), "max_tokens": 1, "temperature": 0.0}


def _sampling(params: SamplingParams, program: str) -> dict[str, Any]:
    body: dict[str, Any] = {"max_tokens": params.max_tokens, "temperature": params.temperature}
    body |= NEUTRAL.get(program, {})
    if params.top_p != 1:
        body["top_p"] = params.top_p
    if params.top_k is not None:
        body["top_k"] = params.top_k  # not in OpenAI's API, but all other servers have it
    if params.seed is not None:
        body["seed"] = params.seed
    if params.stop:
        body["stop"] = list(params.stop)
    return body
