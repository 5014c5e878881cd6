"""What the tests of ModelService share: how to sample, data, and what became of items."""

from __future__ import annotations

from typing import Any

from crucible_bridge.types import Datum, SamplingParams

EIGHT = SamplingParams(max_tokens=8)
"""Greedily, at most eight tokens."""


def datum(*tokens: int, **inputs: Any) -> Datum:
    """Tokens, each but the first a target."""
    return Datum(model_input=list(tokens[:-1]), loss_fn_inputs={"target_tokens": list(tokens[1:]), **inputs})


def texts(items: Any) -> list[str | None]:
    """The first continuation of each item; None where it has a problem."""
    return [item.sequences[0].text if item.problem is None else None for item in items]


def reasons(items: Any) -> list[str | None]:
    """The reason of each item's problem, None where there is none."""
    return [None if item.problem is None else item.problem.reason for item in items]


def fields(items: Any) -> list[str | None]:
    """The field of each item's problem, None where there is none."""
    return [None if item.problem is None else item.problem.field for item in items]
