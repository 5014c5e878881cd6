"""Generation and log-probabilities of a larger local model, against plain transformers on the same device.

The model has random weights, and is made on the spot: 1.1 billion of them in bfloat16 on a GPU (`--device cuda`), 2
million in float32 on the CPU. The baseline has the model in this process. It generates with `model.generate`, all
prompts in one batch, padded on the left. It measures texts one by one, as ours does, and in batches of 16, which ours
does not: texts of different requests never share a pass. Ours is the whole way: concurrent calls to the backend, the
pipe to the host, the batch. Log-probabilities must agree to the rounding of the type.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from _report import Claim, arguments, report
from transformers import AutoModelForCausalLM, LlamaConfig
from transformers.utils import logging

from crucible_bridge.types import Datum, LocalModel, ModelInput, SamplingParams
from crucible_worker.backends.local.backend import LocalBackend
from crucible_worker.backends.local.model import HostedModel

SIZES: dict[str, dict[str, Any]] = {
    "cuda": {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "vocab_size": 32_000},
    "cpu": {"hidden_size": 192, "intermediate_size": 512, "num_hidden_layers": 4, "vocab_size": 1_000},
}
TYPES = {"cuda": "bfloat16", "cpu": "float32"}
HEAD = 64
ROWS = 64
PROMPT_TOKENS = 128
MAX_TOKENS = 64
TEXTS = {"cuda": 128, "cpu": 16}
TEXT_TOKENS = 512
BATCH = 16
CLOSE = {"cuda": 0.05, "cpu": 1e-4}
"""Most nats between the mean log-probabilities of a text."""
SAMPLED: dict[str, Any] = {"temperature": 1.0, "top_p": 0.9}


async def main() -> None:
    options = arguments(__doc__, device=True)
    kind = options.device.partition(":")[0]
    choice = random.Random(1)
    prompts = [_tokens(choice, kind, choice.randrange(PROMPT_TOKENS // 2, PROMPT_TOKENS)) for _ in range(ROWS)]
    texts = [_tokens(choice, kind, TEXT_TOKENS) for _ in range(TEXTS[kind])]
    with tempfile.TemporaryDirectory() as folder:
        baseline = _Transformers(Path(folder) / "model", options.device)
        backend = LocalBackend([Path(folder)], device=options.device)
        try:
            model = await backend.open(LocalModel("model", dtype=TYPES[kind]))
            await model.load()
            claims = [
                *await _generation(model, baseline, prompts, options.runs),
                *await _measurement(model, baseline, texts, options.runs, CLOSE[kind]),
            ]
        finally:
            await backend.aclose()
    report(claims, as_json=options.json)


async def _generation(
    model: HostedModel, baseline: _Transformers, prompts: Sequence[list[int]], runs: int
) -> list[Claim]:
    claims: list[Claim] = []
    for name, given in (("greedy", {}), ("sampled", SAMPLED)):
        params = SamplingParams(max_tokens=MAX_TOKENS, seed=1, **given)

        async def generate(params: SamplingParams = params) -> None:
            answers = await asyncio.gather(*(model.sample(ModelInput.of(prompt), params) for prompt in prompts))
            assert all(len(sample.tokens) == MAX_TOKENS for (sample,) in answers)

        ours, theirs = await _timed(runs, generate, lambda given=given: baseline.generate(prompts, given))
        claim = "nothing is promised; the baseline is generate in one batch"
        claims.append(_claim(f"local_large_{name}", ours, theirs, ROWS * MAX_TOKENS, "tokens/s", claim))
    return claims


async def _measurement(
    model: HostedModel, baseline: _Transformers, texts: Sequence[list[int]], runs: int, close: float
) -> list[Claim]:
    data = [Datum(model_input=ModelInput.of(text[:-1]), loss_fn_inputs={"target_tokens": text[1:]}) for text in texts]
    means: list[float] = []

    async def measure() -> None:
        means[:] = [float(values.mean()) for values in await model.forward(data)]

    claims: list[Claim] = []
    for size in (1, BATCH):
        found: list[float] = []

        def compare(size: int = size, found: list[float] = found) -> None:
            found[:] = baseline.measure(texts, size)

        ours, theirs = await _timed(runs, measure, compare)
        apart = max(abs(one - other) for one, other in zip(means, found, strict=True))
        if not apart <= close:
            raise SystemExit(f"the mean log-probabilities are {apart:.3g} nats apart")
        claim = f"nothing is promised; the baseline has {size} {'text' if size == 1 else 'texts'} in a pass"
        claims.append(_claim(f"local_large_nll_{size}", ours, theirs, len(texts), "texts/s", claim))
    return claims


async def _timed(
    runs: int, ours: Callable[[], Awaitable[None]], theirs: Callable[[], None]
) -> tuple[list[float], list[float]]:
    """Seconds of each run, in turns; the first one of each warms up."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for run in range(runs + 1):
        started = time.perf_counter()
        await ours()
        between = time.perf_counter()
        theirs()
        ended = time.perf_counter()
        if run:
            seconds[0].append(between - started)
            seconds[1].append(ended - between)
    return seconds


