"""One logger of one experiment, as the worker sees it: its process is fed, and replaced when it fails."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import os
from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from crucible_bridge.errors import BridgeError
from crucible_worker.children.messages import pack_text, unpack
from crucible_worker.children.process import Channel, Process, ending_of, passed_variables
from crucible_worker.loggers.base import Entry, Experiment, LoggerSpec, Missed
from crucible_worker.loggers.batches import batches, pack_experiment, packed
from crucible_worker.loggers.registry import find
from crucible_worker.util.tasks import Backoff

__all__ = ["LoggerRunner", "LoggerState", "LoggerStatus", "Timing"]

_HOST = "crucible_worker.loggers.host"
_MAX_ANSWER_BYTES = 1 << 20
_PROXIES = (
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "TMPDIR",
    "USER",
    "LOGNAME",
)
_log = structlog.get_logger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a logger may take, and how long it is left alone after a failure; seconds."""

    open_seconds: float = 120.0
    """To import its library and open the experiment."""
    batch_seconds: float = 60.0
    """To write a batch, or to wait until all has left its process; then its process is killed."""
    close_seconds: float = 30.0
    """To end the experiment."""
    first_back_off_seconds: float = 1.0
    """After its first failure; twice as long after each further one in a row."""
    max_back_off_seconds: float = 60.0
    """At most."""


