"""The samples of evaluations in a temporary SQLite database: read once, then filtered, sorted and paged."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crucible_bridge.types import SampleResult, Verdict
from crucible_worker.reports.distributions import MetadataFields, ResultDistributions
from crucible_worker.reports.plain_json import replace_surrogates
from crucible_worker.reports.samples import row_as_data, searched_text

if TYPE_CHECKING:
    from crucible_bridge import Bridge

__all__ = ["MAX_INDEXED", "SampleIndex", "SampleQuery", "SamplesPage"]

MAX_INDEXED = 2_000_000
"""Samples in the index; beyond, evaluations that were not looked at for the longest time leave it."""
PAGE_SIZE = 500
"""Samples that are read at a time, and that are read again to show one of them whole."""
_AGAIN = 5.0
"""An evaluation that moves is read again after so many times the time that reading it took."""
_AGAIN_LEAST_SECONDS = 1.0

_SCHEMA = """
CREATE TABLE samples (
  evaluation TEXT, n INTEGER, evaluator TEXT, id TEXT, repeat INTEGER, verdict TEXT, score REAL,
  input TEXT, output TEXT, extracted TEXT, target TEXT, stop TEXT, tokens INTEGER, seconds REAL, reason TEXT,
  metadata TEXT, words TEXT, page TEXT,
  PRIMARY KEY (evaluation, n)
) WITHOUT ROWID;
CREATE INDEX by_key ON samples (evaluation, evaluator, id, repeat, verdict);
"""
_ROW = (
    "n",
    "evaluator",
    "id",
    "repeat",
    "verdict",
    "score",
    "input",
    "output",
    "extracted",
    "target",
    "stop",
    "tokens",
    "seconds",
    "reason",
)
_FILTERS = {
    "": "1",
    "all": "1",
    "wrong": f"verdict = '{Verdict.INCORRECT}'",
    "unscored": f"verdict IN ({', '.join(repr(str(verdict)) for verdict in Verdict if not verdict.scored)})",
    "truncated": "stop = 'length'",
    "changed": "EXISTS (SELECT 1 FROM samples AS other WHERE other.evaluation = :other"
    " AND other.evaluator = samples.evaluator AND other.id = samples.id AND other.repeat = samples.repeat"
    " AND other.verdict <> samples.verdict)",
}
_SORTS = {"": "n", "n": "n", "score": "score", "tokens": "tokens", "seconds": "seconds", "id": "id"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampleQuery:
    """Which samples of an evaluation, in which order."""

    evaluator: str = ""
    """Only this evaluator's."""
    filter: str = ""
    """all, wrong, unscored, truncated, or changed: with a verdict other than in the evaluation `other`."""
    other: str = ""
    """With the filter changed: the other evaluation."""
    search: str = ""
    """Only those with this text in id, input, targets, output or extracted answer; case does not matter."""
    where: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Only those with this metadata."""
    sort: str = ""
    """n (position), score, tokens, seconds or id."""
    descending: bool = False
    """The other way round; samples without a value are last both ways."""
    offset: int = 0
    """So many are left out at the beginning."""
    limit: int = 100
    """At most so many."""

    @property
    def problem(self) -> str:
        """What is wrong with it, for the caller; empty if nothing is."""
        if self.filter not in _FILTERS:
            return f"filter is {self.filter!r}, must be one of {', '.join(filter(None, _FILTERS))}"
        if self.sort not in _SORTS:
            return f"sort is {self.sort!r}, must be one of {', '.join(filter(None, _SORTS))}"
        if self.filter == "changed" and not self.other:
            return "other is missing: the filter changed compares with the evaluation that it names"
        return ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SamplesPage:
    """A page of samples."""

    rows: Sequence[Mapping[str, Any]]
    """As tables show them."""
    matching: int
    """How many match, of those that have been read."""
    read: int
    """How many of the evaluation have been read."""
    complete: bool
    """Whether these are all that it has."""
    fields: Mapping[str, Sequence[str] | None]
    """The metadata to choose from, see `MetadataFields`."""


class _IndexProgress:
    """How far the samples of one evaluation have been read."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.read = 0
        self.complete = False
        self.stale = False
        self.took = 0.0
        self.ended_at = 0.0
        self.looked_at = 0.0
        self.problem: BaseException | None = None
        self.distributions = ResultDistributions()
        self.fields = MetadataFields()
        self.progress = asyncio.Event()


