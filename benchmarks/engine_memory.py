"""Memory of a worker that evaluates 200,000 samples of a JSONL file, with a model that answers at once.

The worker is a separate process, which has evaluated a small file before: the growth is the memory of the large one, at
its peak, from loading to the last metric. The baseline is a process that parses the lines and keeps them in a list.
Both are measured once, as they hardly vary.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import tempfile
import time
from pathlib import Path

import structlog
from _report import Claim, arguments, report

from crucible_bridge.types import Limits, SamplingParams
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker

SAMPLES, QUESTION_CHARS = 200_000, 1_000
CONCURRENCY = 64
MOST = 0.4
"""Bound, relative to a list of the parsed lines."""


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="crucible-") as folder:
        size = write(Path(folder) / "large.jsonl", SAMPLES)
        write(Path(folder) / "small.jsonl", 100)
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as process:
            grown, seconds = process.apply(measure, (folder,))
            listed = process.apply(measure_list, (folder,))
    report(
        [
            Claim(
                name=f"memory that {SAMPLES:,} samples ({size / 1e6:,.0f} MB) take",
                ours=[grown / 1e6],
                baseline=[listed / 1e6],
                unit="MB",
                ratio=grown / listed,
                at_most=MOST,
                claim=f"at most {MOST:g} of a list of the parsed lines",
            ),
            Claim(name="samples a second", ours=[SAMPLES / seconds], unit="samples/s", claim="printed, not promised"),
        ],
        as_json=options.json,
    )


def write(path: Path, count: int) -> int:
    """Write a data set; its size in bytes."""
    filling = "x" * QUESTION_CHARS
    with path.open("w") as file:
        for index in range(count):
            file.write(json.dumps({"input": f"{index}*7=", "target": "42", "metadata": {"filling": filling}}) + "\n")
    return path.stat().st_size


def measure(folder: str) -> tuple[int, float]:
    """Bytes that this process grows by, and seconds."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    return asyncio.run(_measure(Path(folder)))


def measure_list(folder: str) -> int:
    """Bytes that this process grows by when it stores the large file in a list."""
    before = _peak()
    with (Path(folder) / "large.jsonl").open() as file:
        parsed = [json.loads(line) for line in file]
    assert len(parsed) == SAMPLES
    return _peak() - before


async def _measure(folder: Path) -> tuple[int, float]:
    model = ScriptedModel(answer=lambda prompt: "42")
    async with run_worker({"scripted": model}, data_roots=(folder,), state_dir=folder / "state") as worker:
        await _evaluate(worker, "small.jsonl")
        before, started = _peak(), time.perf_counter()
        await _evaluate(worker, "large.jsonl")
        return _peak() - before, time.perf_counter() - started


async def _evaluate(worker: RunningWorker, path: str) -> None:
    evaluation = await worker.bridge.evaluation.evaluate(
        model="embedded:scripted",
        evaluators=["accuracy"],
        dataset=f"jsonl:{path}",
        sampling=SamplingParams(max_tokens=4),
        limits=Limits(concurrency=CONCURRENCY),
    )
    assert (evaluation.done, evaluation.metrics.values["accuracy"]) == (evaluation.total, 1.0)


def _peak() -> int:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    main()
