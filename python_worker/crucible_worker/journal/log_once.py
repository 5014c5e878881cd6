"""One line in the log for an outage of the journal, from each that looks at it again and again."""

from __future__ import annotations

from typing import Any

from crucible_worker.journal.unavailable import JournalUnavailable

__all__ = ["LogOnce"]


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