class SampleIndex:
    """The samples of the evaluations that readers look at."""

    def __init__(self, bridge: Bridge, folder: Path) -> None:
        """Make an empty index.

        Args:
            bridge: the worker.
            folder: for the database; the caller removes it.
        """
        self._bridge = bridge
        self._thread = ThreadPoolExecutor(1, "samples")
        self._path = folder / "samples.sqlite3"
        self._connection: sqlite3.Connection | None = None
        self._readings: dict[str, _IndexProgress] = {}

    async def aclose(self) -> None:
        """End reading, and close the database."""
        tasks = [reading.task for reading in self._readings.values() if reading.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._run(lambda connection: connection.close())
        self._thread.shutdown()

    def moved(self, evaluation_id: str | None) -> None:
        """An evaluation, or each one if None, has other samples: it is read again at the next look."""
        if evaluation_id is None:
            for reading in self._readings.values():
                reading.stale = True
        elif (reading := self._readings.get(evaluation_id)) is not None:
            reading.stale = True

    async def find(self, evaluation_id: str, query: SampleQuery) -> SamplesPage:
        """The samples that match, of those that have been read.

        The first page is waited for, the rest is not: `complete` says whether the worker has more.

        Raises:
            BridgeError: the worker refuses, or cannot be reached.
        """
        reading = await self._begun(evaluation_id)
        if query.filter == "changed":
            await self._whole(query.other)
        plain = SampleQuery(evaluator="", offset=query.offset, limit=query.limit) == query
        await self._until(reading, (lambda: reading.read >= query.offset + query.limit) if plain else (lambda: False))
        rows, matching = await self._run(lambda connection: _search(connection, evaluation_id, query))
        return SamplesPage(
            rows=rows,
            matching=matching,
            read=reading.read,
            complete=reading.complete,
            fields=reading.fields.as_data(),
        )

    async def distributions(self, evaluation_id: str) -> tuple[ResultDistributions, bool]:
        """How its samples are spread, and whether all of them were counted."""
        reading = await self._begun(evaluation_id)
        await self._until(reading, lambda: False)
        return reading.distributions, reading.complete

    async def sample(
        self, evaluation_id: str, evaluator: str, sample_id: str, repeat: int
    ) -> tuple[int, SampleResult] | None:
        """A sample whole, with its position; None if the evaluation does not have it (yet)."""
        reading = await self._begun(evaluation_id)
        while not (places := await self._places(evaluation_id, evaluator, sample_id, repeat)) and not reading.complete:
            await self._step(reading)
        for position, _, token in places:
            if (result := await self._whole_sample(evaluation_id, token, (evaluator, sample_id, repeat))) is not None:
                return position, result
        return None

    async def repeats(self, evaluation_id: str, evaluator: str, sample_id: str, most: int) -> Sequence[SampleResult]:
        """The results of a sample, one for each repeat, at most so many; none if the evaluation does not have it."""
        reading = await self._begun(evaluation_id)
        while not (places := await self._places(evaluation_id, evaluator, sample_id)) and not reading.complete:
            await self._step(reading)
        found = [
            await self._whole_sample(evaluation_id, token, (evaluator, sample_id, repeat))
            for _, repeat, token in places[:most]
        ]
        return [result for result in found if result is not None]

    async def _places(
        self, evaluation_id: str, evaluator: str, sample_id: str, repeat: int | None = None
    ) -> Sequence[tuple[int, int, str]]:
        """Position, repeat and page of a sample."""
        asked = "SELECT n, repeat, page FROM samples WHERE evaluation = ? AND evaluator = ? AND id = ?"
        values = (evaluation_id, evaluator, sample_id, -1 if repeat is None else repeat)
        return await self._run(
            lambda connection: connection.execute(asked + " AND ? IN (repeat, -1) ORDER BY n", values).fetchall()
        )

    async def _whole_sample(self, evaluation_id: str, token: str, key: tuple[str, str, int]) -> SampleResult | None:
        """Read a sample again, from the page that it was on, or from a later one if others have come before it."""
        while True:
            page = await self._bridge.evaluation.get_samples(evaluation_id, page_size=PAGE_SIZE, page_token=token)
            for sample in page.items:
                if (sample.evaluator, sample.sample_id, sample.repeat) == key:
                    return sample
            if not (token := page.next_page_token):
                return None

    async def _begun(self, evaluation_id: str) -> _IndexProgress:
        """The reading of an evaluation; begun now at the first look, or if it has moved since."""
        reading = self._readings.get(evaluation_id)
        now = time.monotonic()
        if reading is None:
            reading = self._readings[evaluation_id] = _IndexProgress()
            reading.looked_at = now
            await self._make_room()
        idle = reading.task is None or reading.task.done()
        rested = now - reading.ended_at >= max(_AGAIN_LEAST_SECONDS, _AGAIN * reading.took)
        if idle and (not reading.complete or (reading.stale and rested)):
            reading.stale, reading.problem = False, None
            reading.task = asyncio.create_task(self._read(evaluation_id, reading))
        reading.looked_at = now
        return reading

    async def _read(self, evaluation_id: str, reading: _IndexProgress) -> None:
        """Read all that it has; what was read before stays until its place is taken."""
        began = time.monotonic()
        token, position = "", 0
        distributions, fields = ResultDistributions(), MetadataFields()
        first = not reading.complete
        try:
            while True:
                page = await self._bridge.evaluation.get_samples(evaluation_id, page_size=PAGE_SIZE, page_token=token)
                rows = [_stored(evaluation_id, position + n, sample, token) for n, sample in enumerate(page.items)]
                for sample in page.items:
                    distributions.add(sample)
                    fields.add(sample)
                await self._run(lambda connection, rows=rows: _store(connection, rows))
                position += len(rows)
                if first:
                    reading.read, reading.distributions, reading.fields = position, distributions, fields
                    self._tell(reading)
                if not (token := page.next_page_token):
                    break
            await self._run(lambda connection: _forget(connection, evaluation_id, position))
            reading.read, reading.distributions, reading.fields = position, distributions, fields
            reading.complete = True
        except Exception as error:  # raised at the next look
            reading.problem = error
        finally:
            reading.ended_at = time.monotonic()
            reading.took = reading.ended_at - began
            self._tell(reading)

    def _tell(self, reading: _IndexProgress) -> None:
        news, reading.progress = reading.progress, asyncio.Event()
        news.set()

    async def _step(self, reading: _IndexProgress) -> None:
        """Wait until more has been read."""
        if reading.problem is not None:
            raise reading.problem
        await reading.progress.wait()
        if reading.problem is not None:
            raise reading.problem

    async def _until(self, reading: _IndexProgress, enough: Callable[[], bool]) -> None:
        """Wait for so much, for everything, or for a moment."""
        try:
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                while not (reading.complete or enough()):
                    await self._step(reading)
        except TimeoutError:
            while reading.read == 0 and not reading.complete:
                await self._step(reading)

    async def _whole(self, evaluation_id: str) -> None:
        reading = await self._begun(evaluation_id)
        while not reading.complete:
            await self._step(reading)

    async def _make_room(self) -> None:
        """Remove evaluations that were not looked at for the longest time, until the others fit."""
        by_age = sorted(self._readings.items(), key=lambda item: item[1].looked_at)
        held = sum(reading.read for reading in self._readings.values())
        for evaluation_id, reading in by_age[:-1]:
            if held <= MAX_INDEXED:
                return
            if reading.task is not None and not reading.task.done():
                continue
            held -= reading.read
            del self._readings[evaluation_id]
            await self._run(lambda connection, gone=evaluation_id: _forget(connection, gone, 0))

    async def _run(self, work: Callable[[sqlite3.Connection], Any]) -> Any:
        """Run something on the database, in its thread."""

        def run() -> Any:
            if self._connection is None:
                self._connection = sqlite3.connect(self._path, isolation_level=None)
                # The database goes with this process: nothing has to survive.
                self._connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + _SCHEMA)
            return work(self._connection)

        return await asyncio.get_running_loop().run_in_executor(self._thread, run)


