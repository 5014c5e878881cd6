"""Persisted events through a subscription: worker and subscriber are two processes on 127.0.0.1.

A journal is filled, then a subscriber reads all of it: from SQLite through gRPC to typed events in Python.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

from _report import Claim, arguments, report

import crucible_bridge
from crucible_bridge.codec.events import event_to_record
from crucible_bridge.events import Event, EventKind
from crucible_worker.runs.journal import Journal

EVENTS = 300_000

LEAST = 100_000.0
"""Events a second that a subscriber gets."""


async def main() -> None:
    options = arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="crucible-") as folder:
        state_dir = Path(folder)
        written = await fill(state_dir)
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "crucible_worker", "serve", "--port", "0", "--log-level", "error"),
            *("--state-dir", folder, "--ready-file", str(state_dir / "ready")),
        )
        try:
            while not (state_dir / "ready").exists():
                if worker.returncode is not None:
                    raise SystemExit("the worker did not start")
                await asyncio.sleep(0.01)
            address = (state_dir / "ready").read_text().strip()
            with multiprocessing.get_context("spawn").Pool(1) as subscriber:
                subscriber.apply(subscribe, (address,))
                read = [EVENTS / subscriber.apply(subscribe, (address,)) for _ in range(options.runs)]
        finally:
            if worker.returncode is None:
                worker.terminate()
            await worker.wait()
    report(
        [
            Claim(
                name="persisted events through a subscription",
                ours=read,
                unit="events/s",
                at_least=LEAST,
                claim=f">= {LEAST:,.0f}/s",
            ),
            Claim(name="events written to the journal", ours=[written], unit="events/s", claim="told, not promised"),
        ],
        as_json=options.json,
    )


async def fill(state_dir: Path) -> float:
    """Write events like those of samples; events a second."""
    journal = await Journal.open(state_dir, event_to_record)
    started = time.perf_counter()
    pending = []
    for index in range(EVENTS):
        event = Event(
            kind=EventKind.SAMPLE_COMPLETE,
            unix_time_ns=time.time_ns(),
            duration_ns=1_000_000,
            evaluation_id="evaluation-1",
            run_id="run-1",
            step=100,
            evaluator="accuracy",
            measurements={"score": 1.0, "output_tokens": 3.0},
            metadata={"sample_id": str(index), "repeat": "0", "verdict": "correct", "attempt": "1"},
        )
        pending.append(journal.submit(lambda transaction, event=event: transaction.append(0, (event,))))
        if len(pending) == 1024:
            await asyncio.gather(*pending)
            pending.clear()
    await asyncio.gather(*pending)
    seconds = time.perf_counter() - started
    await journal.aclose()
    return EVENTS / seconds


def subscribe(address: str) -> float:
    """Seconds to read the whole log."""
    return asyncio.run(_subscribe(address))


async def _subscribe(address: str) -> float:
    async with crucible_bridge.connect(address) as bridge:
        started = time.perf_counter()
        count = 0
        async with bridge.telemetry.subscribe(until_now=True) as stream:
            async for batch in stream.batches():
                count += len(batch.events)
        assert count == EVENTS, count
        return time.perf_counter() - started


if __name__ == "__main__":
    asyncio.run(main())
