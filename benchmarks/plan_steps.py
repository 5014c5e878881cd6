"""How long training waits for NotifyStep when the step's data set is a file of a million unread lines.

The plan is registered while the file has one line. Each step is cancelled after its reply, so that the file is
never read to its end, and the next step finds the same state as the first. The baseline is a bare loop that reads the
file and parses its lines.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

from _processes import server_process
from _report import Claim, arguments, report

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.types import Dataset, EvaluationPlan, EvaluationState, EvaluatorSpec, PlannedEvaluation

LINES = 1_000_000
ALONE, TOGETHER = 10, 8
"""Steps of a run that are notified alone; and steps that are notified in succession while earlier ones are read."""
MOST = 0.02
"""Bound, relative to the bare loop over the file."""


async def main() -> None:
    options = arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="crucible-") as folder:
        ready, data = Path(folder) / "ready", Path(folder) / "set.jsonl"
        command = ["-m", "crucible_worker", "serve", "--port", "0", "--grading-processes", "0", "--log-level", "error"]
        command += ["--ready-file", str(ready), "--state-dir", f"{folder}/state", "--data-root", folder]
        with server_process(command, ready) as address:
            async with crucible_bridge.connect(address) as bridge:
                write(data, 1)
                await bridge.evaluation.register_plan(PLAN)
                write(data, LINES)
                told, bare = [], []
                for number in range(options.runs):
                    told.append(await run(bridge, number))
                    bare.append(await asyncio.to_thread(read, data))
    report(
        [
            Claim(
                name=f"a step on {LINES:,} unread lines{meanwhile}",
                ours=[statistics.median(times[index]) for times in told],
                baseline=bare,
                unit="ms",
                ratio=statistics.median(statistics.median(times[index]) / other for times, other in zip(told, bare)),
                at_most=MOST,
                claim=f"at most {MOST:g} of what reading them takes",
            )
            for index, meanwhile in enumerate(("", f", while those of up to {TOGETHER - 1} others are"))
        ],
        as_json=options.json,
    )


PLAN = EvaluationPlan(
    plan_id="p",
    run_id="run",
    eval_every=1,
    evaluations=(PlannedEvaluation(evaluators=(EvaluatorSpec(kind="nll"),), dataset=Dataset.of("jsonl:set.jsonl")),),
    infrequent_eval_every=0,
    infrequent_evaluations=(),
)


def write(path: Path, count: int) -> None:
    """Write a data set."""
    with path.open("w") as file:
        for index in range(count):
            file.write(json.dumps({"id": f"s{index}", "input": f"{index}*7=", "target": f"{index * 7}"}) + "\n")


def read(path: Path) -> float:
    """Milliseconds of the bare loop."""
    started = time.perf_counter()
    with path.open() as file:
        assert sum(json.loads(line)["id"].startswith("s") for line in file) == LINES
    return (time.perf_counter() - started) * 1000


async def run(bridge: Bridge, number: int) -> tuple[list[float], list[float]]:
    """Milliseconds of each step notified alone, and of each notified while others are read."""
    first = number * (ALONE + TOGETHER)
    alone: list[float] = []
    for step in range(first, first + ALONE):
        alone.append(await tell(bridge, step))
        await cancel(bridge, step)
    steps = range(first + ALONE, first + ALONE + TOGETHER)
    together = [await tell(bridge, step) for step in steps]
    for step in steps:
        await cancel(bridge, step)
    return alone, together


async def tell(bridge: Bridge, step: int) -> float:
    """Milliseconds of one call."""
    started = time.perf_counter()
    (told,) = await bridge.evaluation.notify_step("p", step, "embedded:arithmetic@600")
    milliseconds = (time.perf_counter() - started) * 1000
    assert not told.existed
    return milliseconds


async def cancel(bridge: Bridge, step: int) -> None:
    """End a step, which must not have been read by then. The reply to a cancel may arrive before the end."""
    evaluation_id = f"p-step-{step}-0"
    await bridge.evaluation.cancel_evaluation(evaluation_id, "measured")
    async with bridge.evaluation.watch_evaluation(evaluation_id) as events:
        async for _ in events:
            pass
    ended = await bridge.evaluation.get_evaluation(evaluation_id)
    assert (ended.state, ended.dataset_fingerprint) == (EvaluationState.CANCELLED, "")


if __name__ == "__main__":
    asyncio.run(main())
