"""Which evaluations this worker takes on: checks a request, claims the evaluation, and owns its attempts."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
import time
from collections.abc import Sequence

import structlog

from crucible_bridge.errors import InvalidField, ResourceExhausted, Unavailable
from crucible_bridge.types import EvaluateRequest, EvaluatorSpec, Problem
from crucible_worker.evaluators.base import Evaluator
from crucible_worker.limits import WorkerLimits
from crucible_worker.runs import lifecycle
from crucible_worker.runs.engine import Attempt, Ending
from crucible_worker.runs.journal import Journal, JournalUnavailable
from crucible_worker.runs.journal.queries import Row, find
from crucible_worker.runs.journal.records import request_from_record
from crucible_worker.runs.owners import OwnerLocks
from crucible_worker.runs.plan import Sources, make_evaluators, prepare
from crucible_worker.runs.resume import Orphans
from crucible_worker.runs.specification import fingerprint

__all__ = ["CANCEL_CHECK_SECONDS", "DRAIN_RETRY_SECONDS", "QUEUE_RETRY_SECONDS", "Admission", "draining_error"]

CANCEL_CHECK_SECONDS = 0.01
"""Shortest time between two looks for cancels that other workers took; news of them comes within 20 ms."""
QUEUE_RETRY_SECONDS = 5.0
"""What a caller is told to wait when the queue is full."""

_log = structlog.get_logger(__name__)
DRAIN_RETRY_SECONDS = 1.0
"""What a caller is told to wait when the worker drains."""

_DRAINING = Problem(reason="DRAINING", message="the worker drains", retryable=True)


def draining_error() -> Unavailable:
    """What a caller is told while the worker drains: another worker, or this one's successor, serves."""
    return Unavailable("the worker is draining", reason="DRAINING", retry_after=DRAIN_RETRY_SECONDS)


