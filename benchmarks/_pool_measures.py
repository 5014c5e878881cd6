"""Measures what the model of a pool needs, on this machine."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import psycopg
from _pool import Load, Run, evaluated
from _pool_commits import TimedCommit
from _pool_model import Cpu, Parameters

from crucible_worker.runs.journal.queries import Head, head

__all__ = ["CALIBRATION", "Measure", "database_cpu", "measured"]

CALIBRATIONS = 2
CALIBRATION = (Load(samples=1_500, latency=0.03, concurrency=8), Load(samples=4_500, latency=0.03, concurrency=64))
"""Evaluations of one worker: unlike those with which the model is compared, and unlike each other."""
WRITERS = (1, 2, 8, 32, 64)
"""Connections that want the lock at once."""
LOCK_SECONDS = 1.0
"""For how long they do."""
ROUNDS = 3
"""Of such short measurements. The best one counts, as other programs can only disturb it."""
LISTENING = 64
"""Workers that are notified."""
COMMITS = 20
"""Transactions whose CPU is added up before lines are drawn."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A parameter for people."""

    name: str
    value: str
    how: str
    """How it was measured."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """Connections that want the lock of the head's row all the time, for transactions of a few statements."""

    writers: int
    transactions: int
    time: float
    """How long it took."""
    hold: float
    """Seconds under the lock, on average."""

    @property
    def rate(self) -> float:
        """Transactions a second."""
        return self.transactions / self.time


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What it takes to hand the lock over."""

    waiting: int
    """Writers that wait for it."""
    seconds: float


async def measured(postgres: Any, latency: float) -> tuple[Parameters, Sequence[Measure]]:
    """All parameters, and how they were measured; takes about half a minute.

    Args:
        postgres: a server.
        latency: of the model server whose samples are simulated, in seconds.
    """
    url = postgres.new_database()
    with tempfile.TemporaryDirectory(prefix="crucible-") as folder:
        log = _prepared(url, Path(folder))
        contention = _contention(url)
        note, notes = _notes(url, log)
    runs = [
        (load, await evaluated(url, 1, load, recorded=True, database_cpu=database_cpu(url)))
        for load, url in ((load, postgres.new_database()) for load in CALIBRATION * CALIBRATIONS)
    ]
    parameters = dataclasses.replace(
        _of_runs(runs),
        latency=latency,
        handover=[(one.waiting, one.seconds) for one in _handovers(contention)],
        note=note,
    )
    return parameters, [*_told(parameters, [run for _, run in runs]), *_told_of_locks(contention), *notes]


def database_cpu(url: str) -> Callable[[], float]:
    """A function that returns the CPU seconds of all processes of a database's server until now."""
    with psycopg.connect(url) as connection:
        postmaster = psutil.Process(connection.info.backend_pid).parent()
    assert postmaster is not None

    def seconds() -> float:
        times = postmaster.cpu_times()
        return times.children_user + times.children_system + sum(map(_alive_cpu, (postmaster, *postmaster.children())))

    return seconds


def _alive_cpu(process: psutil.Process) -> float:
    """CPU seconds of a process of one thread, to the nanosecond: psutil counts hundredths of a second."""
    try:
        return int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) / 1e9
    except FileNotFoundError:  # it ended just now: the times of the postmaster's children have it
        return 0.0


def _of_runs(runs: Sequence[tuple[Load, Run]]) -> Parameters:
    """What evaluations of one worker tell: straight lines through all of their transactions."""
    own = [run.commits[0] for _, run in runs]
    commits = [one for commits in own for one in commits if one.events]
    hold = [one.hold - one.lease_seconds - one.done_seconds for one in commits]
    transaction, submission, event = _line([(1, one.submissions, one.events) for one in commits], hold)
    expected = [transaction + submission * one.submissions + event * one.events for one in commits]
    logarithms = [math.log(have / want) for have, want in zip(hold, expected) if have > 0]
    loop = [row for commits in own for row in _loop(commits)]
    background, loop_submission, loop_sample = _line([row[:3] for row in loop], [row[3] for row in loop])
    held = sum(one.hold for commits in own for one in commits)
    finish, finish_sample = _line([(1, load.samples) for load, _ in runs], [_finish(run) for _, run in runs])
    return Parameters(
        latency=0.0,
        loop_sample=loop_sample,
        loop_submission=loop_submission,
        background=background,
        begin=statistics.median(one.locked - one.asked for one in commits),
        transaction=transaction,
        submission=submission,
        event=event,
        lease=_each(commits, "lease_seconds", "parts_leased"),
        part_end=_each(commits, "done_seconds", "parts_done"),
        worker_share=sum(one.writer_cpu for commits in own for one in commits) / held,
        database_share=sum(run.database_cpu for _, run in runs) / held,
        spread=statistics.pstdev(logarithms),
        start=statistics.median(_start(run) for _, run in runs),
        finish=finish,
        finish_sample=finish_sample,
    )


