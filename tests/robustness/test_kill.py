"""kill -9 at any instant, then the same StartEvaluation at a new process: as if nothing had happened."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crucible_bridge.errors import Unavailable
from crucible_bridge.types import Evaluation
from crucible_worker.testing import ScriptedModel, run_worker
from tests.robustness.evidence import SAMPLES, bits, check_events, check_interrupted_run, log_of, request, samples_of
from tests.robustness.harness import WorkerProcess, Workshop, count_lines, until, workshop

LATENCY = 0.02
"""Of a model call, seconds: an evaluation takes some 0.4 s."""
BEYOND = 1.15
"""Kills happen until this multiple of the time that an evaluation takes when nobody disturbs it."""
AT_THE_END = 4
"""Every so manieth kill waits for the last model calls: the end is short, and would hardly ever be hit."""
TWICE = 5
"""Every so manieth evaluation is killed at its second attempt, too."""
WHILE_IT_STARTS = 7
"""After every so manieth kill, the next worker is killed as well, while it starts."""
START_SECONDS = 0.1
"""From the end of the imports to the first call, about."""
CALLS = 2 * SAMPLES
FEW = 40
"""Samples of an evaluation that is killed once."""
SLOW_LATENCY = 0.2
"""Of its model: it would take 16 s, so that the kill comes before its end on any machine."""


async def _kill_after(worker: WorkerProcess, number: int, seconds: float) -> None:
    """Start an evaluation, and kill its worker after so many seconds, whether it has answered or not."""
    async with _started(worker, number):
        await asyncio.sleep(seconds)
        worker.kill()


async def _kill_at_the_end(worker: WorkerProcess, number: int, seconds: float, call_file: Path) -> None:
    """Start an evaluation, and kill its worker so many seconds after the last model call began."""
    before = count_lines(call_file)
    async with _started(worker, number):
        await until(lambda: count_lines(call_file) - before >= CALLS)
        await asyncio.sleep(seconds)
        worker.kill()


@contextlib.asynccontextmanager
async def _started(worker: WorkerProcess, number: int) -> AsyncIterator[None]:
    start = asyncio.create_task(worker.bridge.evaluation.start_evaluation(request(f"killed-{number}")))
    yield
    with contextlib.suppress(Unavailable):
        await start


async def _finish(worker: WorkerProcess, number: int) -> Evaluation:
    """Start it again and wait for its end by its events, as an orchestrator would."""
    evaluation_id = f"killed-{number}"
    await worker.bridge.evaluation.start_evaluation(request(evaluation_id))
    async with worker.bridge.evaluation.watch_evaluation(evaluation_id, without_samples=True) as events:
        async for _ in events:
            pass
    return await worker.bridge.evaluation.get_evaluation(evaluation_id)


async def _rounds(shop: Workshop, rounds: int, call_file: Path, rng: random.Random) -> list[Evaluation]:
    worker, following = await shop.start(), shop.launch(standby=True)
    started = time.monotonic()
    await worker.bridge.evaluation.evaluate(request("whole"))
    undisturbed = time.monotonic() - started
    # One instant in each of so many equal parts of the time: all of it is covered, by few rounds, too.
    instants = [rng.uniform(part, part + 1) / rounds * BEYOND * undisturbed for part in range(rounds)]
    instants[0] = 0.0
    rng.shuffle(instants)
    finished = []
    for number, instant in enumerate(instants):
        if number % AT_THE_END == AT_THE_END - 1:
            await _kill_at_the_end(worker, number, rng.uniform(0, 2 * LATENCY), call_file)
        else:
            await _kill_after(worker, number, instant)
        if number % WHILE_IT_STARTS == WHILE_IT_STARTS - 1:
            following.go()
            await asyncio.sleep(rng.uniform(0, START_SECONDS))
            following.kill()
            following = shop.launch(standby=True)
        worker, following = await following.ready(), shop.launch(standby=True)
        if number % TWICE == TWICE - 1:
            await _kill_after(worker, number, rng.uniform(0, undisturbed / 2))
            worker, following = await following.ready(), shop.launch(standby=True)
        finished.append(await _finish(worker, number))
    following.kill()
    return finished


@pytest.mark.core
async def test_a_killed_evaluation_resumes_at_a_new_worker(tmp_path):
    """One kill amid the samples: the same start queries the model for the rest alone, and the result is the same."""
    async with workshop(tmp_path, {"m": {"latency": SLOW_LATENCY}}) as shop:
        worker = await shop.start()
        await worker.bridge.evaluation.start_evaluation(request("killed", samples=FEW, concurrency=1))

        async def recorded() -> int:
            return (await worker.bridge.evaluation.get_evaluation("killed")).done

        await until(recorded)
        done = await recorded()
        worker.kill()
        model = ScriptedModel()
        async with run_worker({"m": model}, state_dir=shop.state_dir) as resuming:
            bridge = resuming.bridge
            ended = await bridge.evaluation.evaluate(request("killed", samples=FEW))
            calls = model.calls
            whole = await bridge.evaluation.evaluate(request("whole", samples=FEW))
            log = await log_of(bridge)
            check_events(log)
            check_interrupted_run(log, ended, FEW)
            assert (ended.attempt, whole.attempt) == (2, 1)
            assert 0 < calls <= 2 * FEW - done
            assert bits(ended.metrics) == bits(whole.metrics)
            assert await samples_of(bridge, "killed") == await samples_of(bridge, "whole")


@pytest.mark.parametrize("rounds", [20, pytest.param(200, marks=pytest.mark.torture)])
async def test_killed_evaluation_ends_as_if_undisturbed(tmp_path, rounds):
    """No sample is lost or graded twice, every event is there once, and metrics are those of an undisturbed run."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    call_file = tmp_path / "calls"
    models = {"m": {"latency": LATENCY, "call_file": str(call_file)}}
    async with workshop(tmp_path, models, seconds=60 + 10 * rounds) as shop:
        finished = await _rounds(shop, rounds, call_file, random.Random(seed))
        bridge = shop.survivor.bridge
        whole = await bridge.evaluation.get_evaluation("whole")
        wanted = await samples_of(bridge, "whole")
        log = await log_of(bridge)
        check_events(log)
        assert len(wanted) == CALLS
        attempts = [evaluation.attempt for evaluation in finished]
        assert max(attempts) > 1, "no kill hit"
        print(f"attempts {attempts}")
        for evaluation in finished:
            check_interrupted_run(log, evaluation)
            assert bits(evaluation.metrics) == bits(whole.metrics)
            assert await samples_of(bridge, evaluation.evaluation_id) == wanted
