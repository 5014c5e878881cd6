"""GetEvaluation next to 0, 8 and 40 watchers, and health next to 50 unread streams, with 10^6 events in the journal.

Worker, watchers and caller are three processes on 127.0.0.1. The watched evaluation is in the middle of the log and
has not ended. Its watchers attach from the beginning while GetEvaluation is called; then samples of it are written, in
a hundred transactions a second, and all watchers follow.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
from _processes import server_process
from _report import Claim, arguments, report

import crucible_bridge
from crucible_bridge.channel import channel_options
from crucible_bridge.client.evaluation import request_of
from crucible_bridge.codec.events import event_to_record
from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import SampleResult, Verdict
from crucible_bridge.v1 import evaluation_pb2, evaluation_pb2_grpc, events_pb2, events_pb2_grpc
from crucible_worker.engine import claims, recording
from crucible_worker.engine.recording import FinishedSample
from crucible_worker.journal import Journal
from crucible_worker.journal.locks import OwnerLocks
from crucible_worker.journal.queries import EvaluationRow, find
from crucible_worker.journal.records import SampleKey

EVENTS = 1_000_000
"""Events in the journal."""
SAMPLES = 2_000
"""Events of the watched evaluation."""
WATCHERS = (0, 8, 40)
CALLS = 300
"""Calls of GetEvaluation, one after another, for one figure."""
WRITES_PER_SECOND, WRITTEN = 100, 2
"""Transactions of the evaluation while it is followed, and samples in each."""
FOLLOWED = 20
"""Events that every watcher must receive of those written then."""
MOST = 2.0
"""Bound of GetEvaluation's time next to the most watchers, as a multiple of that next to none."""
UNREAD = 50
"""Subscriptions that are never read."""
PROBES = 300
EVALUATION = "watched"


async def main() -> None:
    options = arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="crucible-") as folder:
        await fill(Path(folder))
        ready = Path(folder, "ready")
        command = ("-m", "crucible_worker", "serve", "--port=0", "--log-level=error", "--grading-processes=0")
        with server_process([*command, f"--state-dir={folder}", f"--ready-file={ready}"], ready) as address:
            attached: dict[int, list[float]] = {count: [] for count in WATCHERS}
            followed: dict[int, list[float]] = {count: [] for count in WATCHERS}
            probes: dict[int, list[float]] = {0: [], UNREAD: []}
            for _ in range(options.runs):
                for count in WATCHERS:
                    one, other = await next_to_watchers(address, Path(folder), count)
                    attached[count] += one
                    followed[count] += other
                for count in probes:
                    probes[count] += await next_to_unread(address, count)
    both = {count: attached[count] + followed[count] for count in WATCHERS}
    report(
        [
            *_claims("that attach and follow", both, MOST),
            *_claims("while they attach", attached),
            *_claims("while they follow", followed),
            *(_slowest(f"health next to {count} unread streams", probes[count]) for count in probes),
        ],
        as_json=options.json,
    )


def _claims(which: str, seconds: dict[int, list[float]], most: float | None = None) -> Iterator[Claim]:
    alone = _milliseconds(seconds[0])
    for count in WATCHERS:
        ours, bounded = _milliseconds(seconds[count]), most is not None and count == max(WATCHERS)
        yield Claim(
            name=f"GetEvaluation next to {count} watchers {which}",
            ours=ours,
            baseline=alone if count else (),
            unit="ms",
            ratio=statistics.median(ours) / statistics.median(alone) if count else None,
            at_most=most if bounded else None,
            claim=f"at most {most:g} times" if bounded else "printed only",
        )
        yield _slowest(f"GetEvaluation next to {count} watchers {which}", seconds[count])


def _slowest(name: str, seconds: list[float]) -> Claim:
    p99 = statistics.quantiles(_milliseconds(seconds), n=100)[-1]
    return Claim(name=f"{name}, p99", ours=[p99], unit="ms", claim="printed only")


def _milliseconds(seconds: list[float]) -> list[float]:
    return [one * 1000 for one in seconds]


async def fill(state_dir: Path) -> None:
    """Write the journal: an evaluation whose owner is gone, and the same number of other events before and after it."""
    journal = await Journal.open(state_dir, event_to_record)
    locks = OwnerLocks(state_dir / "owners.lock")
    request = request_of(model="embedded:m", evaluators="accuracy", dataset=[], evaluation_id=EVALUATION)
    contents = claims.Contents(dataset_fingerprint="d", model_fingerprint="m", total=10**6)
    await _others(journal)
    claimed = await journal.submit(
        lambda t: claims.claim(t, locks, request, fingerprint="f", contents=contents, worker_id="w")
    )
    await _write(journal, claimed.row, 0, SAMPLES)
    await _others(journal)
    await journal.aclose()
    locks.close()


