"""Usage of models that evaluations and calls spend here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping

from crucible_bridge.types import ModelPrice, ModelRef, ModelUsage, Usage, format_model
from crucible_worker.backends.metering import Meter
from crucible_worker.journal.records import SampleKey
from crucible_worker.journal.usage import UsageSum
from crucible_worker.util.prices import priced

__all__ = ["MAX_MODELS", "Charge", "Spending", "Spent", "judged_usage"]


MAX_MODELS = 256
"""Most models that a worker counts separately since its start, as requests may name any."""

Charge = Callable[[Usage | None, ModelRef], Usage | None]
"""Counts the usage of a call, and returns it with its cost; see `Spending.charge`."""

_NAMELESS = ""
"""The name for all further models together."""


class Spending:
    """Usage of this worker's models since it started, by model, and its cost."""

    def __init__(self, prices: tuple[ModelPrice, ...]) -> None:
        """Start at zero.

        Args:
            prices: of models.
        """
        self._prices = prices
        self._sums: dict[str, UsageSum] = {}

    def charge(self, usage: Usage | None, model: ModelRef) -> Usage | None:
        """Count the usage of a call, and return it with its cost."""
        usage = priced(usage, model, self._prices)
        self.count(usage, model)
        return usage

    def count(self, usage: Usage | None, model: ModelRef) -> None:
        """Count usage that has its cost already."""
        for name, own in _by_model(usage, model):
            known = name in self._sums or len(self._sums) < MAX_MODELS
            self._sums.setdefault(name if known else _NAMELESS, UsageSum()).add((own,))

    def together(self, under_way: Iterable[tuple[ModelRef, Usage | None]]) -> tuple[ModelUsage, ...]:
        """The counted usage together with that of running attempts, sorted by model."""
        whole = Spending(())
        whole._sums = {name: UsageSum.of([total.usage]) for name, total in self._sums.items()}
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
    """Usage of the samples of an evaluation so far, each in its last run, in any attempt."""

    def __init__(self) -> None:
        """Start without samples."""
        self._before: Mapping[int, Usage] = {}
        self._here: dict[int, UsageSum] = {}
        self._again: dict[SampleKey, Usage] = {}

    def restore(self, final: Mapping[int, Usage], again: Mapping[SampleKey, Usage]) -> None:
        """Add earlier runs: those with a final result by evaluator, and those to be run again by place."""
        self._before, self._again = final, dict(again)

    def add(self, runs: Iterable[tuple[SampleKey, Usage | Meter | None]]) -> None:
        """Add runs; each replaces an earlier run of its sample."""
        together: dict[int, list[Usage | Meter | None]] = {}
        for place, usage in runs:
            if self._again:
                self._again.pop(place, None)
            together.setdefault(place.evaluator, []).append(usage)
        for evaluator, usages in together.items():
            self._here.setdefault(evaluator, UsageSum()).add(usages)

    def of(self, evaluator: int) -> Usage | None:
        """Usage of an evaluator, by its evaluator; None if no call was answered."""
        again = (usage for place, usage in self._again.items() if place.evaluator == evaluator)
        here = self._here.get(evaluator)
        return UsageSum.of((self._before.get(evaluator), None if here is None else here.usage, *again)).usage

    @property
    def here(self) -> Usage | None:
        """Usage of this attempt."""
        return UsageSum.of(total.usage for total in self._here.values()).usage

    @property
    def usage(self) -> Usage | None:
        """Total usage; None if no call was answered."""
        return UsageSum.of((*self._before.values(), self.here, *self._again.values())).usage


def judged_usage(meter: Meter, others: Mapping[str, Meter], refs: Mapping[str, ModelRef]) -> Usage | None:
    """Usage of a sample with an evaluator that queries further models; None if no call was answered.

    Args:
        meter: of the evaluated model.
        others: of further models, by the name of their option.
        refs: which models those are.
    """
    judges = [
        ModelUsage(model=format_model(refs[name]), usage=usage)
        for name, other in others.items()
        if (usage := other.usage) is not None
    ]
    own = meter.usage
    # Two options may name one model: it is listed once, with the sum.
    return UsageSum.of([dataclasses.replace(own or Usage(), judges=tuple(judges)) if judges else own]).usage
