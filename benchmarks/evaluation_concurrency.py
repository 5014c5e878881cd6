"""200 samples on a backend with 100 ms latency: the worker against the serial loop of a custom evaluator.

Then, without a baseline, how many samples a second one worker runs with so many at work, and its CPU for each.

The serial loop is the shape of tinker-cookbook's CustomEvaluator: `for datum in data: await client.sample(...)`, graded
one after the other, in process, with no journal and no events. Ours is the whole remote call: request, data set,
journal, events, reply. Both query the same scripted model.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import time

import structlog
from _report import Claim, arguments, report

from crucible_bridge.types import Limits, ModelInput, Sample, SamplingParams
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker

SAMPLES, LATENCY_SECONDS = 200, 0.1
CLAIMS = {64: (45.0, 50), 100: (80.0, 100)}
"""By concurrency: the claimed speed-up over the serial loop, and the possible one."""
IN_FLIGHT = {1: 30, 32: 1_000, 256: 8_000, 1_024: 20_000}
"""By concurrency: samples whose rate is measured."""


async def main() -> None:
    options = arguments(__doc__)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    model = ScriptedModel(answer=lambda prompt: "42", latency=LATENCY_SECONDS)
    serial: list[float] = []
    ours: dict[int, list[float]] = {concurrency: [] for concurrency in CLAIMS}
    rates: dict[int, list[float]] = {concurrency: [] for concurrency in IN_FLIGHT}
    costs: dict[int, list[float]] = {concurrency: [] for concurrency in IN_FLIGHT}
    async with run_worker({"scripted": model}) as worker:
        await remote(worker, "warm-up", 100)
        for run in range(options.runs):
            for concurrency, times in ours.items():
                times.append(await remote(worker, f"{concurrency}-{run}", concurrency))
            for concurrency, samples in IN_FLIGHT.items():
                cpu = time.process_time()
                seconds = await remote(worker, f"in-flight-{concurrency}-{run}", concurrency, samples)
                rates[concurrency].append(samples / seconds)
                costs[concurrency].append((time.process_time() - cpu) * 1e3 / samples)
            # The serial loop takes 20 s and hardly varies: once is enough for its side of the pair.
            if not serial:
                serial.append(await one_by_one(model))
    report(
        [
            Claim(
                name=f"200 samples at concurrency {concurrency}",
                ours=times,
                baseline=serial,
                unit="s",
                ratio=serial[0] / statistics.median(times),
                at_least=CLAIMS[concurrency][0],
                claim=">= {:g}x, of {}x possible".format(*CLAIMS[concurrency]),
            )
            for concurrency, times in ours.items()
        ]
        + [
            Claim(name=f"{what}, {concurrency:,} at work", ours=figures[concurrency], unit=unit, claim="no promise")
            for concurrency in IN_FLIGHT
            for what, figures, unit in (("samples a second", rates, "samples/s"), ("CPU of a sample", costs, "ms"))
        ],
        as_json=options.json,
    )


async def remote(worker: RunningWorker, evaluation_id: str, concurrency: int, samples: int = SAMPLES) -> float:
    """Seconds of one evaluation through the worker."""
    started = time.perf_counter()
    evaluation = await worker.bridge.evaluation.evaluate(
        evaluation_id=evaluation_id,
        model="embedded:scripted",
        evaluators=["accuracy"],
        dataset=[Sample(input=f"{index}*7=", targets=("42",)) for index in range(samples)],
        sampling=SamplingParams(max_tokens=4),
        limits=Limits(concurrency=concurrency),
    )
    seconds = time.perf_counter() - started
    assert evaluation.metrics.values["accuracy"] == 1.0
    return seconds


async def one_by_one(model: ScriptedModel) -> float:
    """Seconds of the serial loop."""
    started = time.perf_counter()
    correct = 0
    for index in range(SAMPLES):
        prompt = ModelInput.of([ord(character) for character in f"{index}*7="])
        (answer,) = await model.sample(prompt, SamplingParams(max_tokens=4))
        correct += answer.text == "42"
    assert correct == SAMPLES
    return time.perf_counter() - started


if __name__ == "__main__":
    asyncio.run(main())
