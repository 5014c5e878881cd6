"""`multiple_choice` on the embedded model against lm-evaluation-harness: the same log-probabilities, and how fast.

Both are asked the same additions with four sums to choose from. Each choice's log-probability has to be the rival's to
1e-4, and each accuracy exactly. The rival is timed in its own process with the model loaded, with the batch size and
the number of threads that serve it best. Ours is the whole remote call on a worker that has loaded the model: journal,
events and reply.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import structlog
from _lm_eval import apart, claims, interpreter, rival
from _report import arguments, report

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.types import Sample
from crucible_worker.config import Settings
from crucible_worker.embedded import registry
from crucible_worker.embedded.arithmetic import held_out
from crucible_worker.server import Worker

MODEL = "arithmetic@320"
QUESTIONS = 100


async def main() -> None:
    options = arguments(__doc__)
    python = interpreter("multiple_choice")
    if python is None:
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    samples = questions()
    documents = [
        {"input": one.input, "choices": one.choices, "right": one.choices.index(one.targets[0])} for one in samples
    ]
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(port=0, state_dir=Path(folder) / "state", grading_processes=0, device="cpu").validate()
        async with Worker(settings) as worker, crucible_bridge.connect(worker.address) as bridge:
            ours = [await evaluate(bridge, samples, f"run-{run}") for run in range(options.runs + 1)]
            rivals = rival(python, "choices", registry.path(MODEL), documents, options.runs, Path(folder))
            logprobs = await logprobs_of(bridge, "run-0")
            metrics = (await bridge.evaluation.get_evaluation("run-0")).metrics.values
    for one in rivals:
        apart("log-probabilities of choices", logprobs, list(itertools.chain.from_iterable(one["logprobs"])))
        for key, theirs in (("accuracy_sum", "acc"), ("accuracy_per_byte", "acc_bytes")):
            if abs(metrics[key] - one[theirs]) > 1e-12:
                raise SystemExit(f"{key} is {metrics[key]}, the rival's {theirs} {one[theirs]}")
    # The first run loads the model.
    report(claims("multiple_choice", len(samples), "questions", ours[1:], rivals), as_json=options.json)


def questions() -> list[Sample]:
    """Additions with four sums to choose from, the right one somewhere among them."""
    made: list[Sample] = []
    for index, sample in enumerate(held_out(QUESTIONS)):
        sums = [str(abs(int(sample.targets[0]) + (offset - index % 4) * (1 + index % 9))) for offset in range(4)]
        made.append(Sample(id=str(index), input=sample.input, targets=sample.targets, choices=tuple(sums)))
    return [sample for sample in made if len(set(sample.choices)) == len(sample.choices)]


async def evaluate(bridge: Bridge, samples: Sequence[Sample], evaluation_id: str) -> float:
    """Seconds of one evaluation through the worker."""
    started = time.perf_counter()
    await bridge.evaluation.evaluate(
        evaluation_id=evaluation_id, model=f"embedded:{MODEL}", evaluators="multiple_choice", dataset=samples
    )
    return time.perf_counter() - started


async def logprobs_of(bridge: Bridge, evaluation_id: str) -> list[float]:
    """Of every choice of every sample."""
    results = [result async for result in bridge.evaluation.all_samples(evaluation_id)]
    return [result.measurements[f"logprob[{index}]"] for result in results for index in range(4)]


if __name__ == "__main__":
    asyncio.run(main())