class Admission:
    """The evaluations that this worker owns."""

    def __init__(
        self,
        journal: Journal,
        locks: OwnerLocks,
        orphans: Orphans,
        sources: Sources,
        limits: WorkerLimits,
        worker_id: str,
    ) -> None:
        self.draining = False
        """Whether new evaluations are refused."""
        self._journal, self._locks, self._orphans = journal, locks, orphans
        self._sources, self._limits, self._worker_id = sources, limits, worker_id
        self._turns = asyncio.Semaphore(limits.max_running_evaluations)
        self._attempts: dict[int, Attempt] = {}
        self._claims: set[asyncio.Task[tuple[Row, bool]]] = set()
        self._preparing = 0

    @property
    def load(self) -> tuple[int, int]:
        """Evaluations that run, and that wait for their turn."""
        running = sum(attempt.running for attempt in self._attempts.values())
        return running, len(self._attempts) - running

    def attempt(self, number: int) -> Attempt | None:
        """This worker's attempt at an evaluation, where it has one under way."""
        return self._attempts.get(number)

    async def admit(self, request: EvaluateRequest) -> tuple[Row, bool]:
        """Start an evaluation or go on with it, unless it has ended or has an owner; and whether it was there already.

        Raises:
            BridgeError: it cannot be run; nothing was started.
        """
        # In a task of its own: a caller that goes away in the middle must not leave a claim without an attempt.
        task = asyncio.create_task(self._claim(request, time.monotonic()))
        self._claims.add(task)
        task.add_done_callback(self._claims.discard)
        return await asyncio.shield(task)

    def refuse_if_unable(self, evaluation_id: str) -> None:
        """Raise Unavailable while nothing can be started, or gone on with, here."""
        error = None
        if self.draining:
            error = draining_error()
        elif not self._journal.writable:
            error = JournalUnavailable("the journal cannot be written")
        if error is not None:
            error.metadata["evaluation_id"] = evaluation_id
            raise error

    async def heed_cancels(self) -> None:
        """Stop attempts that a cancel at another worker ended; runs until it is cancelled."""
        seen = self._journal.news.count
        while True:
            if self._attempts:
                try:
                    cancels = await self._journal.read(_cancels)
                except JournalUnavailable as error:  # the next commit, this worker's own included, asks again
                    _log.warning("cancels_not_read", reason=error.reason)
                    cancels = []
                for number, reason in cancels:
                    self.stop(number, reason)
                await asyncio.sleep(CANCEL_CHECK_SECONDS)
            seen = await self._journal.news.wait(seen, at_most=60.0)

    def stop(self, number: int, reason: str) -> None:
        """Cancel this worker's attempt at an evaluation, where it has one."""
        attempt = self._attempts.get(number)
        if attempt is not None:
            attempt.stop(Ending.CANCEL, Problem(reason="CANCELLED", message=reason or "cancelled"))

    async def drain(self) -> Sequence[str]:
        """Refuse new evaluations and interrupt those at work; their ids, once that is committed."""
        self.draining = True
        attempts = list(self._attempts.values())
        for attempt in attempts:
            attempt.stop(Ending.DRAIN, _DRAINING)
        # A claim under way is refused, unless it is being written already: then its attempt is stopped as it begins.
        while self._claims:
            await asyncio.wait(self._claims)
        attempts += [attempt for attempt in self._attempts.values() if attempt not in attempts]
        for attempt in attempts:
            await attempt.finished.wait()
        return [attempt.row.evaluation_id for attempt in attempts]

    async def _claim(self, request: EvaluateRequest, received: float) -> tuple[Row, bool]:
        self.refuse_if_unable(request.evaluation_id)
        _refuse_above(self._limits.max_concurrency, request.limits.concurrency)
        identity = await asyncio.to_thread(fingerprint, request)
        row = await self._journal.read(find, request.evaluation_id)
        if row is not None:
            lifecycle.refuse_other_specification(row, identity)
            row = await self._orphans.settle(row)
            if row.state.terminal or not self._locks.is_free(row.number):
                return row, True
        evaluators = make_evaluators(request)
        self._refuse_if_full()
        self._preparing += 1
        try:
            return await self._take_on(request, evaluators, identity, received)
        finally:
            self._preparing -= 1

    async def _take_on(
        self,
        request: EvaluateRequest,
        evaluators: tuple[tuple[EvaluatorSpec, Evaluator], ...],
        identity: str,
        received: float,
    ) -> tuple[Row, bool]:
        plan = await prepare(request, evaluators, self._sources)
        self.refuse_if_unable(request.evaluation_id)
        claimed = await self._journal.submit(
            lambda transaction: lifecycle.claim(
                transaction,
                self._locks,
                request,
                fingerprint=identity,
                dataset_fingerprint=plan.dataset_fingerprint,
                model_fingerprint=plan.model.fingerprint,
                total=plan.total,
                worker_id=self._worker_id,
            )
        )
        if claimed.owned:
            # The record has the limits that hold: this request's, with the deadline of the first.
            limits = request_from_record(claimed.row.request).limits
            self._run(
                Attempt(
                    self._journal,
                    self._locks,
                    claimed.row,
                    dataclasses.replace(request, limits=limits),
                    plan,
                    turns=self._turns,
                    limits=self._limits,
                    received=received,
                )
            )
        return claimed.row, claimed.existed

    def _run(self, attempt: Attempt) -> None:
        self._attempts[attempt.row.number] = attempt
        attempt.start(on_finished=lambda: self._attempts.pop(attempt.row.number, None))
        if self.draining:
            attempt.stop(Ending.DRAIN, _DRAINING)

    def _refuse_if_full(self) -> None:
        most = self._limits.max_running_evaluations + self._limits.max_queued_evaluations
        # Those that are being prepared count: requests of one moment must not all find the same free place.
        taken = len(self._attempts) + self._preparing
        if taken >= most:
            raise ResourceExhausted(
                f"{taken} evaluations run or wait, the limit of max_queued_evaluations is "
                f"{self._limits.max_queued_evaluations}",
                reason="QUEUE_FULL",
                retry_after=QUEUE_RETRY_SECONDS,
            )


def _refuse_above(limit: int, concurrency: int | None) -> None:
    if concurrency is not None and concurrency > limit:
        raise InvalidField("limits.concurrency", f"is {concurrency}, the limit of max_concurrency is {limit}")


def _cancels(connection: sqlite3.Connection) -> list[tuple[int, str]]:
    return connection.execute(
        """SELECT number, cancel_reason FROM evaluations
           WHERE state IN ('queued', 'running') AND cancel_reason IS NOT NULL"""
    ).fetchall()
