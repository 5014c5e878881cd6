"""Inspect's own evaluation of a task, without the worker: `python inspect_alone.py FILE.py@TASK`.

The model answers in capitals. Written to stderr is JSON: of every metric its scorer, the name there, the reducer, its
own name and its value.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from typing import Any

os.environ["INSPECT_DISPLAY"] = "none"

from inspect_ai import eval_async  # pyright: ignore[reportMissingImports]
from inspect_ai.model import GenerateConfig, ModelOutput, ModelUsage, get_model  # pyright: ignore[reportMissingImports]


def _answer(input: list[Any], tools: Any, tool_choice: Any, config: GenerateConfig) -> ModelOutput:
    said = "".join(message.text for message in input).upper()
    cut = said[: config.max_tokens]
    output = ModelOutput.from_content("scripted", cut, stop_reason="stop" if cut == said else "max_tokens")
    output.usage = ModelUsage()  # counted by the mock otherwise, with a tokenizer from the network
    return output


async def _metrics(task: str) -> list[tuple[str, str, str | None, str, float]]:
    model = get_model("mockllm/scripted", config=GenerateConfig(max_tokens=1_000), custom_outputs=_answer)
    with tempfile.TemporaryDirectory() as folder:
        (log,) = await eval_async(task, model=model, log_dir=folder)
    assert log.results is not None, log.error
    return [
        (score.scorer, score.name, score.reducer, name, metric.value)
        for score in log.results.scores
        for name, metric in score.metrics.items()
    ]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_metrics(sys.argv[1]))), file=sys.__stderr__)
