"""The call of EvaluationService that compares evaluations: decode, call, encode."""

from __future__ import annotations

import asyncio

from crucible_bridge.codec.comparisons import compare_request_from_v1, evaluation_comparison_to_v1
from crucible_bridge.v1 import evaluation_pb2 as pb
from crucible_worker.interceptors.methods import Context
from crucible_worker.runs.evaluations import Evaluations

__all__ = ["ComparisonCalls"]


class ComparisonCalls:
    """Comparisons, over the wire."""

    _evaluations: Evaluations

    async def _compare_evaluations(
        self, request: pb.CompareEvaluationsRequest, context: Context
    ) -> pb.CompareEvaluationsResponse:
        """Set them beside each other."""
        comparison = await self._evaluations.comparisons.compare(compare_request_from_v1(request))
        # By a thread: a hundred evaluations with a thousand changes each take a while.
        return await asyncio.to_thread(evaluation_comparison_to_v1, comparison)
