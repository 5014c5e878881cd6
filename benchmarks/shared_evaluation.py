"""One evaluation of 20,000 samples on a model of 100 ms latency: three workers that share work, against one.

The workers are processes of this machine, with one journal: in PostgreSQL, whose server the benchmark starts, and in a
state directory. Each has 32 samples at work, so that one worker needs 62.5 s at least. Time is that of the call that
evaluates, at the first worker.
"""

from __future__ import annotations

import asyncio
import statistics
from typing import Any

from _pool import Load, evaluated, server
from _report import Claim, arguments, report

LOAD = Load(samples=20_000, latency=0.1, concurrency=32)
WORKERS = 3
AT_LEAST = 2.6


async def measured(name: str, postgres: Any | None, runs: int) -> Claim:
    """One worker and three, in turns."""
    alone: list[float] = []
    shared: list[float] = []
    for _ in range(runs):
        for workers, times in ((1, alone), (WORKERS, shared)):
            url = None if postgres is None else postgres.new_database()
            times.append((await evaluated(url, workers, LOAD)).seconds)
    return Claim(
        name=f"{LOAD.samples:,} samples of {LOAD.latency * 1000:.0f} ms, {name}, {WORKERS} workers",
        ours=shared,
        baseline=alone,
        unit="s",
        ratio=statistics.median(one / several for one, several in zip(alone, shared, strict=True)),
        at_least=AT_LEAST,
        claim=f">= {AT_LEAST}x one worker",
    )


async def main() -> None:
    """Measure and report."""
    options = arguments(__doc__)
    claims: list[Claim] = []
    with server() as postgres:
        if postgres is not None:
            claims.append(await measured("PostgreSQL", postgres, options.runs))
        claims.append(await measured("SQLite", None, options.runs))
    report(claims, as_json=options.json)


if __name__ == "__main__":
    asyncio.run(main())
