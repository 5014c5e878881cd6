"""WorkerService and grpc.health.v1, typed."""

# The timeout is not measured here: it travels to the worker as gRPC's deadline.
# ruff: noqa: ASYNC109

from __future__ import annotations

from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from crucible_bridge.client.calls import Calls
from crucible_bridge.client.plain_calls import PlainWorkerCalls
from crucible_bridge.codec.fields import sendable

__all__ = ["WorkerClient"]


class WorkerClient(PlainWorkerCalls):
    """The worker itself."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._health: Any = health_pb2_grpc.HealthStub(calls.channel)

    async def health(self, service: str = "", *, timeout: float | None = None) -> bool:
        """Whether a service is ready: false while the worker warms up, and when it drains.

        Args:
            service: its full name ("crucible_bridge.v1.EvaluationService"); the worker as a whole if empty.
            timeout: seconds for the call.

        Raises:
            NotFound: the worker has no such service.
            Unavailable: no worker answers.
        """
        with sendable("service"):
            request = health_pb2.HealthCheckRequest(service=service)
        serving = health_pb2.HealthCheckResponse.SERVING
        return await self._calls.unary(self._health.Check, request, lambda reply: reply.status == serving, timeout)
