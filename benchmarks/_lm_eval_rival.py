"""lm-evaluation-harness on questions with choices and on texts, run by an interpreter that has it.

Takes: directory of the model, JSON file of questions, rounds, batch size, threads
Prints as its last line: {"seconds": [...], "logprobs": [[...]], "texts": [...], "acc": ..., "acc_bytes": ...}
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import lm_eval  # pyright: ignore[reportMissingImports]
import torch
from lm_eval.api.instance import Instance  # pyright: ignore[reportMissingImports]
from lm_eval.api.task import ConfigurableTask  # pyright: ignore[reportMissingImports]
from lm_eval.models.huggingface import HFLM  # pyright: ignore[reportMissingImports]

METRICS = ("acc", "acc_bytes")


def main(directory: str, questions: str, rounds: str, batch_size: str, threads: str) -> None:
    torch.set_num_threads(int(threads))
    model = HFLM(pretrained=directory, device="cpu", dtype="float32", batch_size=int(batch_size))
    seconds: list[float] = []
    found: Any = None
    for _ in range(int(rounds) + 1):
        task = ConfigurableTask(config=config(questions))
        started = time.perf_counter()
        found = lm_eval.simple_evaluate(model, tasks=[task], bootstrap_iters=0, log_samples=True)
        seconds.append(time.perf_counter() - started)
    texts = [document["text"] for document in json.loads(Path(questions).read_text())]
    rolling = [Instance(request_type="loglikelihood_rolling", doc={}, arguments=(text,), idx=0) for text in texts]
    samples = sorted(found["samples"]["choices"], key=lambda sample: sample["doc_id"])
    answer = {
        "seconds": seconds[1:],  # the first one warms up
        "logprobs": [[response[0] for response in sample["filtered_resps"]] for sample in samples],
        "texts": model.loglikelihood_rolling(rolling, disable_tqdm=True),
        **{metric: found["results"]["choices"][f"{metric},none"] for metric in METRICS},
    }
    print(json.dumps(answer))


def config(questions: str) -> dict[str, Any]:
    """A task of log-likelihoods, as its users write them."""
    documents = json.loads(Path(questions).read_text())

    def dataset(**_: Any) -> dict[str, Any]:
        import datasets

        return {"test": datasets.Dataset.from_list(documents)}

    return {
        "task": "choices",
        "custom_dataset": dataset,
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "input",
        "doc_to_target": "right",
        "doc_to_choice": "choices",
        "target_delimiter": "",
        "metric_list": [{"metric": metric, "aggregation": "mean", "higher_is_better": True} for metric in METRICS],
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
