"""Pauses and limits of real workers that are killed: what a caller has set stands, and no sample is lost or doubled."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from pathlib import Path

import pytest

from crucible_bridge.client import Bridge
from crucible_bridge.errors import BridgeError, FailedPrecondition
from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState, Limits
from tests.robustness.evidence import SAMPLES, bits, check_events, check_interrupted_run, log_of, request, samples_of
from tests.robustness.harness import count_lines, until, workshop

LATENCY = 0.02
"""Of a model call, seconds."""
CALM_SECONDS = 10 * LATENCY
"""Long enough for a model call that should not be to be seen."""
MOST_CONCURRENCY = 4
"""Of the evaluation that is killed: it must not end before."""
PAUSES = (EventKind.EVALUATION_PAUSED, EventKind.EVALUATION_RESUMED)


def _models(tmp_path: Path) -> dict[str, dict[str, object]]:
    return {"m": {"latency": LATENCY, "call_file": str(tmp_path / "calls")}}


async def _still(tmp_path: Path) -> int:
    """Wait until news of a pause and calls under way are through, and no call comes any more; returns how many came."""
    before, calls = -1, count_lines(tmp_path / "calls")
    while calls != before:
        await asyncio.sleep(CALM_SECONDS)
        before, calls = calls, count_lines(tmp_path / "calls")
    return calls


async def test_a_pause_outlives_the_workers(tmp_path):
    """Paused at another worker than the owner, which is killed; the next owner starts no sample until it is resumed."""
    async with workshop(tmp_path, _models(tmp_path)) as shop:
        owner, other = await shop.start_several(2)
        await owner.bridge.evaluation.start_evaluation(request("e", concurrency=4))
        await until(lambda: count_lines(tmp_path / "calls") > 8)
        paused = await other.bridge.evaluation.pause_evaluation("e")
        assert (paused.state, paused.paused) == (EvaluationState.RUNNING, True)
        calls = await _still(tmp_path)
        held = await other.bridge.evaluation.get_evaluation("e")
        assert (held.state, held.done < held.total) == (EvaluationState.RUNNING, True)
        owner.kill()

        # A server of PostgreSQL learns of the end a moment later.
        while (found := await other.bridge.evaluation.get_evaluation("e")).state is EvaluationState.RUNNING:
            await asyncio.sleep(0.02)
        assert (found.state, found.paused) == (EvaluationState.INTERRUPTED, True)
        again = await other.bridge.evaluation.start_evaluation(request("e", concurrency=4))
        assert (again.evaluation.attempt, again.evaluation.paused) == (2, True)
        third = await shop.start()
        await third.bridge.evaluation.set_evaluation_concurrency("e", 64)
        assert await _still(tmp_path) == calls

        await third.bridge.evaluation.resume_evaluation("e")
        ended = await other.bridge.evaluation.evaluate(request("e", concurrency=4))
        whole = await other.bridge.evaluation.evaluate(request("whole"))
        assert bits(ended.metrics) == bits(whole.metrics)
        assert await samples_of(third.bridge, "e") == await samples_of(third.bridge, "whole")
        log = await log_of(third.bridge)
        check_events(log)
        check_interrupted_run(log, ended)
        told = [event.kind for event in log if event.kind in (*PAUSES, EventKind.EVALUATION_CONCURRENCY)]
        assert told == [PAUSES[0], EventKind.EVALUATION_CONCURRENCY, PAUSES[1]]


async def test_a_spent_budget_outlives_the_workers(tmp_path):
    """The owner is killed while its budget is spent: no worker continues it until it is resumed with a larger one."""
    async with workshop(tmp_path, _models(tmp_path)) as shop:
        owner, other = await shop.start_several(2)
        bounded = request("e", limits=Limits(concurrency=4, max_output_tokens=200))
        await owner.bridge.evaluation.start_evaluation(bounded)
        while not (found := await other.bridge.evaluation.get_evaluation("e")).paused:
            assert not found.state.terminal
            await asyncio.sleep(0.02)
        calls = await _still(tmp_path)
        owner.kill()

        while (found := await other.bridge.evaluation.get_evaluation("e")).state is EvaluationState.RUNNING:
            await asyncio.sleep(0.02)
        assert (found.state, found.paused) == (EvaluationState.INTERRUPTED, True)
        assert found.waiting_for.startswith("a larger max_output_tokens: ")
        again = await other.bridge.evaluation.start_evaluation(bounded)
        assert again.evaluation.paused
        with pytest.raises(FailedPrecondition, match="must be larger"):
            await other.bridge.evaluation.resume_evaluation("e")
        assert await _still(tmp_path) == calls

        await other.bridge.evaluation.resume_evaluation("e", max_output_tokens=1_000_000)
        ended = await other.bridge.evaluation.evaluate(bounded)
        whole = await other.bridge.evaluation.evaluate(request("whole"))
        assert bits(ended.metrics) == bits(whole.metrics)
        assert await samples_of(other.bridge, "e") == await samples_of(other.bridge, "whole")


async def _change_at_random(
    bridges: list[Bridge], rng: random.Random, going: asyncio.Event, ended: asyncio.Event
) -> Counter[str]:
    """Pause, resume and change the limit at whichever worker lives, while it is going; counts what was answered."""
    answered: Counter[str] = Counter()
    while not ended.is_set():
        await going.wait()
        calls = rng.choice(bridges).evaluation
        name = rng.choice(("pause", "resume", "resume", "concurrency"))
        try:
            if name == "pause":
                await calls.pause_evaluation("e")
            elif name == "resume":
                await calls.resume_evaluation("e")
            else:
                await calls.set_evaluation_concurrency("e", rng.randint(1, MOST_CONCURRENCY))
        except BridgeError as error:
            # The worker was killed in the middle, or the evaluation has ended.
            if error.reason == "EVALUATION_ENDED":
                break
            continue
        answered[name] += 1
        await asyncio.sleep(rng.uniform(0, 2 * LATENCY))
    return answered


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.torture)])
async def test_changes_at_random_lose_nothing(tmp_path, kills):
    """Workers are killed while callers pause, resume and change the limit: the result is the same to the bit."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    async with workshop(tmp_path, _models(tmp_path), seconds=100.0 + 10.0 * kills) as shop:
        pool = await shop.start_several(2)
        survivor = await shop.start()
        await pool[0].bridge.evaluation.start_evaluation(request("e", concurrency=2))
        bridges, going, over = [worker.bridge for worker in (*pool, survivor)], asyncio.Event(), asyncio.Event()
        changing = [
            asyncio.create_task(_change_at_random(bridges, random.Random(rng.random()), going, over)) for _ in range(3)
        ]
        for _ in range(kills):
            going.set()
            await asyncio.sleep(rng.uniform(0, 8 * LATENCY))
            owner = pool.pop(0)
            owner.kill()
            await pool[0].bridge.evaluation.start_evaluation(request("e", concurrency=2))
            # It must not end while a worker starts, which takes seconds.
            going.clear()
            with contextlib.suppress(FailedPrecondition):
                await pool[0].bridge.evaluation.pause_evaluation("e")
            pool.append(await shop.start())
            bridges[:] = [worker.bridge for worker in (*pool, survivor)]
        over.set()
        going.set()
        answered = sum(await asyncio.gather(*changing), Counter())
        found = await survivor.bridge.evaluation.get_evaluation("e")
        if not found.state.terminal:
            await survivor.bridge.evaluation.resume_evaluation("e")
            await survivor.bridge.evaluation.set_evaluation_concurrency("e", 64)
        ended = await survivor.bridge.evaluation.evaluate(request("e", concurrency=2))
        print(f"attempts {ended.attempt}, answered {dict(answered)}")
        assert ended.attempt > 1, "no kill hit"
        whole = await survivor.bridge.evaluation.evaluate(request("whole"))
        assert bits(ended.metrics) == bits(whole.metrics)
        assert (ended.done, ended.total) == (2 * SAMPLES, 2 * SAMPLES)
        assert await samples_of(survivor.bridge, "e") == await samples_of(survivor.bridge, "whole")
        log = await log_of(survivor.bridge)
        check_events(log)
        check_interrupted_run(log, ended)
        turns = [event.kind for event in log if event.kind in PAUSES]
        assert turns == [PAUSES[index % 2] for index in range(len(turns))], "in turn, each once"
