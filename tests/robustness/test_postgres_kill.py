"""Three workers of one PostgreSQL journal are killed, stopped and replaced, and its database crashes in the middle.

`pytest -m "postgres and torture" tests/robustness/test_postgres_kill.py -s` has the whole scale. SCALE_EVALUATIONS,
SCALE_KILLS and SCALE_STOPS in the environment make it another one; SCALE_SEED repeats the choices of a run.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import random
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import BridgeError
from crucible_bridge.events import Event
from crucible_bridge.types import Evaluation, EvaluationState
from tests.postgres_server import PostgresServer, running_server
from tests.robustness.evidence import bits, check_events, check_interrupted_run, log_of, request, samples_of
from tests.robustness.harness import WorkerProcess, Workshop, workshop

pytestmark = [pytest.mark.postgres, pytest.mark.usefixtures("postgres_server")]

WORKERS = 3
MODELS = {"m": {"latency": 0.05}}
SAMPLES = 60
CONCURRENCY = 2
"""An evaluation takes 3 s while nobody disturbs it: it meets a kill or two."""
LIFE_SECONDS = 1.5
"""A worker is killed at some moment of this time after the last one was replaced, and an evaluation was begun."""
STOPPED_SECONDS = 6.5
"""A stopped worker sleeps for longer than its lease."""
PATIENCE_SECONDS = 10.0
"""A caller leaves a worker that has not answered for so long, and goes to another one."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much happens."""

    evaluations: int
    kills: int
    stops: int


SHORT = Scale(evaluations=12, kills=10, stops=1)
WHOLE = Scale(
    evaluations=int(os.environ.get("SCALE_EVALUATIONS", "100")),
    kills=int(os.environ.get("SCALE_KILLS", "100")),
    stops=int(os.environ.get("SCALE_STOPS", "20")),
)


class Pool:
    """Workers in places, each place with a folder of its own: one that is killed is replaced in its place."""

    def __init__(self, shop: Workshop, server: PostgresServer, scale: Scale, rng: random.Random) -> None:
        self._shop, self._server, self._scale, self._rng = shop, server, scale, rng
        self.workers: list[WorkerProcess] = []
        self.rounds, self.kills, self.stops = 0, 0, 0
        self._changed = asyncio.Condition()
        self._asleep: set[int] = set()
        self._asked = 0

    async def begin(self) -> None:
        """Start a worker in each place."""
        launched = [self._launch(place) for place in range(WORKERS)]
        self.workers = [await worker.ready() for worker in launched]

    def anyone(self) -> WorkerProcess:
        """A worker, which may be asleep or die at any moment."""
        self._asked = self._rng.randrange(WORKERS)
        return self.workers[self._asked]

    async def until_round(self, number: int) -> None:
        """Wait until the worker of a round is going to be killed."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.rounds > number)

    async def disturb(self) -> None:
        """Kill workers one after the other, and stop some in between; in the middle, the database crashes."""
        every = max(1, self._scale.kills // max(1, self._scale.stops))
        async with asyncio.TaskGroup() as sleeps:
            for number in range(self._scale.kills):
                if number % every == every - 1 and self.stops < self._scale.stops:
                    sleeps.create_task(self._put_to_sleep())
                async with self._changed:
                    self.rounds += 1
                    self._changed.notify_all()
                await asyncio.sleep(self._rng.uniform(0, LIFE_SECONDS))
                # Half of them are of the worker that has begun an evaluation just now.
                awake = [place for place in range(WORKERS) if place not in self._asleep]
                aimed = number % 2 == 0 and self._asked in awake
                await self._kill(self._asked if aimed else self._rng.choice(awake))
                if number == self._scale.kills // 2:
                    await asyncio.to_thread(self._server.stop, signal.SIGQUIT)
                    await asyncio.to_thread(self._server.start)

    async def _kill(self, place: int) -> None:
        spare = self._launch(place, standby=True)
        self.workers[place].kill()
        self.kills += 1
        self.workers[place] = await spare.ready()

    async def _put_to_sleep(self) -> None:
        if len(self._asleep) == WORKERS - 1:
            return
        place = self._rng.choice([place for place in range(WORKERS) if place not in self._asleep])
        self._asleep.add(place)
        self.stops += 1
        with self.workers[place].stopped():
            await asyncio.sleep(STOPPED_SECONDS)
        self._asleep.discard(place)

    def _launch(self, place: int, *, standby: bool = False) -> WorkerProcess:
        self._shop.state_dir = self._shop.folder / f"machine-{place}"
        return self._shop.launch(standby=standby)


async def _evaluated(pool: Pool, evaluation_id: str) -> Evaluation:
    """The result of an evaluation, whichever worker gives it."""
    wanted = request(evaluation_id, samples=SAMPLES, concurrency=CONCURRENCY)
    while True:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await pool.anyone().bridge.evaluation.evaluate(wanted)
        except TimeoutError:
            pass
        except BridgeError as error:
            if not error.retryable:
                raise
            await asyncio.sleep(0.05)


class Subscriber:
    """Reads the log at the workers of one place alone, and keeps nothing but its position."""

    def __init__(self, pool: Pool, place: int) -> None:
        self._pool, self._place = pool, place
        self.events: list[Event] = []
        self.cuts = 0
        self._position, self._log_id = 0, None

    async def listen(self) -> None:
        """Read on until cancelled."""
        while True:
            await self._read(until_now=False)
            self.cuts += 1
            await asyncio.sleep(0.02)

    async def catch_up(self, end: int) -> None:
        """Read to the log's end, of which the workers of this place may not have heard yet."""
        while self._position < end:
            await self._read(until_now=True)
            await asyncio.sleep(0.02)

    async def _read(self, *, until_now: bool) -> None:
        bridge = self._pool.workers[self._place].bridge
        stream = bridge.telemetry.subscribe(self._position, self._log_id, (), until_now=until_now)
        try:
            async with stream:
                async for event in stream:
                    self.events.append(event)
        except BridgeError as error:
            if not error.retryable:
                raise
        finally:
            self._position, self._log_id = stream.through_sequence, stream.log_id


