"""`multiple_choice` against lm-evaluation-harness: the same log-probabilities, and how fast.

Two cases: additions on the embedded model, with four sums to choose from; and questions of 200 tokens on a model of 14
million parameters, with random weights. Each choice's log-probability must equal the baseline's to 1e-4, and each
accuracy exactly. The baseline is timed in its own process with the model loaded, with the batch size and the number of
threads that are fastest for it. Ours is the whole remote call on a worker that has loaded the model, with 128 questions
at a time: journal, events and reply. Each of our questions has a separate pass, so that its numbers do not depend on
the other questions. The baseline shares passes: on the embedded model its evaluation alone is faster, and is printed
only.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import multiprocessing
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import structlog
from _lm_eval import apart, baseline, claims, interpreter
from _report import Claim, arguments, report

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.types import Limits, Sample
from crucible_worker.config import Settings
from crucible_worker.embedded import registry
from crucible_worker.embedded.arithmetic import held_out
from crucible_worker.server import Worker

MODEL = "arithmetic@320"
QUESTIONS = 400
CONCURRENCY = 128
LONG, LONG_TOKENS = 16, 200
LONG_SHAPE = {
    "hidden_size": 384,
    "intermediate_size": 1536,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "head_dim": 64,
    "max_position_embeddings": 256,
    "dtype": "float32",
}


async def main() -> None:
    options = arguments(__doc__)
    python = interpreter("multiple_choice")
    if python is None:
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # In a separate process: a worker has no torch in its own process either.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
            long_model = other.submit(random_model, folder / "models" / "long").result()
        settings = Settings(
            port=0, state_dir=folder / "state", model_roots=(folder / "models",), grading_processes=0, device="cpu"
        ).validate()
        async with Worker(settings) as worker, crucible_bridge.connect(worker.address) as bridge:
            made = [
                *await compare(
                    bridge,
                    "multiple_choice",
                    f"embedded:{MODEL}",
                    registry.path(MODEL),
                    questions(),
                    python,
                    options.runs,
                ),
                *await compare(
                    bridge,
                    "long_questions",
                    "local:long",
                    long_model,
                    long_questions(),
                    python,
                    options.runs,
                    alone_at_least=1.0,
                ),
            ]
    report(made, as_json=options.json)


async def compare(
    bridge: Bridge,
    name: str,
    model: str,
    directory: Path,
    samples: Sequence[Sample],
    python: str,
    runs: int,
    *,
    alone_at_least: float | None = None,
) -> list[Claim]:
    """Both sides on one model and its questions."""
    documents = [
        {"input": one.input, "choices": one.choices, "right": one.choices.index(one.targets[0])} for one in samples
    ]
    ours = [await evaluate(bridge, model, samples, f"{name}-{run}") for run in range(runs + 1)]
    with tempfile.TemporaryDirectory() as folder:
        baselines = baseline(python, "choices", directory, documents, runs, Path(folder))
    logprobs = await logprobs_of(bridge, f"{name}-0")
    metrics = (await bridge.evaluation.get_evaluation(f"{name}-0")).metrics.values
    for one in baselines:
        apart("log-probabilities of choices", logprobs, list(itertools.chain.from_iterable(one["logprobs"])))
        for key, theirs in (("accuracy_sum", "acc"), ("accuracy_per_byte", "acc_bytes")):
            if abs(metrics[key] - one[theirs]) > 1e-12:
                raise SystemExit(f"{key} is {metrics[key]}, the baseline's {theirs} {one[theirs]}")
    # The first run loads the model.
    return claims(name, len(samples), "questions", ours[1:], baselines, alone_at_least=alone_at_least)


def questions() -> list[Sample]:
    """Additions with four sums to choose from, the right one at any position."""
    made: list[Sample] = []
    for index, sample in enumerate(held_out(QUESTIONS)):
        sums = [str(abs(int(sample.targets[0]) + (offset - index % 4) * (1 + index % 9))) for offset in range(4)]
        made.append(Sample(id=str(index), input=sample.input, targets=sample.targets, choices=tuple(sums)))
    return [sample for sample in made if len(set(sample.choices)) == len(sample.choices)]


def long_questions() -> list[Sample]:
    """Digits, one token each, followed by four numbers, one of which is right."""
    digits = random.Random(0)

    def number(size: int) -> str:
        return "".join(digits.choices("0123456789", k=size))

    made: list[Sample] = []
    for index in range(LONG):
        choices = tuple(f"{place}{number(4 + place)}" for place in range(4))
        made.append(Sample(id=str(index), input=number(LONG_TOKENS), targets=(choices[index % 4],), choices=choices))
    return made


def random_model(directory: Path) -> Path:
    """A checkpoint with the embedded model's tokenizer, and more of everything else, identical in every run."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    shutil.copytree(registry.path(MODEL), directory, ignore=shutil.ignore_patterns("*.safetensors"))
    config = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps({**config, **LONG_SHAPE}))
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(directory)).save_pretrained(directory)
    return directory


async def evaluate(bridge: Bridge, model: str, samples: Sequence[Sample], evaluation_id: str) -> float:
    """Seconds of one evaluation through the worker."""
    started = time.perf_counter()
    await bridge.evaluation.evaluate(
        evaluation_id=evaluation_id,
        model=model,
        evaluators="multiple_choice",
        dataset=samples,
        limits=Limits(concurrency=CONCURRENCY),
    )
    return time.perf_counter() - started


async def logprobs_of(bridge: Bridge, evaluation_id: str) -> list[float]:
    """The log-probability of every choice of every sample."""
    results = [result async for result in bridge.evaluation.all_samples(evaluation_id)]
    return [result.measurements[f"logprob[{index}]"] for result in results for index in range(4)]


if __name__ == "__main__":
    asyncio.run(main())
