"""What samples, evaluators and evaluations took of their models: added up exactly, judges by model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from crucible_bridge.types import EvaluatorResult, ModelRef, ModelUsage, Usage, format_model
from crucible_worker.backends.metering import Meter

__all__ = ["Place", "Spent", "UsageSum", "sample_usage", "total_usage", "usage_measurements"]

Place = tuple[int, int, int]
"""A sample's position in the data set, the evaluator's index, the repeat."""

_COUNTS = ("prompt_tokens", "cached_prompt_tokens", "reasoning_tokens", "output_tokens")
"""Numbers that are absent where nothing reports them."""


class UsageSum:
    """Adds up usages."""

    def __init__(self) -> None:
        """Of nothing yet."""
        self._meter = Meter()
        self._cost: float | None = None
        self._judges: dict[str, UsageSum] = {}

    def add(self, usage: Usage | None) -> None:
        """Add one; None is that of no call."""
        if usage is not None:
            self._meter.add_all(usage)
            if usage.cost is not None:
                self._cost = usage.cost + (self._cost or 0.0)
            for judge in usage.judges:
                self._judges.setdefault(judge.model, UsageSum()).add(judge.usage)

    @property
    def usage(self) -> Usage | None:
        """The sum, judges sorted by model; None where no call was answered."""
        found = ((name, judge.usage) for name, judge in sorted(self._judges.items()))
        judges = tuple(ModelUsage(model=name, usage=usage) for name, usage in found if usage is not None)
        own = self._meter.usage
        if judges or self._cost is not None:
            return dataclasses.replace(own or Usage(), cost=self._cost, judges=judges)
        return own


class Spent:
    """What the samples of an evaluation took so far, each in its last run, whichever attempt made that."""

    def __init__(self) -> None:
        """Of no samples yet."""
        self._sum = UsageSum()
        self._again: dict[Place, Usage] = {}

    def restore(self, final: Usage | None, again: Mapping[Place, Usage]) -> None:
        """Add what was run before: final results together, and by place those that are to be run again."""
        self._sum.add(final)
        self._again = dict(again)

    def add(self, place: Place, usage: Usage | None) -> None:
        """Add a run, in place of the one before if there was one."""
        if self._again:
            self._again.pop(place, None)
        self._sum.add(usage)

    @property
    def usage(self) -> Usage | None:
        """All of it; None where no call was answered."""
        total = UsageSum()
        for usage in (self._sum.usage, *self._again.values()):
            total.add(usage)
        return total.usage


def sample_usage(
    meter: Meter, others: Mapping[str, Meter] | None = None, refs: Mapping[str, ModelRef] | None = None
) -> Usage | None:
    """What a sample took; None where no call was answered.

    Args:
        meter: of the model that is evaluated.
        others: of further models, by the name of their option.
        refs: which models those are.
    """
    if not others or not refs:  # as a rule, and for every sample
        return meter.usage
    total = UsageSum()
    judges = [
        ModelUsage(model=format_model(refs[name]), usage=usage)
        for name, other in others.items()
        if (usage := other.usage) is not None
    ]
    own = meter.usage
    total.add(dataclasses.replace(own or Usage(), judges=tuple(judges)) if judges else own)
    return total.usage


def total_usage(results: Iterable[EvaluatorResult]) -> Usage | None:
    """What all evaluators of an evaluation took together."""
    total = UsageSum()
    for result in results:
        total.add(result.usage)
    return total.usage


def usage_measurements(usage: Usage | None) -> Mapping[str, float]:
    """As events measure it: "usage.prompt_tokens", "usage.judges.cost" and so on, those that are known.

    Judges are added up; which of them took what stands in the results.
    """
    if usage is None:
        return {}
    judges = UsageSum()
    for judge in usage.judges:
        judges.add(judge.usage)
    together = judges.usage
    return {**_measured("usage.", usage), **({} if together is None else _measured("usage.judges.", together))}


def _measured(prefix: str, usage: Usage) -> dict[str, float]:
    named = {name: getattr(usage, name) for name in (*_COUNTS, "calls", "unreported_calls", "cost")}
    return {f"{prefix}{name}": float(value) for name, value in named.items() if value is not None}
