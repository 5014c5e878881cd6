"""The evaluator's side of a user's environment's processes: for one attempt at an evaluation; they end with it.

The fork server has loaded the environment. It is forked for each group of rollouts, so that no group delays or ends
another one, and what was loaded is shared. Processes whose group is done take further groups. A group that was given up
has time to clean up; then its process is killed, with what it has started. All of them die with the
worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Sequence

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_worker.children.forks import Forks, NotForked
from crucible_worker.evaluators.environments import entry_points
from crucible_worker.evaluators.environments.child import EnvironmentChild, GroupLost, GroupOrder, GroupReply, ended
from crucible_worker.evaluators.environments.episode import EpisodeCalls
from crucible_worker.evaluators.environments.group import Failure, Group, GroupState
from crucible_worker.evaluators.environments.records import outcome_of
from crucible_worker.evaluators.environments.starting import LOAD_SECONDS, start

__all__ = ["EnvironmentProcesses"]


class EnvironmentProcesses:
    """The processes of an environment; belongs to one event loop.

    Args:
        environment: its name.
        variables: names of variables of the worker that they get.
    """

    def __init__(self, environment: str, variables: Sequence[str] = ()) -> None:
        self._environment, self._variables = environment, variables
        self._forks: Forks | None = None
        self._refused: FailedPrecondition | None = None
        self._starting = asyncio.Lock()
        self._idle: list[EnvironmentChild] = []
        self._busy: set[EnvironmentChild] = set()
        self._finishing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def make(self, order: GroupOrder, asker: EpisodeCalls) -> GroupReply:
        """Let a process make a group of rollouts; if it ends meanwhile, another one, as far as the tolerance allows.

        Raises:
            BridgeError: the evaluation has ended; no process can be started; or one sends an invalid message.
        """
        course: GroupState | None = None
        while True:
            child = await self._child()
            try:
                return await self._made(child, order, course, asker)
            except GroupLost as lost:
                why = Failure(kind=Reason.ENVIRONMENT_ENDED, message=str(lost), retryable=True)
            if child.used and child.course is None:
                # It may have ended before it received this group.
                continue
            begun = GroupState(retries=order.tolerance.max_retries) if course is None else course
            following = begun.of(why) if child.course is None else child.course.lost(why, order.tolerance)
            if isinstance(following, Group):
                return GroupReply(outcome=outcome_of(following, intermediates=False), fallen=True)
            course = following

    async def get_ready(self) -> None:
        """Load the environment, so that loading is not part of a sample's time."""
        async with self._starting:
            # If it fails, every request for a group reports why.
            with contextlib.suppress(BridgeError):
                await self._ready()

    def close(self) -> None:
        """End them all, except those of abandoned groups that have time to clean up; does not wait."""
        self._closed = True
        for child in self._idle:
            child.kill()
        self._idle.clear()
        self._close_forks()

    async def _made(
        self, child: EnvironmentChild, order: GroupOrder, course: GroupState | None, asker: EpisodeCalls
    ) -> GroupReply:
        self._busy.add(child)
        result = child.begin(order, course, asker)
        try:
            found = await result
        finally:
            # No task waits for a cancelled group; it cleans up all the same.
            finishing = asyncio.create_task(self._finish(child))
            self._finishing.add(finishing)
            finishing.add_done_callback(self._finishing.discard)
        await asyncio.shield(finishing)
        return found

    async def _finish(self, child: EnvironmentChild) -> None:
        clean = False
        try:
            clean = await child.over()
        finally:
            self._busy.discard(child)
            if clean and not self._closed:
                child.used = True
                self._idle.append(child)
            else:
                child.kill()
                self._close_forks()

    def _close_forks(self) -> None:
        if self._closed and not self._busy and self._forks is not None:
            self._forks.close()
            self._forks = None

    async def _child(self) -> EnvironmentChild:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
        # One after the other: the fork server's socket has room for few orders.
        async with self._starting:
            forks = await self._ready()
            try:
                return await EnvironmentChild.at(await forks.start())
            except NotForked as error:
                message = f"a process of the environment {self._environment!r} cannot be started: {error}"
                raise BackendError(message, reason=Reason.ENVIRONMENT_NOT_STARTED, retryable=True) from None

    async def _ready(self) -> Forks:
        """A fork server that has loaded the environment; after a failure, loading is not repeated for every sample."""
        if self._refused is not None:
            raise self._refused
        forks = self._fork_server()
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                await forks.ready()
        except TimeoutError:
            forks.kill()
            self._refused = entry_points.bad(self._environment, f"did not load within {LOAD_SECONDS:.0f} s")
            raise self._refused from None
        except FailedPrecondition as error:
            self._refused = error
            raise
        return forks

    def _fork_server(self) -> Forks:
        if self._closed:
            raise BackendError("the evaluation has ended", reason=Reason.ENVIRONMENTS_CLOSED)
        if self._forks is None or not self._forks.alive:
            process, control = start("keep", self._environment, self._variables, socket.SOCK_SEQPACKET)
            self._forks = Forks(control, self._died, process)
        return self._forks

    def _died(self, status: int | None) -> BackendError:
        message = f"the process of the environment {self._environment!r} {ended(status)}"
        return BackendError(message, reason=Reason.ENVIRONMENT_ENDED, retryable=True)
