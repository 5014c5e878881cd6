"""The process that has loaded an environment, as the worker sees it; what it does, `host.keeper` says."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.errors import BackendError
from crucible_bridge.reasons import Reason
from crucible_worker.children.messages import error_from_map
from crucible_worker.evaluators.environments import entry_points
from crucible_worker.evaluators.environments.player import Player
from crucible_worker.evaluators.environments.starting import LOAD_SECONDS, ending_of, kill, reap, start

__all__ = ["Keeper"]

_END_SECONDS = 5.0  # to kill what it has started, and to end
_MAX_NEWS_BYTES = 4_096


class Keeper:
    """One such process; belongs to the running event loop.

    Args:
        environment: its name.

    Raises:
        BackendError: it cannot be started.
    """

    def __init__(self, environment: str, variables: Sequence[str]) -> None:
        self._loop = asyncio.get_running_loop()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._process = start("keep", environment, theirs, variables)
        except BaseException:
            self._control.close()
            raise
        self._control.setblocking(False)
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._control, self._heard)
        self._loop.add_reader(self._pidfd, self._has_ended)
        self._news: asyncio.Future[None] = self._loop.create_future()
        self._ready = False
        self._players: dict[int, Player] = {}
        self._last_number = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._environment = environment
        self.alive = True

    async def get_ready(self) -> None:
        """Wait until it has loaded the environment.

        Raises:
            FailedPrecondition: the environment cannot be loaded (reason BAD_ENVIRONMENT, EXTRA_NOT_INSTALLED).
            BackendError: the keeper has ended (reason ENVIRONMENT_ENDED).
        """
        if not self._ready:
            try:
                async with asyncio.timeout(LOAD_SECONDS):
                    await asyncio.shield(self._news)
            except TimeoutError:
                kill(self._process)
                self.alive = False
                raise entry_points.bad(self._environment, f"did not load within {LOAD_SECONDS:.0f} s") from None
            self._ready = True

    async def start(self) -> Player:
        """Start a process for groups; raises as `get_ready` does."""
        await self.get_ready()
        self._last_number += 1
        ours, theirs = socket.socketpair()
        number = self._last_number
        # Before anything is waited for: a keeper that ends meanwhile tells of it once.
        self._news = self._loop.create_future()
        player = await Player.at(ours, lambda: self._kill(number))
        self._players[number] = player
        with theirs:
            self._order({"op": "start", "number": number}, theirs.fileno())
        try:
            await asyncio.shield(self._news)
        except BaseException:
            player.kill()
            raise
        return player

    def _kill(self, number: int) -> None:
        if number in self._players:
            self._order({"op": "kill", "number": number})

    def close(self) -> None:
        """Have it end with all that it has started."""
        if self._control.fileno() < 0:  # it has ended
            return
        self._loop.remove_reader(self._control)
        self._control.close()
        self._deadline = self._loop.call_later(_END_SECONDS, kill, self._process)

    def _order(self, order: Mapping[str, Any], *fds: int) -> None:
        if self._control.fileno() < 0:  # it has ended, or is about to
            return
        try:
            socket.send_fds(self._control, [json.dumps(order).encode()], fds)
        except (BlockingIOError, ConnectionError):  # it hears nothing any more
            kill(self._process)

    def _heard(self) -> None:
        try:
            data = self._control.recv(_MAX_NEWS_BYTES)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self._loop.remove_reader(self._control)
            kill(self._process)
            return
        news = json.loads(data)
        if news["op"] == "ended":
            player = self._players.pop(news["number"], None)
            if player is not None:
                player.has_ended(ending_of(news["status"]))
        elif not self._news.done():
            if news["op"] == "failed":
                self._news.set_exception(error_from_map(news["error"]))
                self._news.exception()  # as below
            else:
                self._news.set_result(None)

    def _has_ended(self) -> None:
        self.alive = False
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        ending = reap(self._process)
        if self._deadline is not None:
            self._deadline.cancel()
        if not self._news.done():
            message = f"the process of the environment {self._environment!r} {ending}"
            self._news.set_exception(BackendError(message, reason=Reason.ENVIRONMENT_ENDED, retryable=True))
            self._news.exception()  # where nobody waits, there is nobody to tell
        for player in self._players.values():
            player.has_ended(ending)
        self._players.clear()
        if self._control.fileno() >= 0:
            self._loop.remove_reader(self._control)
            self._control.close()
