"""Events per second that 1, 3 and 8 processes write to one journal, in SQLite and in PostgreSQL.

Each process commits results of samples as a busy worker does, in batches that gather while the one before is written.
PostgreSQL is a server of this machine that the benchmark starts, with its defaults; without one, SQLite alone is
measured. There is no promise: it says what another worker costs the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _report import Claim, arguments, report

from crucible_bridge.codec.events import event_to_record
from crucible_bridge.events import Event, EventKind
from crucible_worker.journal import Journal

WRITERS = (1, 3, 8)
EVENTS = 20_000
"""Events of each process."""
TOGETHER = 16
"""Events of a submission."""
UNDER_WAY = 64
"""Submissions of a process that wait for their commit."""


def write(state_dir: str, url: str | None, start_at: float) -> float:
    """Write in a process of its own; returns the time of the last commit."""
    return asyncio.run(_write(Path(state_dir), url, start_at))


async def _write(state_dir: Path, url: str | None, start_at: float) -> float:
    journal = await Journal.open(state_dir, event_to_record, url=url)
    event = Event(
        kind=EventKind.SAMPLE_COMPLETE,
        evaluation_id="e" * 20,
        run_id="run",
        evaluator="accuracy",
        measurements={"score": 1.0, "output_tokens": 12.0},
        metadata={"sample_id": "arithmetic-0001", "verdict": "correct", "attempt": "1"},
    )
    room = asyncio.Semaphore(UNDER_WAY)

    async def submit() -> None:
        async with room:
            await journal.submit(lambda transaction: transaction.append(0, [event] * TOGETHER), TOGETHER)

    try:
        await asyncio.sleep(max(0.0, start_at - time.time()))
        await asyncio.gather(*(submit() for _ in range(EVENTS // TOGETHER)))
        return time.time()
    finally:
        await journal.aclose()


def rate(url: str | None, writers: int) -> float:
    """Events per second of so many processes together."""
    with (
        tempfile.TemporaryDirectory(prefix="crucible-") as folder,
        multiprocessing.get_context("spawn").Pool(writers) as pool,
    ):
        pool.map(abs, range(writers), chunksize=1)  # every process has started
        start_at = time.time() + 5.0
        ends = pool.starmap(write, [(folder, url, start_at)] * writers, chunksize=1)
        return writers * (EVENTS // TOGETHER) * TOGETHER / (max(ends) - start_at)


@contextlib.contextmanager
def server() -> Iterator[Any | None]:
    """A PostgreSQL server with its defaults; None where the machine has none."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.postgres_server import running_server

    with contextlib.ExitStack() as running:
        try:
            yield running.enter_context(running_server(durable=True))
        except LookupError as error:
            print(error, file=sys.stderr)
            yield None


def main() -> None:
    """Measure and report."""
    options = arguments(__doc__)
    claims: list[Claim] = []
    with server() as postgres:
        for name in ("SQLite", "PostgreSQL")[: 1 if postgres is None else 2]:
            for writers in WRITERS:
                runs = [
                    rate(None if postgres is None or name == "SQLite" else postgres.new_database(), writers)
                    for _ in range(options.runs)
                ]
                claims.append(
                    Claim(
                        name=f"events written, {name}, writers: {writers}",
                        ours=runs,
                        unit="events/s",
                        claim="no promise",
                    )
                )
    report(claims, as_json=options.json)


if __name__ == "__main__":
    main()
