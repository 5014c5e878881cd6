"""Resumes interrupted evaluations without a call: their worker was stopped, or has died."""

from __future__ import annotations

import asyncio
import time

import structlog

from crucible_bridge.errors import BridgeError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluateRequest, InlineDataset, OrchestratorModel
from crucible_worker.engine.admission import Admission
from crucible_worker.history.lifecycle import Reaper
from crucible_worker.history.resumptions import FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS, resumable
from crucible_worker.journal import Journal, JournalUnavailable
from crucible_worker.journal.queries import EvaluationRow
from crucible_worker.journal.records import request_from_record
from crucible_worker.journal.unavailable import LogOnce
from crucible_worker.util.error_reporter import logged
from crucible_worker.util.tasks import Backoff

__all__ = ["LOOK_SECONDS", "Resuming", "recorded_request", "refuse_bound"]

LOOK_SECONDS = 5.0
"""Seconds between two looks for interrupted evaluations."""

_log = structlog.get_logger(__name__)


def recorded_request(row: EvaluationRow) -> EvaluateRequest:
    """The request of an evaluation as its record has it, with the limits in force.

    Raises:
        FailedPrecondition: a part of it is with its caller alone (NEEDS_CALLER, HELD_BY_ORCHESTRATOR).
    """
    request = request_from_record(row.request, row.apart)
    refuse_bound(request)
    return request


def refuse_bound(request: EvaluateRequest) -> None:
    """Refuse to run an evaluation by its record alone if a part of it is with its caller.

    Raises:
        FailedPrecondition: it is (NEEDS_CALLER, HELD_BY_ORCHESTRATOR).
    """
    if isinstance(request.model, OrchestratorModel):
        why, reason = "whose model stays with its orchestrator", Reason.HELD_BY_ORCHESTRATOR
        cure = "it resumes when that calls EvaluateWithOrchestratorModel again"
    elif isinstance(request.dataset.source, InlineDataset):
        why, reason = "whose samples came with its request and are not recorded as a whole", Reason.NEEDS_CALLER
        cure = "send that request again"
    else:
        return
    raise FailedPrecondition(f"is {request.evaluation_id!r}, {why}: {cure}", reason=reason, field="evaluation_id")


class Resuming:
    """Resumes what a worker can, while it has room.

    Args:
        journal: has the evaluations.
        admission: of the worker.
        reaper: finds those that have lost their owner.
    """

    def __init__(self, journal: Journal, admission: Admission, reaper: Reaper) -> None:
        self._journal, self._admission, self._reaper = journal, admission, reaper
        self._refused: dict[int, tuple[float, int]] = {}
        """When an evaluation that cannot be resumed here is tried again, and how long after that; by number."""

    async def run(self) -> None:
        """Look again and again, until it is cancelled or the worker drains."""
        outages = LogOnce(_log, "interrupted_not_looked_for", retry_seconds=LOOK_SECONDS)
        while not self._admission.draining:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look()
                outages.worked()
            except JournalUnavailable as error:
                outages.failed(error)

    async def _look(self) -> None:
        if not self._admission.has_room:
            return
        await self._reaper.reap_all()
        found = await self._journal.read(resumable)
        numbers = {row.number for row, _ in found}
        self._refused = {number: times for number, times in self._refused.items() if number in numbers}
        for row, after_outage in found:
            if not self._admission.has_room or self._admission.draining:
                return
            again, _ = self._refused.get(row.number, (0.0, 0))
            if again <= time.monotonic() and not (after_outage and self._one_waits()):
                await self._resume(row)

    def _one_waits(self) -> bool:
        """Whether an evaluation waits here for a model: then those of models that were away take no further place."""
        return any(attempt.waits_for_model for attempt in self._admission.attempts)

    async def _resume(self, row: EvaluationRow) -> None:
        try:
            now, _ = await self._admission.admit(recorded_request(row), waited=True, recorded=True, by_itself=True)
        except JournalUnavailable:
            raise
        except Exception as error:  # a record that cannot be read, say: the others are to be resumed
            failures = self._refused.get(row.number, (0.0, 0))[1] + 1
            seconds = Backoff(FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS).after(failures)
            self._refused[row.number] = time.monotonic() + seconds, failures
            if not isinstance(error, BridgeError):
                logged(_log, "evaluation_not_resumed", error, evaluation_id=row.evaluation_id, retry_seconds=seconds)
            elif not self._admission.draining:
                _log.info(
                    "evaluation_not_resumed",
                    evaluation_id=row.evaluation_id,
                    retry_seconds=seconds,
                    reason=str(error.reason),
                    message=error.message,
                )
            return
        if self._admission.attempt(row.number) is not None:  # else another worker was faster
            _log.info("evaluation_resumed", evaluation_id=row.evaluation_id, run_id=row.run_id, attempt=now.attempt)
