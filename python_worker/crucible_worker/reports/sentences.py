"""Numbers as people say them: "accuracy 33.3 % (95 %: 19.2 to 51.2), 30 of 30 scored"."""

from __future__ import annotations

from collections.abc import Sequence

from crucible_bridge.types import Evaluation
from crucible_worker.reports.metric_keys import EvaluatorKeys, Infos, keys_of

__all__ = ["evaluator_sentences", "metric_text"]

SHARE = "fraction of 1"
"""The unit of a metric that people read in per cent, as evaluators declare it."""


def metric_text(key: str, value: float, keys: EvaluatorKeys) -> str:
    """A metric with its interval: "accuracy 33.3 % (95 %: 19.2 to 51.2)".

    Args:
        key: its full key.
        value: its value.
        keys: what is known of the keys of its evaluator.
    """
    share = keys.units.get(key) == SHARE
    bounds = keys.intervals.get(key)
    between = "" if bounds is None else f" (95 %: {_number(bounds[0], share)} to {_number(bounds[1], share)})"
    return f"{key} {_number(value, share)}{' %' if share else ''}{between}"


def evaluator_sentences(evaluation: Evaluation, infos: Infos, *, most: int | None = None) -> Sequence[str]:
    """One sentence for each evaluator that has ended: its headline metrics, and how many samples have a score.

    Args:
        evaluation: in any state.
        infos: what evaluators declare, by kind.
        most: metrics in a sentence, at most; all headline metrics if None.
    """
    sentences: list[str] = []
    for keys, result in zip(keys_of(evaluation, infos), evaluation.results, strict=True):
        values = result.metrics.values
        shown = [metric_text(key, values[key], keys) for key in keys.headline if key in values][:most]
        if not shown:
            problem = result.problem
            why = "no metric is defined" if problem is None else f"{problem.reason}: {problem.message}"
            shown = [f"{result.evaluator.label}: {why}"]
        sentences.append(f"{', '.join(shown)}, {result.n_scored:,} of {result.n:,} scored")
    return sentences


def _number(value: float, share: bool) -> str:
    return f"{value * 100:.1f}" if share else f"{value:.4g}"