def _line(rows: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """Coefficients by least squares, none below 0: what would be below is left out."""
    width = len(rows[0])
    used = list(range(width))
    while True:
        found = np.linalg.lstsq(np.array(rows)[:, used], np.array(values), rcond=None)[0]
        if (found >= 0).all() or len(used) == 1:
            coefficients = dict(zip(used, found.clip(min=0)))
            return [float(coefficients.get(index, 0.0)) for index in range(width)]
        used.remove(used[int(found.argmin())])


def _loop(commits: Sequence[TimedCommit]) -> Iterator[tuple[float, int, int, float]]:
    """Seconds, submissions, events, and CPU seconds outside of the writer's transactions, of some commits each."""
    counted = commits[_first(commits) : _last(commits) + 1]
    for before in range(0, len(counted) - COMMITS, COMMITS):
        first, last = counted[before], counted[before + COMMITS]
        some = counted[before + 1 : before + COMMITS + 1]
        cpu = last.process_cpu - first.process_cpu - sum(one.writer_cpu for one in some)
        submissions, events = sum(one.submissions for one in some), sum(one.events for one in some)
        yield last.released - first.released, submissions, events, cpu


def _first(commits: Sequence[TimedCommit]) -> int:
    return next(index for index, one in enumerate(commits) if one.parts_leased)


def _last(commits: Sequence[TimedCommit]) -> int:
    return max(index for index, one in enumerate(commits) if one.parts_done)


def _start(run: Run) -> float:
    return run.commits[0][_first(run.commits[0])].asked - run.began


def _finish(run: Run) -> float:
    return run.ended - run.commits[0][_last(run.commits[0])].released


def _each(commits: Sequence[TimedCommit], seconds: str, count: str) -> float:
    """Mean seconds of each one that is counted."""
    return sum(getattr(one, seconds) for one in commits) / sum(getattr(one, count) for one in commits)


def _prepared(url: str, folder: Path) -> Head:
    """The log of a new journal."""
    from crucible_worker.runs.journal.postgres import prepare

    reader = prepare(url, folder).connect()
    try:
        return head(reader)
    finally:
        reader.close()


def _handovers(table: Sequence[Contention]) -> Sequence[Handover]:
    """From rates: the time of a transaction of many writers, beyond that which one of them is under the lock alone."""
    alone, *others = table
    return [
        Handover(waiting=0, seconds=0.0),
        *(Handover(waiting=one.writers - 1, seconds=max(0.0, 1 / one.rate - alone.hold)) for one in others),
    ]


def _contention(url: str) -> Sequence[Contention]:
    """Of so many writers each."""
    rounds = [[_contended(url, writers) for writers in WRITERS] for _ in range(ROUNDS)]
    return [max(same, key=lambda one: one.rate) for same in zip(*rounds)]


def _contended(url: str, writers: int) -> Contention:
    until = threading.Event()
    held: list[tuple[float, float]] = []
    barrier = threading.Barrier(writers + 1)
    threads = [threading.Thread(target=_write, args=(url, barrier, until, held)) for _ in range(writers)]
    for thread in threads:
        thread.start()
    barrier.wait()
    time.sleep(LOCK_SECONDS)
    until.set()
    for thread in threads:
        thread.join()
    held.sort()
    return Contention(
        writers=writers,
        transactions=len(held),
        time=held[-1][1] - held[0][0],
        hold=statistics.mean(released - locked for locked, released in held),
    )


def _write(url: str, barrier: threading.Barrier, until: threading.Event, held: list[tuple[float, float]]) -> None:
    from crucible_worker.runs.journal.postgres.connections import connect
    from crucible_worker.runs.journal.postgres.writing import CHANNEL

    with connect(url) as connection:
        barrier.wait()
        while not until.is_set():
            connection.execute("BEGIN")
            connection.execute("SELECT 1 FROM head FOR UPDATE")
            locked = time.monotonic()
            connection.execute("UPDATE head SET oldest = oldest")
            connection.execute(f"SELECT pg_notify('{CHANNEL}', log_id || ' ' || sequence || ' ' || oldest) FROM head")
            connection.execute("COMMIT")
            held.append((locked, time.monotonic()))


def _notes(url: str, log: Head) -> tuple[Cpu, Sequence[Measure]]:
    """What a commit costs each worker that is notified, and the database."""
    rounds = [(_noted(url, None), _noted(url, log)) for _ in range(ROUNDS)]
    without, listening = (min(same, key=lambda one: one.database) for same in zip(*rounds))
    note = Cpu(worker=listening.worker, database=max(0.0, listening.database - without.database) / LISTENING)
    return note, [
        Measure(
            name="a note of a commit, for each worker that listens",
            value=f"{note.worker * 1e6:.0f} us of the worker's CPU, {note.database * 1e6:.1f} us of the database's",
            how=f"small transactions of one writer with {LISTENING} listeners and without, the best of {ROUNDS} times "
            f"{LOCK_SECONDS:.0f} s each; CPU of the listeners' process, and of the database's",
        )
    ]


def _noted(url: str, log: Head | None) -> Cpu:
    """CPU of the database for each small transaction, and of a listener for each note; no listeners without a log."""
    cpu = database_cpu(url)
    if log is None:
        before = cpu()
        transactions = _contended(url, 1).transactions
        return Cpu(database=(cpu() - before) / transactions)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_listen, args=(url, log, theirs), daemon=True)
    process.start()
    ours.recv()
    before = cpu()
    transactions = _contended(url, 1).transactions
    seconds = cpu() - before
    ours.send("end")
    notes, listeners_cpu = ours.recv()
    process.join()
    return Cpu(worker=listeners_cpu / notes, database=seconds / transactions)


