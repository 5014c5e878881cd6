"""The sessions that Elixir opens: returned on request, without effect on tools."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Mapping

from crucible_bridge.errors import NotFound
from crucible_bridge.reasons import Reason

__all__ = ["MAX_SESSIONS", "MAX_SESSIONS_BYTES", "Sessions", "SnakepitSession"]

MAX_SESSIONS = 1024
"""Sessions that are stored; the oldest are removed first."""
MAX_SESSIONS_BYTES = 64 * 1024 * 1024
"""Memory of those that are stored, together."""

_ENTRY_BYTES = 256
"""Memory of an entry, a key and its value, besides their characters."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SnakepitSession:
    """A session as Elixir opened it."""

    metadata: Mapping[str, str]
    """The request of Elixir."""
    created_unix_ns: int
    """When, Unix time in nanoseconds."""
    size: int
    """Bytes of memory, roughly."""


class Sessions:
    """The sessions of this worker."""

    def __init__(self) -> None:
        self._sessions: dict[str, SnakepitSession] = {}
        self._size = 0

    def open(self, session_id: str, metadata: Mapping[str, str]) -> None:
        """Open a session; an open one is not changed."""
        if session_id in self._sessions:
            return
        texts = (session_id, *metadata.keys(), *metadata.values())
        size = sum(map(sys.getsizeof, texts)) + _ENTRY_BYTES * (1 + len(metadata))
        self._sessions[session_id] = SnakepitSession(metadata=metadata, created_unix_ns=time.time_ns(), size=size)
        self._size += size
        while len(self._sessions) > MAX_SESSIONS or self._size > MAX_SESSIONS_BYTES:
            self.close(next(iter(self._sessions)))

    def close(self, session_id: str) -> bool:
        """End a session; returns whether there was one."""
        session = self._sessions.pop(session_id, None)
        self._size -= 0 if session is None else session.size
        return session is not None

    def get(self, session_id: str) -> SnakepitSession:
        """A session.

        Raises:
            NotFound: none of this name is open.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise NotFound("there is no such session", reason=Reason.UNKNOWN_SESSION, field="session_id")
        return session
