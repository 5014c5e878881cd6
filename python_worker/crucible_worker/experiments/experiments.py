"""The experiments of a journal: opened, logged to, waited for and closed by callers; logged to by evaluations."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from crucible_bridge.errors import BridgeError, FailedPrecondition, NotFound
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluateRequest, EvaluationState, Experiment, LoggedMetrics, LoggerState
from crucible_worker.experiments.feeding import CLOSE_SECONDS, Feeder, StartRunner
from crucible_worker.journal import Journal, Transaction
from crucible_worker.journal.experiments import (
    ExperimentRow,
    LoggerRow,
    NamedLogger,
    add_config,
    append,
    find_experiment,
    open_experiment,
    packed_hparams,
    packed_metrics,
    packed_text,
    want_sync,
)
from crucible_worker.journal.queries import Reads, find_by_number
from crucible_worker.journal.records import Ended, request_from_record, result_from_record
from crucible_worker.loggers.registry import read
from crucible_worker.loggers.runner import LoggerRunner
from crucible_worker.util.limits import WorkerLimits

__all__ = ["Experiments"]

# What an evaluation logs when it has completed: a row of metrics for each evaluator, at the evaluation's step.


def rows_of(request: EvaluateRequest, ended: Ended, now_ns: int) -> list[LoggedMetrics]:
    """The rows: the keys are those of the evaluation, and each evaluator has a separate axis of steps.

    An evaluator that failed, or whose metrics are all undefined, has none. An evaluation that failed or was cancelled
    has none at all.
    """
    return [
        LoggedMetrics(
            values=result.metrics.values,
            step=request.step,
            family=(request.metric_prefix + result.evaluator.label).strip("/"),
            unix_time_ns=now_ns,
        )
        for result in ended.results
        if result.problem is None and result.metrics.values
    ]


NEWS_SECONDS = 1.0
"""Seconds after which a call that waits for loggers looks again, without news of a commit."""
NEWS_PAUSE_SECONDS = 0.01
"""Shortest time between two looks."""
ROWS_OF_SIZE_ONE = 16
"""Rows of metrics that count as one event among what the journal's writer takes together."""

_log = structlog.get_logger(__name__)


