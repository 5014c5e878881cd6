"""What becomes of each parameter that a task gives for an answer: of each field of Inspect's GenerateConfig.

None is left out without a word: a test compares this table with the class, field by field.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["PARAMETERS", "Use", "refused"]


class Use(enum.Enum):
    """What becomes of a parameter."""

    SENT = "sent"
    """The worker's model gets it."""
    INSPECT = "inspect"
    """Inspect applies it, before a question is sent or after its answer."""
    NONE = "none"
    """It cannot change an answer of the worker's models."""
    REFUSED = "refused"
    """Without it the task would be another one: the question fails."""


PARAMETERS: Mapping[str, Use] = MappingProxyType(
    {
        "max_tokens": Use.SENT,
        "temperature": Use.SENT,
        "top_p": Use.SENT,
        "top_k": Use.SENT,
        "stop_seqs": Use.SENT,
        "seed": Use.SENT,
        "num_choices": Use.SENT,
        "system_message": Use.INSPECT,
        "cache": Use.INSPECT,
        "timeout": Use.INSPECT,
        "attempt_timeout": Use.INSPECT,
        "max_connections": Use.INSPECT,
        "adaptive_connections": Use.INSPECT,
        "max_retries": Use.NONE,  # the worker repeats calls
        "stream_idle_timeout": Use.NONE,  # answers are not streamed
        "batch": Use.NONE,  # a way of billing of providers
        "cache_prompt": Use.NONE,  # likewise
        "fail_on_refusal": Use.NONE,  # no answer is marked as a refusal
        # Questions with tools are refused as a whole.
        "parallel_tool_calls": Use.NONE,
        "internal_tools": Use.NONE,
        "max_tool_output": Use.NONE,
        "best_of": Use.REFUSED,
        "frequency_penalty": Use.REFUSED,
        "presence_penalty": Use.REFUSED,
        "logit_bias": Use.REFUSED,
        "logprobs": Use.REFUSED,
        "top_logprobs": Use.REFUSED,
        "prompt_logprobs": Use.REFUSED,
        "fallback_models": Use.REFUSED,
        "verbosity": Use.REFUSED,
        "effort": Use.REFUSED,
        "reasoning_effort": Use.REFUSED,
        "reasoning_mode": Use.REFUSED,
        "reasoning_tokens": Use.REFUSED,
        "reasoning_summary": Use.REFUSED,
        "reasoning_history": Use.REFUSED,
        "response_schema": Use.REFUSED,
        "extra_headers": Use.REFUSED,
        "extra_body": Use.REFUSED,
        "modalities": Use.REFUSED,
    }
)
"""Every field of GenerateConfig of inspect-ai 0.3.285."""

_NEUTRAL: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "best_of": (1,),
        "frequency_penalty": (0,),
        "presence_penalty": (0,),
        "logprobs": (False,),
        "top_logprobs": (0,),
        "prompt_logprobs": (0,),
        "reasoning_summary": ("none", "auto"),
        "reasoning_history": ("none", "auto"),  # the worker's models get no earlier reasoning
    }
)
"""Values of refused parameters that ask for what is done anyway."""


def refused(config: object) -> str | None:
    """The first parameter with a value that the worker's models cannot have; None without one.

    A field that the table does not have, of a later Inspect, is among them.

    Args:
        config: a GenerateConfig.
    """
    for name, value in vars(config).items():
        if value is None or value in ({}, []) or PARAMETERS.get(name, Use.REFUSED) is not Use.REFUSED:
            continue
        if value not in _NEUTRAL.get(name, ()):
            return name
    return None
