"""WorkerService and grpc.health.v1, typed."""

# A timeout is not ours to keep: it travels to the worker as gRPC's deadline.
# ruff: noqa: ASYNC109

from __future__ import annotations

from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from crucible_bridge.client.calls import Calls
from crucible_bridge.codec.fields import sendable
from crucible_bridge.codec.worker import drain_report_from_v1, worker_info_from_v1
from crucible_bridge.types import DrainReport, WorkerInfo
from crucible_bridge.v1 import worker_pb2, worker_pb2_grpc

__all__ = ["WorkerClient"]


class WorkerClient:
    """The worker itself."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._stub: Any = worker_pb2_grpc.WorkerServiceStub(calls.channel)
        self._health: Any = health_pb2_grpc.HealthStub(calls.channel)

    async def get_info(self, *, timeout: float | None = None) -> WorkerInfo:
        """Versions, backends, evaluators, limits, load."""
        return await self._calls.unary(
            self._stub.GetInfo, worker_pb2.GetInfoRequest(), lambda reply: worker_info_from_v1(reply.worker), timeout
        )

    async def drain(self, *, timeout: float | None = None) -> DrainReport:
        """Interrupt what runs, then end the process."""
        return await self._calls.unary(self._stub.Drain, worker_pb2.DrainRequest(), drain_report_from_v1, timeout)

    async def health(self, service: str = "", *, timeout: float | None = None) -> bool:
        """Whether a service is ready: false while it warms up and once it drains.

        Args:
            service: its full name ("crucible_bridge.v1.EvaluationService"); the worker as a whole if empty.
            timeout: seconds for the call.

        Raises:
            NotFound: the worker has no such service.
            Unavailable: there is no worker.
        """
        with sendable("service"):
            request = health_pb2.HealthCheckRequest(service=service)
        serving = health_pb2.HealthCheckResponse.SERVING
        return await self._calls.unary(self._health.Check, request, lambda reply: reply.status == serving, timeout)
