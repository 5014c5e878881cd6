"""grpc.health.v1: whether the worker, and each of its services, can be called just now.

In place of the servicer that ships with grpcio: there the watchers of a service share one condition, which the first
to leave takes away from the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from grpc_health.v1 import health_pb2, health_pb2_grpc

from crucible_bridge.errors import NotFound
from crucible_bridge.reasons import Reason
from crucible_worker.interceptors.methods import Context

__all__ = ["OVERALL", "Health"]

OVERALL = ""
"""The worker as a whole: its port is bound and its journal open."""

_Status = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):
    """The answers to probes; everything is NOT_SERVING until `set` changes it."""

    def __init__(self, services: Iterable[str]) -> None:
        """Know these services, by their full names, and the worker as a whole."""
        self._serving = dict.fromkeys((OVERALL, *services), False)
        self._watchers: set[asyncio.Event] = set()
        self._over = False

    def set(self, service: str, serving: bool) -> None:
        """Say whether a service can be called; ignored once the worker drains."""
        if self._over or self._serving[service] == serving:
            return
        self._serving[service] = serving
        self._tell()

    def drain(self) -> None:
        """Say NOT_SERVING for everything, for good."""
        self._over = True
        self._serving = dict.fromkeys(self._serving, False)
        self._tell()

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Context) -> health_pb2.HealthCheckResponse:
        """Answer a probe.

        Raises:
            NotFound: there is no such service.
        """
        if request.service not in self._serving:
            raise NotFound(f"no service {request.service!r}", reason=Reason.UNKNOWN_SERVICE)
        return self._answer(request.service)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        """Answer now, and at every change."""
        changed = asyncio.Event()
        self._watchers.add(changed)
        last = None
        try:
            while True:
                changed.clear()
                answer = self._answer(request.service)
                if answer != last:
                    yield answer
                    last = answer
                await changed.wait()
        finally:
            self._watchers.discard(changed)

    def _answer(self, service: str) -> health_pb2.HealthCheckResponse:
        serving = self._serving.get(service)
        if serving is None:
            return _Status(status=_Status.SERVICE_UNKNOWN)
        return _Status(status=_Status.SERVING if serving else _Status.NOT_SERVING)

    def _tell(self) -> None:
        for changed in self._watchers:
            changed.set()
