"""A model of one pool by discrete events: workers that share evaluations, with one journal in PostgreSQL.

What it assumes:

- An event loop is one server. All samples that end until it is free are one iteration, and one submission to the
  writer. It shares its interpreter with the writer's thread.
- A writer commits what has gathered, in transactions that hold the lock of the head's row one after the other, first
  come, first served. A lock that was waited for is handed over with a delay.
- A transaction costs a fixed time, and more for each submission, event, leased part and finished part. Of that time a
  share is CPU of the worker, a share is CPU of the database, and the rest needs no core.
- Each commit notifies every worker. What else a worker does meanwhile costs CPU at a constant rate.
- An event loop that has nothing to do wakes up to a millisecond late for a sample.
- The model server has no limit: each of its answers takes the same time.
- The network takes no time beyond what was measured, and nothing fails.
- A core is shared in turns of a millisecond.
"""

from __future__ import annotations

import bisect
import collections
import contextlib
import dataclasses
import itertools
import math
import random
from collections.abc import Generator, Iterator, Sequence
from typing import Any, TypeAlias

import simpy

from crucible_worker.engine.helping import OFFER_PAUSE_SECONDS
from crucible_worker.engine.sampling import MAX_UNWRITTEN
from crucible_worker.journal.parts import MAX_PART, size_of
from crucible_worker.journal.postgres.store import BEAT_SECONDS
from crucible_worker.journal.writer import MAX_BATCH

__all__ = ["Commit", "Cpu", "Outcome", "Parameters", "Pool", "simulate", "waited"]

TURN_SECONDS = 0.001
"""How long a core works for one thread before the next one has its turn."""
TIMER_SECONDS = 0.001
"""Timers of an event loop that waits are rounded up to a multiple of it: epoll counts milliseconds."""
BACKGROUND_SECONDS = 0.05
"""How often a worker does what is neither a sample's nor a commit's."""

Steps: TypeAlias = Generator[simpy.Event, Any, None]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """CPU seconds that something costs."""

    worker: float = 0.0
    """Of each worker."""
    database: float = 0.0
    """Of the database, for each worker."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What is measured. Times are seconds; a default of 0 costs nothing."""

    latency: float
    """Of the model server."""
    loop_sample: float = 0.0
    """CPU of a worker's event loop, for a sample."""
    apart: float = 0.0
    """Between the starts of samples that one iteration of the loop starts."""
    begin: float = 0.0
    """From the begin of a transaction until it has the lock, if no other worker has it."""
    transaction: float = 0.0
    """Under the lock, for a transaction."""
    submission: float = 0.0
    """The same, for a submission of it."""
    event: float = 0.0
    """The same, for a sample's result and event."""
    lease: float = 0.0
    """The same, for a part that is leased."""
    part_end: float = 0.0
    """The same, for a part that is done."""
    worker_share: float = 0.0
    """Share of that time which is CPU of the worker."""
    database_share: float = 0.0
    """Share of that time which is CPU of the database."""
    spread: float = 0.0
    """Standard deviation of that time's logarithm."""
    handover: Sequence[tuple[int, float]] = ((0, 0.0),)
    """From the end of a transaction until the next one has the lock, by the number of those that wait for it."""
    note: Cpu = Cpu()
    """For each worker that is notified of a commit."""
    background: float = 0.0
    """CPU of a worker's event loop in each second, whatever it runs."""
    timer: float = TIMER_SECONDS
    """By how much an event loop that waits is late at most."""
    start: float = 0.0
    """From the call until the lead begins to lease."""
    finish: float = 0.0
    """From the last commit of a sample until the reply, without what each sample costs."""
    finish_sample: float = 0.0
    """The same, for each sample of the evaluation."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Who works where."""

    workers: int
    concurrency: int = 32
    """Samples at work at each worker."""
    host_cores: int = 2
    """Cores of each host of workers."""
    workers_per_host: int = 1
    database_cores: int | None = 2
    """Cores of the database's host; None if it is on the first host of workers."""
    other_cores: float = 0.0
    """Cores of the first host that other programs use."""