async def _undisturbed(folder: Path) -> tuple[dict[str, str], list[Any]]:
    """Metrics to the last bit, and samples, of one worker with a journal in SQLite that nobody disturbs."""
    folder.mkdir()
    async with workshop(folder, MODELS) as shop:
        worker = await shop.start()
        whole = await worker.bridge.evaluation.evaluate(request("whole", samples=SAMPLES))
        return bits(whole.metrics), await samples_of(worker.bridge, "whole")


@contextlib.asynccontextmanager
async def _shop(folder: Path, seconds: float) -> AsyncIterator[tuple[PostgresServer, Workshop]]:
    """A server of this test alone, and a workshop of workers of a journal in it."""
    with running_server() as server:
        async with workshop(folder, MODELS, seconds=seconds, journal=server.new_database()) as shop:
            yield server, shop


@pytest.mark.parametrize("scale", [SHORT, pytest.param(WHOLE, marks=pytest.mark.torture)], ids=["short", "whole"])
async def test_nothing_is_lost_or_doubled_by_kills_and_stops(tmp_path, scale):
    """Every evaluation ends once, as one that nobody disturbed; every subscriber sees every event once, in order."""
    seed = int(os.environ.get("SCALE_SEED", "0")) or random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    metrics, samples = await _undisturbed(tmp_path / "undisturbed")
    began = time.monotonic()
    async with _shop(tmp_path, seconds=200 + 15 * scale.kills) as (server, shop):
        pool = Pool(shop, server, scale, random.Random(seed))
        await pool.begin()
        subscribers = [Subscriber(pool, place) for place in range(WORKERS)]

        async def evaluated(number: int) -> Evaluation:
            # Evaluations begin while kills go on, so that each kill meets some.
            await pool.until_round(number * scale.kills // scale.evaluations)
            return await _evaluated(pool, f"e{number}")

        async with asyncio.TaskGroup() as work:
            listening = [work.create_task(subscriber.listen()) for subscriber in subscribers]
            disturbing = work.create_task(pool.disturb())
            ended = await asyncio.gather(*(evaluated(number) for number in range(scale.evaluations)))
            await disturbing
            for task in listening:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        took = time.monotonic() - began
        end = max(one.last_sequence for one in ended)
        bridge = pool.anyone().bridge
        async with asyncio.timeout(60):
            for subscriber in subscribers:
                await subscriber.catch_up(end)
            while len(log := await log_of(bridge)) < end:
                await asyncio.sleep(0.02)
        check_events(log)
        print(
            f"{scale.evaluations} evaluations, {pool.kills} kills, {pool.stops} stops, {took:.0f} s: "
            f"{sum(one.attempt - 1 for one in ended)} interruptions, {len(log)} events, "
            f"{sum(subscriber.cuts for subscriber in subscribers)} cut streams"
        )
        assert max(one.attempt for one in ended) > 1, "no kill hit"
        for evaluation in ended:
            assert evaluation.state is EvaluationState.COMPLETED
            check_interrupted_run(log, evaluation, SAMPLES)
            assert bits(evaluation.metrics) == metrics
            assert await samples_of(bridge, evaluation.evaluation_id) == samples
        for subscriber in subscribers:
            assert [event.sequence for event in subscriber.events] == list(range(1, len(log) + 1))
            assert subscriber.events == log
