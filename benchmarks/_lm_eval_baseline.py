"""lm-evaluation-harness on questions with choices, or on texts, run by an interpreter with lm-eval.

Takes: choices or texts, directory of the model, JSON file of the documents, rounds, batch size, threads
Prints as its last line: {"seconds": [...], "evaluating": [...], "logprobs": [...], and each metric of the task}

A document is {"input": ..., "choices": [...], "right": index}, or {"text": ...}. Log-probabilities are those of each
choice of a question, or of each text as a whole. It times the call that its users make, and within it the evaluation
alone: without the search for the harness's own tasks, and its report on the machine.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lm_eval import evaluator  # pyright: ignore[reportMissingImports]
from lm_eval.api.task import ConfigurableTask  # pyright: ignore[reportMissingImports]
from lm_eval.models.huggingface import HFLM  # pyright: ignore[reportMissingImports]

METRICS = {
    "choices": {"acc": "mean", "acc_bytes": "mean"},
    "texts": {"bits_per_byte": "bits_per_byte", "byte_perplexity": "weighted_perplexity"},
}
"""Metrics of a task, and how the harness aggregates each."""
FIELDS = {
    "choices": {
        "output_type": "multiple_choice",
        "doc_to_text": "input",
        "doc_to_target": "right",
        "doc_to_choice": "choices",
        "target_delimiter": "",
    },
    "texts": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "text"},
}


def main(task: str, directory: str, documents: str, rounds: str, batch_size: str, threads: str) -> None:
    torch.set_num_threads(int(threads))
    model = HFLM(pretrained=directory, device="cpu", dtype="float32", batch_size=int(batch_size))
    seconds: list[float] = []
    evaluating: list[float] = []
    evaluator.evaluate = timed(evaluator.evaluate, evaluating)
    found: Any = None
    for _ in range(int(rounds) + 1):
        configured = ConfigurableTask(config=config(task, documents))
        found = timed(evaluator.simple_evaluate, seconds)(
            model, tasks=[configured], bootstrap_iters=0, log_samples=True
        )
    samples = sorted(found["samples"][task], key=lambda sample: sample["doc_id"])
    answer = {
        "seconds": seconds[1:],  # the first one warms up
        "evaluating": evaluating[1:],
        "logprobs": [[of(response) for response in sample["filtered_resps"]] for sample in samples],
        **{metric: found["results"][task][f"{metric},none"] for metric in METRICS[task]},
    }
    print(json.dumps(answer))


def timed(function: Callable[..., Any], into: list[float]) -> Callable[..., Any]:
    """The function, which also records how long it takes."""

    def call(*args: Any, **options: Any) -> Any:
        started = time.perf_counter()
        found = function(*args, **options)
        into.append(time.perf_counter() - started)
        return found

    return call


def of(response: Any) -> float:
    """A log-probability; that of a choice comes with whether it is the likeliest text."""
    return response[0] if isinstance(response, list | tuple) else response


def config(task: str, file: str) -> dict[str, Any]:
    """A task of log-likelihoods, as its users define them."""
    documents = json.loads(Path(file).read_text())

    def dataset(**_: Any) -> dict[str, Any]:
        import datasets

        return {"test": datasets.Dataset.from_list(documents)}

    metrics = [
        {"metric": metric, "aggregation": aggregation, "higher_is_better": True}
        for metric, aggregation in METRICS[task].items()
    ]
    return {"task": task, "custom_dataset": dataset, "test_split": "test", "metric_list": metrics, **FIELDS[task]}


if __name__ == "__main__":
    main(*sys.argv[1:])
