"""Measures what the model of a pool needs, on this machine."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, LiteralString

import numpy as np
import psutil
import psycopg
from _pool import Load, Run, evaluated
from _pool_commits import TimedCommit
from _pool_model import Cpu, Parameters, Pool, simulate

from crucible_worker.journal.queries import Head, head
from crucible_worker.util.background import Background

__all__ = ["CALIBRATION", "Measure", "Measured", "database_cpu", "measured"]

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
STATEMENTS = 1_000
"""Statements of each kind that one connection runs."""
SHARES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
"""Of an event loop's CPU for a sample: what is tried as the time between two starts."""
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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """All parameters."""

    undisturbed: Parameters
    """As if no other program ran on this machine: for predictions."""
    disturbed: Parameters
    """By a clock, with what other programs did meanwhile: for comparisons on this machine."""
    measures: Sequence[Measure]


async def measured(postgres: Any, latency: float) -> Measured:
    """Measure; takes about a minute.

    Args:
        postgres: a server.
        latency: of the model server whose samples are simulated, in seconds.
    """
    url = postgres.new_database()
    with tempfile.TemporaryDirectory(prefix="crucible-") as folder:
        log = _prepared(url, Path(folder))
        contention = _contention(url)
        note, notes = _notes(url, log)
    runs: list[tuple[Load, Run]] = []
    pauses = [_pauses(url)]
    for load in CALIBRATION * CALIBRATIONS:
        own = postgres.new_database()
        runs.append((load, await evaluated(own, 1, load, recorded=True, database_cpu=database_cpu(own))))
        pauses.append(_pauses(url))
    least = Pauses(statement=min(one.statement for one in pauses), flush=min(one.flush for one in pauses))
    parameters = dataclasses.replace(
        _of_runs(runs, least),
        latency=latency,
        handover=[(one.waiting, one.seconds) for one in _handovers(contention)],
        note=note,
    )
    disturbed = _disturbed(parameters, [run for _, run in runs])
    apart = _apart(disturbed, runs)
    parameters = dataclasses.replace(parameters, apart=apart)
    disturbed = dataclasses.replace(disturbed, apart=apart)
    told = _told(parameters, disturbed, least, runs)
    return Measured(
        undisturbed=parameters,
        disturbed=disturbed,
        measures=[*told, *_told_of_locks(contention), *notes],
    )


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pauses:
    """What a statement costs beyond CPU, on an idle connection; medians, as other programs disturb few statements."""

    statement: float
    """Until the database, and then the client, is woken."""
    flush: float
    """What COMMIT takes longer: the disk."""


def _pauses(url: str) -> Pauses:
    from crucible_worker.journal.postgres.connections import connect

    cpu, trips, commits = database_cpu(url), list[float](), list[float]()
    with connect(url) as connection:
        before, began = cpu(), time.thread_time()
        for _ in range(STATEMENTS):
            trips.append(_seconds_of(connection, "SELECT 1"))
        busy = (cpu() - before + time.thread_time() - began) / STATEMENTS
        for _ in range(STATEMENTS):
            connection.execute("BEGIN")
            connection.execute("UPDATE head SET oldest = oldest")
            commits.append(_seconds_of(connection, "COMMIT"))
    trip = statistics.median(trips)
    return Pauses(statement=max(0.0, trip - busy), flush=max(0.0, statistics.median(commits) - trip))


def _seconds_of(connection: psycopg.Connection[Any], sql: LiteralString) -> float:
    began = time.monotonic()
    connection.execute(sql)
    return time.monotonic() - began


def _of_runs(runs: Sequence[tuple[Load, Run]], pauses: Pauses) -> Parameters:
    """What evaluations of one worker tell.

    Times under the lock are sums of CPU and pauses: other programs lengthen what a clock says of them, not these.
    """
    own = [run.commits[0] for _, run in runs]
    commits = [one for commits in own for one in commits if one.events]
    rows = [(1, one.submissions, one.events, one.parts_leased, one.parts_done) for one in commits]
    cpu = _line(rows, [one.writer_cpu for one in commits])
    statements = _line(rows, [one.statements for one in commits])
    worker_cpu = sum(one.writer_cpu for commits in own for one in commits)
    by_database = sum(run.database_cpu for _, run in runs) / worker_cpu
    parts = [seconds * (1 + by_database) + count * pauses.statement for seconds, count in zip(cpu, statements)]
    parts[0] += pauses.flush
    held = sum(np.array(rows) @ parts)
    usual = np.array(rows) @ cpu
    loop = [row for commits in own for row in _loop(commits)]
    background, loop_sample = _line([row[:2] for row in loop], [row[2] for row in loop])
    finish, finish_sample = _line([(1, load.samples) for load, _ in runs], [_finish(run) for _, run in runs])
    return Parameters(
        latency=0.0,
        loop_sample=loop_sample,
        background=background,
        begin=statistics.median(one.locked - one.asked for one in commits),
        transaction=parts[0],
        submission=parts[1],
        event=parts[2],
        lease=parts[3],
        part_end=parts[4],
        worker_share=(share := sum(one.writer_cpu for one in commits) / held),
        database_share=share * by_database,
        spread=statistics.pstdev([math.log(one.writer_cpu / seconds) for one, seconds in zip(commits, usual)]),
        start=statistics.median(_start(run) for _, run in runs),
        finish=finish,
        finish_sample=finish_sample,
    )


