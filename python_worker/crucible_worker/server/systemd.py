"""Notifications to systemd about this process, for units with `Type=notify`: see sd_notify(3)."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import MutableMapping

import structlog

__all__ = ["Systemd"]

ALIVE = "WATCHDOG=1"
SEND_SECONDS = 0.5
"""For systemd to take what it must not miss."""
_SOCKET, _WATCHDOG_USEC, _WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
_log = structlog.get_logger(__name__)


class Systemd:
    """The manager of this process, if it has one."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        """Take its variables out of the environment: they are not for children."""
        self._address = environment.pop(_SOCKET, "")
        microseconds = environment.pop(_WATCHDOG_USEC, "")
        mine = environment.pop(_WATCHDOG_PID, str(os.getpid())) == str(os.getpid())
        self.watchdog_seconds = int(microseconds) / 1e6 if mine and microseconds.isdecimal() else None
        """It ends a process from which it hears nothing for so long; None if it does not."""

    def tell(self, state: str) -> None:
        """Send a state, as "READY=1"; without a manager, nothing happens."""
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as end:
                end.settimeout(0.0 if state == ALIVE else SEND_SECONDS)
                end.sendto(state.encode(), address)
        except OSError as error:  # its queue is full, or it is gone: the worker works without it
            _log.warning("systemd_not_told", state=state, reason=error.strerror)

    async def keep_alive(self) -> None:
        """Tell it from the event loop that the loop runs; ends at once where it does not watch."""
        while self._address and self.watchdog_seconds:
            self.tell(ALIVE)
            await asyncio.sleep(self.watchdog_seconds / 2)
