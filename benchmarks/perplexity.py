"""`perplexity` and `bits_per_byte` on the embedded model against lm-evaluation-harness: the same numbers, and how fast.

Both measure the same texts as a whole, most of which are many times longer than the model's context of 32 tokens: the
baseline's task uses rolling log-likelihoods, like its wikitext. Each text's log-probability per token, its
bits per byte, and those of all texts must equal the baseline's to 1e-4. The timing is as in
`multiple_choice.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
from _lm_eval import apart, baseline, claims, interpreter
from _report import arguments, report

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.types import Sample, SampleResult
from crucible_worker.config import Settings
from crucible_worker.embedded import registry
from crucible_worker.embedded.arithmetic import training_problems
from crucible_worker.server import Worker

MODEL = "arithmetic@320"
TEXTS, MOST_SUMS = 100, 60
KINDS = ("perplexity", "bits_per_byte")


async def main() -> None:
    options = arguments(__doc__)
    python = interpreter("perplexity")
    if python is None:
        return
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    samples = texts()
    documents = [{"text": sample.input} for sample in samples]
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(port=0, state_dir=Path(folder) / "state", grading_processes=0, device="cpu").validate()
        async with Worker(settings) as worker, crucible_bridge.connect(worker.address) as bridge:
            ours = {
                kind: [await evaluate(bridge, kind, samples, f"{kind}-{run}") for run in range(options.runs + 1)]
                for kind in KINDS
            }
            baselines = baseline(python, "texts", registry.path(MODEL), documents, options.runs, Path(folder))
            results = [result async for result in bridge.evaluation.all_samples("bits_per_byte-0")]
            metrics = {
                kind: (await bridge.evaluation.get_evaluation(f"{kind}-0")).metrics.values[kind] for kind in KINDS
            }
    compare(results, metrics, baselines)
    # Of each, the first run loads the model.
    told = [claim for kind in KINDS for claim in claims(kind, len(samples), "texts", ours[kind][1:], baselines)]
    report(told, as_json=options.json)


def texts() -> list[Sample]:
    """Consecutive additions, up to `MOST_SUMS` of them: a tenth of the texts fits into the context."""
    sums = itertools.cycle("".join(problem) for problem in training_problems())
    lengths = [1 + index * MOST_SUMS // TEXTS for index in range(TEXTS)]
    return [
        Sample(id=str(index), input="".join(itertools.islice(sums, length))) for index, length in enumerate(lengths)
    ]


async def evaluate(bridge: Bridge, kind: str, samples: Sequence[Sample], evaluation_id: str) -> float:
    """Seconds of one evaluation through the worker."""
    started = time.perf_counter()
    await bridge.evaluation.evaluate(
        evaluation_id=evaluation_id, model=f"embedded:{MODEL}", evaluators=kind, dataset=samples
    )
    return time.perf_counter() - started


def compare(
    results: Sequence[SampleResult], metrics: Mapping[str, float], baselines: Sequence[Mapping[str, Any]]
) -> None:
    """Compare every number, to the tolerance."""
    tokens = [result.measurements["weight_sum"] for result in results]
    sizes = [result.measurements["bytes"] for result in results]
    ours = [result.measurements["weighted_logprob_sum"] for result in results]
    for one in baselines:
        theirs = list(itertools.chain.from_iterable(one["logprobs"]))
        for what, by in (("log-probabilities by the token", tokens), ("bits by the byte", sizes)):
            unit = math.log(2) if by is sizes else 1.0
            each = [
                [value / count / unit for value, count in zip(values, by, strict=True)] for values in (ours, theirs)
            ]
            apart(what, *each)
        apart("bits per byte", [metrics["bits_per_byte"]], [one["bits_per_byte"]])
        perplexity = math.exp(-math.fsum(theirs) / sum(tokens))
        apart("perplexities", [metrics["perplexity"] / perplexity], [1.0])


if __name__ == "__main__":
    asyncio.run(main())
