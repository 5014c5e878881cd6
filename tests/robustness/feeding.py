"""A process that feeds the logger `jsonl`, and says what was acknowledged: for tests that kill it.

python -m tests.robustness.feeding FOLDER FIRST LAST
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from crucible_worker.loggers.base import Experiment, MetricRow
from crucible_worker.loggers.registry import read
from crucible_worker.loggers.runner import LoggerRunner, Timing

_AT_ONCE = 211
"""Rows of a call: no divisor of what a batch or a page holds."""


async def main(folder: Path, first: int, last: int) -> None:
    """Feed rows with these sequences, and print the last one that is acknowledged."""
    runner = LoggerRunner(
        read(f"jsonl:{folder}", "--log-to", by_operator=True),
        Experiment(name="run", run_id="run-1", directory=folder / "own", resumed=True),
        Timing(first_back_off_seconds=0.01, max_back_off_seconds=0.1),
    )
    for begin in range(first, last + 1, _AT_ONCE):
        rows = [
            MetricRow(
                sequence=number, unix_time_ns=number, step=number, values={"loss": 1 / number, "x" * (number % 97): 1}
            )
            for number in range(begin, min(begin + _AT_ONCE, last + 1))
        ]
        print(await runner.feed(rows), flush=True)
    await runner.aclose()
    print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
