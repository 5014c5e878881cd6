"""What samples, evaluators and evaluations took of their models: added up exactly, judges by model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

from crucible_bridge.types import EvaluatorResult, ModelPrice, ModelRef, ModelUsage, Usage, format_model
from crucible_worker.backends.metering import Meter
from crucible_worker.prices import priced

__all__ = [
    "MAX_MODELS",
    "Charge",
    "Place",
    "Spending",
    "Spent",
    "UsageSum",
    "sample_usage",
    "total_usage",
    "usage_measurements",
]

Place = tuple[int, int, int]
"""A sample's position in the data set, the evaluator's index, the repeat."""

MAX_MODELS = 256
"""Models that a worker tells apart in what it took since it started: requests may name any."""

Charge = Callable[[Usage | None, ModelRef], Usage | None]
"""Counts what a call took of a model, and says what it costs; see `Spending.charge`."""

_NAMELESS = ""
"""The rest of them, together."""

_COUNTS = ("prompt_tokens", "cached_prompt_tokens", "reasoning_tokens", "output_tokens")
"""Numbers that are absent where nothing reports them."""


class UsageSum:
    """Adds up usages."""

    def __init__(self) -> None:
        """Of nothing yet."""
        self._meter = Meter()
        self._cost: float | None = None
        self._judges: dict[str, UsageSum] = {}

    @classmethod
    def of(cls, usage: Usage | None) -> UsageSum:
        """Of one."""
        total = cls()
        total.add(usage)
        return total

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


class Spending:
    """What this worker's models took since it started, by model, and what that costs."""

    def __init__(self, prices: tuple[ModelPrice, ...]) -> None:
        """Of nothing yet.

        Args:
            prices: of models.
        """
        self._prices = prices
        self._sums: dict[str, UsageSum] = {}

    def charge(self, usage: Usage | None, model: ModelRef) -> Usage | None:
        """Count what a call took, and say what it costs."""
        usage = priced(usage, model, self._prices)
        self.count(usage, model)
        return usage

    def count(self, usage: Usage | None, model: ModelRef) -> None:
        """Count what has its cost already."""
        for name, own in _by_model(usage, model):
            known = name in self._sums or len(self._sums) < MAX_MODELS
            self._sums.setdefault(name if known else _NAMELESS, UsageSum()).add(own)

    def together(self, under_way: Iterable[tuple[ModelRef, Usage | None]]) -> tuple[ModelUsage, ...]:
        """What was counted, and what is under way, sorted by model."""
        whole = Spending(())
        whole._sums = {name: UsageSum.of(total.usage) for name, total in self._sums.items()}
        for model, usage in under_way:
            whole.count(usage, model)
        found = ((name, total.usage) for name, total in sorted(whole._sums.items()))
        return tuple(ModelUsage(model=name, usage=usage) for name, usage in found if usage is not None)


def _by_model(usage: Usage | None, model: ModelRef) -> Iterator[tuple[str, Usage]]:
    if usage is not None:
        if usage.calls:
            yield format_model(model), dataclasses.replace(usage, judges=())
        for judge in usage.judges:
            yield judge.model, judge.usage


class Spent:
    """What the samples of an evaluation took so far, each in its last run, whichever attempt made that."""

    def __init__(self) -> None:
        """Of no samples yet."""
        self._before: Usage | None = None
        self._here = UsageSum()
        self._again: dict[Place, Usage] = {}

    def restore(self, final: Usage | None, again: Mapping[Place, Usage]) -> None:
        """Add what was run before: final results together, and by place those that are to be run again."""
        self._before, self._again = final, dict(again)

    def add(self, place: Place, usage: Usage | None) -> None:
        """Add a run, in place of the one before if there was one."""
        if self._again:
            self._again.pop(place, None)
        self._here.add(usage)

    @property
    def here(self) -> Usage | None:
        """What this attempt's took."""
        return self._here.usage

    @property
    def usage(self) -> Usage | None:
        """All of it; None where no call was answered."""
        total = UsageSum()
        for usage in (self._before, self._here.usage, *self._again.values()):
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
