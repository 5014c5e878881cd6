"""`preference` and ComputeDPOMetrics with two models against a bare loop with transformers: equal sums, and how fast.

Each pair is an addition with its right and a wrong sum, under a policy and a reference. The baseline holds both models
in this process, with its fastest number of threads. It passes the two answers of a pair through each model in one
padded batch, as loops of DPO do, and sums the log-probabilities of the answers' tokens. Ours is the whole remote call
on a worker that has loaded both models: request, rendering, both models, journal, events and reply. Each of our answers
has a separate pass, so that its numbers do not depend on the other one. Each sum must equal the baseline's to 1e-4. All
sides alternate.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog
import torch
from _report import Claim, arguments, report
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.types import ChatMessage, Conversation, EvaluatorSpec, PreferencePair, Sample
from crucible_worker.config import Settings
from crucible_worker.embedded import registry
from crucible_worker.embedded.arithmetic import held_out
from crucible_worker.server import Worker

POLICY, REFERENCE = "arithmetic@600", "arithmetic@180"
PAIRS = 256
BETA = 0.1
TOLERANCE = 1e-4
LEAST = 0.4
"""Bound of either, relative to the bare loop."""

Pair = tuple[str, str, str]
"""A question, its chosen and its rejected answer."""
Sums = Sequence[Sequence[float]]
"""Of each pair: chosen and rejected under the policy, chosen and rejected under the reference, in nats."""


async def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    pairs = additions()
    bare = BareLoop(pairs)
    seconds: dict[str, list[float]] = {"bare": [], "preference": [], "ComputeDPOMetrics": []}
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(port=0, state_dir=Path(folder), grading_processes=0, device="cpu").validate()
        async with Worker(settings) as worker, crucible_bridge.connect(worker.address) as bridge:
            for run in range(options.runs + 1):
                took = {
                    "bare": bare.measure(pairs),
                    "preference": await evaluated(bridge, pairs, f"run-{run}"),
                    "ComputeDPOMetrics": await computed(bridge, pairs),
                }
                expected = took["bare"][1]
                for name, (each, sums) in took.items():
                    apart(name, sums, expected)
                    if run:  # the first one loads the models
                        seconds[name].append(each)
    report([claim(name, seconds) for name in ("preference", "ComputeDPOMetrics")], as_json=options.json)


def additions() -> list[Pair]:
    """Held-out additions with a right and a wrong sum."""
    return [
        (str(sample.input), sample.targets[0], str(int(sample.targets[0]) + 1 + index % 9))
        for index, sample in enumerate(held_out(PAIRS))
    ]


class BareLoop:
    """Both models in this process, one pair after the other."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        """Load the models, and find their fastest number of threads."""
        transformers_logging.disable_progress_bar()
        self._tokenizer = AutoTokenizer.from_pretrained(registry.path(POLICY))
        self._models: list[Any] = [
            AutoModelForCausalLM.from_pretrained(registry.path(name), dtype="float32").eval()
            for name in (POLICY, REFERENCE)
        ]
        torch.set_num_threads(min((1, torch.get_num_threads()), key=lambda count: self._seconds(pairs[:32], count)))

    def measure(self, pairs: Sequence[Pair]) -> tuple[float, Sums]:
        """The seconds of all pairs, and their sums."""
        started = time.perf_counter()
        sums = [[value for model in self._models for value in self._summed(model, *pair)] for pair in pairs]
        return time.perf_counter() - started, sums

    def _seconds(self, pairs: Sequence[Pair], threads: int) -> float:
        torch.set_num_threads(threads)
        self.measure(pairs[:4])
        return self.measure(pairs)[0]

    @torch.no_grad()
    def _summed(self, model: Any, question: str, chosen: str, rejected: str) -> list[float]:
        prompt = self._tokenizer(question)["input_ids"]
        answers = [
            [*self._tokenizer(answer, add_special_tokens=False)["input_ids"], self._tokenizer.eos_token_id]
            for answer in (chosen, rejected)
        ]
        longest = max(map(len, answers))
        rows = torch.tensor([[*prompt, *answer, *[0] * (longest - len(answer))] for answer in answers])
        logprobs = model(rows).logits[:, :-1].log_softmax(-1).gather(-1, rows[:, 1:, None])[:, :, 0]
        begin = len(prompt) - 1
        return [float(row[begin : begin + len(answer)].sum()) for row, answer in zip(logprobs, answers)]


async def evaluated(bridge: Bridge, pairs: Sequence[Pair], evaluation_id: str) -> tuple[float, Sums]:
    """The seconds of one evaluation by `preference`, and what it measured."""
    samples = [
        Sample(id=str(index), input=question, metadata={"chosen": chosen, "rejected": rejected})
        for index, (question, chosen, rejected) in enumerate(pairs)
    ]
    spec = EvaluatorSpec(kind="preference", options={"reference": f"embedded:{REFERENCE}", "beta": BETA})
    started = time.perf_counter()
    await bridge.evaluation.evaluate(
        evaluation_id=evaluation_id, model=f"embedded:{POLICY}", evaluators=[spec], dataset=samples
    )
    seconds = time.perf_counter() - started
    names = [f"{answer}{of}_logprob" for of in ("", "_reference") for answer in ("chosen", "rejected")]
    results = [result async for result in bridge.evaluation.all_samples(evaluation_id)]
    return seconds, [[result.measurements[name] for name in names] for result in results]


async def computed(bridge: Bridge, pairs: Sequence[Pair]) -> tuple[float, Sums]:
    """The seconds of one call of ComputeDPOMetrics, and what it measured."""
    asked = [
        PreferencePair(
            chosen=Conversation((ChatMessage("user", question), ChatMessage("assistant", chosen))),
            rejected=Conversation((ChatMessage("user", question), ChatMessage("assistant", rejected))),
        )
        for question, chosen, rejected in pairs
    ]
    started = time.perf_counter()
    found = await bridge.metrics.compute_dpo_metrics_of_models(
        asked, f"embedded:{POLICY}", f"embedded:{REFERENCE}", beta=BETA
    )
    seconds = time.perf_counter() - started
    columns = [found.chosen, found.rejected, found.chosen_reference, found.rejected_reference]
    measured = [column.tolist() for column in columns if column is not None]
    assert len(measured) == len(columns)
    return seconds, [list(row) for row in zip(*measured, strict=True)]


def apart(name: str, found: Sums, expected: Sums) -> None:
    """Compare every sum, to the tolerance."""
    for index, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        if any(abs(one - other) > TOLERANCE for one, other in zip(mine, theirs, strict=True)):
            raise SystemExit(f"{name}: pair {index} has the sums {mine}, the bare loop {theirs}")


def claim(name: str, seconds: dict[str, list[float]]) -> Claim:
    """Pairs a second of one way, next to those of the bare loop."""
    rates = {which: [PAIRS / each for each in seconds[which]] for which in (name, "bare")}
    return Claim(
        name=f"{name} of {PAIRS} pairs with two models",
        ours=rates[name],
        baseline=rates["bare"],
        unit="pairs/s",
        ratio=statistics.median(rates[name]) / statistics.median(rates["bare"]),
        at_least=LEAST,
        claim=f"at least {LEAST:g} of a bare loop with transformers, a pair in a batch",
    )


if __name__ == "__main__":
    asyncio.run(main())
