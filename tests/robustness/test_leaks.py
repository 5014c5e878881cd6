"""What is cancelled leaves nothing behind."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import threading
import time
from pathlib import Path

import pytest

from crucible_bridge.errors import NotFound
from crucible_bridge.types import EmbeddedModel, EvaluationState
from crucible_worker.engine.preparation import IDENTIFICATIONS, PREPARATIONS
from crucible_worker.journal.copies import read_marks
from crucible_worker.journal.journal import READERS, STREAM_READERS
from crucible_worker.journal.schema import JOURNAL_FILE
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker
from crucible_worker.util.limits import WorkerLimits
from tests.processes import processes_below
from tests.robustness.evidence import request
from tests.robustness.harness import LOCK_FILES, until

TOGETHER = 20
"""Evaluations that are started and cancelled side by side; as many, to begin with, warm everything up."""
SLOW_SECONDS = 60.0
"""A model call that nobody waits for the end of."""
JOURNAL_FILES = {JOURNAL_FILE, f"{JOURNAL_FILE}-wal", f"{JOURNAL_FILE}-shm", *LOCK_FILES}


def _files_but_the_journals(state_dir: Path) -> list[str]:
    names = {path.name for path in state_dir.iterdir()}
    marks = {path.name for path in read_marks(state_dir)}
    assert len(marks) == 1
    return sorted(names - JOURNAL_FILES - marks)


def _held() -> dict[str, int]:
    """What this process, client and worker in one, holds just now."""
    gc.collect()
    return {
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "files": len(os.listdir("/proc/self/fd")),
        "children": len(processes_below(os.getpid())),
    }


def _holds_no_more(before: dict[str, int]) -> bool:
    """Whether nothing is left of what came and went in between, many times.

    A reader of the journal opens its connection, two files, when it reads while all others do: that may be at any time.
    """
    readers = {"files": 2 * (READERS + STREAM_READERS)}
    return all(now <= before[kind] + readers.get(kind, 0) for kind, now in _held().items())


async def _fill_pools(worker: RunningWorker) -> None:
    """Have every thread of the pools started, and every connection of the journal's readers opened."""
    await asyncio.gather(*(asyncio.to_thread(time.sleep, 0.01) for _ in range(64)))

    def threads(prefix: str) -> int:
        return sum(thread.name.startswith(prefix) for thread in threading.enumerate())

    async def asked(turn: int) -> None:
        # A model that does not exist: what it takes to prepare an evaluation, and no evaluation.
        unknown = dataclasses.replace(request(f"unknown-{turn}"), model=EmbeddedModel("unknown"))
        with pytest.raises(NotFound):
            await worker.bridge.evaluation.start_evaluation(unknown)

    async def filled() -> bool:
        await asyncio.gather(*(worker.bridge.evaluation.list_evaluations() for _ in range(64)))
        await asyncio.gather(*(asked(turn) for turn in range(16)))
        found = [threads(name) for name in ("journal-reader", "prepare", "identify")]
        return found == [READERS, PREPARATIONS, IDENTIFICATIONS]

    await until(filled)


async def _start_and_cancel(worker: RunningWorker, model: ScriptedModel, batch: int) -> None:
    """Some are cancelled as they run, some while they wait for their turn, all of them twice."""
    ids = [f"cancelled-{batch}-{index}" for index in range(TOGETHER)]
    evaluation = worker.bridge.evaluation
    calls = model.calls
    await asyncio.gather(*(evaluation.start_evaluation(request(one, concurrency=2, samples=4)) for one in ids))
    await until(lambda: model.calls > calls)
    await asyncio.gather(*(evaluation.cancel_evaluation(one) for one in (*ids, *ids)))

    async def cancelled() -> bool:
        # The answer to a cancel does not wait for ever: on a busy machine it may say that one still runs.
        found = await asyncio.gather(*(evaluation.get_evaluation(one) for one in ids))
        return {one.state for one in found} == {EvaluationState.CANCELLED}

    await until(cancelled)


@pytest.mark.parametrize("cancelled", [1_000, pytest.param(10_000, marks=pytest.mark.torture)])
async def test_cancelled_evaluations_leave_nothing_behind(tmp_path, cancelled):
    """No task, thread, file, child or model call is left of them, and no file beside the journal."""
    model = ScriptedModel(latency=SLOW_SECONDS)
    limits = WorkerLimits(max_running_evaluations=8)
    async with run_worker({"m": model}, state_dir=tmp_path, limits=limits) as worker:
        await _start_and_cancel(worker, model, 0)
        await _fill_pools(worker)
        await until(lambda: model.counts["in_flight"] == 0)
        before = _held()
        for batch in range(1, cancelled // TOGETHER + 1):
            await _start_and_cancel(worker, model, batch)
        await until(lambda: model.counts["in_flight"] == 0)
        # What was answered a moment ago may still be on its way out of the loop.
        await until(lambda: _holds_no_more(before))
        info = await worker.bridge.worker.get_info()
        assert (info.running, info.queued) == (0, 0)
        assert _files_but_the_journals(tmp_path) == []
    assert _files_but_the_journals(tmp_path) == []


async def test_callers_that_go_away_leave_nothing_behind(tmp_path):
    """Watches, subscriptions and waiting calls that their callers drop are gone from the worker."""
    model = ScriptedModel(latency=SLOW_SECONDS)
    async with run_worker({"m": model}, state_dir=tmp_path) as worker:
        await worker.bridge.evaluation.start_evaluation(request("one", concurrency=2))
        await until(lambda: model.counts["in_flight"] == 2)

        async def come_and_go() -> None:
            waiting = asyncio.create_task(worker.bridge.evaluation.evaluate(request("one", concurrency=2)))
            async with (
                worker.bridge.evaluation.watch_evaluation("one") as watch,
                worker.bridge.telemetry.subscribe() as log,
            ):
                await anext(watch)
                await anext(log)
            waiting.cancel()
            await asyncio.wait([waiting])

        await asyncio.gather(*(come_and_go() for _ in range(10)))
        await _fill_pools(worker)
        before = _held()
        for _ in range(10):
            await asyncio.gather(*(come_and_go() for _ in range(10)))
        await until(lambda: _holds_no_more(before))
        stands = await worker.bridge.evaluation.get_evaluation("one")
        assert stands.state is EvaluationState.RUNNING
