"""What a submitted function gets: statements, the log's next sequence, and what is done after the commit or instead."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import chain

from crucible_bridge.events import NEW_KINDS, Event
from crucible_worker.journal.queries import Head, Reads, StatementResult

__all__ = ["ROWS_TOGETHER", "Transaction"]

ROWS_TOGETHER = (64, 32, 16, 8, 4, 2, 1)
"""Rows of one INSERT, largest first. SQLite releases the interpreter's lock at every statement and waits
for it again, up to 5 ms while the loop is busy. There are few sizes, so that each is compiled once."""


class Transaction:
    """The argument of a submitted function. No other worker writes meanwhile: what is read does not change."""

    def __init__(
        self,
        connection: Reads,
        log: Head,
        encode_event: Callable[[Event], bytes],
        on_end: Callable[[Transaction, int], None],
    ) -> None:
        self.on_end = on_end
        """Called in the transaction that ends an evaluation, with it and the evaluation's number."""
        self._connection = connection
        self._encode_event = encode_event
        self._after_commit: list[Callable[[], None]] = []
        self._if_undone: list[Callable[[], None]] = []
        self.log = log
        """The log as it was before this transaction."""
        self.sequence: int = self.log.sequence
        """Sequence of the log's last event, those of this transaction included."""

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> StatementResult:
        """Run one statement."""
        return self._connection.execute(sql, parameters)

    def insert(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        """Insert rows of equal width, `ROWS_TOGETHER` with one statement: `insert("INSERT INTO probe VALUES", rows)`.

        The word VALUES of the statement stands for the rows.
        """
        start = 0
        for count in ROWS_TOGETHER:
            while len(rows) - start >= count:
                values = tuple(chain.from_iterable(rows[start : start + count]))
                self._connection.execute(_for_rows(sql, len(rows[start]), count), values)
                start += count

    def append(self, number: int, events: Sequence[Event]) -> int:
        """Append events to the log; returns the last sequence. `number` is their evaluation's, or 0."""
        rows: list[tuple[object, ...]] = []
        for sequence, event in enumerate(events, self.sequence + 1):
            row = (sequence, number, event.kind.value, event.run_id, self._encode_event(event))
            if event.kind in NEW_KINDS:
                self.insert("INSERT INTO later_events VALUES", [row])
            else:
                rows.append(row)
        self.insert("INSERT INTO events VALUES", rows)
        self.sequence += len(events)
        return self.sequence

    def after_commit(self, action: Callable[[], None]) -> None:
        """Call `action` after the commit, and only then; it must not raise."""
        self._after_commit.append(action)

    def if_undone(self, action: Callable[[], None]) -> None:
        """Call `action` only if this is not committed, to undo changes outside the journal; it must not raise.

        It is called when the submitted function is undone, because it raised, or the whole transaction.
        """
        self._if_undone.append(action)


@functools.cache
def _for_rows(sql: str, width: int, count: int) -> str:
    row = f"({', '.join('?' * width)})"
    return sql.replace("VALUES", f"VALUES {', '.join([row] * count)}")