FIRST_LOOK_SECONDS = 1.0
"""A reader waits so long for samples that are still being read; what is there by then is shown."""


def _stored(evaluation_id: str, position: int, sample: SampleResult, token: str) -> tuple[Any, ...]:
    row = row_as_data(position, sample)
    metadata = {} if sample.sample is None else sample.sample.metadata
    compared = {_compared(key): _compared(value) for key, value in metadata.items()}
    words = replace_surrogates(searched_text(sample)).casefold()
    return (evaluation_id, *(row[name] for name in _ROW), json.dumps(compared), words, token)


def _compared(text: str) -> str:
    """A text as SQLite compares it: without half surrogate pairs, and without NUL, at which texts from its JSON end."""
    return replace_surrogates(text).replace("\0", "\ufffd")


def _store(connection: sqlite3.Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    connection.execute("BEGIN")
    connection.executemany(f"INSERT OR REPLACE INTO samples VALUES ({', '.join('?' * (len(_ROW) + 4))})", rows)
    connection.execute("COMMIT")


def _forget(connection: sqlite3.Connection, evaluation_id: str, from_position: int) -> None:
    connection.execute("DELETE FROM samples WHERE evaluation = ? AND n >= ?", (evaluation_id, from_position))


def _search(connection: sqlite3.Connection, evaluation_id: str, query: SampleQuery) -> tuple[list[dict[str, Any]], int]:
    conditions = ["evaluation = :evaluation", _FILTERS[query.filter]]
    values: dict[str, Any] = {
        "evaluation": evaluation_id,
        "other": query.other,
        "limit": query.limit,
        "offset": query.offset,
    }
    if query.evaluator:
        conditions.append("evaluator = :evaluator")
        values["evaluator"] = query.evaluator
    if query.search:
        conditions.append("instr(words, :search) > 0")
        values["search"] = replace_surrogates(query.search).casefold()
    for n, (key, value) in enumerate(query.where.items()):
        conditions.append(f"EXISTS (SELECT 1 FROM json_each(metadata) WHERE key = :key{n} AND value = :value{n})")
        values |= {f"key{n}": _compared(key), f"value{n}": _compared(value)}
    matching = f"FROM samples WHERE {' AND '.join(conditions)}"
    column = _SORTS[query.sort]
    order = f"{column} IS NULL, {column} {'DESC' if query.descending else 'ASC'}, n"
    (count,) = connection.execute(f"SELECT count(*) {matching}", values).fetchone()
    rows: Iterable[Sequence[Any]] = connection.execute(
        f"SELECT {', '.join(_ROW)} {matching} ORDER BY {order} LIMIT :limit OFFSET :offset", values
    )
    return [dict(zip(_ROW, row)) for row in rows], count
