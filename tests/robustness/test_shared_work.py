"""Workers that run one evaluation together, killed, stopped and told to go: its result is that of a single worker."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crucible_bridge.events import EventKind
from crucible_bridge.types import Evaluation, EvaluationState
from tests.robustness.evidence import (
    SAMPLES,
    bits,
    check_events,
    check_interrupted_run,
    log_of,
    request,
    samples_of,
)
from tests.robustness.harness import WorkerProcess, Workshop, count_lines, until, workshop

RUNS = 2 * SAMPLES
CONCURRENCY = 4
LATENCY = 0.03
"""Of a model call, seconds: an evaluation takes a worker some 4.5 s."""


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def journal(request: pytest.FixtureRequest) -> str | None:
    """The URL of the database of a journal; None for a file in the state directory."""
    return None if request.param == "sqlite" else request.getfixturevalue("postgres_server").new_database()


@contextlib.asynccontextmanager
async def sharing(folder: Path, journal: str | None, **fields: object) -> AsyncIterator[tuple[Workshop, Path]]:
    """Workers that share work, and the file that has a line for each call of a model."""
    call_file = folder / "calls"
    models = {"m": {"latency": LATENCY, "call_file": str(call_file)}}
    async with workshop(folder, models, journal=journal, share_work=True, **fields) as shop:  # type: ignore[arg-type]
        yield shop, call_file


async def begun(shop: Workshop, workers: list[WorkerProcess], evaluation_id: str = "e") -> None:
    """Start it at the first worker, and wait until the others help."""
    first, *others = workers
    await first.bridge.evaluation.start_evaluation(request(evaluation_id, concurrency=CONCURRENCY))
    for other in others:
        await until(lambda other=other: "help_begins" in other.log_file.read_text())

    async def some_are_done() -> bool:
        return (await others[-1].bridge.evaluation.get_evaluation(evaluation_id)).done > 60

    await until(some_are_done)


async def most_calls(observer: WorkerProcess, call_file: Path, *victims: WorkerProcess) -> int:
    """Kill workers; returns the most calls of the evaluation: what has a result by then is not run again."""
    done = (await observer.bridge.evaluation.get_evaluation("e")).done
    for victim in victims:
        victim.kill()
    return RUNS + count_lines(call_file) - done


async def ended(worker: WorkerProcess, evaluation_id: str = "e") -> Evaluation:
    """The evaluation, once it has ended."""
    async with asyncio.timeout(60), worker.bridge.evaluation.watch_evaluation(evaluation_id) as events:
        async for _ in events:
            pass
    return await worker.bridge.evaluation.get_evaluation(evaluation_id)


async def check(worker: WorkerProcess, evaluation: Evaluation) -> None:
    """It has every event once, and is what one worker makes of it alone."""
    bridge = worker.bridge
    log = await log_of(bridge)
    check_events(log)
    check_interrupted_run(log, evaluation)
    if evaluation.evaluation_id != "whole":
        # By workers that may share it, too; the first one alone is compared in the tests of the engine's parts.
        await bridge.evaluation.start_evaluation(request("whole", concurrency=64))
        whole = await ended(worker, "whole")
        assert bits(evaluation.metrics) == bits(whole.metrics)
        assert evaluation.usage == whole.usage
        assert await samples_of(bridge, evaluation.evaluation_id) == await samples_of(bridge, "whole")


async def test_a_killed_helper_is_replaced(tmp_path: Path, journal: str | None) -> None:
    """Its parts are taken over, what it finished stands, and the evaluation is not interrupted."""
    async with sharing(tmp_path, journal) as (shop, call_file):
        workers = await shop.start_several(3)
        await begun(shop, workers)
        most = await most_calls(workers[0], call_file, workers[1])
        evaluation = await ended(workers[0])
        assert RUNS <= count_lines(call_file) <= most
        assert evaluation.attempt == 1
        await check(workers[2], evaluation)


async def test_a_killed_lead_is_replaced_by_a_helper(tmp_path: Path, journal: str | None) -> None:
    """A helper leads from then on: there is no INTERRUPT and no second attempt."""
    async with sharing(tmp_path, journal) as (shop, call_file):
        workers = await shop.start_several(3)
        await begun(shop, workers)
        most = await most_calls(workers[1], call_file, workers[0])
        evaluation = await ended(workers[1])
        assert RUNS <= count_lines(call_file) <= most
        assert evaluation.attempt == 1
        await check(workers[2], evaluation)


async def test_when_all_are_killed_it_is_interrupted_once(tmp_path: Path, journal: str | None) -> None:
    """Any worker resumes it, and runs only what has no result."""
    async with sharing(tmp_path, journal) as (shop, call_file):
        workers = await shop.start_several(3)
        await begun(shop, workers)
        most = await most_calls(workers[0], call_file, *workers)
        again = await shop.start()
        assert (await again.bridge.evaluation.get_evaluation("e")).state is EvaluationState.INTERRUPTED
        await again.bridge.evaluation.start_evaluation(request("e", concurrency=CONCURRENCY))
        evaluation = await ended(again)
        assert RUNS <= count_lines(call_file) <= most
        assert evaluation.attempt == 2
        await check(again, evaluation)


@pytest.mark.parametrize("who", [0, 1], ids=["lead", "helper"])
async def test_a_worker_that_is_told_to_go_leaves_it_to_the_others(
    tmp_path: Path, journal: str | None, who: int
) -> None:
    """SIGTERM to the lead or to a helper ends its process, and interrupts nothing."""
    async with sharing(tmp_path, journal) as (shop, _):
        workers = await shop.start_several(3)
        await begun(shop, workers)
        workers[who].terminate()
        assert await workers[who].exit_code(30) == 0
        evaluation = await ended(workers[2])
        assert evaluation.attempt == 1
        await check(workers[2], evaluation)


@pytest.mark.postgres
@pytest.mark.parametrize("who", [0, 1], ids=["lead", "helper"])
async def test_a_stopped_worker_that_wakes_up_writes_nothing(tmp_path: Path, postgres_server, who: int) -> None:
    """What it had is another worker's when its lease is over; each sample has one result."""
    async with sharing(tmp_path, postgres_server.new_database()) as (shop, _):
        workers = await shop.start_several(3)
        await begun(shop, workers)
        workers[who].process.send_signal(signal.SIGSTOP)
        try:
            evaluation = await ended(workers[2])
            sequence = evaluation.last_sequence
        finally:
            workers[who].process.send_signal(signal.SIGCONT)
        await until(lambda: workers[who].is_serving())
        assert evaluation.attempt == 1
        assert (await workers[2].bridge.evaluation.get_evaluation("e")).last_sequence == sequence
        await check(workers[2], evaluation)


