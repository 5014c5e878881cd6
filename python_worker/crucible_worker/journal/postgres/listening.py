"""News of a PostgreSQL journal: the server notifies every worker of each commit, with the log's last sequence."""

from __future__ import annotations

import asyncio
import contextlib
import time

import psycopg
import structlog

from crucible_worker.journal.news import News
from crucible_worker.journal.postgres.connections import PATIENCE_SECONDS, SETTINGS, parameters
from crucible_worker.journal.postgres.writing import CHANNEL
from crucible_worker.journal.queries import Head
from crucible_worker.util.background import Background

__all__ = ["PostgresGlance"]

RECONNECT_SECONDS = 0.2
"""Seconds between two tries to listen again."""

_log = structlog.get_logger(__name__)


class PostgresGlance:
    """See `crucible_worker.journal.store.Glance`; used in the event loop in which it is made."""

    def __init__(self, url: str, log: Head, background: Background) -> None:
        """Listen from now on; `log` is the log as it was just now."""
        self._url, self._log = url, log
        self._lost, self._lost_at = "", 0.0
        self._heard_again = asyncio.Event()
        self.news = News()
        self._task = background.keep("journal-news", self._listen)

    def head(self) -> Head:
        """The log, as far as this worker has heard.

        Raises:
            psycopg.OperationalError: nothing was heard for too long.
        """
        if self._lost and self._patience_left() <= 0:
            raise psycopg.OperationalError(self._lost)
        return self._log

    async def returns(self) -> bool:
        """Wait until the database is there, if it is not; False if it is away for too long."""
        if not self._lost:
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, self._patience_left())):
                await self._heard_again.wait()
        return not self._lost

    def _patience_left(self) -> float:
        return self._lost_at + PATIENCE_SECONDS - time.monotonic()

    def committed(self, sequence: int) -> None:
        """This worker has committed."""
        self._hear(Head(self._log.log_id, sequence, self._log.oldest))
        self.news.publish()

    async def aclose(self) -> None:
        """End the news, and what waits for the database."""
        self._heard_again.set()
        self._task.cancel()
        await asyncio.wait([self._task])
        self.news.close()

    async def _listen(self) -> None:
        while True:
            try:
                await self._heard()
            except (psycopg.Error, OSError) as error:
                reason = str(error).strip() or type(error).__name__
                if not self._lost:
                    _log.warning("news_lost", reason=reason)
                    self._lost_at = time.monotonic()
                    self._heard_again.clear()
                self._lost = reason
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _heard(self) -> None:
        """Listen as long as the connection lasts."""
        async with await psycopg.AsyncConnection.connect(
            self._url, autocommit=True, **parameters(self._url)
        ) as connection:
            await connection.execute(SETTINGS)
            await connection.execute(f"LISTEN {CHANNEL}")
            row = await (await connection.execute("SELECT log_id, sequence, oldest FROM head")).fetchone()
            if row is not None:
                self._hear(Head(*row))
            if self._lost:
                _log.info("news_again", seconds=round(time.monotonic() - self._lost_at, 1))
            self._lost = ""
            self._heard_again.set()
            self.news.publish()
            async for note in connection.notifies():
                log_id, sequence, oldest = note.payload.split(" ")
                self._hear(Head(log_id, int(sequence), int(oldest)))
                self.news.publish()

    def _hear(self, log: Head) -> None:
        """Notes may come after what this worker has committed meanwhile: the log never gets shorter by them."""
        if log.log_id != self._log.log_id or log.sequence >= self._log.sequence:
            self._log = log
