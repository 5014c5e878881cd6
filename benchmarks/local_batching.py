"""64 prompts on the local backend, batched, against `model.generate` one by one.

Both answer the same held-out problems with the same embedded checkpoint, greedily, to the end of sequence; the answers
must be equal. The baseline has the model in this process, and its fastest number of threads. Ours is the whole way: 64
concurrent calls to the backend, the pipe to the host, the tokenizer, the batch, and log-probabilities. `--device cuda`
measures both on a GPU.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
from _report import Claim, arguments, report
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from crucible_bridge.types import LocalModel, SamplingParams
from crucible_worker.backends.local.backend import LocalBackend
from crucible_worker.backends.local.model import HostedModel
from crucible_worker.embedded import registry
from crucible_worker.embedded.arithmetic import held_out
from crucible_worker.rendering import render_prompt

MODEL = "arithmetic@600"
PROMPTS = 64
MAX_TOKENS = 8


async def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, device=True)
    texts = [str(sample.input) for sample in held_out(PROMPTS)]
    baseline = _OneByOne(options.device)
    directory = registry.path(MODEL)
    backend = LocalBackend((directory.parent,), options.device)
    try:
        model = await backend.open(LocalModel(directory.name, dtype="float32"))
        await model.load()
        ours: list[float] = []
        theirs: list[float] = []
        for run in range(options.runs + 1):
            started = time.perf_counter()
            expected = baseline.answers(texts)
            between = time.perf_counter()
            answers = await _batched(model, texts)
            ended = time.perf_counter()
            if answers != expected:
                raise SystemExit("the batched answers differ from those of model.generate")
            if run:  # the first one warms both up
                theirs.append(between - started)
                ours.append(ended - between)
    finally:
        await backend.aclose()
    claim = Claim(
        name="local_batching",
        ours=[PROMPTS / seconds for seconds in ours],
        baseline=[PROMPTS / seconds for seconds in theirs],
        unit="prompts/s",
        ratio=statistics.median(theirs) / statistics.median(ours),
        at_least=2.0,
        claim="at least twice one-by-one generate, for 64 prompts",
    )
    report([claim], as_json=options.json)


async def _batched(model: HostedModel, texts: Sequence[str]) -> list[str]:
    params = SamplingParams(max_tokens=MAX_TOKENS)

    async def answer(text: str) -> str:
        (sample,) = await model.sample(await render_prompt(model.tokenizer, text), params)
        return sample.text

    return await asyncio.gather(*map(answer, texts))


class _OneByOne:
    """The model in this process, with one prompt after the other."""

    def __init__(self, device: str) -> None:
        logging.disable_progress_bar()
        directory = registry.path(MODEL)
        model: Any = AutoModelForCausalLM.from_pretrained(directory, dtype="float32").eval()
        self._model = model.to(device)
        self._tokenizer = AutoTokenizer.from_pretrained(directory)
        texts = [str(sample.input) for sample in held_out(PROMPTS)]
        torch.set_num_threads(min((1, torch.get_num_threads()), key=lambda count: self._seconds(texts, count)))

    def _seconds(self, texts: Sequence[str], threads: int) -> float:
        torch.set_num_threads(threads)
        self.answers(texts[:4])
        started = time.perf_counter()
        self.answers(texts)
        return time.perf_counter() - started

    def answers(self, texts: Sequence[str]) -> list[str]:
        answers: list[str] = []
        for text in texts:
            inputs = self._tokenizer(text, return_tensors="pt", return_token_type_ids=False).to(self._model.device)
            tokens = self._model.generate(**inputs, max_new_tokens=MAX_TOKENS, do_sample=False)
            answers.append(self._tokenizer.decode(tokens[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))
        return answers


if __name__ == "__main__":
    asyncio.run(main())
