"""A journal that loses its contents beneath a worker, or before its start: every call says what is wrong."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.client import Bridge
from crucible_bridge.errors import FailedPrecondition, Unavailable
from crucible_worker.journal.schema import JOURNAL_FILE, prepare
from crucible_worker.testing import ScriptedModel, run_worker
from tests.robustness.evidence import log_of, request
from tests.robustness.harness import EVALUATION_SERVICE, until

PAGE_BYTES = 4096


async def _watch(bridge: Bridge) -> list[Any]:
    async with bridge.evaluation.watch_evaluation("one") as stream:
        return [event async for event in stream]


READS: dict[str, Callable[[Bridge], Awaitable[Any]]] = {
    "GetInfo": lambda bridge: bridge.worker.get_info(),
    "Subscribe": log_of,
    "WatchEvaluation": _watch,
    "GetEvaluation": lambda bridge: bridge.evaluation.get_evaluation("one"),
    "ListEvaluations": lambda bridge: bridge.evaluation.list_evaluations(),
    "GetSamples": lambda bridge: bridge.evaluation.get_samples("one"),
    "GenerateReport": lambda bridge: bridge.evaluation.generate_report(["one"]),
    "CompareEvaluations": lambda bridge: bridge.evaluation.compare_evaluations(["one", "two"]),
    "CancelEvaluation": lambda bridge: bridge.evaluation.cancel_evaluation("one"),
    "NotifyStep": lambda bridge: bridge.evaluation.notify_step("plan", 1, "embedded:m"),
}


def _truncate(state_dir: Path, size: int) -> None:
    """Cut the journal's file, with all that was written in it."""
    with contextlib.closing(sqlite3.connect(state_dir / JOURNAL_FILE)) as journal:
        journal.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.truncate(state_dir / JOURNAL_FILE, size)


async def test_a_journal_that_is_empty_beneath_a_worker_cannot_be_read(tmp_path):
    """Each call that needs it answers UNAVAILABLE, JOURNAL_UNREADABLE; none INTERNAL."""
    async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path) as worker:
        for evaluation_id in ("one", "two"):
            await worker.bridge.evaluation.evaluate(request(evaluation_id, samples=5))
        _truncate(tmp_path, 0)
        found = {}
        for name, call in READS.items():
            with pytest.raises(Unavailable) as caught:
                await call(worker.bridge)
            found[name] = caught.value.reason
        assert found == dict.fromkeys(READS, "JOURNAL_UNREADABLE")
        assert await worker.bridge.worker.health("")
        with pytest.raises(Unavailable) as caught:
            await worker.bridge.evaluation.start_evaluation(request("three"))
        assert caught.value.reason == "JOURNAL_UNWRITABLE"


@pytest.mark.parametrize("pages", [1, 2, 3, 5])
async def test_no_evaluation_is_unknown_because_its_page_is_missing(tmp_path, pages):
    """Of a journal that lost its end, what is read is right, or the journal cannot be read; nothing is INTERNAL."""
    async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path) as worker:
        for evaluation_id in ("one", "two"):
            await worker.bridge.evaluation.evaluate(request(evaluation_id, samples=5))
        _truncate(tmp_path, pages * PAGE_BYTES)
        for name in READS.keys() - {"GetInfo", "NotifyStep"}:
            with contextlib.suppress(Unavailable):
                await READS[name](worker.bridge)
        with pytest.raises(Unavailable):
            await log_of(worker.bridge)


async def test_a_missing_row_beneath_a_worker_is_damage(tmp_path):
    """Without the log's row nothing can be read or written; the writer lives on, and with the row all is well."""
    async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path) as worker:
        await worker.bridge.evaluation.evaluate(request("one", samples=5))
        with contextlib.closing(sqlite3.connect(tmp_path / JOURNAL_FILE, isolation_level=None)) as journal:
            row = journal.execute("SELECT * FROM head").fetchone()
            journal.execute("DELETE FROM head")
            for call in (READS["GetInfo"], READS["Subscribe"]):
                with pytest.raises(Unavailable) as caught:
                    await call(worker.bridge)
                assert caught.value.reason == "JOURNAL_UNREADABLE"
            with pytest.raises(Unavailable) as caught:
                await worker.bridge.evaluation.start_evaluation(request("two"))
            assert caught.value.reason == "JOURNAL_UNWRITABLE"
            journal.execute("INSERT INTO head VALUES (?, ?, ?, ?, ?)", row)
        await until(lambda: worker.bridge.worker.health(EVALUATION_SERVICE))
        await worker.bridge.evaluation.evaluate(request("three", samples=5))


def test_a_journal_without_its_row_is_refused_at_the_start(tmp_path):
    """FAILED_PRECONDITION, STATE_DIR_UNUSABLE, with what is missing."""
    with contextlib.closing(sqlite3.connect(prepare(tmp_path), isolation_level=None)) as journal:
        journal.execute("DELETE FROM head")
    with pytest.raises(FailedPrecondition, match="the row of its event log is missing") as caught:
        prepare(tmp_path)
    assert caught.value.reason == "STATE_DIR_UNUSABLE"
