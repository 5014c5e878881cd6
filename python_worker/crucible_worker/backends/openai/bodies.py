"""Request bodies: our sampling parameters as fields of the OpenAI API.

Servers differ in which fields they support, and some refuse a request because of a field that they do not know. So
fields at their neutral value are left out, except for programs that would put other values in their place.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.types import ChatMessage, Conversation, SamplingParams, message_to_json
from crucible_worker.util.reasoning import refuse_parted_reasoning

__all__ = [
    "MAX_SEED",
    "NEUTRAL",
    "chat_body",
    "completion_body",
    "echo_body",
    "prompt_logprobs_body",
    "sampling_defaults",
    "seeded",
]

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
    body = {"model": model, "messages": messages, **_sampling(params, program)}
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
