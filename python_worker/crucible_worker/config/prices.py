"""Prices of tokens in settings: "openai:lab/*=prompt:2.5,cached:1.25,output:10", or a table of the file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crucible_bridge.types import ModelPrice

__all__ = ["read_prices"]

_WANTED = "PATTERN=prompt:NUMBER,output:NUMBER, cached:NUMBER optional"
_PARTS = ("prompt", "cached", "output")


def read_prices(value: Any, base: Path) -> tuple[ModelPrice, ...]:
    """Read prices from a TOML table of tables, or from texts "PATTERN=prompt:2.5,output:10", or one with spaces.

    Args:
        value: what the operator gave.
        base: where paths are relative to; there are none.

    Raises:
        ValueError: has the expected form.
    """
    # Probes read settings as well, and should not import what this imports.
    from crucible_bridge.types import ModelPrice

    prices: dict[str, ModelPrice] = {}
    for pattern, parts in _pairs(value):
        if not pattern or not isinstance(parts, Mapping):
            raise ValueError(_WANTED)
        if pattern in prices:
            raise ValueError(f"one price for each pattern: {pattern} is given twice")
        if unknown := sorted(set(parts) - set(_PARTS)):
            raise ValueError(f"{_WANTED}: the price of {pattern} has the unknown part {unknown[0]!r}")
        if missing := [name for name in ("prompt", "output") if name not in parts]:
            raise ValueError(f"{_WANTED}: the price of {pattern} lacks {missing[0]}")
        prices[pattern] = ModelPrice(pattern=pattern, **{name: _number(parts[name], name, pattern) for name in parts})
    return tuple(prices.values())


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from value.items()
        return
    texts = value.split() if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        raise ValueError(f"a table of prices by pattern, or a list of {_WANTED}")
    for text in texts:
        # A model's name may contain an equals sign; its price does not.
        pattern, _, said = text.rpartition("=") if isinstance(text, str) else ("", "", "")
        named = [part.partition(":") for part in said.split(",")]
        if len({name for name, _, _ in named}) < len(named):
            raise ValueError(f"{_WANTED}: the price of {pattern} has a part twice")
        yield pattern, {name: number for name, _, number in named}


def _number(value: Any, name: str, pattern: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"{_WANTED}: {name} of {pattern} is {value!r}, not a number from 0")
    return number
