"""Metrics a second into files by the logger `jsonl`, and what loggers that fail cost an evaluation.

The logger runs in its own process, as in a worker, and each batch is acknowledged. The baseline is a loop that opens
the file, writes one row and closes it, as the logger of tinker-cookbook does for each step.

Through the journal, a client calls a worker in the same process, one call after the other.

The evaluation runs in a worker to which a training loop logs ten steps a second meanwhile. The experiment has a logger
that raises and one that blocks until it is killed. The baseline is the evaluation alone, in turn with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import structlog
from _report import Claim, arguments, report

from crucible_bridge.types import EvaluatorSpec, Limits, LoggedMetrics, SamplingParams
from crucible_worker.loggers.base import Experiment, MetricRow
from crucible_worker.loggers.registry import read
from crucible_worker.loggers.runner import LoggerRunner
from crucible_worker.testing import ScriptedModel, run_worker
from crucible_worker.testing.worker import RunningWorker

ROWS, VALUES = 50_000, 10
"""Of a run."""
BATCH = 1_000
"""Rows of a call."""
SYNC_SECONDS = 300.0
"""For the logger to have everything; a bound, no expectation."""
GOAL = 100_000
"""Metrics a second."""
LEAST_RATIO = 2.0
"""To a loop that opens the file for each row."""
SAMPLES = 1_000
STEP_SECONDS = 0.1
"""From one row of a training loop to the next."""
LATENCY_SECONDS = 0.01
"""Of a sample's model call: the evaluation takes a few seconds."""
PAIRS = 2
"""Evaluations with loggers that fail, and without, in turn, for each run."""
_BAD = """
import dataclasses, time
from crucible_worker.loggers.base import Logger

class Bad(Logger):
    def open(self, experiment): pass

@dataclasses.dataclass(kw_only=True)
class Raises(Bad):
    def log_metrics(self, rows): raise RuntimeError

@dataclasses.dataclass(kw_only=True)
class Blocks(Bad):
    def log_metrics(self, rows): time.sleep(10_000)
"""


def rows_of(first: int, count: int) -> list[MetricRow]:
    """Rows with these sequences."""
    return [
        MetricRow(
            sequence=number,
            unix_time_ns=time.time_ns(),
            step=number,
            values={f"train/metric_{index}": number / (index + 3) for index in range(VALUES)},
        )
        for number in range(first, first + count)
    ]


def runner(text: str, folder: Path) -> LoggerRunner:
    """That of a logger."""
    spec = read(text, "--log-to", by_operator=True)
    return LoggerRunner(spec, Experiment(name="run", run_id="run-1", directory=folder / "own"))


