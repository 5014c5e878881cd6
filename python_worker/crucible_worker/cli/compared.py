"""Several models in the same evaluations: each compared with the first, as rows for people and data for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from crucible_bridge.errors import BridgeError
from crucible_bridge.types import CompareRequest, Evaluation, PairedComparison, Problem
from crucible_worker.analysis.comparison import Comparisons
from crucible_worker.util.model_refs import format_own_model

__all__ = ["COLUMNS", "Compared", "as_data", "compared", "tables"]

COLUMNS = ("evaluator", "mean", "difference", "95% interval", "better, worse")
"""The columns of the rows of `tables`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """An evaluator's scores of a model, sample by sample with those of the first model."""

    name: str
    """The name of a suite's evaluation; may be empty."""
    baseline: str
    """The model that it is compared with."""
    model: str
    """The compared model."""
    pair: PairedComparison
    """The numbers, or the problem."""


async def compared(comparisons: Comparisons, ended: Sequence[tuple[str, Evaluation]]) -> Sequence[Compared]:
    """Compare the evaluations of each name, if there are several.

    Args:
        comparisons: of the journal that has the evaluations.
        ended: names of a suite's evaluations, or empty names, with the evaluations that have ended.
    """
    by_name: dict[str, list[Evaluation]] = {}
    for name, evaluation in ended:
        by_name.setdefault(name, []).append(evaluation)
    found: list[Compared] = []
    for name, evaluations in by_name.items():
        if len(evaluations) > 1:
            found.extend([each async for each in _pairs(comparisons, name, evaluations)])
    return found


async def _pairs(comparisons: Comparisons, name: str, evaluations: Sequence[Evaluation]) -> AsyncIterator[Compared]:
    models = {evaluation.evaluation_id: format_own_model(evaluation.request.model) for evaluation in evaluations}
    try:
        found = await comparisons.compare(CompareRequest(evaluation_ids=tuple(models), max_listed=0))
    except BridgeError as error:
        # For example, a data file changed between two models: the evaluations themselves are valid.
        problem = Problem(reason=error.reason, message=error.message)
        first, *others = models
        for other in others:
            pair = PairedComparison(baseline_id=first, evaluation_id=other, evaluator="", problem=problem)
            yield Compared(name=name, baseline=models[first], model=models[other], pair=pair)
        return
    for pair in found.comparisons:
        yield Compared(name=name, baseline=models[pair.baseline_id], model=models[pair.evaluation_id], pair=pair)


def tables(several: Sequence[Compared]) -> Iterator[tuple[str, Sequence[Sequence[str]]]]:
    """A title and rows for each model except the first, in the columns of `COLUMNS`."""
    by_title: dict[str, list[Sequence[str]]] = {}
    for each in several:
        by_title.setdefault(f"{each.model}, compared with {each.baseline}", []).append(_row(each))
    yield from by_title.items()


def _row(each: Compared) -> Sequence[str]:
    pair = each.pair
    label = ": ".join(filter(None, (each.name, pair.evaluator)))
    if pair.problem is not None:
        return (label, "", f"not compared: {pair.problem.message}", "", "")
    mean, difference, low, high = (
        "" if (value := pair.metrics.values.get(key)) is None else f"{value:.4g}"
        for key in ("mean", "difference", "difference_ci_low", "difference_ci_high")
    )
    interval = f"{low} to {high}" if low and high else ""
    return (label, mean, difference, interval, f"{pair.n_improved}, {pair.n_regressed} of {pair.n_matched}")


def as_data(each: Compared) -> dict[str, Any]:
    """For json."""
    pair = each.pair
    return {
        **({"name": each.name} if each.name else {}),
        "evaluator": pair.evaluator,
        "baseline": each.baseline,
        "model": each.model,
        "n_matched": pair.n_matched,
        "n_improved": pair.n_improved,
        "n_regressed": pair.n_regressed,
        "metrics": dict(pair.metrics.values),
        "interval_method": pair.interval_method,
        "problem": None if pair.problem is None else dataclasses.asdict(pair.problem),
    }
