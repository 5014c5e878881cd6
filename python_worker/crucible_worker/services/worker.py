"""WorkerService: what the worker is, and how it is drained."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import grpc

from crucible_bridge.codec.worker import drain_report_to_v1, worker_info_to_v1, worker_load_onto_v1
from crucible_bridge.types import DrainReport, WorkerInfo, WorkerLoad
from crucible_bridge.v1 import worker_pb2
from crucible_worker.interceptors.methods import Context
from crucible_worker.services import registration

__all__ = ["WorkerService"]


class WorkerService:
    """The worker itself, over the wire."""

    def __init__(
        self,
        info: Callable[[], Awaitable[tuple[WorkerInfo, WorkerLoad]]],
        drain: Callable[[], Awaitable[Sequence[str]]],
    ) -> None:
        """Serve what `info` says of the worker and its load; `drain` ends its work and reports what it stopped."""
        self._info = info
        self._drain = drain
        self._described: WorkerInfo | None = None
        self._answer = worker_pb2.GetInfoResponse()

    def handler(self) -> grpc.GenericRpcHandler:
        """What a server is given."""
        return registration.registered(
            worker_pb2.DESCRIPTOR.services_by_name["WorkerService"],
            {
                "GetInfo": registration.over_messages(self._get_info),
                "Drain": registration.over_messages(self._send_home),
            },
        )

    async def _get_info(self, request: worker_pb2.GetInfoRequest, context: Context) -> worker_pb2.GetInfoResponse:
        """Versions, backends, evaluators, limits, load."""
        described, load = await self._info()
        # One answer for all calls, brought up to date: encoding its maps anew is most of what a call costs.
        if described is not self._described:
            self._described = described
            self._answer = worker_pb2.GetInfoResponse(worker=worker_info_to_v1(described))
        worker_load_onto_v1(load, self._answer.worker)
        return self._answer

    async def _send_home(self, request: worker_pb2.DrainRequest, context: Context) -> worker_pb2.DrainResponse:
        """Interrupt what runs; the process ends after the answer."""
        return drain_report_to_v1(DrainReport(interrupted=tuple(await self._drain())))
