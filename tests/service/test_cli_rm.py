"""`crucible-worker rm`, of a journal that no worker has open, of one that a worker has open, and of a worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from crucible_bridge.errors import NotFound
from crucible_bridge.types import EvaluationState, EvaluatorSpec, Limits, SamplingParams
from crucible_worker.testing import RunningWorker, run_worker
from tests.service.evaluation_kit import HeldModel
from tests.service.test_cli_results import MODELS, SAMPLES, evaluated, run


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[RunningWorker]:
    """A worker with the ended evaluations e1 and e2 of one run, and `slow`, which runs until it is cancelled."""
    async with run_worker({**MODELS, "held": HeldModel()}, state_dir=tmp_path) as worker:
        await evaluated(worker)
        await worker.bridge.evaluation.start_evaluation(
            evaluation_id="slow",
            run_id="training",
            model="embedded:held",
            evaluators=[EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"})],
            dataset=SAMPLES,
            sampling=SamplingParams(max_tokens=8),
            limits=Limits(concurrency=1),
        )
        while (await worker.bridge.evaluation.get_evaluation("slow")).state is not EvaluationState.RUNNING:
            pass
        yield worker


@pytest.fixture(params=["--state-dir", "--address"])
def place(request: pytest.FixtureRequest, worker: RunningWorker, tmp_path: Path) -> Sequence[str]:
    """The options that name where evaluations are; both while the worker runs."""
    return ("--state-dir", str(tmp_path)) if request.param == "--state-dir" else ("--address", worker.address)


async def left(worker: RunningWorker) -> list[str]:
    """Ids of the evaluations that the worker has, the newest first."""
    return [one.evaluation_id async for one in worker.bridge.evaluation.all_evaluations()]


async def test_evaluations_are_deleted_by_their_ids(worker: RunningWorker, place: Sequence[str]):
    """Whoever has the journal open no longer finds them, nor their samples; an id twice is one evaluation."""
    found = await run("rm", "e1", "e2", "e1", "--yes", *place)

    assert (found.code, found.out, found.err) == (0, "e1: deleted, with 4 samples\ne2: deleted, with 4 samples\n", "")
    assert await left(worker) == ["slow"]
    with pytest.raises(NotFound):
        await worker.bridge.evaluation.get_samples("e1")
    assert (await run("rm", "e1", "--yes", *place)).err.startswith("crucible-worker: ID is 'e1', and the worker's")


async def test_a_run_is_deleted_as_a_whole(worker: RunningWorker, place: Sequence[str]):
    """All of its evaluations, as data for programs; a run without evaluations is named."""
    found = await run("rm", "--run", "run", "--yes", "--json", *place)
    again = await run("rm", "--run", "run", "--yes", *place)

    assert json.loads(found.out) == [
        {"evaluation_id": name, "state": "completed", "samples": 4} for name in ("e2", "e1")
    ]
    assert await left(worker) == ["slow"]
    assert again.code == 2
    assert again.err.startswith("crucible-worker: --run is 'run': no evaluation is of this run")


@pytest.mark.parametrize("words", [("e1", "slow"), ("--run", "training")])
async def test_nothing_is_deleted_while_one_of_them_runs(
    worker: RunningWorker, place: Sequence[str], words: Sequence[str]
):
    """The refusal names it with its cure; once it is cancelled, the same command deletes it."""
    refused = await run("rm", *words, "--yes", *place)
    before = await left(worker)
    cancelled = await run("cancel", "slow", *place)
    deleted = await run("rm", *words, "--yes", *place)

    assert (refused.code, refused.out) == (1, "")
    cure = f"cancel it first (crucible-worker cancel slow {shlex.join(place)})"
    assert refused.err == f"crucible-worker: 'slow' is running: {cure}\n"
    assert before == ["slow", "e2", "e1"]
    assert cancelled.out == "slow: cancelled\n"
    assert (deleted.code, deleted.out.splitlines()[-1]) == (0, "slow: deleted, with 0 samples")
    assert "slow" not in await left(worker)


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1), ("", 1)])
async def test_it_asks_on_a_terminal(worker: RunningWorker, place: Sequence[str], answer: str, code: int):
    """The question says how much it is about; only a yes deletes."""
    terminal, end = pty.openpty()
    with contextlib.ExitStack() as opened:
        opened.callback(os.close, terminal)
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "crucible_worker", "rm", "e1", "e2", *place),
                stdin=end,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        finally:
            os.close(end)
        os.write(terminal, f"{answer}\n".encode())
        out, err = await process.communicate()

    assert err.decode().startswith("Delete 2 evaluations with 8 samples: e1, e2? [y/N]:")
    assert process.returncode == code
    assert ("e1: deleted" in out.decode()) == (code == 0)
    assert ("nothing was deleted" in err.decode()) == (code == 1)
    assert await left(worker) == (["slow"] if code == 0 else ["slow", "e2", "e1"])
