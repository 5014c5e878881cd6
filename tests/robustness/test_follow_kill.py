"""A run is followed while its workers are killed: each whole checkpoint is evaluated once, on all of its files."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import random
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import EvaluationState, SamplingParams
from tests.robustness.evidence import log_of
from tests.robustness.fake_trainer import is_never_whole, may_vanish
from tests.robustness.harness import WorkerProcess, until
from tests.service.follow_kit import FOUND, QUESTIONS, RELEASED, SKIPPED, save

ROOT = Path(__file__).parents[2]
LATENCY = 0.1
"""Of a model call, seconds: an evaluation is at work when its worker is killed."""


class _Killed:
    """Workers of one journal, one after the other, and the trainer."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workers = folder, list[WorkerProcess]()
        self.run = folder / "models" / "run"
        self.run.mkdir(parents=True)

    def launch(self) -> WorkerProcess:
        number = len(self.workers)
        ready_file, log_file = self.folder / f"ready-{number}", self.folder / f"worker-{number}.log"
        configuration = {
            "ready_file": str(ready_file),
            "state_dir": str(self.folder / "state"),
            "root": str(self.run.parent),
            "latency": LATENCY,
        }
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.robustness.follow_worker", json.dumps(configuration)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.workers.append(WorkerProcess(process, ready_file, log_file))
        return self.workers[-1]

    def train(self, count: int, seconds: float) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.robustness.fake_trainer", str(self.run), str(count), str(seconds)], cwd=ROOT
        )

    def left(self) -> set[str]:
        """Names of the whole checkpoints that the trainer has left."""
        return {path.name for path in self.run.glob("checkpoint-*") if not is_never_whole(_step(path.name))}


def _step(name: str) -> int:
    return int(name.rpartition("-")[2])


@contextlib.asynccontextmanager
async def _killed(folder: Path, seconds: float) -> AsyncIterator[_Killed]:
    killed = _Killed(folder)
    try:
        async with asyncio.timeout(seconds):
            yield killed
    finally:
        for worker in killed.workers:
            await worker.close()


async def _kill_while_training(folder: Path, *, count: int, kills: int, pause: float, seconds: float) -> None:
    """Train, kill the followers again and again, and hold what is left against the rules."""
    rng = random.Random(count)
    async with _killed(folder, seconds) as killed:
        worker = await killed.launch().ready()
        await worker.bridge.follow(
            "run", evaluators=["accuracy"], dataset=QUESTIONS, sampling=SamplingParams(max_tokens=8)
        )
        trainer = killed.train(count, pause)
        try:
            for _ in range(kills):
                # The next one serves already: it takes over at once, or finds what the killed one has left.
                following = await killed.launch().ready()
                await asyncio.sleep(rng.uniform(0, 1))
                worker.kill()
                worker = following
            await until(lambda: trainer.poll() is not None, seconds)
        finally:
            trainer.kill()
            trainer.wait()
        assert trainer.returncode == 0
        last = worker
        # Whatever the trainer's pace was: one is deleted while it is evaluated.
        deleted = save(killed.run, 2 * count)
        await until(lambda: any(killed.run.glob(f".crucible/*/{deleted.name}")), seconds)
        shutil.rmtree(deleted)

        async def settled() -> bool:
            log = await log_of(last.bridge)
            told = collections.Counter(event.kind for event in log)
            released = {event.metadata["name"] for event in log if event.kind is RELEASED}
            begun = [event for event in log if event.kind is FOUND]
            return killed.left() | {deleted.name} <= released and told[RELEASED] == len(begun)

        await until(settled, seconds)
        log = await log_of(last.bridge)
        evaluations = [each async for each in last.bridge.evaluation.all_evaluations(run_id="run")]
        _check(killed, log, {each.evaluation_id: each for each in evaluations}, count)
        assert [one.pid for one in killed.workers if "Traceback" in one.log_file.read_text()] == []


def _check(killed: _Killed, log: list[Event], evaluations: dict, count: int) -> None:
    found, released, skipped = (
        collections.Counter(event.metadata["name"] for event in log if event.kind is kind)
        for kind in (FOUND, RELEASED, SKIPPED)
    )
    assert set(found.values()) <= {1}
    assert released == found, "each that was found is released, once"
    assert not found.keys() & skipped.keys()
    assert killed.left() <= found.keys(), "each that is whole is evaluated"
    gone = [step for step in range(1, count + 1) if f"checkpoint-{step}" not in found]
    assert not [name for name in found if is_never_whole(_step(name))], "nothing is evaluated that is half written"
    starts = collections.Counter(event.evaluation_id for event in log if event.kind is EventKind.EVALUATION_START)
    assert starts == {f"run-step-{_step(name)}-0": 1 for name in found} == dict.fromkeys(evaluations, 1)
    for evaluation in evaluations.values():
        assert evaluation.state is EvaluationState.COMPLETED, evaluation.problem
        (result,) = evaluation.results
        assert (result.n, result.n_scored) == (len(QUESTIONS), len(QUESTIONS)), "no deletion touches a measurement"
        assert evaluation.metrics.values["accuracy"] == float(evaluation.request.step % 2 == 0)
    assert list((killed.run / ".crucible").glob("*/*")) == [], "nothing is held that was released"
    # The others were deleted before anybody could hold them.
    assert all(is_never_whole(step) or may_vanish(step) or step % 4 == 0 for step in gone)


async def test_workers_are_killed_while_a_run_is_followed(tmp_path: Path):
    """Five kills, twenty checkpoints, some of them half-written or deleted early."""
    await _kill_while_training(tmp_path, count=20, kills=5, pause=0.3, seconds=200.0)


@pytest.mark.torture
async def test_workers_are_killed_again_and_again(tmp_path: Path):
    """Fifty kills, two hundred checkpoints."""
    await _kill_while_training(tmp_path, count=200, kills=50, pause=0.3, seconds=1500.0)
