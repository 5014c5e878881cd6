"""A worker in this event loop, on scripted models, as a Snakepit pool sees it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from crucible_worker.config import Settings
from crucible_worker.server import Worker
from crucible_worker.server.endpoint import snakepit_endpoint
from crucible_worker.testing.scripted import ScriptedModel
from crucible_worker.testing.worker import scripted_build
from crucible_worker.util.limits import WorkerLimits
from tests.interop.snakepit_standin import Pool, connected

__all__ = ["evaluation", "snakepit_worker"]

TEST_SECONDS = 60.0
"""For what is done with a worker: a test that hangs fails."""


@contextlib.asynccontextmanager
async def snakepit_worker(
    folder: Path,
    models: Mapping[str, ScriptedModel] | None = None,
    *,
    limits: WorkerLimits | None = None,
    token_file: Path | None = None,
    grading_processes: int = 0,
) -> AsyncIterator[tuple[Pool, Worker]]:
    """Run a worker with the folder as its model root, connect and shake hands; it is drained at the end."""
    folder.mkdir(exist_ok=True)
    settings = Settings(
        port=0,
        state_dir=folder / "state",
        model_roots=(folder,),
        limits=limits or WorkerLimits(),
        grading_processes=grading_processes,
        token_file=token_file,
    ).validate()
    async with (
        asyncio.timeout(TEST_SECONDS),
        Worker(settings, build=scripted_build(models or {}), endpoint=snakepit_endpoint(settings)) as worker,
        connected(int(worker.address.rpartition(":")[2])) as pool,
    ):
        await pool.shake_hands()
        yield pool, worker


def evaluation(evaluation_id: str, *, samples: int = 3, model: str = "embedded:m") -> dict[str, object]:
    """Parameters of the tool `evaluate`: the answer is what the scripted model says, the question in upper case."""
    return {
        "evaluation_id": evaluation_id,
        "run_id": "run",
        "step": 7,
        "model": model,
        "evaluators": [{"kind": "accuracy", "options": {"grader": "exact_match"}}],
        "dataset": [{"id": f"s{n}", "input": f"word {n}", "target": f"WORD {n}"} for n in range(samples)],
        "sampling": {"max_tokens": 32},
    }
