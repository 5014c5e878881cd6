"""What is sent: our sampling parameters in the words of the OpenAI API, and no field that says what holds anyway.

Servers differ in which fields they take, and some refuse a request for one that they do not know.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from crucible_bridge.types import Conversation, SamplingParams

__all__ = ["MAX_SEED", "chat_body", "completion_body", "echo_body", "prompt_logprobs_body", "seeded"]

MAX_SEED = (1 << 31) - 1
"""Seeds are folded to this: the widest number that every server takes."""


def completion_body(model: str, prompt: str | list[int], params: SamplingParams, *, logprobs: bool) -> dict[str, Any]:
    """Ask for a continuation of text or tokens."""
    body = {"model": model, "prompt": prompt, **_sampling(params)}
    if logprobs:
        body["logprobs"] = 1
    return body


def chat_body(model: str, input: str | Conversation, params: SamplingParams, *, logprobs: bool) -> dict[str, Any]:
    """Ask for an answer to a conversation, or to text as a user's only message."""
    messages = (
        [{"role": message.role, "content": message.content} for message in input.messages]
        if isinstance(input, Conversation)
        else [{"role": "user", "content": input}]
    )
    body = {"model": model, "messages": messages, **_sampling(params)}
    if logprobs:
        body["logprobs"] = True
    return body


def prompt_logprobs_body(model: str, tokens: Sequence[int]) -> dict[str, Any]:
    """Ask for a prompt's log-probabilities as vLLM gives them."""
    return {**_scoring(model, tokens), "prompt_logprobs": 1}


def echo_body(model: str, tokens: Sequence[int]) -> dict[str, Any]:
    """Ask for a prompt's log-probabilities as the first completions of the API gave them: the prompt, said back."""
    return {**_scoring(model, tokens), "echo": True, "logprobs": 1}


def seeded(params: SamplingParams, index: int) -> SamplingParams:
    """The parameters of sample `index` of several: with a seed of its own, where sampling has one."""
    return params if params.seed is None else dataclasses.replace(params, seed=(params.seed + index) & MAX_SEED)


def _scoring(model: str, tokens: Sequence[int]) -> dict[str, Any]:
    # One token, as not every server generates none; it is thrown away.
    return {"model": model, "prompt": list(tokens), "max_tokens": 1, "temperature": 0.0}


def _sampling(params: SamplingParams) -> dict[str, Any]:
    body: dict[str, Any] = {"max_tokens": params.max_tokens, "temperature": params.temperature}
    if params.top_p != 1:
        body["top_p"] = params.top_p
    if params.top_k is not None:
        body["top_k"] = params.top_k  # not of OpenAI's own API, but of all the others'
    if params.seed is not None:
        body["seed"] = params.seed
    if params.stop:
        body["stop"] = list(params.stop)
    return body
