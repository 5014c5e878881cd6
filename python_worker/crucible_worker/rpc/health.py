"""grpc.health.v1: whether the worker, and each of its services, can be called just now.

It replaces the servicer that ships with grpcio: there the watchers of a service share one condition, and the first
watcher that ends removes it for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

from grpc_health.v1 import health_pb2, health_pb2_grpc

from crucible_bridge.errors import NotFound
from crucible_bridge.reasons import Reason
from crucible_worker.rpc.calls import Context

__all__ = ["OVERALL", "Health"]

OVERALL = ""
"""The name for the worker as a whole: its port is bound and its journal open."""

_Status = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):
    """The answers to probes; everything is NOT_SERVING until `set` changes it."""

    def __init__(self, services: Iterable[str]) -> None:
        """Answer for these services, by their full names, and for the worker as a whole."""
        self._serving = dict.fromkeys((OVERALL, *services), False)
        self._watchers: set[asyncio.Event] = set()
        self._drained = False

    def set(self, service: str, serving: bool) -> None:
        """Set whether a service can be called; ignored once the worker drains."""
        if self._drained or self._serving[service] == serving:
            return
        self._serving[service] = serving
        self._notify()

    def drain(self) -> None:
        """Set everything to NOT_SERVING, for good."""
        self._drained = True
        self._serving = dict.fromkeys(self._serving, False)
        self._notify()

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

    def _notify(self) -> None:
        for changed in self._watchers:
            changed.set()