class Experiments:
    """The experiments of a journal; used in its event loop."""

    def __init__(
        self,
        journal: Journal,
        limits: WorkerLimits,
        *,
        log_to: Sequence[str] = (),
        feed_all: bool = True,
        start: StartRunner = LoggerRunner,
    ) -> None:
        """Feed the loggers that wait, and log evaluations that end from now on.

        Args:
            journal: where they are.
            limits: bounds.
            log_to: loggers of the operator, for requests that name none; checked.
            feed_all: feed the loggers of all experiments of the journal; if not, only of those that are logged to here.
            start: makes what writes to a logger.
        """
        self.log_to = tuple(log_to)
        """Loggers of the operator, for requests that name none."""
        self._journal, self._limits = journal, limits
        self._logged: set[str] = set()
        only = None if feed_all else self._logged
        self._feeder = Feeder(journal, most=limits.max_loggers, only=only, start=start)
        journal.call_on_end(self._log_evaluation)

    async def flush(self, seconds: float) -> None:
        """Wait until the loggers of evaluations that ended here have synced; those that have not are logged.

        Args:
            seconds: how long to wait at most.
        """
        until = time.monotonic() + seconds
        for experiment_id in tuple(self._logged):
            experiment, synced = await self.sync(experiment_id, max(0.0, until - time.monotonic()))
            for logger in () if synced else experiment.loggers:
                if logger.synced_sequence < experiment.last_sequence:
                    _log.warning("logger_behind", logger=logger.logger, reason=logger.problem or "it is slow")
        if self._logged:
            await self._feeder.aclose(max(CLOSE_SECONDS, until - time.monotonic()))

    async def aclose(self) -> None:
        """Stop feeding; the next worker of this journal continues."""
        await self._feeder.aclose()

    async def check(self, log_to: Sequence[str]) -> None:
        """Refuse loggers that a request may not name, or that this worker cannot run.

        Raises:
            BridgeError: see `registry.read`; the field is the entry of `log_to`.
        """
        for index, text in enumerate(log_to):
            if text not in self.log_to:
                # In a thread: it may import the module of an installed logger.
                await asyncio.to_thread(read, text, f"log_to[{index}]", by_operator=False)

    async def open(
        self, experiment_id: str, log_to: Sequence[str], config: Mapping[str, Any]
    ) -> tuple[Experiment, bool]:
        """Open an experiment, or open it again; the flag says whether it existed already.

        Raises:
            BridgeError: one of its loggers is refused, or the configuration is too large.
        """
        await self.check(log_to)

        def apply(transaction: Transaction) -> tuple[ExperimentRow, bool]:
            there = find_experiment(transaction, experiment_id)
            wanted = log_to or (() if there is not None and there.loggers else self.log_to)
            row, existed = open_experiment(transaction, experiment_id, self._named(wanted))
            if config:
                self._append_hparams(transaction, row, config)
            return _there(transaction, experiment_id), existed

        row, existed = await self._journal.submit(apply)
        return _experiment(row), existed

    async def log_hparams(self, experiment_id: str, values: Mapping[str, Any]) -> int:
        """Log hyperparameters; returns the sequence of their entry.

        Raises:
            NotFound: there is no such experiment.
            FailedPrecondition: it is closed.
            InvalidField: all of its hyperparameters together would be too large.
        """
        return await self._journal.submit(lambda now: self._append_hparams(now, _open(now, experiment_id), values))

    async def log_metrics(self, experiment_id: str, rows: Sequence[LoggedMetrics]) -> int:
        """Log rows of metrics; returns the sequence of the last one.

        Raises:
            BridgeError: as for `log_hparams`.
        """
        now_ns = time.time_ns()
        # In a thread: a call may have a hundred thousand rows.
        record = await asyncio.to_thread(packed_metrics, rows, now_ns)
        size = 1 + len(rows) // ROWS_OF_SIZE_ONE
        return await self._journal.submit(lambda now: self._append(now, experiment_id, record, len(rows)), size)

    async def log_long_text(self, experiment_id: str, key: str, text: str, step: int | None) -> int:
        """Log a text; returns the sequence of its entry.

        Raises:
            BridgeError: as for `log_hparams`.
        """
        record = packed_text(key, text, step, time.time_ns())
        return await self._journal.submit(lambda now: self._append(now, experiment_id, record, 1))

    async def sync(self, experiment_id: str, seconds: float, *, close: bool = False) -> tuple[Experiment, bool]:
        """Wait until every logger has synced what is logged by now; the flag says whether all have.

        Args:
            experiment_id: of which experiment.
            seconds: how long to wait at most.
            close: close the experiment, and wait until its loggers have closed.

        Raises:
            NotFound: there is no such experiment.
        """

        def want(transaction: Transaction) -> ExperimentRow:
            want_sync(transaction, _there(transaction, experiment_id).number, close=close)
            return _there(transaction, experiment_id)

        row = await self._journal.submit(want)
        target = row.sequence
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                seen = self._journal.commits.count
                while not _synced(row, target):
                    seen = await self._journal.commits.wait(seen, NEWS_SECONDS)
                    await asyncio.sleep(NEWS_PAUSE_SECONDS)
                    row = await self._journal.read(_there, experiment_id)
        return _experiment(row), _synced(row, target)

    async def url(self, experiment_id: str, logger: str) -> str:
        """Where people look at an experiment: with this logger, or with the first that has a URL; empty if nowhere.

        Raises:
            NotFound: there is no such experiment.
        """
        row = await self._journal.read(_there, experiment_id)
        return next((one.url for one in row.loggers if one.url and logger in ("", one.logger)), "")

    def _named(self, log_to: Sequence[str]) -> list[NamedLogger]:
        return [NamedLogger(text=text, by_operator=text in self.log_to) for text in dict.fromkeys(log_to)]

    def _append(self, transaction: Transaction, experiment_id: str, record: bytes, entries: int) -> int:
        number = _open(transaction, experiment_id).number
        return append(transaction, number, record, entries, most_bytes=self._limits.max_experiment_bytes)

    def _append_hparams(self, transaction: Transaction, row: ExperimentRow, values: Mapping[str, Any]) -> int:
        add_config(transaction, row.number, values)
        record = packed_hparams(values, time.time_ns())
        return append(transaction, row.number, record, 1, most_bytes=self._limits.max_experiment_bytes)

    def _log_evaluation(self, transaction: Transaction, number: int) -> None:
        """Log the metrics of an evaluation, in the transaction that ends it: once, whatever happens to its worker."""
        row = find_by_number(transaction, number)
        request = request_from_record(row.request, row.apart)
        if not request.log_to or row.result is None or row.state is not EvaluationState.COMPLETED:
            return
        rows = rows_of(request, result_from_record(row.result, row.apart), time.time_ns())
        if not rows:
            return
        named = self._named(request.log_to)
        try:
            experiment, _ = open_experiment(transaction, request.run_id or request.evaluation_id, named)
        except BridgeError as error:
            # The evaluation stands, whatever its loggers are.
            _log.warning("evaluation_not_logged", evaluation_id=request.evaluation_id, reason=str(error))
            return
        transaction.after_commit(lambda: self._logged.add(experiment.experiment_id))
        append(
            transaction,
            experiment.number,
            packed_metrics(rows, time.time_ns()),
            len(rows),
            most_bytes=self._limits.max_experiment_bytes,
            loggers=[logger.number for logger in experiment.loggers if logger.logger in request.log_to],
        )


def _there(source: Reads, experiment_id: str) -> ExperimentRow:
    row = find_experiment(source, experiment_id)
    if row is None:
        raise NotFound(
            f"is {experiment_id!r}, and the worker's journal has no such experiment: open it first",
            reason=Reason.UNKNOWN_EXPERIMENT,
            field="experiment_id",
        )
    return row


def _open(source: Reads, experiment_id: str) -> ExperimentRow:
    row = _there(source, experiment_id)
    if row.closed_ns:
        raise FailedPrecondition(
            f"is {experiment_id!r}, which is closed: open it again to log more",
            reason=Reason.EXPERIMENT_CLOSED,
            field="experiment_id",
        )
    return row


def _synced(row: ExperimentRow, target: int) -> bool:
    return all(logger.synced >= target for logger in row.loggers)


def _experiment(row: ExperimentRow) -> Experiment:
    return Experiment(
        experiment_id=row.experiment_id,
        last_sequence=row.sequence,
        loggers=tuple(map(_logger_state, row.loggers)),
        created_unix_ns=row.created_ns,
        closed_unix_ns=row.closed_ns,
    )


def _logger_state(row: LoggerRow) -> LoggerState:
    return LoggerState(
        logger=row.logger,
        url=row.url,
        through_sequence=row.position,
        synced_sequence=max(0, row.synced),
        missed=row.missed,
        problem=row.problem,
    )