def _disturbed(parameters: Parameters, runs: Sequence[Run]) -> Parameters:
    """With times under the lock by a clock: what is more than the sum of CPU and pauses needs no core here."""
    commits = [one for run in runs for one in run.commits[0] if one.events]
    expected = [
        parameters.transaction
        + parameters.submission * one.submissions
        + parameters.event * one.events
        + parameters.lease * one.parts_leased
        + parameters.part_end * one.parts_done
        for one in commits
    ]
    factor = sum(one.hold for one in commits) / sum(expected)
    return dataclasses.replace(
        parameters,
        transaction=parameters.transaction * factor,
        submission=parameters.submission * factor,
        event=parameters.event * factor,
        lease=parameters.lease * factor,
        part_end=parameters.part_end * factor,
        worker_share=parameters.worker_share / factor,
        database_share=parameters.database_share / factor,
        spread=statistics.pstdev([math.log(one.hold / seconds) for one, seconds in zip(commits, expected)]),
    )


def _apart(parameters: Parameters, runs: Sequence[tuple[Load, Run]]) -> float:
    """Time between starts with which the model makes about as many submissions as these evaluations did."""
    pool = Pool(workers=1, host_cores=os.cpu_count() or 1, database_cores=None)

    def error(apart: float) -> float:
        return sum(abs(math.log(_submissions(apart, load) / _submitted(run))) for load, run in runs[: len(CALIBRATION)])

    def _submissions(apart: float, load: Load) -> int:
        simulated = simulate(
            dataclasses.replace(parameters, apart=apart, latency=load.latency),
            dataclasses.replace(pool, concurrency=load.concurrency),
            samples=load.samples,
        )
        return sum(one.submissions for one in simulated.commits if one.events)

    return min((share * parameters.loop_sample for share in SHARES), key=error)


def _submitted(run: Run) -> int:
    return sum(one.submissions for one in run.commits[0] if one.events)


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


def _loop(commits: Sequence[TimedCommit]) -> Iterator[tuple[float, int, float]]:
    """Seconds, events, and CPU seconds outside of the writer's transactions, of some commits each."""
    counted = commits[_first(commits) : _last(commits) + 1]
    for before in range(0, len(counted) - COMMITS, COMMITS):
        first, last = counted[before], counted[before + COMMITS]
        some = counted[before + 1 : before + COMMITS + 1]
        cpu = last.process_cpu - first.process_cpu - sum(one.writer_cpu for one in some)
        yield last.released - first.released, sum(one.events for one in some), cpu


def _first(commits: Sequence[TimedCommit]) -> int:
    return next(index for index, one in enumerate(commits) if one.parts_leased)


def _last(commits: Sequence[TimedCommit]) -> int:
    return max(index for index, one in enumerate(commits) if one.parts_done)


def _start(run: Run) -> float:
    return run.commits[0][_first(run.commits[0])].asked - run.began


def _finish(run: Run) -> float:
    return run.ended - run.commits[0][_last(run.commits[0])].released


def _prepared(url: str, folder: Path) -> Head:
    """The log of a new journal."""
    from crucible_worker.journal.postgres import prepare

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
    from crucible_worker.journal.postgres.connections import connect
    from crucible_worker.journal.postgres.store import CHANNEL

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
        from crucible_worker.journal.postgres.store import PostgresGlance

        glances = [PostgresGlance(url, log, Background()) for _ in range(LISTENING)]
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


def _told(
    parameters: Parameters, disturbed: Parameters, pauses: Pauses, runs: Sequence[tuple[Load, Run]]
) -> Sequence[Measure]:
    loads = " and ".join(
        f"{load.samples:,} samples of {load.latency * 1e3:.0f} ms, {load.concurrency} at work" for load in CALIBRATION
    )
    count = sum(len(run.commits[0]) for _, run in runs)
    line = f"one worker, {CALIBRATIONS} times {loads}: least squares of {count:,} transactions"
    each = "the same evaluations, the median"
    rest = 1 - parameters.worker_share - parameters.database_share
    factor = disturbed.transaction / parameters.transaction
    told = [
        ("latency of the model server", f"{parameters.latency * 1e3:.0f} ms", "given"),
        (
            "CPU of a worker's event loop",
            f"{parameters.loop_sample * 1e3:.3f} ms a sample, {parameters.background * 1e3:.0f} ms in each second",
            f"{line}, {COMMITS} together; CPU of the process, less that of its writer",
        ),
        (
            "between starts of samples in one iteration of the loop",
            f"{parameters.apart * 1e6:.0f} us",
            f"fitted: one of {len(SHARES)} shares of the CPU a sample; with it the model makes about as many "
            "submissions as these evaluations did",
        ),
        (
            "a statement, beside CPU",
            f"{pauses.statement * 1e3:.3f} ms until database and client are woken; {pauses.flush * 1e3:.2f} ms more "
            "for COMMIT: the disk",
            f"one connection, the least of {CALIBRATIONS * len(CALIBRATION) + 1} medians of {STATEMENTS:,} statements",
        ),
        (
            "time under the head row's lock",
            f"{parameters.transaction * 1e3:.2f} ms a transaction, {parameters.submission * 1e3:.2f} ms a submission, "
            f"{parameters.event * 1e3:.3f} ms a sample, {(parameters.lease + parameters.part_end) * 1e3:.2f} ms to "
            f"lease a part and to end it; its logarithm varies by {parameters.spread:.2f}",
            f"{line}: their CPU, the number of their statements and COMMIT. By a clock they took {factor:.1f} times as "
            f"long, and their logarithm varied by {disturbed.spread:.2f}: other programs. Comparisons use the clock's, "
            "predictions do not",
        ),
        (
            "of that time",
            f"{parameters.worker_share:.0%} CPU of the worker, {parameters.database_share:.0%} CPU of the database, "
            f"{rest:.0%} neither",
            "CPU of the writer's thread and of the database's processes in these evaluations",
        ),
        ("begin of a transaction, the lock free", f"{parameters.begin * 1e3:.2f} ms", each),
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
