"""SIGTERM: the worker interrupts what runs, says so, and is gone in time, with exit code 0."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crucible_bridge.errors import Unavailable
from crucible_bridge.events import EventKind
from crucible_bridge.types import EvaluationState
from tests.robustness.evidence import bits, check_events, check_interrupted_run, log_of, request
from tests.robustness.harness import WorkerProcess, count_lines, until, workshop

DRAIN_SECONDS = 5.5
"""The contract's: from SIGTERM to the end of the process, whatever runs."""
LATENCY = 0.02
STUCK_SECONDS = 60.0
"""Of a model call that no drain can wait for."""


def _models(tmp_path: Path, latency: float = LATENCY) -> dict[str, dict[str, object]]:
    return {"m": {"latency": latency, "call_file": str(tmp_path / "calls")}}


async def _interrupts(worker: WorkerProcess, evaluation_id: str) -> list[str]:
    """Causes of its INTERRUPTs."""
    log = await log_of(worker.bridge)
    check_events(log)
    mine = [event for event in log if event.evaluation_id == evaluation_id]
    return [event.metadata["cause"] for event in mine if event.kind is EventKind.EVALUATION_INTERRUPT]


async def test_a_closed_terminal_ends_nothing(tmp_path: Path):
    """SIGHUP has no effect, also beyond the time of a drain; SIGTERM ends the worker after it as ever."""
    async with workshop(tmp_path, _models(tmp_path)) as shop:
        worker = await shop.start()
        waiting = asyncio.create_task(worker.bridge.evaluation.evaluate(request("one")))
        await until(lambda: count_lines(tmp_path / "calls") > 10)
        worker.process.send_signal(signal.SIGHUP)
        assert (await waiting).state is EvaluationState.COMPLETED
        await asyncio.sleep(DRAIN_SECONDS)
        assert worker.alive
        worker.terminate()
        assert await worker.exit_code(DRAIN_SECONDS) == 0


@pytest.mark.parametrize("latency", [LATENCY, STUCK_SECONDS])
async def test_drain_interrupts_what_runs_and_another_start_goes_on(tmp_path, latency):
    """INTERRUPT is the owner's own, the exit code 0, and the next attempt ends as an undisturbed run does."""
    async with workshop(tmp_path, _models(tmp_path, latency)) as shop:
        worker = await shop.start()
        waiting = asyncio.create_task(worker.bridge.evaluation.evaluate(request("drained")))
        await until(lambda: count_lines(tmp_path / "calls") > 10)
        worker.terminate()
        with pytest.raises(Unavailable) as told:
            await waiting
        assert (told.value.reason, told.value.retryable) == ("DRAINING", True)
        assert told.value.metadata["evaluation_id"] == "drained"
        assert await worker.exit_code(DRAIN_SECONDS) == 0
        shop.models = _models(tmp_path)
        worker = await shop.start()
        assert await _interrupts(worker, "drained") == ["the worker drains"]
        ended = await worker.bridge.evaluation.evaluate(request("drained"))
        whole = await worker.bridge.evaluation.evaluate(request("whole"))
        check_interrupted_run(await log_of(worker.bridge), ended)
        assert ended.attempt == 2
        assert bits(ended.metrics) == bits(whole.metrics)


async def test_drain_call_ends_the_process_as_sigterm_does(tmp_path):
    """WorkerService.Drain names what it interrupted, then the process ends with 0."""
    async with workshop(tmp_path, _models(tmp_path)) as shop:
        worker = await shop.start()
        await worker.bridge.evaluation.start_evaluation(request("drained", concurrency=2))
        report = await worker.bridge.worker.drain()
        assert report.interrupted == ("drained",)
        assert await worker.exit_code(DRAIN_SECONDS) == 0
        assert await _interrupts(await shop.start(), "drained") == ["the worker drains"]


async def test_waiting_call_elsewhere_takes_over_from_a_drained_owner(tmp_path):
    """A pool that is restarted one by one loses nothing: who waits at another worker gets the result there."""
    async with workshop(tmp_path, _models(tmp_path)) as shop:
        owner, other = await shop.start_several(2)
        await owner.bridge.evaluation.start_evaluation(request("moved"))
        waiting = asyncio.create_task(other.bridge.evaluation.evaluate(request("moved")))
        await until(lambda: count_lines(tmp_path / "calls") > 10)
        owner.terminate()
        ended = await waiting
        check_interrupted_run(await log_of(other.bridge), ended)
        assert ended.attempt == 2
        assert await owner.exit_code(DRAIN_SECONDS) == 0


async def test_second_sigterm_ends_the_process_at_once(tmp_path):
    """The exit code is still 0, and INTERRUPT is there once, whoever wrote it."""
    async with workshop(tmp_path, _models(tmp_path, STUCK_SECONDS)) as shop:
        worker = await shop.start()
        await worker.bridge.evaluation.start_evaluation(request("twice"))
        worker.terminate()
        worker.terminate()
        assert await worker.exit_code(DRAIN_SECONDS) == 0
        assert len(await _interrupts(await shop.start(), "twice")) == 1


def test_signal_in_the_interpreters_last_moments_is_not_the_exit_code():
    """A second SIGTERM that arrives when all is done, and Python takes itself apart, does not end it with -15."""
    program = (
        "import os, signal\n"
        "from crucible_worker.server.exit_guard import ExitGuard\n"
        "ExitGuard(5.0).install()\n"
        "class Late:\n"
        "    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGTERM):\n"
        "        kill(pid, number)\n"
        "late = Late()\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("rounds", [4, pytest.param(60, marks=pytest.mark.torture)])
async def test_sigterm_while_it_starts_leaves_a_usable_state(tmp_path, rounds):
    """At any instant of a start SIGTERM ends the process in time, without a ready file, and the next start works."""
    rng = random.Random(5)
    async with workshop(tmp_path, _models(tmp_path), seconds=30.0 * rounds) as shop:
        began = time.monotonic()
        await shop.start()
        takes = time.monotonic() - began
        for part in range(rounds):
            starting = shop.launch()
            await asyncio.sleep(takes * rng.uniform(part, part + 1) / rounds)
            starting.terminate()
            # Before the interpreter has come to the worker's own code, the system ends it.
            assert await starting.exit_code(DRAIN_SECONDS) in (0, -signal.SIGTERM)
            assert not starting.ready_file.exists()
        worker = await shop.start()
        assert (await worker.bridge.evaluation.evaluate(request("after"))).state is EvaluationState.COMPLETED


@pytest.mark.parametrize("rounds", [4, pytest.param(60, marks=pytest.mark.torture)])
async def test_kill_during_a_drain_interrupts_once(tmp_path, rounds):
    """Whether the drain or the kill was first: one INTERRUPT, and the next attempt goes on."""
    rng = random.Random(6)
    async with workshop(tmp_path, _models(tmp_path), seconds=30.0 * rounds) as shop:
        worker = await shop.start()
        for number in range(rounds):
            await worker.bridge.evaluation.start_evaluation(request(f"both-{number}"))
            before = count_lines(tmp_path / "calls")
            await until(lambda before=before: count_lines(tmp_path / "calls") > before)
            worker.terminate()
            await asyncio.sleep(rng.uniform(0, 0.05))
            worker.kill()
            worker = await shop.start()
            ended = await worker.bridge.evaluation.evaluate(request(f"both-{number}"))
            assert ended.attempt == 2
            check_interrupted_run(await log_of(worker.bridge), ended)