@dataclasses.dataclass(frozen=True, slots=True)
class Commit:
    """A transaction, in seconds from the beginning."""

    asked: float
    """When it began."""
    locked: float
    """When it had the lock."""
    released: float
    """When it was committed."""
    submissions: int
    events: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it, in the window that counts."""

    seconds: float
    """From the call to the reply, or the length of the window."""
    samples: int
    """Committed results."""
    commits: Sequence[Commit]
    lock: float
    """Share of time in which the lock was held or handed over."""
    interpreter: float
    """Share of time in which the busiest worker's interpreter was."""
    host: float
    """Share of the cores that were busy at the busiest host of workers."""
    database: float
    """The same, of the database's host."""

    @property
    def rate(self) -> float:
        """Samples a second, each with its event."""
        return self.samples / self.seconds

    @property
    def utilisations(self) -> dict[str, float]:
        """What can be the bottleneck, by its name."""
        return {
            "the head row's lock": self.lock,
            "a worker's interpreter": self.interpreter,
            "the cores of a worker's host": self.host,
            "the cores of the database": self.database,
        }


def waited(commits: Sequence[Commit], share: float) -> float:
    """Quantile of the time from the begin of a transaction until it had the lock; NaN without a transaction."""
    waits = sorted(one.locked - one.asked for one in commits)
    return waits[max(0, math.ceil(share * len(waits)) - 1)] if waits else math.nan


def simulate(
    parameters: Parameters,
    pool: Pool,
    *,
    samples: int | None = None,
    window: tuple[float, float] = (0.0, math.inf),
    seed: int = 0,
) -> Outcome:
    """Simulate one evaluation.

    Args:
        parameters: what was measured.
        pool: who works.
        samples: of the evaluation, until the reply; None if it has no end, and the window ends the simulation.
        window: seconds between which is counted; without `samples`.
        seed: the same seed has the same result.
    """
    if samples is None and math.isinf(window[1]):
        raise ValueError("an evaluation without an end needs a window that ends")
    return _Simulation(parameters, pool, samples, window, random.Random(seed)).outcome()


class _Busy:
    """A resource that counts for how long its places are taken, within a window."""

    def __init__(self, env: simpy.Environment, places: int, window: tuple[float, float]) -> None:
        self._env, self._window = env, window
        self.places = places
        self.resource = simpy.Resource(env, places)
        self._seconds, self._since = 0.0, list[float]()

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """A place is taken until the block is left."""
        since = self._env.now
        self._since.append(since)
        yield
        self._since.remove(since)
        self._seconds += self._within(since)

    def share(self, seconds: float) -> float:
        """Share of its places that were taken, of so many seconds."""
        return (self._seconds + sum(map(self._within, self._since))) / self.places / seconds

    def _within(self, since: float) -> float:
        begin, end = self._window
        return max(0.0, min(self._env.now, end) - max(since, begin))

    def work(self, seconds: float) -> Steps:
        """Take a place in turns, until so much is done."""
        while seconds > 0:
            turn = min(seconds, TURN_SECONDS)
            with self.resource.request() as place:
                yield place
                with self.taken():
                    yield self._env.timeout(turn)
            seconds -= turn