async def _others(journal: Journal) -> None:
    event = Event(
        kind=EventKind.SAMPLE_COMPLETE,
        unix_time_ns=time.time_ns(),
        evaluation_id="another",
        run_id="run-1",
        evaluator="accuracy",
        measurements={"score": 1.0, "output_tokens": 3.0},
        metadata={"sample_id": "1", "repeat": "0", "verdict": "correct", "attempt": "1"},
    )
    for _ in range(EVENTS // 2000):
        await journal.submit(lambda transaction: transaction.append(0, [event] * 1000))


async def _write(journal: Journal, row: EvaluationRow, start: int, count: int) -> None:
    kept = [
        FinishedSample(
            SampleKey(position, 0, 0),
            SampleResult(evaluator="accuracy", sample_id=str(position), repeat=0, verdict=Verdict.CORRECT, score=1.0),
            1,
        )
        for position in range(start, start + count)
    ]
    await journal.submit(lambda transaction: recording.commit_samples(transaction, row, kept, 0))


async def next_to_watchers(address: str, state_dir: Path, count: int) -> tuple[list[float], list[float]]:
    """Seconds of calls while so many watchers attach, and while they follow new events."""
    journal = await Journal.open(state_dir, event_to_record)
    row = await journal.read(find, EVALUATION)
    assert row is not None
    there = await journal.read(_count, row.number)
    async with crucible_bridge.connect(address) as bridge:

        async def get() -> None:
            await bridge.evaluation.get_evaluation(EVALUATION)

        await get()
        async with _child("watch", address, count, there, there + FOLLOWED) as child:
            attached = await _timed(get)
            # Each prints a line when it has everything, and another when it has the events written then.
            for _ in range(count):
                await child.readline()
            writing = asyncio.create_task(_keep_writing(journal, row))
            followed = await _timed(get)
            for _ in range(count):
                await child.readline()
            assert not writing.done(), writing
            writing.cancel()
            await asyncio.wait((writing,))
    await journal.aclose()
    return attached, followed


def _count(connection: sqlite3.Connection, number: int) -> int:
    return connection.execute("SELECT COUNT(*) FROM events WHERE number = ?", (number,)).fetchone()[0]


async def next_to_unread(address: str, count: int) -> list[float]:
    """Seconds of probes while so many subscriptions are open that are never read."""
    async with crucible_bridge.connect(address) as bridge:

        async def probe() -> None:
            assert await bridge.worker.health()

        await probe()
        async with _child("ignore", address, count):
            return await _timed(probe, PROBES)


async def _keep_writing(journal: Journal, row: EvaluationRow) -> None:
    position = row.done
    while True:
        await _write(journal, row, position, WRITTEN)
        position += WRITTEN
        await asyncio.sleep(1 / WRITES_PER_SECOND)


async def _timed(call: Callable[[], Any], times: int = CALLS) -> list[float]:
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - started)
        await asyncio.sleep(0.002)
    return taken


@contextlib.asynccontextmanager
async def _child(what: str, address: str, count: int, *marks: int) -> AsyncIterator[asyncio.StreamReader]:
    """Run this script as the process of the watchers; yields the lines that it prints."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, what, address, *map(str, (count, *marks))),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        await child.stdout.readline()
        yield child.stdout
    finally:
        child.kill()
        await child.wait()


async def watch(address: str, count: int, *marks: int) -> None:
    """Watch the evaluation so many times, each on a separate connection; runs until it is killed."""
    channels = _channels(address, count)
    print("begins", flush=True)
    await asyncio.gather(asyncio.Event().wait(), *(_follow(channel, marks) for channel in channels))


async def _follow(channel: grpc.aio.Channel, marks: Sequence[int]) -> None:
    """Read every batch, and print a line at so many events.

    No Python object is made for each event: the processes share a few cores.
    """
    seen = 0
    stub: Any = evaluation_pb2_grpc.EvaluationServiceStub(channel)
    async for batch in stub.WatchEvaluation(evaluation_pb2.WatchEvaluationRequest(evaluation_id=EVALUATION)):
        before, seen = seen, seen + len(batch.events)
        for mark in marks:
            if before < mark <= seen:
                print(mark, flush=True)


async def ignore(address: str, count: int) -> None:
    """Subscribe so many times and read nothing; runs until it is killed."""
    channels = _channels(address, count)
    calls = [
        events_pb2_grpc.TelemetryServiceStub(channel).Subscribe(events_pb2.SubscribeRequest()) for channel in channels
    ]
    print("begins", flush=True)
    await asyncio.Event().wait()
    assert calls


def _channels(address: str, count: int) -> list[grpc.aio.Channel]:
    options = [*channel_options(), ("grpc.use_local_subchannel_pool", 1)]
    return [grpc.aio.insecure_channel(address, options=options) for _ in range(count)]


if __name__ == "__main__":
    if sys.argv[1:2] in (["watch"], ["ignore"]):
        asyncio.run({"watch": watch, "ignore": ignore}[sys.argv[1]](sys.argv[2], *map(int, sys.argv[3:])))
    else:
        asyncio.run(main())
