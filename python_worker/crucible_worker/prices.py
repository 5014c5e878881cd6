"""What tokens cost, as the operator says: a price by the name of a model, and nothing where there is none.

Example: with "openai:lab/*=prompt:2.5,cached:1.25,output:10", a million tokens of a prompt cost 2.5, those of them that
came from the cache 1.25, and a million generated ones 10. The currency is the operator's.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from crucible_bridge.types import ModelPrice, ModelRef, ModelUsage, Usage, format_model

__all__ = ["priced", "read_prices"]

_MILLION = 1_000_000
_WANTED = "PATTERN=prompt:NUMBER,output:NUMBER, and cached:NUMBER where that differs"
_PARTS = ("prompt", "cached", "output")


def priced(usage: Usage | None, model: ModelRef, prices: tuple[ModelPrice, ...]) -> Usage | None:
    """A usage of a model, and of judges, with what each cost; the first pattern that fits a model counts.

    Args:
        usage: whose prices are still missing.
        model: that it is of, judges aside.
        prices: all that there are.
    """
    if usage is None or not prices:
        return usage
    judges = tuple(
        ModelUsage(model=judge.model, usage=_with_cost(judge.usage, judge.model, prices)) for judge in usage.judges
    )
    return dataclasses.replace(_with_cost(usage, format_model(model), prices), judges=judges)


def read_prices(value: Any, base: Path) -> tuple[ModelPrice, ...]:
    """Read prices from a TOML table of tables, or from texts "PATTERN=prompt:2.5,output:10", in one text with blanks.

    Args:
        value: what the operator gave.
        base: where paths are relative to; there are none.

    Raises:
        ValueError: what is wanted in its place.
    """
    prices: dict[str, ModelPrice] = {}
    for pattern, parts in _pairs(value):
        if not pattern or not isinstance(parts, Mapping):
            raise ValueError(_WANTED)
        if pattern in prices:
            raise ValueError(f"one price for each pattern: {pattern} is given twice")
        if unknown := sorted(set(parts) - set(_PARTS)):
            raise ValueError(f"{_WANTED}: there is no {unknown[0]!r} in {pattern}")
        if missing := [name for name in ("prompt", "output") if name not in parts]:
            raise ValueError(f"{_WANTED}: {pattern} has no {missing[0]}")
        prices[pattern] = ModelPrice(pattern=pattern, **{name: _number(parts[name], name, pattern) for name in parts})
    return tuple(prices.values())


def _with_cost(usage: Usage, model: str, prices: tuple[ModelPrice, ...]) -> Usage:
    for price in prices:
        if fnmatch.fnmatchcase(model, price.pattern):
            return dataclasses.replace(usage, cost=_cost(usage, price))
    return usage


def _cost(usage: Usage, price: ModelPrice) -> float | None:
    """What a usage costs; None where nothing of it was reported."""
    if usage.prompt_tokens is None and usage.output_tokens is None:
        return None
    prompt, output = usage.prompt_tokens or 0, usage.output_tokens or 0
    cached = min(usage.cached_prompt_tokens or 0, prompt)
    cheaper = price.prompt if price.cached is None else price.cached
    return ((prompt - cached) * price.prompt + cached * cheaper + output * price.output) / _MILLION


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
        return
    texts = value.split() if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        raise ValueError(f"a table of prices by pattern, or a list of {_WANTED}")
    for text in texts:
        # A model may have an equals sign in its name; what it costs has none.
        pattern, _, said = text.rpartition("=") if isinstance(text, str) else ("", "", "")
        named = [part.partition(":") for part in said.split(",")]
        if len({name for name, _, _ in named}) < len(named):
            raise ValueError(f"{_WANTED}: {pattern} has a part twice")
        yield pattern, {name: number for name, _, number in named}


def _number(value: Any, name: str, pattern: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"{_WANTED}: {name} of {pattern} is {value!r}, not a number from 0")
    return number