def _listen(url: str, log: Head, parent: Any) -> None:
    """Listen as so many workers do, in a process of its own, until the parent says so; sends notes and CPU seconds."""

    async def listen() -> None:
        from crucible_worker.runs.journal.postgres.listening import PostgresGlance

        glances = [PostgresGlance(url, log) for _ in range(LISTENING)]
        while not all(glance.news.count for glance in glances):
            await asyncio.sleep(0.01)
        before, began = sum(glance.news.count for glance in glances), time.process_time()
        parent.send("ready")
        await asyncio.to_thread(parent.recv)
        after, ended = sum(glance.news.count for glance in glances), time.process_time()
        for glance in glances:
            await glance.aclose()
        parent.send((after - before, ended - began))

    asyncio.run(listen())


def _told(parameters: Parameters, runs: Sequence[Run]) -> Sequence[Measure]:
    loads = " and ".join(
        f"{load.samples:,} samples of {load.latency * 1e3:.0f} ms, {load.concurrency} at work" for load in CALIBRATION
    )
    count = sum(len(run.commits[0]) for run in runs)
    line = f"one worker, {CALIBRATIONS} times {loads}: least squares of {count:,} transactions"
    each = "the same evaluations; mean"
    rest = 1 - parameters.worker_share - parameters.database_share
    told = [
        ("latency of the model server", f"{parameters.latency * 1e3:.0f} ms", "given"),
        (
            "CPU of a worker's event loop",
            f"{parameters.loop_sample * 1e3:.3f} ms a sample, {parameters.loop_submission * 1e3:.3f} ms a submission, "
            f"{parameters.background * 1e3:.0f} ms in each second",
            f"{line}, {COMMITS} together; CPU of the process, less that of its writer",
        ),
        (
            "time under the head row's lock",
            f"{parameters.transaction * 1e3:.2f} ms a transaction, {parameters.submission * 1e3:.2f} ms a submission, "
            f"{parameters.event * 1e3:.3f} ms a sample; its logarithm varies by {parameters.spread:.2f}",
            line,
        ),
        (
            "of that time",
            f"{parameters.worker_share:.0%} CPU of the worker, {parameters.database_share:.0%} CPU of the database, "
            f"{rest:.0%} neither (the disk, wake-ups)",
            "CPU of the writer's thread and of the database's processes in these evaluations",
        ),
        ("begin of a transaction, the lock free", f"{parameters.begin * 1e3:.2f} ms", f"{each[:-4]}median"),
        ("to lease a part", f"{parameters.lease * 1e3:.2f} ms under the lock", each),
        ("to end a part", f"{parameters.part_end * 1e3:.2f} ms under the lock", each),
        ("from the call to the first lease", f"{parameters.start * 1e3:.0f} ms", each),
        (
            "from the last sample to the reply",
            f"{parameters.finish * 1e3:.0f} ms, and {parameters.finish_sample * 1e6:.0f} us a sample",
            "the same evaluations",
        ),
    ]
    return [Measure(name=name, value=value, how=how) for name, value, how in told]


def _told_of_locks(table: Sequence[Contention]) -> Sequence[Measure]:
    handovers = {one.waiting + 1: one.seconds for one in _handovers(table)}
    return [
        Measure(
            name=f"small transactions, writers: {one.writers}",
            value=f"{one.rate:,.0f} a second, {one.hold * 1e3:.2f} ms under the lock"
            + (f": {handovers[one.writers] * 1e3:.2f} ms to hand it over" if one.writers > 1 else ""),
            how=f"threads of one process, the best of {ROUNDS} times {LOCK_SECONDS:.0f} s; handed over: what each "
            "takes beyond one under the lock alone",
        )
        for one in table
    ]
