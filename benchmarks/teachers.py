"""Log-probabilities of a batch by two teachers in one call, against one call for each sequence and teacher.

Both ask the same worker, which is in this process, for the same 64 sequences of two embedded checkpoints: their
log-probabilities and the eight likeliest tokens in place of each. The baseline sends its calls one after the other, as a
loop does that knows one sequence and one model, and combines nothing. Ours also mixes the teachers, and asks each for
the tokens that the other names. One teacher alone is measured, too: one call for all sequences against one call each.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
from _report import Claim, arguments, report

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.types import Teacher
from crucible_worker.config import Settings
from crucible_worker.server import Worker

MODELS = ("embedded:arithmetic@600", "embedded:arithmetic@320")
SEQUENCES, TOKENS, TOP_K, VOCABULARY = 64, 24, 8, 15


async def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    random = np.random.default_rng(3)
    sequences = [random.integers(0, VOCABULARY, TOKENS).tolist() for _ in range(SEQUENCES)]
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(port=0, state_dir=Path(folder), log_level="error")
        async with Worker(settings) as worker, crucible_bridge.connect(worker.address) as bridge:
            one = await _alternating(
                options.runs,
                lambda: _together(bridge, [Teacher.of(MODELS[0])], sequences),
                lambda: _each(bridge, MODELS[:1], sequences),
            )
            two = await _alternating(
                options.runs,
                lambda: _together(bridge, [Teacher.of(model) for model in MODELS], sequences),
                lambda: _each(bridge, MODELS, sequences),
            )
    report(
        [
            _claim("teachers_one", *one, "at least twice one call for each sequence, by one teacher", 2.0),
            _claim("teachers_two", *two, "faster than one call for each sequence and teacher, by two teachers", 1.0),
        ],
        as_json=options.json,
    )


def _claim(name: str, ours: list[float], theirs: list[float], claim: str, at_least: float) -> Claim:
    return Claim(
        name=name,
        ours=[SEQUENCES / seconds for seconds in ours],
        baseline=[SEQUENCES / seconds for seconds in theirs],
        unit="sequences/s",
        ratio=statistics.median(theirs) / statistics.median(ours),
        at_least=at_least,
        claim=claim,
    )


async def _alternating(
    runs: int, ours: Callable[[], Awaitable[None]], theirs: Callable[[], Awaitable[None]]
) -> tuple[list[float], list[float]]:
    """Seconds of both, in turns; the first run warms both up."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for run in range(runs + 1):
        for side, work in zip(seconds, (ours, theirs), strict=True):
            started = time.perf_counter()
            await work()
            if run:
                side.append(time.perf_counter() - started)
    return seconds


async def _together(bridge: Bridge, teachers: list[Teacher], sequences: list[list[int]]) -> None:
    answer = await bridge.models.compute_logprobs(teachers, sequences, top_k=TOP_K)
    if any(each.problem is not None or each.top_tokens is None for each in answer.sequences):
        raise SystemExit("a sequence has no answer")


async def _each(bridge: Bridge, models: tuple[str, ...], sequences: list[list[int]]) -> None:
    for model in models:
        for sequence in sequences:
            answer = await bridge.models.compute_logprobs(model, [sequence], top_k=TOP_K)
            if answer.sequences[0].problem is not None:
                raise SystemExit("a sequence has no answer")


if __name__ == "__main__":
    asyncio.run(main())
