"""Comparisons of evaluations, for people and for programs: what `compare` prints and reports repeat."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from crucible_bridge.types import Evaluation, EvaluationComparison, PairedComparison

__all__ = ["comparison_as_data", "not_compared", "pair_sentence"]


def comparison_as_data(found: EvaluationComparison) -> dict[str, Any]:
    """A comparison as plain data; problems and changes by their fields."""
    return {
        "evaluations": [evaluation.evaluation_id for evaluation in found.evaluations],
        "best_evaluation_id": found.best_evaluation_id or None,
        "tied_evaluation_ids": list(found.tied_evaluation_ids),
        "tied_by": found.tied_by or None,
        "unranked_evaluation_ids": list(found.unranked_evaluation_ids),
        "differences": [
            {
                "baseline_id": pair.baseline_id,
                "evaluation_id": pair.evaluation_id,
                "evaluator": pair.evaluator,
                "n_matched": pair.n_matched,
                "n_improved": pair.n_improved,
                "n_regressed": pair.n_regressed,
                "metrics": dict(pair.metrics.values),
                "interval_method": pair.interval_method,
                "improvements": [dataclasses.asdict(change) for change in pair.improvements],
                "regressions": [dataclasses.asdict(change) for change in pair.regressions],
                "problem": None if pair.problem is None else dataclasses.asdict(pair.problem),
            }
            for pair in found.comparisons
        ],
    }


def not_compared(evaluations: Sequence[Evaluation], found: EvaluationComparison | None) -> Sequence[str]:
    """The ids of the evaluations that a comparison of them leaves out; all of them if there is none."""
    compared = set() if found is None else {one.evaluation_id for one in found.evaluations}
    return [one.evaluation_id for one in evaluations if one.evaluation_id not in compared]


def pair_sentence(pair: PairedComparison, confidence: float) -> str:
    """The difference of two evaluations with its interval, or why there is none.

    Args:
        pair: the two.
        confidence: of the interval.
    """
    if pair.problem is not None:
        return f"not compared: {pair.problem.message}"
    values = pair.metrics.values
    if "difference" not in values:
        return f"no difference is defined, {pair.n_matched:,} samples in common"
    low, high = values.get("difference_ci_low"), values.get("difference_ci_high")
    between = "" if low is None or high is None else f" ({confidence * 100:g} %: {low:.4g} to {high:.4g})"
    clusters = f" in {values['n_clusters']:,.0f} clusters" if "n_clusters" in values else ""
    chance = f", p (Holm) {values['holm_p']:.2g}" if "holm_p" in values else ""
    smallest = f", detectable from {values['mde_80']:.4g}" if "mde_80" in values else ""
    return (
        f"mean {values['mean']:.4g}, difference {values['difference']:+.4g}{between}{chance}{smallest}, "
        f"{pair.n_improved:,} better and {pair.n_regressed:,} worse of {pair.n_matched:,} samples{clusters}"
    )
