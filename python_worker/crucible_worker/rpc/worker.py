"""WorkerService: describes the worker, and drains it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import grpc

from crucible_bridge.codec.worker import drain_report_to_v1, worker_info_to_v1, worker_load_onto_v1
from crucible_bridge.types import DrainReport, WorkerInfo, WorkerLoad
from crucible_bridge.v1 import worker_pb2
from crucible_worker.rpc import registration
from crucible_worker.rpc.calls import Context

__all__ = ["WorkerService"]


class WorkerService:
    """The worker itself, over the wire."""

    def __init__(
        self,
        info: Callable[[], Awaitable[tuple[WorkerInfo, WorkerLoad]]],
        drain: Callable[[], Awaitable[Sequence[str]]],
    ) -> None:
        """Serve the description and load from `info`; `drain` ends the work and returns what it interrupted."""
        self._info = info
        self._drain = drain
        self._described: WorkerInfo | None = None
        self._answer = worker_pb2.GetInfoResponse()

    def handler(self) -> grpc.GenericRpcHandler:
        """The handler for a server."""
        return registration.registered(
            worker_pb2.DESCRIPTOR.services_by_name["WorkerService"],
            {
                "GetInfo": registration.over_messages(self._get_info),
                "Drain": registration.over_messages(self._drain_worker),
            },
        )

    async def _get_info(self, request: worker_pb2.GetInfoRequest, context: Context) -> worker_pb2.GetInfoResponse:
        """Return versions, backends, evaluators, limits, load."""
        described, load = await self._info()
        # One message for all calls, updated each time: encoding its maps again is most of the cost of a call.
        if described is not self._described:
            self._described = described
            self._answer = worker_pb2.GetInfoResponse(worker=worker_info_to_v1(described))
        worker_load_onto_v1(load, self._answer.worker)
        return self._answer

    async def _drain_worker(self, request: worker_pb2.DrainRequest, context: Context) -> worker_pb2.DrainResponse:
        """Interrupt what runs; the process ends after the answer."""
        return drain_report_to_v1(DrainReport(interrupted=tuple(await self._drain())))
