"""Graders and environments that outlive the worker that asks them: SIGKILL costs no answer that was kept."""

from __future__ import annotations

import asyncio
import collections
import sys
import uuid
from pathlib import Path
from typing import Any

import crucible_bridge
from crucible_bridge.client.evaluation import request_of
from crucible_bridge.types import EvaluateRequest, EvaluationState, Limits, OpenEpisode, SamplingParams
from tests.robustness.harness import READY_SECONDS, until, workshop
from tests.service.caller_kit import Counting, Guess, game
from tests.service.evaluation_kit import accuracy, log_of, numbered, samples_of
from tests.service.orchestrator_kit import line_to

SAMPLES = 400
"""Of the evaluation whose worker is killed."""
MODELS = {"m": {"latency": 0.001}}
"""A model of the worker."""


def _request(evaluator: Any, name: str) -> EvaluateRequest:
    return request_of(
        evaluation_id=name,
        model="embedded:m",
        evaluators=[evaluator],
        dataset=numbered(SAMPLES),
        sampling=SamplingParams(max_tokens=8),
        limits=Limits(concurrency=4),
    )


async def test_a_grade_that_was_kept_is_never_asked_again(tmp_path: Path):
    """The client goes on at the next worker: samples in the journal are not asked about, and metrics are the same."""
    grader = Counting()
    async with workshop(tmp_path, MODELS) as shop:
        first, second = await shop.start_several(2)
        async with line_to(first.address) as line, crucible_bridge.connect(line.address) as bridge:
            request = _request(accuracy(grader="caller:g"), "e")
            call = asyncio.create_task(
                bridge.evaluation.evaluate_with_orchestrator_model(request, graders={"g": grader})
            )
            await until(lambda: len(grader.questions) > SAMPLES // 3)
            first.kill()
            asked_before = len(grader.questions)
            kept = {sample.sample_id for sample in await samples_of(second.bridge, "e")}
            line.worker = second.address
            evaluation = await call
            whole = await bridge.evaluation.evaluate_with_orchestrator_model(
                _request(accuracy(grader="caller:g"), "whole"), graders={"g": Counting()}
            )
        log = await log_of(second.bridge, "e")
    written = collections.Counter(event.metadata["sample_id"] for event in log if "sample_id" in event.metadata)
    assert evaluation.state is EvaluationState.COMPLETED
    assert evaluation.attempt > 1
    assert kept
    assert not kept & set(grader.ids[asked_before:])
    assert written == dict.fromkeys((f"s{number}" for number in range(SAMPLES)), 1)
    assert evaluation.metrics == whole.metrics
    assert SAMPLES <= len(grader.questions) < 2 * SAMPLES


async def test_an_episode_of_a_killed_worker_begins_again_from_its_seed(tmp_path: Path):
    """What each episode draws is the same before and after, and so are the metrics; open episodes are closed."""
    log: list[tuple[str, int]] = []
    seeds: dict[str, set[int]] = {}

    def make(opened: OpenEpisode) -> Guess:
        seeds.setdefault(opened.sample.id, set()).add(opened.seed)
        return Guess(opened, log)

    async with workshop(tmp_path, MODELS) as shop:
        first, second = await shop.start_several(2)
        async with line_to(first.address) as line, crucible_bridge.connect(line.address) as bridge:
            call = asyncio.create_task(
                bridge.evaluation.evaluate_with_orchestrator_model(_request(game(), "e"), environments={"games": make})
            )
            await until(lambda: len(seeds) > SAMPLES // 3)
            line.worker = second.address
            first.kill()
            evaluation = await call
            opened = log.count(("open", 0))
            await until(lambda: log.count(("closed", 0)) == opened)
            whole = await bridge.evaluation.evaluate_with_orchestrator_model(
                _request(game(), "whole"), environments={"games": make}
            )
    assert evaluation.attempt > 1
    assert SAMPLES <= opened < 2 * SAMPLES
    assert {len(given) for given in seeds.values()} == {1}
    assert evaluation.metrics == whole.metrics


async def _served(folder: Path) -> tuple[asyncio.subprocess.Process, str]:
    """A worker as its user starts it, and its address."""
    ready = folder / f"ready-{uuid.uuid4().hex}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "crucible_worker", "serve", "--port=0"),
        *(f"--state-dir={folder / 'state'}", f"--ready-file={ready}"),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    await until(ready.exists, READY_SECONDS)
    return process, ready.read_text().strip()


async def test_a_trained_model_is_graded_across_a_kill(tmp_path: Path):
    """`serve` and an embedded checkpoint: killed in the middle, the numbers are those of a run in one piece."""
    grader = Counting()
    arithmetic: dict[str, Any] = {
        "model": "embedded:arithmetic@320",
        "evaluators": {"accuracy": {"grader": "caller:g"}},
        "dataset": "builtin:arithmetic",
        "sampling": SamplingParams(max_tokens=8),
        "window": 8,
    }
    first, address = await _served(tmp_path)
    try:
        async with line_to(address) as line, crucible_bridge.connect(line.address) as bridge:
            call = asyncio.create_task(
                bridge.evaluation.evaluate_with_orchestrator_model(
                    evaluation_id="e", graders={"g": grader}, patience=READY_SECONDS, **arithmetic
                )
            )
            await until(lambda: len(grader.questions) > 200, READY_SECONDS)
            first.kill()
            await first.wait()
            second, address = await _served(tmp_path)
            try:
                async with crucible_bridge.connect(address) as beside:
                    kept = {sample.sample_id for sample in await samples_of(beside, "e")}
                line.worker = address
                evaluation = await call
                whole = await bridge.evaluation.evaluate_with_orchestrator_model(
                    evaluation_id="whole", graders={"g": Counting()}, **arithmetic
                )
                samples = await samples_of(bridge, "e")
            finally:
                second.kill()
                await second.wait()
    finally:
        if first.returncode is None:
            first.kill()
            await first.wait()
    times_asked = collections.Counter(grader.ids)
    assert evaluation.attempt > 1
    assert evaluation.metrics == whole.metrics
    assert 0 < evaluation.metrics.values["accuracy"] < 1
    assert len(samples) == len(times_asked) == 815
    # Only what the dead worker had not yet written was asked about twice.
    assert kept
    assert sum(times_asked.values()) - 815 <= 815 - len(kept)
