"""ExperimentService: decode, call, encode."""

from __future__ import annotations

import grpc

from crucible_bridge.types import (
    CloseExperimentRequest,
    CloseExperimentResponse,
    GetUrlRequest,
    GetUrlResponse,
    LogHparamsRequest,
    LogHparamsResponse,
    LogLongTextRequest,
    LogLongTextResponse,
    LogMetricsRequest,
    LogMetricsResponse,
    OpenExperimentRequest,
    OpenExperimentResponse,
    SyncRequest,
    SyncResponse,
)
from crucible_bridge.v1 import experiments_pb2 as pb
from crucible_worker.experiments.experiments import Experiments
from crucible_worker.rpc import registration
from crucible_worker.rpc.offload import Offload

__all__ = ["ExperimentService"]


class ExperimentService:
    """Experiments, over the wire."""

    def __init__(self, experiments: Experiments, offload: Offload) -> None:
        """Serve these experiments."""
        self._experiments, self._offload = experiments, offload

    def handler(self) -> grpc.GenericRpcHandler:
        """The handler for a server."""
        return registration.registered(
            pb.DESCRIPTOR.services_by_name["ExperimentService"],
            {
                "OpenExperiment": registration.over_types(self._open, self._offload),
                "LogHparams": registration.over_types(self._log_hparams, self._offload),
                "LogMetrics": registration.over_types(self._log_metrics, self._offload),
                "LogLongText": registration.over_types(self._log_long_text, self._offload),
                "Sync": registration.over_types(self._sync, self._offload),
                "CloseExperiment": registration.over_types(self._close, self._offload),
                "GetUrl": registration.over_types(self._get_url, self._offload),
            },
        )

    async def _open(self, request: OpenExperimentRequest) -> OpenExperimentResponse:
        config = request.config or {}
        experiment, existed = await self._experiments.open(request.experiment_id, request.log_to, config)
        return OpenExperimentResponse(experiment=experiment, existed=existed)

    async def _log_hparams(self, request: LogHparamsRequest) -> LogHparamsResponse:
        return LogHparamsResponse(sequence=await self._experiments.log_hparams(request.experiment_id, request.hparams))

    async def _log_metrics(self, request: LogMetricsRequest) -> LogMetricsResponse:
        return LogMetricsResponse(sequence=await self._experiments.log_metrics(request.experiment_id, request.rows))

    async def _log_long_text(self, request: LogLongTextRequest) -> LogLongTextResponse:
        logged = self._experiments.log_long_text(request.experiment_id, request.key, request.text, request.step)
        return LogLongTextResponse(sequence=await logged)

    async def _sync(self, request: SyncRequest) -> SyncResponse:
        experiment, synced = await self._experiments.sync(request.experiment_id, request.timeout_ms / 1000)
        return SyncResponse(experiment=experiment, synced=synced)

    async def _close(self, request: CloseExperimentRequest) -> CloseExperimentResponse:
        seconds = request.timeout_ms / 1000
        experiment, synced = await self._experiments.sync(request.experiment_id, seconds, close=True)
        return CloseExperimentResponse(experiment=experiment, synced=synced)

    async def _get_url(self, request: GetUrlRequest) -> GetUrlResponse:
        return GetUrlResponse(url=await self._experiments.url(request.experiment_id, request.logger))
