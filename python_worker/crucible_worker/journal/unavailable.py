"""The error of a journal that cannot be used just now."""

from __future__ import annotations

from crucible_bridge.errors import Unavailable
from crucible_bridge.reasons import Reason

__all__ = ["RETRY_SECONDS", "JournalUnavailable", "OwnershipLost"]

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
