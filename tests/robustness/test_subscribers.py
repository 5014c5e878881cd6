"""Subscribers that come and go, at workers that come and go, see every event once and in order."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import random
from collections.abc import Sequence

import pytest

from crucible_bridge.errors import Cancelled, Unavailable
from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import EvaluationState
from tests.robustness.evidence import check_events, log_of, request
from tests.robustness.harness import WorkerProcess, Workshop, workshop

SUBSCRIBERS = 10
"""That listen at once; every second one wants the ends of evaluations only."""
STAY_SECONDS = 0.25
"""A subscriber leaves after this at most."""
STAY_EVENTS = 2_000
"""Likewise after so many events, mostly in the middle of a batch."""
ENDS = (EventKind.EVALUATION_COMPLETE, EventKind.EVALUATION_STOP, EventKind.EVALUATION_INTERRUPT)
SAMPLES = 100
KILLS = 3
"""At least."""
EVALUATIONS = 2
"""At work at any time."""


class Crowd:
    """A pool of which a worker is killed and replaced now and then, and evaluations that it is never without."""

    def __init__(self, shop: Workshop, pool: list[WorkerProcess], rng: random.Random) -> None:
        self.pool = pool
        self.rng = rng
        self.kills = 0
        self._shop = shop
        self._started = 0
        self._over = False

    async def evaluate(self) -> None:
        """Run one evaluation after the other until it is over, at whichever worker lives."""
        while not self._over:
            self._started += 1
            wanted = request(f"e{self._started}", samples=SAMPLES)
            ended = None
            while ended is None:
                with contextlib.suppress(Unavailable):
                    ended = await self.anyone().bridge.evaluation.evaluate(wanted)
            assert ended.state is EvaluationState.COMPLETED

    async def kill(self) -> None:
        """Kill one worker after the other, each once its replacement is ready."""
        while not self._over:
            replacement = await self._shop.start()
            victim = self.pool.pop(self.rng.randrange(len(self.pool)))
            self.pool.append(replacement)
            victim.kill()
            self.kills += 1

    def anyone(self) -> WorkerProcess:
        """A worker that lives, as far as anybody knows."""
        return self.rng.choice(self.pool)

    def end(self) -> None:
        """Let what runs come to its end."""
        self._over = True


@dataclasses.dataclass
class Subscriber:
    """One that keeps its position between calls, and nothing else."""

    crowd: Crowd
    kinds: Sequence[EventKind]
    events: list[Event] = dataclasses.field(default_factory=list)
    position: int = 0
    log_id: str | None = None
    cut: int = 0
    """How often its worker died under it."""

    @property
    def has_seen_trouble(self) -> bool:
        """Whether workers died meanwhile, one of them with an evaluation."""
        return self.crowd.kills >= KILLS and any(event.kind is EventKind.EVALUATION_INTERRUPT for event in self.events)

    async def come_and_go(self, times: int) -> None:
        """Listen for a while at a random worker, leave, and go on at another one; so often at least."""
        while times > 0 or not self.has_seen_trouble:
            times -= 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.crowd.rng.uniform(0, STAY_SECONDS)):
                    await self._listen(until_now=False)

    async def catch_up(self) -> None:
        """Read on to the log's end."""
        await self._listen(until_now=True)

    async def _listen(self, *, until_now: bool) -> None:
        bridge = self.crowd.anyone().bridge
        stream = bridge.telemetry.subscribe(self.position, self.log_id, self.kinds, until_now=until_now)
        try:
            async with stream:
                most = math.inf if until_now else self.crowd.rng.randrange(STAY_EVENTS)
                async for event in stream:
                    self.events.append(event)
                    if (most := most - 1) < 0:
                        break
        except (Unavailable, Cancelled):
            self.cut += 1
        finally:
            self.position, self.log_id = stream.through_sequence, stream.log_id


@pytest.mark.parametrize("disconnects", [200, pytest.param(4000, marks=pytest.mark.torture)])
async def test_subscribers_that_come_and_go_miss_nothing(tmp_path, disconnects):
    """Every event once, in order, across disconnects, deaths of workers and take-overs; filtered streams likewise."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    async with workshop(tmp_path, {"m": {"latency": 0.01}}, seconds=300 + disconnects) as shop:
        crowd = Crowd(shop, await shop.start_several(3), random.Random(seed))
        subscribers = [Subscriber(crowd, ENDS if number % 2 else ()) for number in range(SUBSCRIBERS)]
        async with asyncio.TaskGroup() as work:
            for _ in range(EVALUATIONS):
                work.create_task(crowd.evaluate())
            work.create_task(crowd.kill())
            await asyncio.gather(*(subscriber.come_and_go(disconnects // SUBSCRIBERS) for subscriber in subscribers))
            crowd.end()
        for subscriber in subscribers:
            await subscriber.catch_up()
        log = await log_of(crowd.anyone().bridge)
        check_events(log)
        ends = [event for event in log if event.kind in ENDS]
        cuts = sum(subscriber.cut for subscriber in subscribers)
        print(f"{len(log)} events, {crowd.kills} kills, {cuts} cut")
        for subscriber in subscribers:
            assert subscriber.events == (ends if subscriber.kinds else log)
