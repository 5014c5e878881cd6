"""Comparisons as the data of pages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from crucible_bridge.errors import FailedPrecondition, ResourceExhausted
from crucible_bridge.reasons import Reason
from crucible_bridge.types import CompareRequest, EvaluationComparison, PairedComparison, SampleChange
from crucible_worker.reports.facts import problem_text
from crucible_worker.reports.metric_keys import Infos
from crucible_worker.reports.plain import plain
from crucible_worker.reports.summaries import summary_as_data

__all__ = ["MOST_COMPARED", "compare_as_data", "compared_if_possible"]

MOST_COMPARED = 10
"""Evaluations that a page sets next to each other."""

_INCOMPARABLE = (Reason.NOT_ENDED, Reason.DIFFERENT_DATASETS, Reason.TOO_MANY_SAMPLES)


async def compared_if_possible(
    compare: Callable[[CompareRequest], Awaitable[EvaluationComparison]], request: CompareRequest
) -> EvaluationComparison | None:
    """Compare evaluations; None if these cannot be compared.

    Args:
        compare: asks the worker.
        request: what to compare.

    Raises:
        BridgeError: the worker fails for another reason.
    """
    try:
        return await compare(request)
    except (FailedPrecondition, ResourceExhausted) as error:
        if error.reason not in _INCOMPARABLE:
            raise
        return None


def compare_as_data(comparison: EvaluationComparison, infos: Infos) -> dict[str, Any]:
    """Evaluations next to each other.

    Args:
        comparison: the answer to CompareEvaluations.
        infos: what the evaluators declare, by kind.
    """
    return {
        "evaluations": [summary_as_data(evaluation, infos) for evaluation in comparison.evaluations],
        "comparisons": [plain(_pair(pair)) for pair in comparison.comparisons],
    }


def _pair(pair: PairedComparison) -> dict[str, Any]:
    return {
        "baseline": pair.baseline_id,
        "evaluation": pair.evaluation_id,
        "evaluator": pair.evaluator,
        "n_matched": pair.n_matched,
        "n_improved": pair.n_improved,
        "n_regressed": pair.n_regressed,
        "n_baseline_only": pair.n_baseline_only,
        "n_evaluation_only": pair.n_evaluation_only,
        "metrics": dict(pair.metrics.values),
        "method": pair.interval_method,
        "improvements": [_change(change) for change in pair.improvements],
        "regressions": [_change(change) for change in pair.regressions],
        "problem": problem_text(pair.problem) or None,
    }


def _change(change: SampleChange) -> dict[str, Any]:
    return {"id": change.sample_id, "from": change.baseline_score, "to": change.score}
