"""What the tests of the engine's parts share: an open journal, events to write, evaluations that are claimed."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.client.evaluation import request_of
from crucible_bridge.codec.events import event_to_record
from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import EvaluateRequest, SampleResult, Verdict
from crucible_worker.engine import claims, recording
from crucible_worker.engine.recording import FinishedSample
from crucible_worker.journal import Journal
from crucible_worker.journal.locks import OwnerLocks
from crucible_worker.journal.queries import EvaluationRow
from crucible_worker.journal.records import SampleKey
from crucible_worker.journal.store import Owners

IN_A_FILE = pytest.mark.parametrize("database", [None], ids=["sqlite"])
"""Marks a test about what only a journal in a file does."""


@contextlib.asynccontextmanager
async def open_journal(state_dir: Path, database: str | None = None) -> AsyncIterator[Journal]:
    """A journal, of a database if one is named, that is closed in the end."""
    journal = await Journal.open(state_dir, event_to_record, url=database)
    try:
        yield journal
    finally:
        await journal.aclose()


@contextlib.contextmanager
def owner_locks(state_dir: Path):
    """One worker's locks."""
    state_dir.mkdir(parents=True, exist_ok=True)
    locks = OwnerLocks(state_dir / "owners.lock")
    try:
        yield locks
    finally:
        locks.close()


def event(kind: EventKind = EventKind.METRICS_COMPUTED, **fields: Any) -> Event:
    """An event that belongs to no evaluation."""
    return Event(kind=kind, **fields)


async def append(journal: Journal, count: int, **fields: Any) -> None:
    """Write so many events."""
    await journal.submit(lambda transaction: transaction.append(0, [event(**fields)] * count))


def request(evaluation_id: str = "e", **fields: Any) -> EvaluateRequest:
    """A request of one evaluator."""
    given: dict[str, Any] = {"model": "embedded:m", "evaluators": "nll", "dataset": [], **fields}
    return request_of(evaluation_id=evaluation_id, **given)


async def claim(journal: Journal, locks: Owners, evaluation_id: str = "e", **prints: Any) -> claims.Claim:
    """Become the owner of an evaluation of ten samples."""
    contents = claims.Contents(**{"dataset_fingerprint": "d", "model_fingerprint": "m", "total": 10, **prints})
    return await journal.submit(
        lambda transaction: claims.claim(
            transaction, locks, request(evaluation_id), fingerprint="f", contents=contents, worker_id="w"
        )
    )


async def commit(
    journal: Journal, row: EvaluationRow, position: int, verdict: Verdict = Verdict.MEASURED, **fields: Any
) -> None:
    """Keep the result of a sample of the first evaluator, or of another one."""
    place = SampleKey(position, fields.pop("evaluator", 0), fields.pop("repeat", 0))
    result = SampleResult(evaluator="nll", sample_id=str(position), repeat=place.repeat, verdict=verdict, **fields)
    kept = FinishedSample(place, result, 1)
    await journal.submit(lambda transaction: recording.commit_samples(transaction, row, [kept], 0))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request):
    """The URL of the database of a journal; None for a file in the state directory."""
    return None if request.param == "sqlite" else request.getfixturevalue("postgres_server").new_database()


@pytest.fixture
async def journal(tmp_path, database):
    """An open journal, of each kind."""
    async with open_journal(tmp_path, database) as opened:
        yield opened


@pytest.fixture
async def locks(journal):
    """The owners of the journal's evaluations, at its worker."""
    opened = journal.owners("owners")
    yield opened
    opened.close()
