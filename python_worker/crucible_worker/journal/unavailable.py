"""The error of a journal that cannot be used just now, and one line in the log for each such outage."""

from __future__ import annotations

from typing import Any

from crucible_bridge.errors import Unavailable
from crucible_bridge.reasons import Reason

__all__ = ["RETRY_SECONDS", "JournalUnavailable", "LogOnce", "OwnershipLost"]


RETRY_SECONDS = 1.0
"""Seconds after which a caller may retry while the journal cannot be used."""


class JournalUnavailable(Unavailable):
    """The journal cannot be used just now: its disk is full or fails, its database is away, or the worker ends."""

    default_reason = Reason.JOURNAL_UNWRITABLE

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message, reason=reason, retry_after=RETRY_SECONDS)


class OwnershipLost(JournalUnavailable):
    """What this worker owned is another one's, or may become that: see `Owners.check`."""

    def __init__(self) -> None:
        super().__init__(
            "this worker does not own it any more: it was not heard for too long, or its lock file was replaced"
        )


# One line in the log for an outage of the journal, from each that looks at it again and again.


class LogOnce:
    """Says that something fails, once until it works again."""

    def __init__(self, log: Any, event: str, **fields: object) -> None:
        """Say `event`, a warning with these fields and the reason, in a structlog logger."""
        self._log, self._event, self._fields = log, event, fields
        self._said = False

    def failed(self, error: JournalUnavailable) -> None:
        """It has failed."""
        if not self._said:
            self._said = True
            self._log.warning(self._event, reason=error.reason, **self._fields)

    def worked(self) -> None:
        """It has worked: the next failure is said."""
        self._said = False
