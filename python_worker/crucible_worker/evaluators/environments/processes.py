"""Processes of a user's environment, as the evaluator sees them: for one attempt at an evaluation, gone with it.

One, the keeper, has loaded the environment and is forked for each group of rollouts at work, so that no group holds up
or ends another one, and what was loaded is shared. Those of groups that are done take further ones. A group that has
been given up has time to clean up; then its process is killed, with what it has started. All of them die with the
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
from crucible_worker.evaluators.environments.episode import Asks
from crucible_worker.evaluators.environments.group import Course, Failure, Group
from crucible_worker.evaluators.environments.player import Found, Lost, Order, Player, ended
from crucible_worker.evaluators.environments.records import outcome_of
from crucible_worker.evaluators.environments.starting import LOAD_SECONDS, start

__all__ = ["Processes"]


class Processes:
    """The processes of an environment; belongs to one event loop.

    Args:
        environment: its name.
        variables: names of variables of the worker's that they get.
    """

    def __init__(self, environment: str, variables: Sequence[str] = ()) -> None:
        self._environment, self._variables = environment, variables
        self._forks: Forks | None = None
        self._refused: FailedPrecondition | None = None
        self._starting = asyncio.Lock()
        self._idle: list[Player] = []
        self._busy: set[Player] = set()
        self._finishing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def make(self, order: Order, asker: Asks) -> Found:
        """Have a group of rollouts made, in another process where one ends amid it, as far as the tolerance goes.

        Raises:
            BridgeError: the evaluation has ended; no process can be started; or one says what makes no sense.
        """
        course: Course | None = None
        while True:
            player = await self._player()
            try:
                return await self._made(player, order, course, asker)
            except Lost as lost:
                why = Failure(kind=Reason.ENVIRONMENT_ENDED, message=str(lost), retryable=True)
            if player.used and player.course is None:
                # It may have ended before it heard of this group.
                continue
            begun = Course(retries=order.tolerance.max_retries) if course is None else course
            following = begun.of(why) if player.course is None else player.course.lost(why, order.tolerance)
            if isinstance(following, Group):
                return Found(outcome=outcome_of(following, intermediates=False), fallen=True)
            course = following

    async def get_ready(self) -> None:
        """Have the environment loaded, which is not to be part of a sample's time."""
        async with self._starting:
            # Why it cannot be is told to whoever wants a group made.
            with contextlib.suppress(BridgeError):
                await self._ready()

    def close(self) -> None:
        """End them all, but those of groups that have been given up and have time to clean up; does not wait."""
        self._closed = True
        for player in self._idle:
            player.kill()
        self._idle.clear()
        self._close_forks()

    async def _made(self, player: Player, order: Order, course: Course | None, asker: Asks) -> Found:
        self._busy.add(player)
        result = player.begin(order, course, asker)
        try:
            found = await result
        finally:
            # Nobody waits for what is cancelled; what it holds is given back all the same.
            finishing = asyncio.create_task(self._finish(player))
            self._finishing.add(finishing)
            finishing.add_done_callback(self._finishing.discard)
        await asyncio.shield(finishing)
        return found

    async def _finish(self, player: Player) -> None:
        clean = False
        try:
            clean = await player.over()
        finally:
            self._busy.discard(player)
            if clean and not self._closed:
                player.used = True
                self._idle.append(player)
            else:
                player.kill()
                self._close_forks()

    def _close_forks(self) -> None:
        if self._closed and not self._busy and self._forks is not None:
            self._forks.close()
            self._forks = None

    async def _player(self) -> Player:
        while self._idle:
            player = self._idle.pop()
            if player.alive:
                return player
        # One after the other: the keeper's socket has room for few orders.
        async with self._starting:
            forks = await self._ready()
            try:
                return await Player.at(await forks.start())
            except NotForked as error:
                message = f"a process of the environment {self._environment!r} cannot be started: {error}"
                raise BackendError(message, reason=Reason.ENVIRONMENT_NOT_STARTED, retryable=True) from None

    async def _ready(self) -> Forks:
        """A keeper that has loaded the environment; what cannot be loaded once is not tried for every sample."""
        if self._refused is not None:
            raise self._refused
        forks = self._kept()
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

    def _kept(self) -> Forks:
        if self._closed:
            raise BackendError("the evaluation has ended", reason=Reason.ENVIRONMENTS_CLOSED)
        if self._forks is None or not self._forks.alive:
            process, control = start("keep", self._environment, self._variables, socket.SOCK_SEQPACKET)
            self._forks = Forks(control, self._died, process)
        return self._forks

    def _died(self, status: int | None) -> BackendError:
        message = f"the process of the environment {self._environment!r} {ended(status)}"
        return BackendError(message, reason=Reason.ENVIRONMENT_ENDED, retryable=True)
