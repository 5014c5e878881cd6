"""The followed runs of a journal, as one worker sees them: which it follows, and the calls that begin and end that."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from crucible_bridge.errors import BridgeError, InvalidField, NotFound
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    FollowPolicy,
    FollowRunRequest,
    FollowRunResponse,
    format_model,
)
from crucible_worker.journal import JournalUnavailable, OwnershipLost
from crucible_worker.journal.follows import FollowRow
from crucible_worker.journal.unavailable import LogOnce
from crucible_worker.planning.follow.checkpoints import InvalidNaming, Naming
from crucible_worker.planning.follow.contents import takes_adapter
from crucible_worker.planning.follow.following import Following
from crucible_worker.planning.follow.keeping import Keeper
from crucible_worker.planning.follow.names import directory_below, is_below
from crucible_worker.planning.follow_records import FollowRecords
from crucible_worker.planning.plans import EvaluationPlans
from crucible_worker.util.model_refs import HOLD_FOLDER
from crucible_worker.util.tasks import Background

__all__ = ["TAKE_SECONDS", "Follows"]

TAKE_SECONDS = 1.0
"""Seconds between two looks for followed runs whose worker has died."""
FAILED_SECONDS = 60.0
"""Seconds for which a worker leaves a run to others after following it has failed."""

_log = structlog.get_logger(__name__)


class Follows:
    """The followed runs of one worker. Used in the event loop of its journal; drain it, then `close` it."""

    def __init__(
        self,
        records: FollowRecords,
        plans: EvaluationPlans,
        roots: Sequence[Path],
        background: Background,
        keeper_of: Callable[[FollowRow], Keeper | None] = lambda row: None,
    ) -> None:
        """Follow nothing before `begin` or `take_all`.

        Args:
            records: the followed runs of the journal.
            plans: its plans.
            roots: model roots: directories that are followed lie below them.
            background: the worker's tasks.
            keeper_of: what keeps copies of a run's best checkpoints, if something does.
        """
        self._keeper_of = keeper_of
        self._records, self._plans, self._roots = records, plans, tuple(roots)
        self._background = background
        self._followed: dict[int, tuple[Following, asyncio.Task[None]]] = {}
        self._failed: dict[int, tuple[float, BaseException]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._draining = False

    async def begin(self, request: FollowRunRequest, *, by_command: bool = False) -> tuple[FollowRow, bool]:
        """Register a run and its plan; returns its row, and whether it was followed already.

        The plan is registered first: if that is refused, nothing is followed.

        Raises:
            BridgeError: the request is refused, or the run is followed in another way (OTHER_FOLLOW).
        """
        wanted = await asyncio.to_thread(self._row_of, request, by_command)
        if request.plan is not None:
            try:
                await self._plans.register(request.plan)
            except BridgeError as error:
                # The path begins at the plan there, and at the request here.
                error.field = f"plan.{error.field}" if error.field else ""
                raise
        else:
            await self._refuse_plan_of_another_run(request)
        return await self._records.begin(wanted)

    async def follow_run(self, request: FollowRunRequest) -> FollowRunResponse:
        """Follow a run, at this worker or at the one that follows it already.

        Raises:
            BridgeError: see `begin`.
        """
        row, existed = await self.begin(request)
        await self._take(row)
        return FollowRunResponse(plan_id=row.plan_id, existed=existed)

    async def end(self, run_id: str) -> bool:
        """End the following of a run, whichever worker follows it; returns whether it was followed until now.

        Raises:
            NotFound: it was never followed (UNKNOWN_FOLLOW).
        """
        return await self._records.end(run_id)

    def take_all(self) -> None:
        """Follow, from now on, each run below a model root that no other worker follows."""
        if not self._roots:
            return
        self._looking = self._background.keep("follows", self._look)

    async def take(self, row: FollowRow) -> Following | None:
        """Follow a run; None as long as another worker does."""
        await self._take(row)
        found = self._followed.get(row.number)
        return None if found is None else found[0]

    def failure(self, row: FollowRow) -> BaseException | None:
        """Why following a run failed here the last time; None if it did not."""
        return self._failed[row.number][1] if row.number in self._failed else None

    async def ended(self, row: FollowRow) -> None:
        """Wait until this worker no longer follows a run.

        Raises:
            BridgeError: following it has failed.
        """
        if (found := self._followed.get(row.number)) is not None:
            await asyncio.shield(found[1])

    async def find(self, row: FollowRow) -> FollowRow | None:
        """How a run is followed now; None if it was removed with its plan."""
        return await self._records.find(row.number)

    async def drain(self) -> None:
        """Leave every run to other workers: nothing is found or started here any more."""
        self._draining = True
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait((self._looking,))
        tasks = []
        for following, task in self._followed.values():
            following.stop()
            tasks.append(task)
        if tasks:
            await asyncio.wait(tasks)

    def close(self) -> None:
        """Drop the locks, after `drain`."""
        self._records.close()

    async def _look(self) -> None:
        """Take over followed runs whose worker has ended; repeats this until it is cancelled."""
        outages = LogOnce(_log, "follows_not_looked_for")
        while True:
            try:
                for row in await self._records.open():
                    if not row.by_command and is_below(self._roots, row.directory):
                        await self._take(row)
                outages.worked()
            except JournalUnavailable as error:
                outages.failed(error)
            await asyncio.sleep(TAKE_SECONDS)

    async def _take(self, row: FollowRow) -> None:
        if self._draining or row.number in self._followed:
            return
        if row.number in self._failed and self._failed[row.number][0] > asyncio.get_running_loop().time():
            return
        if not await self._records.acquire(row.number):
            return
        if self._draining:
            self._records.release(row.number)
            return
        following = Following(row, self._records, self._plans, self._keeper_of(row))
        # Not in the context of the call that began it: what is logged is about the run.
        context = contextvars.Context()
        task = asyncio.create_task(following.run(), name=f"follow-{row.number}", context=context)
        self._followed[row.number] = following, task
        task.add_done_callback(lambda task: self._left(row, task))
        _log.info("follows", run_id=row.run_id, directory=row.directory)

    def _left(self, row: FollowRow, task: asyncio.Task[None]) -> None:
        del self._followed[row.number]
        self._records.release(row.number)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, OwnershipLost):  # it is taken again, once no other worker has it
            _log.warning("follow_lost", run_id=row.run_id, reason=str(error))
        else:
            self._failed[row.number] = asyncio.get_running_loop().time() + FAILED_SECONDS, error
            known = isinstance(error, BridgeError)
            _log.error("follow_failed", run_id=row.run_id, reason=str(error), exc_info=None if known else error)

    async def _refuse_plan_of_another_run(self, request: FollowRunRequest) -> None:
        run_id = await self._records.run_of_plan(request.plan_id)
        if run_id is None:
            raise NotFound(
                f"is {request.plan_id!r}: no plan has this id, or it is no longer retained",
                reason=Reason.UNKNOWN_PLAN,
                field="plan_id",
            )
        if run_id != request.run_id:
            raise InvalidField("run_id", f"is {request.run_id!r}, and the plan is of the run {run_id!r}")

    def _row_of(self, request: FollowRunRequest, by_command: bool) -> FollowRow:
        try:
            Naming(request.name_pattern or None, request.marker or None)
        except InvalidNaming as error:
            raise InvalidField({"pattern": "name_pattern"}.get(error.field, error.field), error.problem) from error
        directory = directory_below(self._roots, request.directory, "directory")
        if directory.exists() and not directory.is_dir():
            raise InvalidField("directory", f"is {request.directory!r}, which is no directory")
        hold_folder = (
            directory_below(self._roots, request.hold_folder, "hold_folder")
            if request.hold_folder
            else directory / HOLD_FOLDER
        )
        base = request.base_model
        if base is not None and not takes_adapter(base):
            raise InvalidField(
                "base_model", "is no local:, hub: or managed: model without an adapter, so it takes none"
            )
        return FollowRow(
            run_id=request.run_id,
            plan_id=request.plan_id if request.plan is None else request.plan.plan_id,
            directory=str(directory),
            hold_folder=str(hold_folder),
            policy=(request.policy or FollowPolicy.ALL).value,
            every=request.every,
            name_pattern=request.name_pattern,
            marker=request.marker,
            base_model="" if base is None else format_model(base),
            mark=request.mark,
            by_command=by_command,
        )
