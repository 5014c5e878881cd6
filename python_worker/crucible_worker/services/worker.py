"""WorkerService: what the worker is, and how it is sent home."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from crucible_bridge.codec.worker import drain_report_to_v1, worker_info_to_v1
from crucible_bridge.types import DrainReport, WorkerInfo
from crucible_bridge.v1 import worker_pb2, worker_pb2_grpc
from crucible_worker.interceptors.methods import Context

__all__ = ["WorkerService"]


class WorkerService(worker_pb2_grpc.WorkerServiceServicer):
    """The worker itself, over the wire."""

    def __init__(
        self, info: Callable[[], Awaitable[WorkerInfo]], drain: Callable[[], Awaitable[Sequence[str]]]
    ) -> None:
        """Ask `info` what the worker is; `drain` sends it home and gives the evaluations it interrupted."""
        self._info = info
        self._drain = drain

    async def GetInfo(self, request: worker_pb2.GetInfoRequest, context: Context) -> worker_pb2.GetInfoResponse:
        """Versions, backends, evaluators, limits, load."""
        return worker_pb2.GetInfoResponse(worker=worker_info_to_v1(await self._info()))

    async def Drain(self, request: worker_pb2.DrainRequest, context: Context) -> worker_pb2.DrainResponse:
        """Interrupt what runs; the process ends after the answer."""
        return drain_report_to_v1(DrainReport(interrupted=tuple(await self._drain())))
