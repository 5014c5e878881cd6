"""Interrupted evaluations are resumed without a call, as far as that can be done, or by ResumeEvaluation."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.errors import BackendError, Code
from crucible_bridge.events import EventKind
from crucible_bridge.types import Dataset, EvaluateRequest, EvaluationState, Limits
from crucible_worker.engine import controls, resuming
from crucible_worker.history import resumptions
from crucible_worker.journal.sqlite import JournalMark
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker
from tests.robustness.harness import until
from tests.service.evaluation_kit import HeldModel, asked, failing, kinds_of, refused, rig

pytestmark = pytest.mark.core

COUNT = 6
SECONDS = 60.0
"""For what happens within a moment on an idle machine."""


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for a caller that may come."""
    monkeypatch.setattr(resumptions, "REST_SECONDS", 0.0)
    monkeypatch.setattr(resuming, "LOOK_SECONDS", 0.05)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of data."""
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [{"id": f"s{index}", "input": f"q{index}", "target": f"Q{index}"} for index in range(COUNT)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def wanted(**fields: Any) -> EvaluateRequest:
    """An evaluation of that data."""
    return asked(**{"dataset": Dataset.of("jsonl:data.jsonl"), **fields})


async def interrupted(state_dir: Path, data: Path, *requests: EvaluateRequest) -> None:
    """Leave evaluations that a drain has interrupted at their first call of the model."""
    for request in requests:
        model = HeldModel()
        async with run_worker({"m": model}, state_dir=state_dir, data_roots=[data]) as worker:
            await worker.bridge.evaluation.start_evaluation(request)
            await model.asked.wait()


def state(worker: RunningWorker, evaluation_id: str, *states: EvaluationState) -> Callable[[], Any]:
    """A condition: whether an evaluation is in one of these states."""

    async def found() -> bool:
        return (await worker.bridge.evaluation.get_evaluation(evaluation_id)).state in states

    return found


async def test_what_was_interrupted_is_resumed_and_what_is_bound_to_its_caller_waits(tmp_path: Path, data: Path):
    """The data set of a file is read again; samples that came with the request are with its caller alone."""
    inline = asked(evaluation_id="inline")
    await interrupted(tmp_path, data, inline, wanted())
    async with run_worker(
        {"m": ScriptedModel()}, state_dir=tmp_path, data_roots=[data], resume_interrupted=True
    ) as worker:
        await until(state(worker, "e", EvaluationState.COMPLETED), SECONDS)
        evaluation = await worker.bridge.evaluation.get_evaluation("e")
        kinds = await kinds_of(worker.bridge)
        waiting = await worker.bridge.evaluation.get_evaluation("inline")
        await refused(
            worker.bridge.evaluation.resume_evaluation("inline"),
            Code.FAILED_PRECONDITION,
            "NEEDS_CALLER",
            "evaluation_id",
        )
        later = await worker.bridge.evaluation.evaluate(inline)

    assert (evaluation.attempt, evaluation.done, evaluation.metrics.values["accuracy"]) == (2, COUNT, 1.0)
    assert [kinds.count(kind) for kind in (EventKind.EVALUATION_INTERRUPT, EventKind.EVALUATION_RESUME)] == [1, 1]
    assert (waiting.state, waiting.attempt) == (EvaluationState.INTERRUPTED, 1)
    assert (later.state, later.attempt) == (EvaluationState.COMPLETED, 2)


async def test_a_worker_that_cannot_resume_leaves_it_as_it_is(tmp_path: Path, data: Path):
    """Its data are not there: it stays interrupted, and is resumed by a worker that has them."""
    await interrupted(tmp_path, data, wanted())
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with run_worker(
        {"m": ScriptedModel()}, state_dir=tmp_path, data_roots=[elsewhere], resume_interrupted=True
    ) as without:
        async with run_worker({"m": ScriptedModel()}, state_dir=tmp_path, data_roots=[data], resume_interrupted=True):
            await until(state(without, "e", EvaluationState.COMPLETED), SECONDS)
        assert (await without.bridge.evaluation.get_evaluation("e")).attempt == 2


async def test_resume_evaluation_begins_an_attempt(tmp_path: Path, data: Path):
    """Of what is interrupted, and of what has failed for now; what has ended for good is refused."""
    await interrupted(tmp_path, data, wanted(limits=Limits(max_unscored=0)))
    broken = ScriptedModel(fault=failing())
    async with run_worker({"m": broken}, state_dir=tmp_path, data_roots=[data]) as worker:
        calls = worker.bridge.evaluation
        resumed = await calls.resume_evaluation("e")
        await until(state(worker, "e", EvaluationState.FAILED, EvaluationState.COMPLETED), SECONDS)
        broken.fault = ScriptedModel().fault
        assert (resumed.attempt, resumed.state.terminal) == (2, False)
        await calls.resume_evaluation("e")
        await until(state(worker, "e", EvaluationState.COMPLETED), SECONDS)
        await refused(calls.resume_evaluation("e"), Code.FAILED_PRECONDITION, "EVALUATION_ENDED", "evaluation_id")


class _Unloadable(ScriptedModel):
    """Cannot be loaded now."""

    async def load(self) -> None:
        """Fail.

        Raises:
            BackendError: always.
        """
        raise BackendError("cannot be read", reason="BACKEND_LOAD", retryable=True, retry_after=0.0)


async def test_an_interruption_that_callers_can_see_can_be_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start that comes while the worker has yet to release the evaluation's lock waits for that, and resumes it."""
    interrupts, released, put_off, keep = threading.Event(), threading.Event(), controls.put_off, JournalMark.keep
    committed = asyncio.Event()
    loop = asyncio.get_running_loop()

    def put_off_now(transaction: Any, number: int) -> None:
        put_off(transaction, number)
        interrupts.set()

    def keep_late(mark: JournalMark, sequence: int) -> None:
        keep(mark, sequence)
        if interrupts.is_set():
            interrupts.clear()
            loop.call_soon_threadsafe(committed.set)
            released.wait(60)

    monkeypatch.setattr(controls, "FIRST_REST_SECONDS", 0.0)
    monkeypatch.setattr(controls, "put_off", put_off_now)
    monkeypatch.setattr(JournalMark, "keep", keep_late)
    async with rig(_Unloadable(), outage_seconds=0.2) as r:
        await r.evaluation.start_evaluation(asked())
        await committed.wait()
        seen = await r.evaluation.get_evaluation("e")
        start = asyncio.create_task(r.evaluation.start_evaluation(asked()))
        await asyncio.wait([start], timeout=0.5)
        released.set()
        resumed = (await start).evaluation

    assert (seen.state, seen.attempt) == (EvaluationState.INTERRUPTED, 1)
    assert resumed.attempt == 2