class _Simulation:
    """The pool, its lock, its parts and its database."""

    def __init__(
        self,
        parameters: Parameters,
        pool: Pool,
        samples: int | None,
        window: tuple[float, float],
        chance: random.Random,
    ) -> None:
        self.env = env = simpy.Environment()
        self.parameters, self.pool, self.window, self.chance = parameters, pool, window, chance
        self._samples = samples
        self.lock = _Busy(env, 1, window)
        count = math.ceil(pool.workers / pool.workers_per_host)
        self._hosts = [_Busy(env, pool.host_cores, window) for _ in range(count)]
        cores = pool.database_cores
        self.database = self._hosts[0] if cores is None else _Busy(env, cores, window)
        for _ in range(math.ceil(pool.other_cores)):
            env.process(self._other_program(pool.other_cores / math.ceil(pool.other_cores)))
        self._parts = _parts(samples)
        self._committed, self.all_committed = 0, env.event()
        self.commits: list[Commit] = []
        self.workers = [
            _Worker(self, index, self._hosts[index // pool.workers_per_host]) for index in range(pool.workers)
        ]

    def outcome(self) -> Outcome:
        """Simulate, and count."""
        begin, end = self.window
        if self._samples is None:
            self.env.run(until=end)
            seconds = end - begin
        else:
            self.env.run(until=self.all_committed)
            finish = self.parameters.finish + self._samples * self.parameters.finish_sample
            self.env.run(until=self.env.timeout(finish))
            begin, end, seconds = 0.0, self.env.now, self.env.now
        counted = [one for one in self.commits if begin <= one.released <= end]
        return Outcome(
            seconds=seconds,
            samples=sum(one.events for one in counted),
            commits=counted,
            lock=self.lock.share(seconds),
            interpreter=max(worker.interpreter.share(seconds) for worker in self.workers),
            host=max(host.share(seconds) for host in self._hosts),
            database=self.database.share(seconds),
        )

    def _other_program(self, share: float) -> Steps:
        """Use a core of the first host for a share of the time."""
        while True:
            yield self.env.timeout(self.chance.expovariate(1.0) * TURN_SECONDS * (1 - share) / share)
            yield from self._hosts[0].work(TURN_SECONDS)

    def lease(self, runs: int) -> list[int]:
        """Sizes of parts with so many runs together at least, if there are so many; to be called under the lock."""
        leased: list[int] = []
        while sum(leased) < runs and (size := next(self._parts, 0)):
            leased.append(size)
        return leased

    def committed(self, commit: Commit) -> None:
        """Take note of a transaction."""
        self.commits.append(commit)
        self._committed += commit.events
        if commit.events and self._committed == self._samples:
            self.all_committed.succeed()

    def notify(self) -> None:
        """Let all workers know of a commit that changed something."""
        note = self.parameters.note
        if note.database:
            # The processes of the connections work at once, each on a core.
            groups = min(len(self.workers), self.database.places)
            for _ in range(groups):
                self.env.process(self.database.work(note.database * len(self.workers) / groups))
        for worker in self.workers:
            worker.notified()

    def handover(self, waiting: int) -> float:
        """Seconds until the next one of so many has the lock: between measured numbers, on a line."""
        table = self.parameters.handover
        index = bisect.bisect_left([count for count, _ in table], waiting)
        if index == 0:
            return table[0][1]
        if index == len(table):
            return table[-1][1]
        (low, below), (high, above) = table[index - 1], table[index]
        return below + (above - below) * (waiting - low) / (high - low)

    def factor(self) -> float:
        """By how much a transaction takes longer than usual; its mean is 1."""
        spread = self.parameters.spread
        return self.chance.lognormvariate(-spread * spread / 2, spread) if spread else 1.0


@dataclasses.dataclass(slots=True)
class _Submission:
    events: int = 0
    parts_done: int = 0
    runs_wanted: int = 0
    """Of parts to lease; 0 if it is no lease."""
    leased: Sequence[int] = ()


class _Worker:
    """An event loop, a writer's thread, and what they have at hand."""

    def __init__(self, simulation: _Simulation, index: int, host: _Busy) -> None:
        self._simulation, self._env, self._parameters = simulation, simulation.env, simulation.parameters
        self._host = host
        self.interpreter = _Busy(self._env, 1, simulation.window)
        self._concurrency = simulation.pool.concurrency
        self._pending, self._at_work, self._unwritten = 0, 0, 0
        self._leasing = self._exhausted = False
        self._parts: collections.deque[int] = collections.deque()
        self._ended, self._notes = 0, 0
        self._answers: list[_Submission] = []
        self._queue: collections.deque[_Submission] = collections.deque()
        self._loop_wakes, self._writer_wakes = self._env.event(), self._env.event()
        joins = simulation.parameters.start
        if index:  # it hears of the parts, and gets ready as the lead has
            joins += simulation.parameters.start + simulation.chance.uniform(0.0, OFFER_PAUSE_SECONDS)
        for steps in (self._loop(joins), self._write(), self._beat(), self._background()):
            self._env.process(steps)

    def notified(self) -> None:
        """Another commit is known."""
        if self._parameters.note.worker:
            self._notes += 1
            _wake(self._loop_wakes)

    def _compute(self, seconds: float) -> Steps:
        """Use the interpreter, and a core of the host."""
        while seconds > 0:
            turn = min(seconds, TURN_SECONDS)
            with self.interpreter.resource.request() as place:
                yield place
                with self.interpreter.taken():
                    yield from self._host.work(turn)
            seconds -= turn

    def _loop(self, joins: float) -> Steps:
        yield self._env.timeout(joins)
        self._lease_more()
        while True:
            if not (self._ended or self._notes or self._answers):
                self._loop_wakes = self._env.event()
                yield self._loop_wakes
                if self._ended and self._parameters.timer:
                    yield self._env.timeout(self._simulation.chance.uniform(0.0, self._parameters.timer))
            ended, notes, answers = self._ended, self._notes, self._answers
            self._ended, self._notes, self._answers = 0, 0, []
            yield from self._compute(ended * self._parameters.loop_sample + notes * self._parameters.note.worker)
            for answer in answers:
                self._answered(answer)
            if ended:
                self._at_work -= ended
                self._unwritten += ended
                self._submit(_Submission(events=ended, parts_done=self._done(ended)))
            self._start()

    def _start(self) -> None:
        """Start samples as long as there is room: those of one iteration follow each other, until now."""
        room = min(self._concurrency - self._at_work, self._pending) if self._unwritten < MAX_UNWRITTEN else 0
        self._at_work += room
        self._pending -= room
        for behind in range(room):
            answered = self._env.timeout(max(0.0, self._parameters.latency - behind * self._parameters.apart))
            answered.callbacks.append(self._sample_ended)
        if self._pending < self._concurrency:
            self._lease_more()

    def _sample_ended(self, _: simpy.Event) -> None:
        self._ended += 1
        _wake(self._loop_wakes)

    def _done(self, ended: int) -> int:
        """Count results off the parts, in order; returns how many parts are done."""
        done = 0
        while self._parts and ended >= self._parts[0]:
            ended -= self._parts.popleft()
            done += 1
        if ended:
            self._parts[0] -= ended
        return done

    def _lease_more(self) -> None:
        if not (self._leasing or self._exhausted):
            self._leasing = True
            self._submit(_Submission(runs_wanted=self._concurrency - self._pending))

    def _answered(self, submission: _Submission) -> None:
        self._unwritten -= submission.events
        if submission.runs_wanted:
            self._leasing, self._exhausted = False, not submission.leased
            self._parts.extend(submission.leased)
            self._pending += sum(submission.leased)

    def _submit(self, submission: _Submission) -> None:
        self._queue.append(submission)
        _wake(self._writer_wakes)

    def _write(self) -> Steps:
        lock, env = self._simulation.lock, self._env
        while True:
            if not self._queue:
                self._writer_wakes = env.event()
                yield self._writer_wakes
            batch = self._gathered()
            asked = env.now
            yield env.timeout(self._parameters.begin)
            with lock.resource.request() as place:
                waits = not place.triggered
                yield place
                with lock.taken():
                    if waits:
                        yield env.timeout(self._simulation.handover(1 + len(lock.resource.queue)))
                    locked = env.now
                    yield from self._commit(batch)
            self._simulation.committed(
                Commit(asked, locked, env.now, len(batch), sum(submission.events for submission in batch))
            )
            if any(submission.events or submission.leased for submission in batch):
                self._simulation.notify()
            self._answers += batch
            _wake(self._loop_wakes)

    def _gathered(self) -> list[_Submission]:
        batch, size = [self._queue.popleft()], 0
        while self._queue and (size := size + max(1, batch[-1].events)) < MAX_BATCH:
            batch.append(self._queue.popleft())
        return batch

    def _commit(self, batch: Sequence[_Submission]) -> Steps:
        parameters = self._parameters
        for submission in batch:
            submission.leased = self._simulation.lease(submission.runs_wanted)
        seconds = self._simulation.factor() * (
            parameters.transaction
            + parameters.submission * len(batch)
            + sum(
                parameters.event * one.events
                + parameters.lease * len(one.leased)
                + parameters.part_end * one.parts_done
                for one in batch
            )
        )
        rounds = 1 + len(batch)  # worker and database take turns
        for _ in range(rounds):
            yield from self._compute(seconds * parameters.worker_share / rounds)
            yield from self._simulation.database.work(seconds * parameters.database_share / rounds)
        yield self._env.timeout(seconds * max(0.0, 1 - parameters.worker_share - parameters.database_share))

    def _beat(self) -> Steps:
        """Renew the lease with a transaction now and then."""
        yield self._env.timeout(self._simulation.chance.uniform(0.0, BEAT_SECONDS))
        while True:
            self._submit(_Submission())
            yield self._env.timeout(BEAT_SECONDS)

    def _background(self) -> Steps:
        if not self._parameters.background:
            return
        yield self._env.timeout(self._simulation.chance.uniform(0.0, BACKGROUND_SECONDS))
        while True:
            yield self._env.timeout(BACKGROUND_SECONDS)
            yield from self._compute(self._parameters.background * BACKGROUND_SECONDS)


def _wake(event: simpy.Event) -> None:
    if not event.triggered:
        event.succeed()


def _parts(samples: int | None) -> Iterator[int]:
    """Sizes of the parts of an evaluation; without an end, those of a large one."""
    if samples is None:
        return itertools.repeat(MAX_PART)
    size = size_of(samples)
    return itertools.chain(itertools.repeat(size, samples // size), [samples % size] if samples % size else [])
