"""The database of a PostgreSQL journal goes away and comes back: work and streams continue, and calls wait."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import Unavailable
from crucible_bridge.events import Event
from crucible_bridge.types import Evaluation, EvaluationState
from tests.postgres_server import PostgresServer, running_server
from tests.robustness.evidence import bits, check_events, check_interrupted_run, log_of, request
from tests.robustness.harness import WorkerProcess, Workshop, until, workshop

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("postgres_server")]

SAMPLES = 150
WORKERS = 3
SHORT_SECONDS = 2.0
"""Of an outage that everything outlasts."""
LONG_SECONDS = 34.0
"""Of one that nothing waits for to its end."""
WAIT_SECONDS = 90.0
"""For something to happen on a machine that has other things to do; a bound, not an expectation."""
LINES = 2
"""That a worker may log of one kind in an outage."""


@contextlib.asynccontextmanager
async def _pool(folder: Path) -> AsyncIterator[tuple[PostgresServer, Workshop, list[WorkerProcess]]]:
    """A server of this test alone, and workers with a state directory each."""
    with running_server() as server:
        url = server.new_database()
        async with workshop(folder, {"m": {"latency": 0.05}}, seconds=240, journal=url) as shop:
            launched = []
            for number in range(WORKERS):
                shop.state_dir = folder / f"machine-{number}"
                launched.append(shop.launch())
            yield server, shop, [await worker.ready() for worker in launched]


async def _outage(server: PostgresServer, how: signal.Signals, seconds: float) -> None:
    await asyncio.to_thread(server.stop, how)
    await asyncio.sleep(seconds)
    await asyncio.to_thread(server.start)


async def _read_on(read: Callable[[], Awaitable[Any]], over: asyncio.Event) -> float:
    """Read again and again until it is over; returns how long the slowest answer took."""
    slowest = 0.0
    while not over.is_set():
        began = time.monotonic()
        await read()
        slowest = max(slowest, time.monotonic() - began)
        await asyncio.sleep(0.05)
    return slowest


async def _all_events(worker: WorkerProcess, through: asyncio.Future[int]) -> list[Event]:
    """The events of one subscription, which is never opened again, up to a sequence that is told later."""
    found = []
    async with worker.bridge.telemetry.subscribe() as stream:
        async for event in stream:
            found.append(event)
            if through.done() and event.sequence >= through.result():
                break
    return found


async def _watched(worker: WorkerProcess, evaluation_id: str) -> list[Event]:
    async with worker.bridge.evaluation.watch_evaluation(evaluation_id) as stream:
        return [event async for event in stream]


@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGINT], ids=["crash", "restart"])
async def test_work_and_streams_go_on_when_the_database_is_away_for_some_seconds(tmp_path, how):
    """No evaluation is interrupted, no stream is cut, and no call that reads fails: all of them wait."""
    async with _pool(tmp_path) as (server, _, workers):
        ids = [f"e{number}" for number in range(WORKERS)]
        for worker, evaluation_id in zip(workers, ids):
            await worker.bridge.evaluation.start_evaluation(request(evaluation_id, samples=SAMPLES, concurrency=4))
        through = asyncio.get_running_loop().create_future()
        over = asyncio.Event()
        async with asyncio.TaskGroup() as work:
            subscribed = [work.create_task(_all_events(worker, through)) for worker in workers]
            watched = [work.create_task(_watched(workers[(n + 1) % WORKERS], each)) for n, each in enumerate(ids)]
            waiting = [
                work.create_task(workers[(n + 2) % WORKERS].bridge.evaluation.evaluate(request(each, samples=SAMPLES)))
                for n, each in enumerate(ids)
            ]
            evaluations = [worker.bridge.evaluation for worker in workers]
            reading = [
                work.create_task(_read_on(lambda: evaluations[0].list_evaluations(), over)),
                work.create_task(_read_on(lambda: evaluations[1].get_evaluation("e0"), over)),
                work.create_task(_read_on(lambda: evaluations[2].get_samples("e1"), over)),
                work.create_task(_read_on(workers[0].bridge.worker.get_info, over)),
            ]
            for done in (SAMPLES // 4, SAMPLES):
                await until(lambda done=done: _done(workers[0], ids, done), WAIT_SECONDS)
                await _outage(server, how, SHORT_SECONDS)
            ended: list[Evaluation] = await asyncio.gather(*waiting)
            over.set()
            log = await log_of(workers[0].bridge)
            through.set_result(log[-1].sequence)
            # A subscriber that has read it all already waits for one more.
            await workers[0].bridge.evaluation.evaluate(request("last", samples=1))
        log = await log_of(workers[0].bridge)
        check_events(log)
        print(f"slowest answers {[round(task.result(), 1) for task in reading]} s")
        for evaluation in ended:
            assert (evaluation.state, evaluation.attempt) == (EvaluationState.COMPLETED, 1)
            assert bits(evaluation.metrics) == bits(ended[0].metrics)
            check_interrupted_run(log, evaluation, SAMPLES)
        for task in subscribed:
            assert task.result() == log[: len(task.result())]
        for evaluation, task in zip(ended, watched):
            wanted = [event for event in log if event.evaluation_id == evaluation.evaluation_id]
            assert task.result() == wanted
        for worker in workers:
            _check_log(worker, outages=2)


async def _is_not_serving(worker: WorkerProcess) -> bool:
    return not await worker.is_serving()


async def _done(worker: WorkerProcess, ids: list[str], count: int) -> bool:
    found = [await worker.bridge.evaluation.get_evaluation(each) for each in ids]
    return all(each.done >= count for each in found)


async def _is_written(workers: list[WorkerProcess]) -> bool:
    """Whether every worker has written since: its services serve."""
    return all([await worker.is_serving() for worker in workers])


def _check_log(worker: WorkerProcess, *, outages: int) -> None:
    """A worker says each thing once in an outage, however often it tries."""
    text = worker.log_file.read_text()
    entries = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    said = collections.Counter(entry["event"] for entry in entries if entry["level"] != "info")
    print(worker.log_file.name, dict(said))
    assert {"database_lost", "news_lost"} <= said.keys()
    assert all(count <= LINES * outages for count in said.values()), said
    assert "Traceback" not in text


async def test_a_long_outage_is_refused_in_few_words_and_over_by_itself(tmp_path):
    """Calls are refused after some seconds, evaluations are interrupted; when it is back all of it continues."""
    async with _pool(tmp_path) as (server, _, workers):
        wanted = request("e", samples=SAMPLES, concurrency=4)
        await workers[0].bridge.evaluation.start_evaluation(wanted)
        await until(lambda: _done(workers[0], ["e"], SAMPLES // 4), WAIT_SECONDS)
        await asyncio.to_thread(server.stop, signal.SIGQUIT)
        began = time.monotonic()
        refusals = []
        while time.monotonic() - began < LONG_SECONDS:
            for worker in workers:
                try:
                    await worker.bridge.evaluation.list_evaluations()
                except Unavailable as error:
                    refusals.append((error.reason, error.retryable))
            await asyncio.sleep(0.2)
        await until(lambda: _is_not_serving(workers[0]), WAIT_SECONDS)
        await asyncio.to_thread(server.start)
        assert set(refusals) == {("JOURNAL_UNREADABLE", True)}
        await until(lambda: _is_written(workers), WAIT_SECONDS)
        ended = await workers[1].bridge.evaluation.evaluate(wanted)
        whole = await workers[2].bridge.evaluation.evaluate(request("whole", samples=SAMPLES))
        assert ended.attempt == 2
        assert bits(ended.metrics) == bits(whole.metrics)
        log = await log_of(workers[2].bridge)
        check_events(log)
        check_interrupted_run(log, ended, SAMPLES)
        for worker in workers:
            _check_log(worker, outages=1)
