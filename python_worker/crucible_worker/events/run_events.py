"""The events of evaluations, and of metrics and grading calls: measurements and metadata of each kind.

Those that no call waits for are notes, which are written with the next batch.
"""

from __future__ import annotations

import asyncio
import collections
import time
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import structlog

from crucible_bridge.events import Event, EventKind
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.types import (
    EvaluateRequest,
    EvaluationState,
    EvaluatorResult,
    Metrics,
    Problem,
    SampleResult,
    Usage,
    Verdict,
)
from crucible_worker.journal import Journal
from crucible_worker.journal.queries import EvaluationRow
from crucible_worker.journal.records import request_from_record
from crucible_worker.journal.usage import usage_measurements
from crucible_worker.util.model_refs import format_original_model

__all__ = [
    "FLUSH_SECONDS",
    "MAX_PENDING",
    "Notes",
    "complete",
    "concurrency",
    "evaluator_end",
    "evaluator_start",
    "exception",
    "grading_complete",
    "interrupt",
    "metrics_computed",
    "paused",
    "progress",
    "resume",
    "sample_complete",
    "start",
    "stop",
]

_NONE: Mapping[str, float] = MappingProxyType({})


def start(row: EvaluationRow, worker_id: str | None) -> Event:
    """EVALUATION_START, once; `worker_id` is that of the worker that counted the samples, None if none did."""
    request = request_from_record(row.request)
    metadata = {
        "model": format_original_model(request.model),
        "evaluators": ",".join(spec.label for spec in request.evaluators),
    }
    if worker_id is not None:
        metadata["worker_id"] = worker_id
    return _event(row, EventKind.EVALUATION_START, measurements=_how_far(row), metadata=metadata)


def resume(row: EvaluationRow, worker_id: str) -> Event:
    """EVALUATION_RESUME, at each further attempt."""
    metadata = {"attempt": str(row.attempt), "worker_id": worker_id}
    return _event(row, EventKind.EVALUATION_RESUME, measurements=_how_far(row), metadata=metadata)


def interrupt(row: EvaluationRow, cause: str) -> Event:
    """EVALUATION_INTERRUPT, at most once per attempt; it ends only the attempt."""
    metadata = {"attempt": str(row.attempt), "cause": cause}
    return _event(
        row,
        EventKind.EVALUATION_INTERRUPT,
        duration_ns=row.active_ns,
        measurements=_how_far(row),
        metadata=metadata,
    )


def paused(row: EvaluationRow, kind: EventKind, reason: str = "") -> Event:
    """EVALUATION_PAUSED, or EVALUATION_RESUMED at its end; without a reason if a caller has asked for it."""
    metadata = {"reason": shorten(reason, MAX_PROBLEM_BYTES)} if reason else {}
    return _event(row, kind, measurements=_how_far(row), metadata=metadata)


def concurrency(row: EvaluationRow, now: int, previous: int | None) -> Event:
    """EVALUATION_CONCURRENCY; `previous` is what a caller or the request had set before, None if neither had."""
    before = {} if previous is None else {"previous_concurrency": float(previous)}
    return _event(row, EventKind.EVALUATION_CONCURRENCY, measurements={"concurrency": float(now), **before})


def progress(row: EvaluationRow, samples_per_second: float, questions: Mapping[str, float] = _NONE) -> Event:
    """EVALUATION_PROGRESS; `questions` has the progress of samples with many questions, if there are any."""
    measured = {"unscored": float(row.unscored), "samples_per_second": samples_per_second}
    measurements = {**_how_far(row), **measured, **questions}
    return _event(row, EventKind.EVALUATION_PROGRESS, measurements=measurements)


def sample_complete(row: EvaluationRow, sample: SampleResult, attempt: int, position: int = 0) -> Event:
    """SAMPLE_COMPLETE, once per run of a sample; the last one counts."""
    measurements = {} if sample.output_tokens is None else {"output_tokens": float(sample.output_tokens)}
    if sample.score is not None:
        measurements["score"] = sample.score
    return Event(
        kind=EventKind.SAMPLE_COMPLETE,
        unix_time_ns=time.time_ns(),
        duration_ns=sample.duration_ns,
        evaluation_id=row.evaluation_id,
        run_id=row.run_id,
        step=row.step,
        evaluator=sample.evaluator,
        measurements=measurements,
        metadata={
            "sample_id": sample.sample_id,
            "repeat": str(sample.repeat),
            "verdict": sample.verdict.value,
            "attempt": str(attempt),
        },
        problem=sample.problem,
        correlation_id=row.correlation_id,
        position=position,
    )


def evaluator_start(row: EvaluationRow, evaluator: str, total: int) -> Event:
    """EVALUATOR_START, once over all attempts; the total is the evaluator's own."""
    measurements = {"total": float(total)}
    return _event(row, EventKind.EVALUATOR_START, evaluator=evaluator, measurements=measurements)


