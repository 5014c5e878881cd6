"""Requests with huge maps are refused before they are parsed, at whatever service they arrive."""

from __future__ import annotations

import grpc
import grpc.aio
import pytest

from crucible_bridge.types import MAX_MAP_ENTRIES
from crucible_bridge.v1 import evaluation_pb2, evaluation_pb2_grpc, metrics_pb2, metrics_pb2_grpc
from tests.service.evaluation_kit import rig


def _labelled() -> evaluation_pb2.StartEvaluationRequest:
    request = evaluation_pb2.StartEvaluationRequest()
    for number in range(MAX_MAP_ENTRIES + 1):
        request.request.labels[f"key {number}"] = ""
    return request


def _measured() -> metrics_pb2.ComputeTrajectoryMetricsRequest:
    request = metrics_pb2.ComputeTrajectoryMetricsRequest()
    for number in range(MAX_MAP_ENTRIES + 1):
        request.batch.transition_metrics[f"key {number}"].data = b""
    return request


@pytest.mark.parametrize("kind", ["labels", "metrics"])
async def test_a_request_with_a_huge_map_is_refused(kind: str) -> None:
    """By its service, or before that."""
    async with rig() as r, grpc.aio.insecure_channel(r.worker.address) as channel:
        if kind == "labels":
            answer = evaluation_pb2_grpc.EvaluationServiceStub(channel).StartEvaluation(_labelled())
        else:
            answer = metrics_pb2_grpc.MetricsServiceStub(channel).ComputeTrajectoryMetrics(_measured())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await answer

    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "has more than 10,000 entries" in (caught.value.details() or "")
