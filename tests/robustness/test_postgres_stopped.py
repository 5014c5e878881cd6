"""Workers of a PostgreSQL journal that are stopped for longer than their lease: they wake up, and write nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState, SamplingParams
from tests.robustness.evidence import bits, check_events, check_interrupted_run, log_of, request
from tests.robustness.harness import WorkerProcess, Workshop, until, workshop
from tests.service.follow_kit import FOUND, QUESTIONS, RELEASED, save

pytestmark = pytest.mark.postgres

ROOT = Path(__file__).parents[2]
SAMPLES = 100
WAIT_SECONDS = 90.0
"""For something to happen on a machine that has other things to do; a bound, not an expectation."""


@contextlib.asynccontextmanager
async def _pool(folder: Path, journal: str, **fields: Any) -> AsyncIterator[Workshop]:
    """A workshop of workers, each with a state directory of its own."""
    async with workshop(folder, {"m": {"latency": 0.05}, "fast": {}}, seconds=240, journal=journal, **fields) as shop:
        yield shop


async def _start(shop: Workshop) -> WorkerProcess:
    shop.state_dir = shop.folder / f"machine-{len(shop.workers)}"
    return await shop.start()


def _rows(url: str, sql: str) -> list[Any]:
    import psycopg

    with psycopg.connect(url, options="-c search_path=crucible_bridge") as connection:
        return connection.execute(sql.encode()).fetchall()


async def test_a_stopped_owner_writes_nothing_of_its_evaluation(tmp_path, postgres_server):
    """Another worker finishes it as if nothing had happened; the stopped one wakes up, and evaluates other things."""
    url = postgres_server.new_database()
    async with _pool(tmp_path, url) as shop:
        owner, other = await _start(shop), await _start(shop)
        wanted = request("e", samples=SAMPLES, concurrency=8)
        await owner.bridge.evaluation.start_evaluation(wanted)
        await until(lambda: _done(other, "e"), WAIT_SECONDS)
        with owner.stopped():
            ended = await other.bridge.evaluation.evaluate(wanted)
            assert (ended.state, ended.attempt) == (EvaluationState.COMPLETED, 2)
            before = await log_of(other.bridge)
        # Its first transaction after that begins another session; what it had begun to write comes before this call.
        again = await owner.bridge.evaluation.evaluate(request("later", samples=SAMPLES))
        log = await log_of(other.bridge)
        check_events(log)
        assert log[: len(before)] == before
        assert {event.evaluation_id for event in log[len(before) :]} == {"later"}
        assert await owner.bridge.evaluation.get_evaluation("e") == ended
        assert bits(ended.metrics) == bits(again.metrics)
        check_interrupted_run(log, ended, SAMPLES)


async def _done(worker: WorkerProcess, evaluation_id: str) -> bool:
    return (await worker.bridge.evaluation.get_evaluation(evaluation_id)).done > 20


async def test_a_stopped_writer_of_a_log_file_leaves_the_file_of_another_as_it_is(tmp_path, postgres_server):
    """Stopped in the middle of a file in a folder that workers share: another one writes it, and that stands."""
    url, folder = postgres_server.new_database(), tmp_path / "logs"
    async with _pool(tmp_path, url, log_dir=folder) as shop:
        first, second = await _start(shop), await _start(shop)
        await first.bridge.evaluation.evaluate(request("e", model="embedded:fast", samples=300, concurrency=64))
        await until(lambda: list(folder.glob(".*.eval.*.part")) or list(folder.glob("*.eval")), WAIT_SECONDS)
        sql = "SELECT file, problem FROM log_files WHERE file IS NOT NULL"
        with first.stopped():
            caught = not _rows(url, sql)
            # The look for missing files comes with the end of an evaluation, once the lease is over.
            number = 0
            while not _rows(url, sql + " AND number = 1"):
                number += 1
                await second.bridge.evaluation.evaluate(request(f"other-{number}", model="embedded:fast", samples=1))
                await asyncio.sleep(0.5)
            await until(lambda: len(_rows(url, sql)) == number + 1, WAIT_SECONDS)  # those of all that have ended
            files = {path: path.stat().st_ino for path in folder.glob("*.eval")}
            rows = _rows(url, "SELECT number, file, problem FROM log_files ORDER BY number")
        await first.bridge.evaluation.evaluate(request("later", model="embedded:fast", samples=1))
        await until(lambda: len(_rows(url, sql)) == len(rows) + 1, WAIT_SECONDS)
        print("stopped in the middle of the file" if caught else "stopped after the file")
        assert {path: path.stat().st_ino for path in files} == files
        assert _rows(url, "SELECT number, file, problem FROM log_files ORDER BY number")[: len(rows)] == rows
        assert list(folder.glob(".*.part")) == []


@contextlib.asynccontextmanager
async def _followers(folder: Path, journal: str) -> AsyncIterator[list[WorkerProcess]]:
    """Two workers that follow runs below the folder's models."""
    workers: list[WorkerProcess] = []
    try:
        for number in range(2):
            ready_file, log_file = folder / f"ready-{number}", folder / f"worker-{number}.log"
            configuration = {
                "ready_file": str(ready_file),
                "state_dir": str(folder / f"machine-{number}"),
                "journal": journal,
                "root": str(folder / "models"),
                "latency": 0.05,
            }
            with log_file.open("wb") as log:
                process = subprocess.Popen(
                    [sys.executable, "-m", "tests.robustness.follow_worker", json.dumps(configuration)],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            workers.append(await WorkerProcess(process, ready_file, log_file).ready())
        yield workers
    finally:
        for worker in workers:
            await worker.close()


async def test_a_stopped_follower_leaves_the_run_to_another_one(tmp_path, postgres_server):
    """Its successor finds, evaluates and releases each checkpoint once; it wakes up, says so, and stands back."""
    run = tmp_path / "models" / "run"
    run.mkdir(parents=True)
    async with _followers(tmp_path, postgres_server.new_database()) as (first, second), asyncio.timeout(240):
        await first.bridge.follow(
            "run", evaluators=["accuracy"], dataset=QUESTIONS, sampling=SamplingParams(max_tokens=8)
        )

        async def released(worker: WorkerProcess, count: int) -> bool:
            return [event.kind for event in await log_of(worker.bridge)].count(RELEASED) == count

        save(run, 1)
        await until(lambda: released(first, 1), WAIT_SECONDS)
        with first.stopped():
            save(run, 2)
            await until(lambda: released(second, 1 + 1), WAIT_SECONDS)
        save(run, 3)
        await until(lambda: released(second, 1 + 2), WAIT_SECONDS)
        await until(lambda: "follow_lost" in first.log_file.read_text(), WAIT_SECONDS)
        log = await log_of(second.bridge)
        names = [event.metadata["name"] for event in log if event.kind is FOUND]
        assert names == [f"checkpoint-{step}" for step in (1, 2, 3)]
        starts = [event.evaluation_id for event in log if event.kind is EventKind.EVALUATION_START]
        assert starts == [f"run-step-{step}-0" for step in (1, 2, 3)]
        assert list((run / ".crucible").glob("*/*")) == []
        assert [one.pid for one in (first, second) if "Traceback" in one.log_file.read_text()] == []
