"""The asynchronous client: one connection, one namespace per service."""

# A timeout travels to the worker as gRPC's deadline.
# ruff: noqa: ASYNC109

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Unpack

from crucible_bridge.addresses import located, parse_workers
from crucible_bridge.channel import Tls, authorization, open_channel
from crucible_bridge.client.calls import Calls
from crucible_bridge.client.evaluation import EvaluationClient
from crucible_bridge.client.experiment_log import ExperimentLog
from crucible_bridge.client.experiments import ExperimentsClient
from crucible_bridge.client.following import PlannedFields, as_given, followed_run, plan_of
from crucible_bridge.client.grading import GradingClient
from crucible_bridge.client.metrics import MetricsClient
from crucible_bridge.client.models import ModelsClient
from crucible_bridge.client.patience import DEFAULT_PATIENCE_SECONDS
from crucible_bridge.client.readiness import wait_for_worker
from crucible_bridge.client.rendering import RenderingClient
from crucible_bridge.client.telemetry import TelemetryClient
from crucible_bridge.client.worker import WorkerClient
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import EvaluationPlan, FollowPolicy, FollowRunResponse, ModelRef, parse_model

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
        self.rendering = RenderingClient(calls)
        """RenderingService."""
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

    async def follow(
        self,
        directory: str | Path,
        plan: EvaluationPlan | str | None = None,
        *,
        run_id: str = "",
        policy: FollowPolicy | None = None,
        every: int = 0,
        name_pattern: str = "",
        marker: str = "",
        base_model: ModelRef | str | None = None,
        hold_folder: str | Path = "",
        mark: bool = False,
        timeout: float | None = None,
        **fields: Unpack[PlannedFields],
    ) -> FollowRunResponse:
        """Evaluate the checkpoints that a training run saves in a directory, from now on; see FollowRun.

        Example: `await bridge.follow("runs/mine", evaluators=["nll"], dataset="jsonl:heldout.jsonl")`.

        Args:
            directory: with the checkpoints, below a model root of the worker; it need not exist yet.
            plan: what is evaluated, or the id of a registered plan; None if `fields` say it.
            run_id: the run; if empty, that of the plan, or the name of the directory.
            policy: which checkpoints are evaluated; all if None.
            every: of the policy EVERY: checkpoints for each evaluated one.
            name_pattern: how checkpoints are named, with {step}; if empty, the names of known trainers.
            marker: the file that makes a checkpoint whole; if empty, its weights show it.
            base_model: the model of adapters, a ModelRef or text; if None, the one that they name.
            hold_folder: where checkpoints are held while they are read; if empty, in the directory.
            mark: put a file `.released` into a checkpoint once it is no longer read.
            timeout: seconds for the call.
            **fields: evaluators, dataset, sampling, limits, metric_prefix, labels and record of one evaluation of each
                checkpoint, as for `evaluation.evaluate`.

        Raises:
            InvalidField: both plan and fields are given, or neither, or a value is refused.
            BridgeError: the call failed; see `evaluation.follow_run`.
        """
        run = followed_run(directory, plan, run_id)
        with as_given(fields):
            return await self.evaluation.follow_run(
                run,
                str(directory),
                plan=plan_of(run, plan, **fields),
                plan_id=plan if isinstance(plan, str) else "",
                policy=policy,
                every=every,
                name_pattern=name_pattern,
                marker=marker,
                base_model=parse_model(base_model) if isinstance(base_model, str) else base_model,
                hold_folder=str(hold_folder),
                mark=mark,
                timeout=timeout,
            )

    async def unfollow(self, run_id: str, *, timeout: float | None = None) -> bool:
        """End the following of a run; evaluations that have begun continue. See UnfollowRun.

        Args:
            run_id: which run.
            timeout: seconds for the call.

        Returns:
            Whether it was followed until now.

        Raises:
            NotFound: it was never followed.
        """
        return await self.evaluation.unfollow_run(run_id, timeout=timeout)


@contextlib.asynccontextmanager
async def connect(
    address: str | Sequence[str],
    *,
    token: str | None = None,
    tls: Tls | str | Path | None = None,
    patience: float | None = None,
) -> AsyncIterator[Bridge]:
    """Connect to a worker, or to the workers of one pool, which share a journal.

    The connection is made with the first call, and made again when it breaks. Leaving the block ends every call and
    stream that is still open. Calls to a pool take turns over its workers.

    Args:
        address: "host:port" or "unix:/path"; for a pool several of the first kind, as a sequence or with commas, or
            "dns:///name:port" for the workers that a name has.
        token: sent with every call; the text of the worker's token file.
        tls: certificates, or the path of the authority's certificate alone; plain text if None.
        patience: seconds for which evaluations and event streams are continued when their worker is lost; if None, 60
            for a pool and 0 for one worker.

    Raises:
        InvalidField: the address, the token, the certificates or the patience cannot be used.
        Unavailable: a name in a list has no address.
    """
    metadata = authorization(token)
    workers = parse_workers(address)
    if patience is None:
        patience = DEFAULT_PATIENCE_SECONDS if workers.pool else 0.0
    if not isinstance(patience, int | float) or not patience >= 0:
        raise InvalidField("patience", f"is {patience!r}, must be a number of seconds, at least 0")
    channel = open_channel(await located(workers), tls, pool=workers.pool)
    try:
        yield Bridge(Calls(channel, metadata, address=str(workers), patience=patience))
    finally:
        await channel.close(None)