def evaluator_end(row: EvaluationRow, result: EvaluatorResult, duration_ns: int) -> Event:
    """EVALUATOR_COMPLETE with the evaluator's metrics, or EVALUATOR_EXCEPTION with its problem."""
    counts = {
        "n": float(result.n),
        "n_scored": float(result.n_scored),
        "n_unscored": float(result.n_unscored),
        "n_errors": float(result.n_errors),
        **({} if result.n_correct is None else {"n_correct": float(result.n_correct)}),
        "n_truncated_reasoning": float(result.n_truncated_reasoning),
    }
    failed = result.problem is not None
    return _event(
        row,
        EventKind.EVALUATOR_EXCEPTION if failed else EventKind.EVALUATOR_COMPLETE,
        evaluator=result.evaluator.label,
        duration_ns=duration_ns,
        measurements={**usage_measurements(result.usage), **({} if failed else result.metrics.values), **counts},
        metadata=_of_metrics(request_from_record(row.request), result.metrics),
        problem=result.problem,
    )


def complete(
    row: EvaluationRow, metrics: Metrics, sample_count: int, duration_ns: int, usage: Usage | None = None
) -> Event:
    """EVALUATION_COMPLETE: every metric, the number of samples of the data set, and their usage."""
    request = request_from_record(row.request)
    return _event(
        row,
        EventKind.EVALUATION_COMPLETE,
        duration_ns=duration_ns,
        measurements={**usage_measurements(usage), **metrics.values, "sample_count": float(sample_count)},
        metadata={"model": format_original_model(request.model), **_of_metrics(request, metrics)},
    )


def stop(row: EvaluationRow, state: EvaluationState, duration_ns: int, problem: Problem | None = None) -> Event:
    """EVALUATION_STOP, the last event of an evaluation that completed or was cancelled."""
    metadata = {"state": state.value}
    return _event(row, EventKind.EVALUATION_STOP, duration_ns=duration_ns, metadata=metadata, problem=problem)


def exception(row: EvaluationRow, problem: Problem, duration_ns: int) -> Event:
    """EVALUATION_EXCEPTION, the last event of an evaluation that failed."""
    return _event(row, EventKind.EVALUATION_EXCEPTION, duration_ns=duration_ns, problem=problem)


def metrics_computed(call: str, tokens: int, duration_ns: int) -> Event:
    """METRICS_COMPUTED, for a successful metrics call; belongs to no evaluation."""
    return Event(
        kind=EventKind.METRICS_COMPUTED,
        unix_time_ns=time.time_ns(),
        duration_ns=duration_ns,
        measurements={"tokens": float(tokens)},
        metadata={"call": call},
    )


def grading_complete(
    call: str, verdicts: Iterable[Verdict], duration_ns: int, *, policy_version: str | None = None
) -> Event:
    """GRADING_COMPLETE, for a successful grading call; belongs to no evaluation."""
    counts = collections.Counter(verdicts)
    return Event(
        kind=EventKind.GRADING_COMPLETE,
        unix_time_ns=time.time_ns(),
        duration_ns=duration_ns,
        measurements={
            "count": float(counts.total()),
            "correct": float(counts[Verdict.CORRECT]),
            "unscored": float(sum(count for verdict, count in counts.items() if not verdict.scored)),
        },
        metadata={"call": call} if policy_version is None else {"call": call, "policy_version": policy_version},
    )


def _event(
    row: EvaluationRow,
    kind: EventKind,
    *,
    evaluator: str = "",
    duration_ns: int = 0,
    measurements: Mapping[str, float] | None = None,
    metadata: Mapping[str, str] | None = None,
    problem: Problem | None = None,
) -> Event:
    return Event(
        kind=kind,
        unix_time_ns=time.time_ns(),
        duration_ns=duration_ns,
        evaluation_id=row.evaluation_id,
        run_id=row.run_id,
        step=row.step,
        evaluator=evaluator,
        measurements=measurements or {},
        metadata=metadata or {},
        problem=problem,
        correlation_id=row.correlation_id,
    )


def _how_far(row: EvaluationRow) -> dict[str, float]:
    done = {"done": float(row.done)}
    return {"total": float(row.total), **done} if row.contents_known else done


def _of_metrics(request: EvaluateRequest, metrics: Metrics) -> dict[str, str]:
    prefix = {"metric_prefix": request.metric_prefix} if request.metric_prefix else {}
    return prefix | {f"undefined.{key}": reason for key, reason in metrics.undefined.items()}


# Events that no call waits for: written with the next batch, or reported in the log if they cannot be.
#
# A reply never waits for them. They may be lost when the process is killed, and the number that waits is bounded.

FLUSH_SECONDS = 0.02
"""Seconds that events are collected before they go to the journal: a commit for each costs more than a small call."""
MAX_PENDING = 8_192
"""Most events that wait or are being written; further ones are counted and dropped."""

_log = structlog.get_logger(__name__)


class Notes:
    """Events on their way to the journal; of one event loop."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._gathered: list[Event] = []
        self._writing = 0
        self._dropped = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, event: Event) -> None:
        """Write an event soon."""
        if len(self._gathered) + self._writing >= MAX_PENDING:
            self._dropped += 1
            return
        self._gathered.append(event)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        """Pass the collected events to the journal."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._dropped:
            _log.warning("events_dropped", count=self._dropped, reason="too many wait for the journal")
            self._dropped = 0
        if not self._gathered:
            return
        events, self._gathered = self._gathered, []
        self._writing += len(events)
        # 0: they belong to no evaluation.
        future = self._journal.submit(lambda transaction: transaction.append(0, events))
        future.add_done_callback(lambda done: self._written(done, len(events)))

    def _written(self, done: asyncio.Future[int], count: int) -> None:
        self._writing -= count
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            _log.warning("events_dropped", count=count, reason=str(error))
