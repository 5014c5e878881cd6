"""What tokens cost, as the operator sets it: a price by the name of a model, and no cost without a price.

Example: with "openai:lab/*=prompt:2.5,cached:1.25,output:10", a million tokens of a prompt cost 2.5, those of them that
came from the cache 1.25, and a million generated ones 10. The currency is the operator's.
"""

from __future__ import annotations

import dataclasses
import fnmatch

from crucible_bridge.types import ModelPrice, ModelRef, ModelUsage, Usage, format_model

__all__ = ["cost_of", "price_of", "priced"]

_MILLION = 1_000_000


def priced(usage: Usage | None, model: ModelRef, prices: tuple[ModelPrice, ...]) -> Usage | None:
    """Add costs to the usage of a model and of judges; the first pattern that fits a model counts.

    Args:
        usage: a usage without costs.
        model: the model of the usage, apart from judges.
        prices: all prices.
    """
    if usage is None or not prices:
        return usage
    judges = tuple(
        ModelUsage(model=judge.model, usage=_with_cost(judge.usage, judge.model, prices)) for judge in usage.judges
    )
    return dataclasses.replace(_with_cost(usage, format_model(model), prices), judges=judges)


def price_of(model: str, prices: tuple[ModelPrice, ...]) -> ModelPrice | None:
    """The price of a model: of the first pattern that fits; None without one."""
    return next((price for price in prices if fnmatch.fnmatchcase(model, price.pattern)), None)


def _with_cost(usage: Usage, model: str, prices: tuple[ModelPrice, ...]) -> Usage:
    if (price := price_of(model, prices)) is None:
        return usage
    if usage.prompt_tokens is None and usage.output_tokens is None:
        return dataclasses.replace(usage, cost=None)
    cost = cost_of(usage.prompt_tokens or 0, usage.output_tokens or 0, usage.cached_prompt_tokens or 0, price)
    return dataclasses.replace(usage, cost=cost)


def cost_of(prompt: int, output: int, cached: int, price: ModelPrice) -> float:
    """What so many tokens cost, `cached` of the prompt's being from a cache."""
    cached = min(cached, prompt)
    cheaper = price.prompt if price.cached is None else price.cached
    return ((prompt - cached) * price.prompt + cached * cheaper + output * price.output) / _MILLION
