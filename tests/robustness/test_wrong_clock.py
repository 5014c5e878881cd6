"""A machine's clock that is wrong, for a while or for good: what workers remove because of its age stays recoverable.

The clock is wrong in two ways: as the worker reads it, which needs nothing, and for the whole process, SQLite and gRPC
included, by the Debian package libfaketime, without which those tests are skipped.
"""

from __future__ import annotations

import glob
import sqlite3
from collections.abc import Mapping

import pytest

from crucible_bridge.types import EvaluationState
from crucible_worker.journal.schema import JOURNAL_FILE
from crucible_worker.testing import ScriptedModel, run_worker
from tests import needs
from tests.robustness.evidence import request
from tests.robustness.harness import WorkerProcess, Workshop, until, workshop

DAY = 24 * 60 * 60
WRONG = ["as it is read", "for the process"]


def _wrong(how: str, days: int) -> Mapping[str, object]:
    """What a worker is started with whose clock is so many days ahead."""
    if how == "as it is read":
        return {"clock_ahead_seconds": days * DAY}
    libraries = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")
    if not libraries:
        pytest.skip(needs.MISSING["faketime"])
    return {"environment": {"LD_PRELOAD": libraries[0], "FAKETIME": f"+{days}d"}}


async def _start(shop: Workshop, **clock: object) -> WorkerProcess:
    """Start a worker whose clock is so, and wait until it has looked for what to remove."""
    shop.clock_ahead_seconds, shop.environment = 0.0, {}
    for name, value in clock.items():
        setattr(shop, name, value)
    before = _counted_through(shop)
    worker = await shop.start()
    await until(lambda: _counted_through(shop) != before)
    return worker


def _counted_through(shop: Workshop) -> object:
    """When time was counted last, just before a worker looks for what to remove."""
    if not (path := shop.state_dir / JOURNAL_FILE).exists():
        return None
    connection = sqlite3.connect(path)
    try:
        return connection.execute("SELECT through_ns FROM lived").fetchone()
    finally:
        connection.close()


async def _stop(worker: WorkerProcess) -> None:
    worker.terminate()
    assert await worker.exit_code(10) == 0


async def _states(worker: WorkerProcess) -> dict[str, tuple[EvaluationState, int]]:
    """Every evaluation with how many samples it has."""
    evaluation = worker.bridge.evaluation
    found = {each.evaluation_id: each.state for each in (await evaluation.list_evaluations()).items}
    return {name: (state, len([s async for s in evaluation.all_samples(name)])) for name, state in found.items()}


async def _make_history(shop: Workshop) -> None:
    """An evaluation that has completed, and one that is interrupted with some samples."""
    model = ScriptedModel()
    async with run_worker({"m": model}, state_dir=shop.state_dir) as worker:
        await until(lambda: _counted_through(shop) is not None)
        await worker.bridge.evaluation.evaluate(request("completed", samples=20))
        model.latency = 0.02
        await worker.bridge.evaluation.start_evaluation(request("interrupted", concurrency=1))

        async def some_done() -> bool:
            return (await worker.bridge.evaluation.get_evaluation("interrupted")).done > 5

        await until(some_done)


@pytest.mark.parametrize("how", WRONG)
async def test_a_clock_a_month_ahead_removes_nothing(tmp_path, how):
    """A worker 31 days ahead that evaluates, stops and starts again removes nothing, and cancels nothing."""
    wrong = _wrong(how, 31)
    async with workshop(tmp_path, {"m": {}}) as shop:
        await _make_history(shop)
        ahead = await _start(shop, **wrong)
        before = await _states(ahead)
        assert {name: state for name, (state, _) in before.items()} == {
            "completed": EvaluationState.COMPLETED,
            "interrupted": EvaluationState.INTERRUPTED,
        }
        await ahead.bridge.evaluation.evaluate(request("ahead", samples=20))
        await _stop(ahead)
        again = await _start(shop, **wrong)
        await again.bridge.evaluation.evaluate(request("again", samples=20))
        new = dict.fromkeys(("ahead", "again"), (EvaluationState.COMPLETED, 40))
        assert await _states(again) == before | new
        await _stop(again)
        right = await _start(shop)
        assert await _states(right) == before | new
        ended = await right.bridge.evaluation.evaluate(request("interrupted"))
        assert (ended.state, ended.attempt) == (EvaluationState.COMPLETED, 2)


@pytest.mark.parametrize("how", [pytest.param(WRONG[0], marks=pytest.mark.core), WRONG[1]])
async def test_a_journal_left_alone_loses_nothing_at_the_first_start(tmp_path, how):
    """After 40 days without a worker everything is there, and what was interrupted can be resumed."""
    wrong = _wrong(how, 40)
    async with workshop(tmp_path, {"m": {}}) as shop:
        await _make_history(shop)
        later = await _start(shop, **wrong)
        ended = await later.bridge.evaluation.evaluate(request("interrupted"))
        assert (ended.state, ended.attempt) == (EvaluationState.COMPLETED, 2)
        assert set(await _states(later)) == {"completed", "interrupted"}
