"""Log-probabilities of a batch by two teachers in one call, against one call for each sequence and teacher.

Both ask the same worker, in this process, for the same 64 sequences of embedded checkpoints. The baseline sends
its calls one after the other, as a loop does that knows one sequence and one model. Three rows: one teacher, with the
eight likeliest tokens in place of each; two, with log-probabilities alone; two with the likeliest tokens, where
each is also asked for what the other names, in ours by the worker, in the baseline by a second call.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import numpy as np
import structlog
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
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    random = np.random.default_rng(3)
    sequences = [random.integers(0, VOCABULARY, TOKENS).tolist() for _ in range(SEQUENCES)]
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(port=0, state_dir=Path(folder))
        async with Worker(settings) as worker, crucible_bridge.connect(worker.address) as bridge:
            one = await _alternating(
                options.runs,
                lambda: _together(bridge, MODELS[:1], sequences, TOP_K),
                lambda: _each(bridge, MODELS[:1], sequences, TOP_K),
            )
            two = await _alternating(
                options.runs,
                lambda: _together(bridge, MODELS, sequences, None),
                lambda: _each(bridge, MODELS, sequences, None),
            )
            columns = await _alternating(
                options.runs,
                lambda: _together(bridge, MODELS, sequences, TOP_K),
                lambda: _each(bridge, MODELS, sequences, TOP_K),
            )
    report(
        [
            _claim("teachers_one", *one, "faster than one call for each sequence, of one teacher"),
            _claim("teachers_two", *two, "faster than one call for each sequence and teacher, of two teachers"),
            _claim("teachers_top_k", *columns, "likewise, with the likeliest tokens of the mean"),
        ],
        as_json=options.json,
    )


def _claim(name: str, ours: list[float], theirs: list[float], claim: str) -> Claim:
    return Claim(
        name=name,
        ours=[SEQUENCES / seconds for seconds in ours],
        baseline=[SEQUENCES / seconds for seconds in theirs],
        unit="sequences/s",
        ratio=statistics.median(theirs) / statistics.median(ours),
        at_least=1.0,
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


async def _together(bridge: Bridge, models: Sequence[str], sequences: Sequence[list[int]], top_k: int | None) -> None:
    answer = await bridge.models.compute_logprobs([Teacher.of(model) for model in models], sequences, top_k=top_k)
    if any(each.problem is not None for each in answer.sequences):
        raise SystemExit("a sequence has no answer")


async def _each(bridge: Bridge, models: Sequence[str], sequences: Sequence[list[int]], top_k: int | None) -> None:
    for sequence in sequences:
        named: list[np.ndarray] = []
        for model in models:
            (found,) = (await bridge.models.compute_logprobs(model, [sequence], top_k=top_k)).sequences
            if found.problem is not None:
                raise SystemExit("a sequence has no answer")
            if found.top_tokens is not None:
                named.append(found.top_tokens)
        if len(named) > 1:
            for model in models:
                await bridge.models.compute_logprobs(model, [sequence], targets=[np.concatenate(named, axis=1)])


if __name__ == "__main__":
    asyncio.run(main())