def _claim(name: str, ours: Sequence[float], theirs: Sequence[float], amount: int, unit: str, claim: str) -> Claim:
    return Claim(
        name=name,
        ours=[amount / seconds for seconds in ours],
        baseline=[amount / seconds for seconds in theirs],
        unit=unit,
        ratio=statistics.median(theirs) / statistics.median(ours),
        claim=claim,
    )


def _tokens(choice: random.Random, kind: str, count: int) -> list[int]:
    return [choice.randrange(SIZES[kind]["vocab_size"]) for _ in range(count)]


class _Transformers:
    """The model in this process; it is also saved for ours."""

    def __init__(self, folder: Path, device: str) -> None:
        logging.disable_progress_bar()
        kind = device.partition(":")[0]
        if kind == "cpu":
            torch.set_num_threads(1)  # as ours, which computes a model of this size by one thread
        sizes = SIZES[kind]
        heads = sizes["hidden_size"] // HEAD
        config = LlamaConfig(
            **sizes,
            num_attention_heads=heads,
            num_key_value_heads=max(1, heads // 4),
            max_position_embeddings=4_096,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=0,
        )
        torch.manual_seed(0)
        with torch.device(device):
            made: Any = AutoModelForCausalLM.from_config(config)
        self._model: Any = made.to(getattr(torch, TYPES[kind])).eval()
        self._model.save_pretrained(folder)

    @torch.inference_mode()
    def generate(self, prompts: Sequence[list[int]], sampled: dict[str, Any]) -> None:
        width = max(map(len, prompts))
        rows = [[0] * (width - len(prompt)) + prompt for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        given = {"do_sample": True, "top_k": 0, **sampled} if sampled else {"do_sample": False}
        made = self._model.generate(
            input_ids=torch.tensor(rows, device=self._model.device),
            attention_mask=torch.tensor(mask, device=self._model.device),
            max_new_tokens=MAX_TOKENS,
            **given,
        )
        assert made.cpu().shape == (len(prompts), width + MAX_TOKENS)

    @torch.inference_mode()
    def measure(self, texts: Sequence[list[int]], size: int) -> list[float]:
        """Mean log-probability of each text's tokens after the first."""
        means: list[float] = []
        for start in range(0, len(texts), size):
            tokens = torch.tensor(texts[start : start + size], device=self._model.device)
            logits = self._model(input_ids=tokens[:, :-1], use_cache=False).logits
            wanted = tokens[:, 1:, None]
            # One text at a time: in float64, as ours.
            for row, targets in zip(logits, wanted):
                logprobs = row.double().gather(1, targets) - row.double().logsumexp(1, keepdim=True)
                means.append(float(logprobs.mean()))
        return means


if __name__ == "__main__":
    asyncio.run(main())
