"""Samples a second with a model that answers at once: the time of the worker itself.

Ours is the whole remote call: request, a JSONL data set, engine, grading, journal, an event per sample, aggregation,
reply. The baseline is a bare loop over the same file and the same scripted model in this process, with as many tasks at
once: prompt, answer, the same grader, a flushed JSON line; without retries, deadlines, events, or anything to resume
from. Both alternate, in a process whose garbage collector is set as that of `crucible-worker serve`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import structlog
from _report import Claim, arguments, report

from crucible_bridge.events import EventKind
from crucible_bridge.types import Limits, ModelInput, SamplingParams
from crucible_worker.grading import registry
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker
from crucible_worker.util.memory import collect_rarely

SAMPLES, CONCURRENCY = 20_000, 64
PARAMS = SamplingParams(max_tokens=4)
LEAST = 0.1
"""Bound, relative to the bare loop."""


async def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    model = ScriptedModel(answer=lambda prompt: "42")
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory(prefix="crucible-") as folder:
        data = Path(folder) / "data.jsonl"
        data.write_text(
            "".join(json.dumps({"input": f"{index}*7=", "target": "42"}) + "\n" for index in range(SAMPLES))
        )
        async with run_worker({"scripted": model}, data_roots=(data.parent,)) as worker:
            collect_rarely()
            for run in range(options.runs + 1):
                bare = await by_hand(model, data, Path(folder) / "results.jsonl")
                remote = await through_the_worker(worker, f"run-{run}")
                if run:  # the first one warms both up
                    theirs.append(SAMPLES / bare)
                    ours.append(SAMPLES / remote)
            await check_events(worker, f"run-{options.runs}")
    report(
        [
            Claim(
                name=f"{SAMPLES:,} samples without latency at concurrency {CONCURRENCY}",
                ours=ours,
                baseline=theirs,
                unit="samples/s",
                ratio=statistics.median(mine / other for mine, other in zip(ours, theirs)),
                at_least=LEAST,
                claim=f"at least {LEAST:g} of a bare loop that writes JSON lines",
            )
        ],
        as_json=options.json,
    )


async def through_the_worker(worker: RunningWorker, evaluation_id: str) -> float:
    """Seconds of one evaluation, from the call to its reply."""
    started = time.perf_counter()
    evaluation = await worker.bridge.evaluation.evaluate(
        evaluation_id=evaluation_id,
        model="embedded:scripted",
        evaluators=["accuracy"],
        dataset="jsonl:data.jsonl",
        sampling=PARAMS,
        limits=Limits(concurrency=CONCURRENCY),
    )
    seconds = time.perf_counter() - started
    assert (evaluation.done, evaluation.metrics.values["accuracy"]) == (SAMPLES, 1.0)
    return seconds


async def check_events(worker: RunningWorker, evaluation_id: str) -> None:
    """Check that every sample of an evaluation has its event."""
    count = 0
    async with worker.bridge.evaluation.watch_evaluation(evaluation_id) as stream:
        async for event in stream:
            count += event.kind is EventKind.SAMPLE_COMPLETE
    assert count == SAMPLES, count


async def by_hand(model: ScriptedModel, data: Path, results: Path) -> float:
    """Seconds of the bare loop."""
    started = time.perf_counter()
    grader = registry.create("exact_match", {}, name_field="", options_field="")
    correct = 0
    with data.open() as lines, results.open("w") as out:

        async def take(samples: Iterator[tuple[int, str]]) -> None:
            nonlocal correct
            for index, line in samples:
                sample = json.loads(line)
                (answer,) = await model.sample(ModelInput.of(await model.encode(sample["input"])), PARAMS)
                grade = await grader.grade(answer.text, (sample["target"],))
                correct += grade.score == 1.0
                record = {"id": index, "output": answer.text, "verdict": grade.verdict, "score": grade.score}
                out.write(json.dumps(record) + "\n")
                out.flush()

        samples = enumerate(lines)
        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENCY):
                group.create_task(take(samples))
    assert correct == SAMPLES
    return time.perf_counter() - started


if __name__ == "__main__":
    asyncio.run(main())
