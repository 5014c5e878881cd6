"""`multiple_choice` on the embedded model against lm-evaluation-harness: the same log-probabilities, and how fast.

Both are asked the same additions with four sums to choose from. Each choice's log-probability has to be the rival's to
1e-4, that of each addition as a whole as well (as `bits_per_byte` measures it), and each accuracy exactly. The rival is
timed in its own process with the model loaded, with the batch size and the number of threads that serve it best. Ours
is the whole remote call on a worker that has loaded the model: journal, events and reply.

LM_EVAL_PYTHON names an interpreter that has lm-eval (`make bench-lm-eval` makes one, and runs this); nothing is
measured without.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog
from _report import Claim, arguments, report

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.types import Sample
from crucible_worker.config import Settings
from crucible_worker.embedded import registry
from crucible_worker.embedded.arithmetic import held_out
from crucible_worker.server import Worker

MODEL = "arithmetic@320"
QUESTIONS = 100
TOLERANCE = 1e-4
BATCH_SIZES, THREADS = (1, 64), (1, 2)
RIVAL = Path(__file__).with_name("_lm_eval_rival.py")


async def main() -> None:
    options = arguments(__doc__)
    python = os.environ.get("LM_EVAL_PYTHON")
    if not python:
        print("multiple_choice: not measured, as LM_EVAL_PYTHON names no interpreter with lm-eval", file=sys.stderr)
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    samples = questions()
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(port=0, state_dir=Path(folder) / "state", grading_processes=0, device="cpu").validate()
        async with Worker(settings) as worker, crucible_bridge.connect(worker.address) as bridge:
            ours = [await evaluate(bridge, samples, f"run-{run}") for run in range(options.runs + 1)]
            rivals = rival(python, samples, options.runs, Path(folder))
            compare("choices", await logprobs_of(bridge, "run-0"), [one["logprobs"] for one in rivals])
            compare("texts", await texts_of(bridge, samples), [[[value] for value in one["texts"]] for one in rivals])
            metrics = (await bridge.evaluation.get_evaluation("run-0")).metrics.values
    for key, theirs in (("accuracy_sum", "acc"), ("accuracy_per_byte", "acc_bytes")):
        if abs(metrics[key] - rivals[0][theirs]) > 1e-12:
            raise SystemExit(f"{key} is {metrics[key]}, the rival's {theirs} {rivals[0][theirs]}")
    best = min((one["seconds"] for one in rivals), key=statistics.median)
    claim = Claim(
        name="multiple_choice",
        ours=[len(samples) / seconds for seconds in ours[1:]],  # the first one loads the model
        rival=[len(samples) / seconds for seconds in best],
        unit="questions/s",
        ratio=statistics.median(best) / statistics.median(ours[1:]),
        at_least=1.0,
        claim="log-probabilities equal to 1e-4, at least as fast as lm-evaluation-harness",
    )
    report([claim], as_json=options.json)


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


async def logprobs_of(bridge: Bridge, evaluation_id: str) -> list[list[float]]:
    """By sample and choice."""
    results = [result async for result in bridge.evaluation.all_samples(evaluation_id)]
    return [[result.measurements[f"logprob[{index}]"] for index in range(4)] for result in results]


async def texts_of(bridge: Bridge, samples: Sequence[Sample]) -> list[list[float]]:
    """Of each question with its right answer, as `perplexity` and `bits_per_byte` measure it whole."""
    whole = [Sample(id=sample.id, input=text_of(sample)) for sample in samples]
    await bridge.evaluation.evaluate(
        evaluation_id="texts", model=f"embedded:{MODEL}", evaluators="bits_per_byte", dataset=whole
    )
    results = [result async for result in bridge.evaluation.all_samples("texts")]
    return [[result.measurements["weighted_logprob_sum"]] for result in results]


def text_of(sample: Sample) -> str:
    """A question with its right answer."""
    return f"{sample.input}{sample.targets[0]}"


def rival(python: str, samples: Sequence[Sample], runs: int, folder: Path) -> list[dict[str, Any]]:
    """What lm-evaluation-harness finds, once for each way to run it."""
    file = folder / "questions.json"
    documents = [
        {
            "input": sample.input,
            "choices": sample.choices,
            "right": sample.choices.index(sample.targets[0]),
            "text": text_of(sample),
        }
        for sample in samples
    ]
    file.write_text(json.dumps(documents))
    command = [python, str(RIVAL), str(registry.path(MODEL)), str(file), str(runs)]
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub")}
    found: list[dict[str, Any]] = []
    for size, threads in itertools.product(BATCH_SIZES, THREADS):
        done = subprocess.run(
            [*command, str(size), str(threads)], env=offline, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"lm-eval failed:\n{done.stderr}")
        found.append(json.loads(done.stdout.splitlines()[-1]))
    return found


def compare(what: str, ours: Sequence[Sequence[float]], rivals: Sequence[Sequence[Sequence[float]]]) -> None:
    """Every log-probability, to `TOLERANCE`."""
    for theirs in rivals:
        apart = [
            abs(one - other)
            for mine, his in zip(ours, theirs, strict=True)
            for one, other in zip(mine, his, strict=True)
        ]
        if max(apart) > TOLERANCE:
            raise SystemExit(f"log-probabilities of {what} are {max(apart):g} apart, more than {TOLERANCE:g}")


if __name__ == "__main__":
    asyncio.run(main())
