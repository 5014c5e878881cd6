"""Steps of a plan whose data set takes long to read, when workers die or are told to stop in the middle of that."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crucible_bridge.client import Bridge
from crucible_bridge.events import EventKind
from crucible_bridge.types import (
    Dataset,
    EvaluationPlan,
    EvaluationState,
    EvaluatorSpec,
    JsonlDataset,
    PlannedEvaluation,
)
from tests.robustness.evidence import check_events, check_interrupted_run, log_of, request
from tests.robustness.harness import WorkerProcess, Workshop, until, workshop

LINES = 50_000
"""Of the file: reading it takes a second, telling of a step some milliseconds."""
SAMPLES = 20
"""Evaluated of them; all are read whatever the limit."""
STEPS = (1, 2, 3)
"""More than are read at once."""


def _write(path: Path, lines: int) -> None:
    records = (
        json.dumps({"id": f"s{number}", "input": f"question {number}", "target": "x"}) for number in range(lines)
    )
    path.write_text("\n".join(records))


def _plan() -> EvaluationPlan:
    whole = request("unused")
    planned = PlannedEvaluation(
        evaluators=(EvaluatorSpec(kind="nll"),),
        dataset=Dataset(source=JsonlDataset("set.jsonl"), limit=SAMPLES),
        sampling=whole.sampling,
        limits=whole.limits,
    )
    return EvaluationPlan(
        plan_id="p",
        run_id="run",
        eval_every=1,
        evaluations=(planned,),
        infrequent_eval_every=0,
        infrequent_evaluations=(),
    )


@contextlib.asynccontextmanager
async def _shop(tmp_path: Path) -> AsyncIterator[tuple[Workshop, WorkerProcess]]:
    """A workshop, and a worker with the plan, whose file has become large since it was registered."""
    roots = tmp_path / "data"
    roots.mkdir()
    _write(roots / "set.jsonl", 1)
    async with workshop(tmp_path, {"m": {}}, data_roots=(roots,)) as shop:
        worker = await shop.start()
        await worker.bridge.evaluation.register_plan(_plan())
        _write(roots / "set.jsonl", LINES)
        yield shop, worker


async def _told(bridge: Bridge) -> list[str]:
    """Tell of the steps; the ids of their evaluations."""
    started = [one for step in STEPS for one in await bridge.evaluation.notify_step("p", step, "embedded:m")]
    return [one.evaluation.evaluation_id for one in started]


async def _unread(bridge: Bridge, names: list[str], state: EvaluationState) -> None:
    """They must be in this state, and their data set not read: what ended the reading did not come too late."""
    found = [await bridge.evaluation.get_evaluation(name) for name in names]
    assert [(one.state, one.total, one.dataset_fingerprint) for one in found] == [(state, 0, "")] * len(names)


async def _ended_well(bridge: Bridge, names: list[str]) -> None:
    log = await log_of(bridge)
    check_events(log)
    for name in names:
        check_interrupted_run(log, await bridge.evaluation.get_evaluation(name), SAMPLES)


async def _until_completed(bridge: Bridge, names: list[str]) -> None:
    async def completed() -> bool:
        found = [await bridge.evaluation.get_evaluation(name) for name in names]
        assert all(one.state is not EvaluationState.FAILED for one in found), found
        return all(one.state is EvaluationState.COMPLETED for one in found)

    await until(completed)


@pytest.mark.parametrize("ending", ["SIGKILL", "SIGTERM"])
async def test_steps_outlive_a_worker_that_reads_their_data(tmp_path, ending):
    """INTERRUPTED without a total; told again, another worker reads the data and completes them."""
    async with _shop(tmp_path) as (shop, worker):
        spare = shop.launch()
        names = await _told(worker.bridge)
        if ending == "SIGKILL":
            worker.kill()
        else:
            worker.terminate()
            assert await worker.exit_code(10) == 0
        await spare.ready()
        await _unread(spare.bridge, names, EvaluationState.INTERRUPTED)

        assert await _told(spare.bridge) == names
        await _until_completed(spare.bridge, names)

        await _ended_well(spare.bridge, names)
        assert (await spare.bridge.evaluation.get_evaluation(names[0])).attempt == 2


async def test_another_worker_cancels_what_is_being_read(tmp_path):
    """The owner gives the reading up; each is CANCELLED with START and one STOP."""
    async with _shop(tmp_path) as (shop, worker):
        other = await shop.start()
        names = await _told(worker.bridge)
        await asyncio.gather(*(other.bridge.evaluation.cancel_evaluation(name, "enough") for name in names))
        await _unread(other.bridge, names, EvaluationState.CANCELLED)
        log = await log_of(other.bridge)
        check_events(log)
        for name in names:
            kinds = [event.kind for event in log if event.evaluation_id == name]
            assert kinds == [EventKind.EVALUATION_START, EventKind.EVALUATION_STOP]


async def test_an_unwritable_journal_interrupts_what_is_being_read(tmp_path):
    """What was found cannot be written down: interrupted, told once that is possible, and gone on with."""
    async with _shop(tmp_path) as (_, worker):
        names = await _told(worker.bridge)
        with worker.unable_to_write():

            async def noticed() -> bool:
                return not await worker.is_serving()

            await until(noticed)
        await until(worker.is_serving)
        assert await _told(worker.bridge) == names
        await _until_completed(worker.bridge, names)
        await _ended_well(worker.bridge, names)
