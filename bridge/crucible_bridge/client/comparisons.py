"""The call of EvaluationService that compares evaluations, typed."""

# The timeout is not measured here: it travels to the worker as gRPC's deadline.
# ruff: noqa: ASYNC109

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crucible_bridge.client.calls import Calls
from crucible_bridge.codec.comparisons import (
    DEFAULT_CONFIDENCE,
    DEFAULT_LISTED,
    compare_request_to_v1,
    evaluation_comparison_from_v1,
)
from crucible_bridge.codec.fields import sendable, several
from crucible_bridge.types import CompareRequest, EvaluationComparison, RankBy

__all__ = ["ComparisonCalls"]


class ComparisonCalls:
    """Compared evaluations."""

    def __init__(self, calls: Calls, stub: Any) -> None:
        self._calls = calls
        self._stub = stub

    async def compare_evaluations(
        self,
        evaluation_ids: Sequence[str] = (),
        *,
        run_id: str | None = None,
        dataset_fingerprint: str = "",
        baseline_id: str = "",
        evaluator: str | None = None,
        rank_by: RankBy | None = None,
        confidence: float = DEFAULT_CONFIDENCE,
        max_listed: int = DEFAULT_LISTED,
        cluster_by: str = "",
        across_rules: bool = False,
        timeout: float | None = None,
    ) -> EvaluationComparison:
        """Compare ended evaluations of one data set.

        Args:
            evaluation_ids: which ones, each once; either these or `run_id`.
            run_id: instead, all completed evaluations of this run, by step.
            dataset_fingerprint: only evaluations of this data set, for a run with several.
            baseline_id: the evaluation to compare the others with; if empty, for each evaluator the first that has it.
            evaluator: only the evaluator of this name, or of this kind if it has no name; all if None.
            rank_by: the metric that decides which is best.
            confidence: of intervals, 0.5 to 0.999.
            max_listed: how many improvements, and how many regressions, each comparison lists: 0 to 1,000.
            cluster_by: a key of the samples' metadata: errors then allow for what samples of one value have in common;
                no clusters if empty.
            across_rules: compare and rank also what other versions of the rules have measured.
            timeout: seconds for the call.

        Returns:
            Differences per sample with their uncertainty, improvements and regressions, every metric over the steps.

        Raises:
            InvalidField: neither or both of `evaluation_ids` and `run_id` are given, or a number is out of range.
            NotFound: an evaluation does not exist, or the run has no completed one.
            FailedPrecondition: one has not ended (NOT_ENDED), they are of several data sets (DIFFERENT_DATASETS), or
                the metadata is not recorded (METADATA_NOT_RECORDED).
            ResourceExhausted: there are too many evaluations, or they have too many samples (TOO_MANY_SAMPLES).
        """
        with sendable("evaluation_ids"):
            ids = tuple(several(evaluation_ids, "evaluation_ids"))
        request = CompareRequest(
            evaluation_ids=ids,
            run_id=run_id,
            dataset_fingerprint=dataset_fingerprint,
            baseline_id=baseline_id,
            evaluator=evaluator,
            rank_by=rank_by,
            confidence=confidence,
            max_listed=max_listed,
            cluster_by=cluster_by,
            across_rules=across_rules,
        )
        return await self._calls.unary(
            self._stub.CompareEvaluations, compare_request_to_v1(request), evaluation_comparison_from_v1, timeout
        )