class LoggerState(enum.StrEnum):
    """What a logger does."""

    NEW = "new"
    """Nothing yet: its process starts with the first entry."""
    OPEN = "open"
    """It writes, or waits for entries."""
    FAILING = "failing"
    """It failed, and is tried again later."""
    CLOSED = "closed"
    """It has ended."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoggerStatus:
    """How a logger fares."""

    logger: str
    """As `log_to` named it."""
    state: LoggerState
    """What it does."""
    through: int
    """Sequence of the last entry that it has written."""
    url: str
    """Where a person looks at the experiment; empty before the logger is open, or if there is no such place."""
    failures: int
    """In a row, until now."""
    error: str
    """What it last failed with; empty if it has never failed."""
    refused: int
    """Entries that its tracker will never take, and that were left out."""
    missed: int
    """Entries that were removed before it had them."""


class _Failed(Exception):
    """It raised, blocked, or ended; the message says which."""


class _LoggerProcess:
    """A logger's process and the channel to it."""

    def __init__(self, process: Process, channel: Channel) -> None:
        self._process, self._channel = process, channel

    async def ask(self, message: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Send a message, and wait for the answer.

        Raises:
            _Failed: there is none in time, or the process has ended.
        """
        self._channel.send(pack_text(message))
        try:
            async with asyncio.timeout(seconds):
                await self._channel.drained()
                body = await self._channel.receive(_MAX_ANSWER_BYTES)
                if body is None:
                    raise _Failed(f"its process ended: {ending_of(await self._process.end())}")
                return unpack(body)
        except TimeoutError:
            raise _Failed(f"did not finish {message['do']!r} within {seconds:g} s, and was killed") from None
        except ValueError as error:
            raise _Failed(f"sent {error}") from None

    def kill(self) -> None:
        """Kill the process; it remains to be waited for, by `ended`."""
        self._channel.abort()
        self._process.kill()

    async def ended(self) -> None:
        """Wait until the killed process is gone: long, if it waits for a disk that does not answer."""
        await self._process.end()


class LoggerRunner:
    """Feeds one logger of one experiment. What the logger does wrong delays `feed`, and nothing else.

    Its process starts with the first entry. After a failure another one takes its place, later and later.
    """

    def __init__(self, spec: LoggerSpec, experiment: Experiment, timing: Timing = Timing()) -> None:
        self._spec, self._experiment, self._timing = spec, experiment, timing
        self._one_at_a_time = asyncio.Lock()
        self._connection: _LoggerProcess | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._state = LoggerState.NEW
        self._through = self._failures = self._refused = self._missed = 0
        self._url = self._error = ""

    @property
    def status(self) -> LoggerStatus:
        """How it fares."""
        return LoggerStatus(
            logger=self._spec.text,
            state=self._state,
            through=self._through,
            url=self._url,
            failures=self._failures,
            error=self._error,
            refused=self._refused,
            missed=self._missed,
        )

    async def open(self) -> None:
        """Start its process and open the experiment, as the first `feed` does, however long that takes."""
        async with self._one_at_a_time:
            await self._until_done([])

    async def feed(self, entries: Sequence[Entry]) -> int:
        """Have the logger write entries, however long that takes.

        Those that the tracker has, and can tell, are not written again. At most one batch is in the logger's process;
        the others wait in `entries`, which is the queue, bounded by the caller. Cancelled, it kills the process: what
        was not acknowledged is to be fed again.

        Args:
            entries: in the order of their sequences.

        Returns:
            The sequence up to which everything is written: of the last of `entries`, or a later one.
        """
        for batch in batches(entries):
            async with self._one_at_a_time:
                await self._until_done(batch)
        return self._through

    async def sync(self) -> None:
        """Wait until what was fed has left its process, however long that takes."""
        async with self._one_at_a_time:
            await self._until_done([], sync=True)

    async def aclose(self, seconds: float | None = None) -> None:
        """End the experiment and the process. Cancel a `feed` that is under way before this. Idempotent.

        Args:
            seconds: after which the process is killed; those of `Timing` if None.
        """
        seconds = self._timing.close_seconds if seconds is None else seconds
        async with self._one_at_a_time:
            if self._connection is not None:
                try:
                    self._answered(await self._connection.ask({"do": "close"}, seconds))
                except _Failed as error:
                    self._error = str(error)
                    self._warn("logger_not_closed")
                finally:
                    self._drop()
            self._state = LoggerState.CLOSED
        if self._ending:
            await asyncio.wait(self._ending, timeout=seconds)

    async def _until_done(self, batch: Sequence[Entry], *, sync: bool = False) -> None:
        """Write a batch and perhaps wait until it has left; after a failure again, by a new process."""
        left = list(batch)
        while True:
            try:
                connection = await self._connected()
                while left := [entry for entry in left if entry.sequence > self._through]:
                    left = await self._sent(connection, left)
                if sync:
                    self._answered(await connection.ask({"do": "sync"}, self._timing.batch_seconds))
            except _Failed as error:
                await self._back_off(str(error))
            except BaseException:
                self._drop()  # an answer may be under way, which belongs to nothing any more
                raise
            else:
                # The last ones may have been refused.
                self._through = max(self._through, batch[-1].sequence if batch else 0)
                self._succeeded()
                return

    async def _sent(self, connection: _LoggerProcess, entries: list[Entry]) -> list[Entry]:
        """Send entries; returns those that are to be sent again, without the one that the tracker refused."""
        answer = await connection.ask({"do": "log", "runs": packed(entries)}, self._timing.batch_seconds)
        before, self._through = self._through, max(self._through, answer["through"])
        written = [entry for entry in entries if before < entry.sequence <= self._through]
        self._missed += sum(entry.count for entry in written if isinstance(entry, Missed))
        refused = answer.get("refused")
        if refused is None:
            self._answered(answer)
            return []
        kept = [entry for entry in entries if entry.sequence != refused]
        if len(kept) == len(entries):
            raise _Failed(f"refused the entry {refused}, which it was not given")
        self._refused += 1
        self._error = answer["error"]
        self._warn("logger_refused_entry", sequence=refused)
        return kept

    def _answered(self, answer: Mapping[str, Any]) -> None:
        if "error" in answer:
            raise _Failed(answer["error"])
        self._url = answer["url"]

    async def _connected(self) -> _LoggerProcess:
        if self._connection is not None:
            return self._connection
        try:
            declared = await asyncio.to_thread(find, self._spec.kind)
            process, end = Process.start(_HOST, environment=_environment(declared.variables), logs=declared.prints)
        except (OSError, BridgeError) as error:
            raise _Failed(f"its process cannot be started: {error}") from error
        try:
            channel = await Channel.over(end)
        except BaseException:
            process.reap()
            raise
        self._connection = connection = _LoggerProcess(process, channel)
        answer = await connection.ask(self._opening(), self._timing.open_seconds)
        self._answered(answer)
        self._through = max(self._through, answer["position"] or 0)
        self._experiment = dataclasses.replace(self._experiment, resumed=True)
        return connection

    def _opening(self) -> dict[str, Any]:
        spec = self._spec
        return {
            "do": "open",
            "kind": spec.kind,
            "options": dict(spec.options),
            "text": spec.text,
            "experiment": pack_experiment(self._experiment),
        }

    async def _back_off(self, error: str) -> None:
        self._drop()
        self._failures += 1
        self._error, self._state = error, LoggerState.FAILING
        timing = self._timing
        seconds = Backoff(timing.first_back_off_seconds, timing.max_back_off_seconds).after(self._failures)
        self._warn("logger_failed", failures=self._failures, again_in_seconds=seconds)
        await asyncio.sleep(seconds)

    def _succeeded(self) -> None:
        if self._failures:
            _log.info(
                "logger_recovered",
                logger=self._spec.text,
                experiment=self._experiment.name,
                error=self._error,
                failures=self._failures,
            )
        self._failures, self._state = 0, LoggerState.OPEN

    def _drop(self) -> None:
        """Kill the process, and have a task wait for its end."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.kill()
            task = asyncio.create_task(connection.ended())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    def _warn(self, event: str, **more: object) -> None:
        _log.warning(event, logger=self._spec.text, experiment=self._experiment.name, error=self._error, **more)


def _environment(names: Sequence[str]) -> dict[str, str]:
    """The variables of a logger's process: those of `names`, of which NAME_* stands for all that begin with NAME_."""
    beginnings = tuple(name.removesuffix("*") for name in names if name.endswith("*"))
    matching = [name for name in os.environ if beginnings and name.startswith(beginnings)]
    return passed_variables(*_PROXIES, *names, *matching)
