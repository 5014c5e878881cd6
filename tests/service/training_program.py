"""A real Trainer on a small model, for the tests of its callback: `training_program.py OPTIONS...`, each in JSON.

Trains once for each, one after the other, as an import takes longer; prints each Trainer's history in a line of JSON.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer, TrainingArguments

from crucible_bridge.integrations.transformers import EvaluateCallback
from crucible_worker.embedded import registry


def train(
    *, address: str, output_dir: str, steps: int, arguments: dict[str, Any], resume: bool = False, **options: Any
) -> list[Any]:
    """Train an embedded model for some steps; returns the history, and last why it was stopped early."""
    checkpoint = registry.path("arithmetic@180")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    ids = torch.tensor(tokenizer("1+1=2")["input_ids"])
    data: Any = [{"input_ids": ids, "labels": ids} for _ in range(64)]
    given: dict[str, Any] = {"save_steps": 2, "logging_steps": 1, "learning_rate": 1e-3, **arguments}
    args = TrainingArguments(
        output_dir=output_dir,
        max_steps=steps,
        **given,
        per_device_train_batch_size=4,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    callback = EvaluateCallback(address, **options)
    trainer = Trainer(model=model, args=args, train_dataset=data, processing_class=tokenizer, callbacks=[callback])
    trainer.train(resume_from_checkpoint=resume)
    stopped = callback.stopped and dataclasses.asdict(callback.stopped)
    ends = [] if stopped is None else [{"step": trainer.state.global_step, "stopped": stopped}]
    return [*trainer.state.log_history, *ends]


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        found = train(**json.loads(argument))
        if os.environ.get("RANK", "0") == "0":  # of several processes
            print(json.dumps(found))