async def logged(folder: Path) -> float:
    """Metrics a second, all acknowledged; the logger is open already."""
    logger = runner(f"jsonl:{folder}", folder)
    await logger.open()
    rows = rows_of(1, ROWS)
    began = time.perf_counter()
    for begin in range(0, ROWS, BATCH):
        await logger.feed(rows[begin : begin + BATCH])
    seconds = time.perf_counter() - began
    await logger.aclose()
    lines = (folder / "run" / "metrics.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["_sequence"] for line in lines] == list(range(1, ROWS + 1))
    return ROWS * VALUES / seconds


async def through_the_journal(folder: Path) -> tuple[float, float]:
    """Metrics a second that a worker acknowledges, and those until all are in the file."""
    rows = [LoggedMetrics(values=row.values, step=row.step, unix_time_ns=row.unix_time_ns) for row in rows_of(1, ROWS)]
    async with run_worker({}, state_dir=folder) as worker:
        experiment = worker.bridge.experiment("run", log_to=["jsonl"])
        await experiment.open()
        while await experiment.get_logger_url() is None:
            await experiment.log_metrics({"opens": 1.0})
            await experiment.sync()
        began = time.perf_counter()
        for begin in range(0, ROWS, BATCH):
            await experiment.log_rows(rows[begin : begin + BATCH])
        acknowledged = time.perf_counter() - began
        assert await experiment.close(SYNC_SECONDS)
        written = time.perf_counter() - began
        (file,) = (folder / "experiments").glob("*/metrics.jsonl")
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert sum("train/metric_0" in line for line in lines) == ROWS
    return ROWS * VALUES / acknowledged, ROWS * VALUES / written


def one_by_one(folder: Path) -> float:
    """Metrics a second of the baseline."""
    rows = rows_of(1, ROWS)
    began = time.perf_counter()
    for row in rows:
        with (folder / "baseline.jsonl").open("a") as file:
            file.write(json.dumps({"step": row.step, **row.values}) + "\n")
    return ROWS * VALUES / (time.perf_counter() - began)


@contextlib.asynccontextmanager
async def training(worker: RunningWorker) -> AsyncIterator[None]:
    """Log steps meanwhile, as a training loop does, to an experiment whose loggers fail."""
    experiment = worker.bridge.experiment("run", log_to=["raises", "blocks"])
    await experiment.open()

    async def log() -> None:
        for step in itertools.count():
            await experiment.log_metrics({f"train/metric_{index}": step / (index + 3) for index in range(VALUES)})
            await asyncio.sleep(STEP_SECONDS)

    task = asyncio.create_task(log())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def evaluations(folder: Path, pairs: int) -> tuple[list[float], list[float]]:
    """Seconds of evaluations with loggers that fail, and without."""
    (folder / "bad_loggers.py").write_text(_BAD)
    info = folder / "bad_loggers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad_loggers\nVersion: 1.0\n")
    points = "raises = bad_loggers:Raises\nblocks = bad_loggers:Blocks\n"
    (info / "entry_points.txt").write_text(f"[crucible_worker.loggers]\n{points}")
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = str(folder)
    beside: list[float] = []
    alone: list[float] = []
    for number in range(pairs):
        for seconds, with_loggers in ((beside, True), (alone, False)):
            async with run_worker(
                {"m": ScriptedModel(latency=LATENCY_SECONDS)}, state_dir=folder / f"state-{number}-{with_loggers}"
            ) as worker:
                await evaluate(worker)
                async with training(worker) if with_loggers else contextlib.nullcontext():
                    seconds.append(await evaluate(worker))
    return beside, alone


async def evaluate(worker: RunningWorker) -> float:
    """Seconds of one evaluation."""
    began = time.perf_counter()
    await worker.bridge.evaluation.evaluate(
        model="embedded:m",
        evaluators=[EvaluatorSpec(kind="accuracy")],
        dataset=[{"input": f"question {number}", "target": "x"} for number in range(SAMPLES)],
        sampling=SamplingParams(max_tokens=8),
        limits=Limits(concurrency=2),
    )
    return time.perf_counter() - began


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    journal: list[tuple[float, float]] = []
    ours: list[float] = []
    theirs: list[float] = []
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    for _ in range(options.runs):
        with tempfile.TemporaryDirectory(prefix="crucible-") as name:
            journal.append(asyncio.run(through_the_journal(Path(name))))
        with tempfile.TemporaryDirectory(prefix="crucible-") as name:
            ours.append(asyncio.run(logged(Path(name))))
            theirs.append(one_by_one(Path(name)))
    with tempfile.TemporaryDirectory(prefix="crucible-") as name:
        beside, alone = asyncio.run(evaluations(Path(name), PAIRS * options.runs))
    claims = [
        Claim(
            name=f"LogMetrics of {BATCH:,} rows of {VALUES} metrics, acknowledged by the journal: metrics a second",
            ours=[acknowledged for acknowledged, _ in journal],
            unit="metrics/s",
            claim=f"goal {GOAL:,} metrics a second",
        ),
        Claim(
            name="the same until all of them are in metrics.jsonl, and the disk has it",
            ours=[written for _, written in journal],
            unit="metrics/s",
            claim=f"goal {GOAL:,} metrics a second",
        ),
        Claim(
            name=f"rows of {VALUES} metrics into jsonl, {BATCH:,} in a call: metrics a second",
            ours=ours,
            baseline=theirs,
            unit="metrics/s",
            ratio=statistics.median(ours) / statistics.median(theirs),
            at_least=LEAST_RATIO,
            claim=f"goal {GOAL:,} metrics a second; {LEAST_RATIO:g} times a file that is opened for each row",
        ),
        Claim(
            name=f"an evaluation of {SAMPLES} samples, while one logger raises and one blocks",
            ours=beside,
            baseline=alone,
            unit="s",
            ratio=statistics.median(beside) / statistics.median(alone),
            claim="less than 1 % longer than alone, within the noise of the machine",
        ),
    ]
    report(claims, as_json=options.json)


if __name__ == "__main__":
    main()
