"""What the journal forgets, and what it never does."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.codec.events import event_to_record
from crucible_bridge.errors import NotFound, OutOfRange
from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import EvaluationState
from crucible_worker.history.retention import CHUNK, Retention, trim
from crucible_worker.journal import Journal
from crucible_worker.journal.locks import OwnerLocks
from crucible_worker.journal.plans import keep
from crucible_worker.journal.queries import head
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker
from crucible_worker.util.limits import WorkerLimits
from tests.robustness.evidence import SAMPLES, log_of, request
from tests.robustness.harness import until, workshop

KEPT = 10
"""Events retained, where nothing else keeps them."""
SOON = 1e-6
"""A retention of next to nothing, seconds."""


def _run(folder: Path, *, latency: float = 0.0, **limits: Any):
    """A worker on a folder; it trims as it starts, without grace unless one is given."""
    bounds = WorkerLimits(**{"retention_grace_seconds": 0, **limits})
    return run_worker({"m": ScriptedModel(latency=latency)}, state_dir=folder, limits=bounds)


async def _make_history(folder: Path) -> None:
    """Evaluations `before` and `after`, and between them one that was interrupted."""
    async with _run(folder) as worker:
        await worker.bridge.evaluation.evaluate(request("before"))
    async with _run(folder, latency=60.0) as worker:
        await worker.bridge.evaluation.start_evaluation(request("unfinished"))
    async with _run(folder) as worker:
        await worker.bridge.evaluation.evaluate(request("after"))


async def _until_oldest(worker: RunningWorker, sequence: int) -> list[Event]:
    async def reached() -> bool:
        return (await log_of(worker.bridge))[0].sequence == sequence

    await until(reached)
    return await log_of(worker.bridge)


async def test_events_go_as_a_prefix_that_never_reaches_an_unfinished_evaluation(tmp_path):
    """The oldest go first and alone; those from the first event of an unfinished evaluation on stay."""
    await _make_history(tmp_path)
    async with _run(tmp_path) as worker:
        whole = await log_of(worker.bridge)
    first = next(event.sequence for event in whole if event.evaluation_id == "unfinished")
    async with _run(tmp_path, max_events_retained=KEPT) as worker:
        assert await _until_oldest(worker, first) == whole[first - 1 :]
        with pytest.raises(OutOfRange) as gone:
            async for _ in worker.bridge.telemetry.subscribe(first - 2):
                pass
        assert gone.value.metadata["oldest_sequence"] == str(first)
        kept = [event async for event in worker.bridge.telemetry.subscribe(first - 1, until_now=True)]
        assert kept[0].sequence == first
        ended = await worker.bridge.evaluation.evaluate(request("unfinished"))
        assert (ended.state, ended.attempt) == (EvaluationState.COMPLETED, 2)
        whole = await log_of(worker.bridge)
    async with _run(tmp_path, max_events_retained=KEPT) as worker:
        assert await _until_oldest(worker, whole[-KEPT].sequence) == whole[-KEPT:]
        # An evaluation outlives its events, and its metrics are those that it ended with.
        assert await worker.bridge.evaluation.get_evaluation("unfinished") == ended


async def test_ended_evaluations_are_forgotten_and_their_ids_free(tmp_path):
    """Record and samples go after `evaluation_retention`; those that have not ended stay."""
    await _make_history(tmp_path)
    async with _run(tmp_path, evaluation_retention_seconds=SOON) as worker:
        evaluation = worker.bridge.evaluation

        async def forgotten() -> bool:
            return len((await evaluation.list_evaluations()).items) == 1

        await until(forgotten)
        for evaluation_id in ("before", "after"):
            with pytest.raises(NotFound):
                await evaluation.get_evaluation(evaluation_id)
            with pytest.raises(NotFound):
                await evaluation.get_samples(evaluation_id)
        another = await evaluation.evaluate(request("before", step=99, samples=5))
        assert (another.state, another.total) == (EvaluationState.COMPLETED, 10)
        assert len([sample async for sample in evaluation.all_samples("before")]) == 10
        stands = await evaluation.get_evaluation("unfinished")
        assert (stands.state, stands.total) == (EvaluationState.INTERRUPTED, 2 * SAMPLES)


async def test_what_nobody_goes_on_with_is_cancelled(tmp_path):
    """An evaluation interrupted for longer than `interrupted_retention` ends with one STOP, as cancelled."""
    await _make_history(tmp_path)
    async with _run(tmp_path, interrupted_retention_seconds=SOON) as worker:
        async with worker.bridge.evaluation.watch_evaluation("unfinished") as watch:
            events = [event async for event in watch]
        assert [event.kind for event in events if event.kind is not EventKind.EVALUATION_PROGRESS] == [
            EventKind.EVALUATION_START,
            EventKind.EVALUATION_INTERRUPT,
            EventKind.EVALUATION_STOP,
        ]
        ended = await worker.bridge.evaluation.get_evaluation("unfinished")
        assert ended.state is EvaluationState.CANCELLED
        assert ended.problem is not None
        assert ended.problem.reason == "RETENTION"
        again = await worker.bridge.evaluation.evaluate(request("unfinished"))
        assert again == ended


async def test_what_is_removed_is_logged_with_its_count(tmp_path):
    """A worker that removes evaluations says how many, with their samples and events."""
    async with workshop(tmp_path, {"m": {}}) as shop:
        first = await shop.start()
        await first.bridge.evaluation.evaluate(request("one", samples=5))
        await first.bridge.evaluation.evaluate(request("two", samples=7))
        events = len(await log_of(first.bridge))
        first.kill()
        shop.limits = {"evaluation_retention_seconds": SOON, "max_events_retained": KEPT, "retention_grace_seconds": 0}
        worker = await shop.start()
        lines: list[dict[str, Any]] = []

        def logged() -> bool:
            lines[:] = [json.loads(line) for line in worker.log_file.read_text().splitlines() if "by_retention" in line]
            return sum(line.get("evaluations", 0) for line in lines) == 2

        await until(logged)
        (line,) = lines
        assert (line["event"], line["level"]) == ("removed_by_retention", "info")
        assert (line["evaluations"], line["samples"], line["events"]) == (2, 2 * (5 + 7), events - KEPT)


async def test_nothing_is_removed_where_limits_are_0(tmp_path):
    """0 keeps evaluations, interrupted ones, plans and events."""
    await _make_history(tmp_path)
    journal, locks = await Journal.open(tmp_path, event_to_record), OwnerLocks(tmp_path / "owners.lock")
    try:
        await journal.submit(lambda t: t.execute("UPDATE evaluations SET ended_ns = 1 WHERE ended_ns > 0"))
        await journal.submit(lambda t: t.execute("UPDATE evaluations SET interrupted_ns = 1 WHERE interrupted_ns > 0"))
        await journal.submit(lambda t: keep(t, "p", "no evaluation has this run", "f", b""))
        await journal.submit(lambda t: t.execute("UPDATE plans SET used_ns = 1"))
        tables = ("evaluations", "samples", "events", "plans")

        def rows(connection: sqlite3.Connection) -> list[Any]:
            return [connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in tables]

        before = await journal.read(rows)
        forever = Retention(max_events=0, evaluation_seconds=0, interrupted_seconds=0, plan_seconds=0)
        assert not await journal.submit(lambda transaction: trim(transaction, locks, forever))
        assert await journal.read(rows) == before
        short = Retention(max_events=KEPT, evaluation_seconds=1, interrupted_seconds=1, plan_seconds=1)
        assert await journal.submit(lambda transaction: trim(transaction, locks, short))
    finally:
        await journal.aclose()
        locks.close()


async def test_many_events_go_in_chunks(tmp_path):
    """Each transaction removes a bounded number, the oldest, until as many are left as are to be retained."""
    journal, locks = await Journal.open(tmp_path, event_to_record), OwnerLocks(tmp_path / "owners.lock")
    retention = Retention(max_events=KEPT, evaluation_seconds=1e9, interrupted_seconds=1e9, plan_seconds=1e9)
    count = 2 * CHUNK + CHUNK // 2
    try:
        events = [Event(kind=EventKind.METRICS_COMPUTED)] * count
        await journal.submit(lambda transaction: transaction.append(0, events))
        oldest = []
        more = True
        while more:
            more = await journal.submit(lambda transaction: trim(transaction, locks, retention))
            oldest.append((await journal.read(head)).oldest)
            rows = await journal.read(lambda c: c.execute("SELECT MIN(sequence), COUNT(*) FROM events").fetchone())
            assert rows == (oldest[-1], count + 1 - oldest[-1])
        assert oldest == [1 + CHUNK, 1 + 2 * CHUNK, count - KEPT + 1]
        assert not await journal.submit(lambda transaction: trim(transaction, locks, retention))
    finally:
        await journal.aclose()
        locks.close()
