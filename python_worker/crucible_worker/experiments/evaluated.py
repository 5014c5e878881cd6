"""What an evaluation logs when it has completed: a row of metrics for each evaluator, at the evaluation's step."""

from __future__ import annotations

from crucible_bridge.types import EvaluateRequest, LoggedMetrics
from crucible_worker.journal.records import Ended

__all__ = ["rows_of"]


def rows_of(request: EvaluateRequest, ended: Ended, now_ns: int) -> list[LoggedMetrics]:
    """The rows: the keys are those of the evaluation, and each evaluator has a separate axis of steps.

    An evaluator that failed, or whose metrics are all undefined, has none. An evaluation that failed or was cancelled
    has none at all.
    """
    return [
        LoggedMetrics(
            values=result.metrics.values,
            step=request.step,
            family=(request.metric_prefix + result.evaluator.label).strip("/"),
            unix_time_ns=now_ns,
        )
        for result in ended.results
        if result.problem is None and result.metrics.values
    ]
