"""The asynchronous client: one connection, one namespace per service."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from crucible_bridge.channel import Tls, authorization, open_channel
from crucible_bridge.client.calls import Calls
from crucible_bridge.client.evaluation import EvaluationClient
from crucible_bridge.client.experiment_log import ExperimentLog
from crucible_bridge.client.experiments import ExperimentsClient
from crucible_bridge.client.grading import GradingClient
from crucible_bridge.client.metrics import MetricsClient
from crucible_bridge.client.models import ModelsClient
from crucible_bridge.client.readiness import wait_for_worker
from crucible_bridge.client.telemetry import TelemetryClient
from crucible_bridge.client.worker import WorkerClient

__all__ = ["Bridge", "connect"]


class Bridge:
    """A worker, as a client sees it. Made by `connect`."""

    def __init__(self, calls: Calls) -> None:
        self.evaluation = EvaluationClient(calls)
        """EvaluationService."""
        self.experiments = ExperimentsClient(calls)
        """ExperimentService; `experiment` is shorter."""
        self.grading = GradingClient(calls)
        """GradingService."""
        self.metrics = MetricsClient(calls)
        """MetricsService."""
        self.models = ModelsClient(calls)
        """ModelService."""
        self.telemetry = TelemetryClient(calls)
        """TelemetryService."""
        self.worker = WorkerClient(calls)
        """WorkerService and health."""
        self._calls = calls

    def experiment(self, experiment_id: str, *, log_to: Sequence[str] = (), config: object = None) -> ExperimentLog:
        """An experiment to log to, as a context manager: opened by its `with` block, and closed at the end of it.

        Args:
            experiment_id: its identity. Evaluations with this run_id log into it as well.
            log_to: its loggers: "trackio:project", "jsonl"; the worker's own (`serve --log-to`) if empty.
            config: hyperparameters: a mapping, a dataclass, or an object with attributes.
        """
        return ExperimentLog(self.experiments, experiment_id, log_to, config)

    async def wait_for_worker(self, seconds: float) -> None:
        """Wait until the worker can be reached and serves.

        It tries to connect again and again meanwhile; a worker that warms up is waited for as well.

        Args:
            seconds: how long at most.

        Raises:
            Unavailable: the time is over (WORKER_NOT_READY); has the address, and what the wait was for at its end.
            BridgeError: waiting cannot help, because the server at the address is not a worker.
        """
        await wait_for_worker(self._calls, seconds)


@contextlib.asynccontextmanager
async def connect(
    address: str, *, token: str | None = None, tls: Tls | str | Path | None = None
) -> AsyncIterator[Bridge]:
    """Connect to a worker.

    The connection is made with the first call, and made again when it breaks. Leaving the block ends every call and
    stream that is still open.

    Args:
        address: "host:port" or "unix:/path".
        token: sent with every call; the text of the worker's token file.
        tls: certificates, or the path of the authority's certificate alone; plain text if None.

    Raises:
        InvalidField: the address, the token or the certificates cannot be used.
    """
    metadata = authorization(token)
    channel = open_channel(address, tls)
    try:
        yield Bridge(Calls(channel, metadata, address=address))
    finally:
        await channel.close(None)
