"""Sums of the usage of models: exact, judges by model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from crucible_bridge.types import EvaluatorResult, ModelUsage, Usage
from crucible_worker.backends.metering import Meter

__all__ = ["UsageSum", "total_usage", "usage_measurements"]

_COUNTS = ("prompt_tokens", "cached_prompt_tokens", "reasoning_tokens", "output_tokens")
"""Numbers that are absent if no call reports them."""


class UsageSum:
    """Adds up usages; the order does not matter."""

    __slots__ = ("_cached", "_calls", "_cost", "_judges", "_output", "_prompt", "_reasoning", "_unreported")

    def __init__(self) -> None:
        """Start at zero."""
        self._calls = self._unreported = 0
        self._prompt: int | None = None
        self._cached: int | None = None
        self._reasoning: int | None = None
        self._output: int | None = None
        self._cost: Fraction | None = None
        self._judges: dict[str, UsageSum] = {}

    @classmethod
    def of(cls, usages: Iterable[Usage | None]) -> UsageSum:
        """Of several."""
        total = cls()
        total.add(usages)
        return total

    def add(self, usages: Iterable[Usage | Meter | None]) -> None:
        """Add some; None is the usage of no call. Every sample has one: written out, it takes half the time."""
        for usage in usages:
            if usage is None:
                continue
            self._calls += usage.calls
            self._unreported += usage.unreported_calls
            if (number := usage.prompt_tokens) is not None:
                self._prompt = number if self._prompt is None else self._prompt + number
            if (number := usage.output_tokens) is not None:
                self._output = number if self._output is None else self._output + number
            if (number := usage.cached_prompt_tokens) is not None:
                self._cached = number + (self._cached or 0)
            if (number := usage.reasoning_tokens) is not None:
                self._reasoning = number + (self._reasoning or 0)
            if usage.cost is not None:
                self._cost = Fraction(usage.cost) + (self._cost or 0)
            for judge in usage.judges:
                self._judges.setdefault(judge.model, UsageSum()).add((judge.usage,))

    @property
    def usage(self) -> Usage | None:
        """The sum, judges sorted by model; None if no call was answered."""
        found = ((name, judge.usage) for name, judge in sorted(self._judges.items()))
        judges = tuple(ModelUsage(model=name, usage=usage) for name, usage in found if usage is not None)
        if not self._calls and not judges:
            return None
        return Usage(
            prompt_tokens=self._prompt,
            cached_prompt_tokens=self._cached,
            reasoning_tokens=self._reasoning,
            output_tokens=self._output,
            calls=self._calls,
            unreported_calls=self._unreported,
            cost=None if self._cost is None else float(self._cost),
            judges=judges,
        )


def total_usage(results: Iterable[EvaluatorResult]) -> Usage | None:
    """Total usage of all evaluators of an evaluation."""
    return UsageSum.of(result.usage for result in results).usage


def usage_measurements(usage: Usage | None) -> Mapping[str, float]:
    """Measurements of events: "usage.prompt_tokens", "usage.judges.cost" and so on, if they are known.

    Judges are added up; the results have the usage of each.
    """
    if usage is None:
        return {}
    together = UsageSum.of(judge.usage for judge in usage.judges).usage
    return {**_measured("usage.", usage), **({} if together is None else _measured("usage.judges.", together))}


def _measured(prefix: str, usage: Usage) -> dict[str, float]:
    named = {name: getattr(usage, name) for name in (*_COUNTS, "calls", "unreported_calls", "cost")}
    return {f"{prefix}{name}": float(value) for name, value in named.items() if value is not None}