@pytest.mark.postgres
async def test_a_lead_that_stops_at_the_end_is_replaced(tmp_path: Path, postgres_server) -> None:
    """The helpers have nothing to do by then: one of them leads, although everybody asks how it is meanwhile."""
    async with sharing(tmp_path, postgres_server.new_database()) as (shop, _):
        workers = await shop.start_several(2)
        await begun(shop, workers)

        async def almost_done() -> bool:
            return (await workers[1].bridge.evaluation.get_evaluation("e")).done >= RUNS - 3 * CONCURRENCY

        await until(almost_done)
        workers[0].process.send_signal(signal.SIGSTOP)
        try:
            async with asyncio.timeout(60):
                while not (evaluation := await workers[1].bridge.evaluation.get_evaluation("e")).state.terminal:
                    assert evaluation.state is EvaluationState.RUNNING
                    await asyncio.sleep(0.02)
        finally:
            workers[0].process.send_signal(signal.SIGCONT)
        assert evaluation.attempt == 1
        await check(workers[1], evaluation)


@pytest.mark.parametrize("rounds", [3, pytest.param(30, marks=pytest.mark.torture)])
async def test_kills_at_random(tmp_path: Path, journal: str | None, rounds: int) -> None:
    """Workers are killed at any moment, and others come: every evaluation ends once, and whole."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    async with sharing(tmp_path, journal, seconds=60 + 40 * rounds) as (shop, _):
        workers = await shop.start_several(3)
        evaluation: Evaluation | None = None
        for number in range(rounds):
            evaluation_id = f"e-{number}"
            await workers[0].bridge.evaluation.start_evaluation(request(evaluation_id, concurrency=CONCURRENCY))
            for _ in range(2):
                await asyncio.sleep(chance.uniform(0, 1))
                victim = workers.pop(chance.randrange(len(workers)))
                victim.kill()
                workers.append(await shop.start())
            evaluation = await finished(workers[0], evaluation_id)
            check_interrupted_run(await log_of(workers[1].bridge), evaluation)
        assert evaluation is not None
        await check(workers[0], evaluation)


async def finished(worker: WorkerProcess, evaluation_id: str) -> Evaluation:
    """The evaluation once it has ended, resumed if every worker of it was killed, as an orchestrator would."""
    async with asyncio.timeout(60):
        while True:
            evaluation = await worker.bridge.evaluation.get_evaluation(evaluation_id)
            if evaluation.state.terminal:
                return evaluation
            if evaluation.state is EvaluationState.INTERRUPTED:
                await worker.bridge.evaluation.start_evaluation(request(evaluation_id, concurrency=CONCURRENCY))
            await asyncio.sleep(0.05)


async def test_an_evaluation_ends_by_the_word_of_any_worker(tmp_path: Path, journal: str | None) -> None:
    """A cancel at a helper ends it for all; no result comes behind the STOP."""
    async with sharing(tmp_path, journal) as (shop, _):
        workers = await shop.start_several(3)
        await begun(shop, workers)
        await workers[1].bridge.evaluation.cancel_evaluation("e")
        evaluation = await ended(workers[2])
        assert evaluation.state is EvaluationState.CANCELLED
        await asyncio.gather(*(until(lambda worker=worker: is_idle(worker)) for worker in workers))
        events = [event for event in await log_of(workers[0].bridge) if event.evaluation_id == "e"]
        assert events[-1].kind is EventKind.EVALUATION_STOP
        done = sum(event.kind is EventKind.SAMPLE_COMPLETE for event in events)
        assert (await workers[0].bridge.evaluation.get_evaluation("e")).done == done < RUNS


async def is_idle(worker: WorkerProcess) -> bool:
    """Whether nothing runs at a worker."""
    return (await worker.bridge.worker.get_info()).running == 0
