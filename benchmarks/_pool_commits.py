"""Records of the transactions of a worker with a PostgreSQL journal, made in its process while it works."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from crucible_worker.journal.postgres.store import PostgresWriting
    from crucible_worker.journal.queries import Head

__all__ = ["TimedCommit", "read_commits", "recorded_commits"]


@dataclasses.dataclass(slots=True)
class TimedCommit:
    """A transaction; times are those of the clock that all processes of a machine share."""

    asked: float = 0.0
    """When it began."""
    locked: float = 0.0
    """When it had the lock of the head's row."""
    released: float = 0.0
    """When it was committed."""
    submissions: int = 0
    events: int = 0
    parts_leased: int = 0
    parts_done: int = 0
    statements: int = 0
    """From `locked` to `released`."""
    writer_cpu: float = 0.0
    """CPU seconds of the writer's thread from `locked` to `released`."""
    process_cpu: float = 0.0
    """CPU seconds of the process until it was committed."""

    @property
    def hold(self) -> float:
        """Seconds under the lock."""
        return self.released - self.locked


def read_commits(file: Path) -> Sequence[TimedCommit]:
    """What a worker has recorded."""
    return [TimedCommit(**one) for one in json.loads(file.read_text())]


@contextlib.contextmanager
def recorded_commits(file: Path) -> Iterator[None]:
    """Record the transactions of this process, which has one worker, and write them at the end."""
    from crucible_worker.journal import parts
    from crucible_worker.journal.postgres import store, writing
    from crucible_worker.journal.postgres.store import Session
    from crucible_worker.journal.writer import Writer

    recorder = _Recorder()
    with (
        mock.patch.object(store, "PostgresWriting", recorder.writing()),
        mock.patch.object(writing.Statements, "execute", recorder.before(writing.Statements.execute, recorder.run)),
        # The statement that follows the lock.
        mock.patch.object(Session, "renew", recorder.before(Session.renew, recorder.locked)),
        mock.patch.object(Writer, "_apply", recorder.before(Writer._apply, recorder.submitted)),
        mock.patch.object(parts, "lease", recorder.after(parts.lease, recorder.leased)),
        mock.patch.object(parts, "_done", recorder.after(parts._done, recorder.done)),
    ):
        yield
    file.write_text(json.dumps([dataclasses.asdict(one) for one in recorder.commits]))


class _Recorder:
    """Used by the writer's thread alone."""

    def __init__(self) -> None:
        self.commits: list[TimedCommit] = []
        self._now = TimedCommit()

    def writing(self) -> type[PostgresWriting]:
        """The connection that writes, with records of its transactions."""
        from crucible_worker.journal.postgres.store import PostgresWriting

        recorder = self

        class Recorded(PostgresWriting):
            def begin(self) -> Head:
                recorder._now = TimedCommit(asked=time.monotonic())
                return super().begin()

            def commit(self, before: int, sequence: int) -> None:
                super().commit(before, sequence)
                recorder._committed(sequence - before)

        return Recorded

    @staticmethod
    def before(function: Callable[..., Any], action: Callable[[], None]) -> Callable[..., Any]:
        """A function that does something else before."""

        def apply(*arguments: Any) -> Any:
            action()
            return function(*arguments)

        return apply

    @staticmethod
    def after(function: Callable[..., Any], action: Callable[[Any], None]) -> Callable[..., Any]:
        """A function of which something gets the result."""

        def apply(*arguments: Any, **named: Any) -> Any:
            result = function(*arguments, **named)
            action(result)
            return result

        return apply

    def locked(self) -> None:
        self._now.locked, self._now.writer_cpu = time.monotonic(), -time.thread_time()

    def submitted(self) -> None:
        self._now.submissions += 1

    def run(self) -> None:
        self._now.statements += 1

    def leased(self, parts: Sequence[Any]) -> None:
        self._now.parts_leased += len(parts)

    def done(self, _: None) -> None:
        self._now.parts_done += 1

    def _committed(self, events: int) -> None:
        now = self._now
        now.released, now.events = time.monotonic(), events
        now.statements += 3  # the session's, the note, and COMMIT
        now.writer_cpu += time.thread_time()
        now.process_cpu = time.process_time()
        self.commits.append(now)
