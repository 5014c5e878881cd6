"""The sessions that Elixir opens: returned on request, without effect on tools."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping

from crucible_bridge.errors import NotFound
from crucible_bridge.reasons import Reason

__all__ = ["MAX_SESSIONS", "Session", "Sessions"]

MAX_SESSIONS = 1024
"""Sessions that are stored; the oldest are removed first."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A session as Elixir opened it."""

    metadata: Mapping[str, str]
    """The request of Elixir."""
    created_unix_ns: int
    """When, Unix time in nanoseconds."""


class Sessions:
    """The sessions of this worker."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

    def open(self, session_id: str, metadata: Mapping[str, str]) -> None:
        """Open a session; an open one is not changed."""
        if session_id in self._sessions:
            return
        self._sessions[session_id] = Session(metadata=metadata, created_unix_ns=time.time_ns())
        if len(self._sessions) > MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]

    def close(self, session_id: str) -> bool:
        """End a session; returns whether there was one."""
        return self._sessions.pop(session_id, None) is not None

    def get(self, session_id: str) -> Session:
        """A session.

        Raises:
            NotFound: none of this name is open.
        """
        session = self._sessions.get(session_id)
        if session is None:
            raise NotFound("there is no such session", reason=Reason.UNKNOWN_SESSION, field="session_id")
        return session
