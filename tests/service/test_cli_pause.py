"""`crucible-worker pause`, `resume` and `concurrency`, of a journal that a worker has open, and of a worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from crucible_bridge.types import EvaluationState, EvaluatorSpec, Limits, SamplingParams
from crucible_worker.__main__ import main
from crucible_worker.testing import RunningWorker, run_worker
from tests.forks import Fork
from tests.service.evaluation_kit import HeldModel
from tests.service.server_kit import until
from tests.service.test_cli_results import MODELS, SAMPLES, evaluated, run


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[RunningWorker]:
    """A worker with the ended evaluation e1, and `slow`, which runs until it is cancelled."""
    async with run_worker({**MODELS, "held": HeldModel()}, state_dir=tmp_path) as worker:
        await evaluated(worker)
        await worker.bridge.evaluation.start_evaluation(
            evaluation_id="slow",
            model="embedded:held",
            evaluators=[EvaluatorSpec(kind="accuracy", options={"grader": "exact_match"})],
            dataset=SAMPLES,
            sampling=SamplingParams(max_tokens=8),
            limits=Limits(concurrency=1),
        )
        async with asyncio.timeout(60):
            while (await worker.bridge.evaluation.get_evaluation("slow")).state is not EvaluationState.RUNNING:
                await asyncio.sleep(0.01)
        yield worker


@pytest.fixture(params=["--state-dir", "--address"])
def place(request: pytest.FixtureRequest, worker: RunningWorker, tmp_path: Path) -> Sequence[str]:
    """The options that name where evaluations are; both while the worker runs."""
    return ("--state-dir", str(tmp_path)) if request.param == "--state-dir" else ("--address", worker.address)


async def test_what_is_paused_is_shown_so(place: Sequence[str], tmp_path: Path):
    """By the command itself, `list`, `show` and `watch`; a second time changes nothing."""
    watched = tmp_path / "watched"
    watched.touch()
    watching = Fork(main, argv=["crucible-worker", "watch", "slow", *place], out=watched, err=tmp_path / "err")
    await until(lambda: "slow: running, 0 of " in watched.read_text(), 60)
    paused = await run("pause", "slow", *place)
    again = await run("pause", "slow", *place)
    limited = await run("concurrency", "slow", "3", *place)
    listed = await run("list", *place)
    (data, *_) = json.loads((await run("list", "--json", *place)).out)
    shown = await run("show", "slow", *place)
    await until(lambda: "slow: running, paused, 0 of " in watched.read_text(), 60)
    resumed = await run("resume", "slow", "--json", *place)
    await run("cancel", "slow", *place)
    await asyncio.to_thread(watching.wait, 60)

    assert (paused.code, paused.out, paused.err) == (0, "slow: running, paused\n", "")
    assert again.out == paused.out
    assert limited.out == "slow: running, paused, concurrency 3\n"
    assert "paused" in listed.out
    assert (data["evaluation_id"], data["state"], data["paused"]) == ("slow", "running", True)
    assert shown.out.startswith("slow: running, paused 0 of ")
    assert json.loads(resumed.out) == {"evaluation_id": "slow", "state": "running", "paused": False, "concurrency": 3}
    assert watched.read_text().endswith("slow: cancelled, CANCELLED: cancelled\n")


async def test_refusals_name_what_was_typed(worker: RunningWorker, place: Sequence[str]):
    """What has ended, what nobody knows, and a limit out of bounds."""
    for words in (("pause", "e1"), ("resume", "e1"), ("concurrency", "e1", "2")):
        ended = await run(*words, *place)
        assert (ended.code, ended.out) == (1, "")
        assert ended.err == "crucible-worker: ID is 'e1', which has ended: it is completed\n"
        unknown = await run(words[0], "gone", *words[2:], *place)
        assert unknown.code == 2
        assert unknown.err.startswith("crucible-worker: ID is 'gone'")
    for number, what in (("0", "must be at least 1"), ("100000", "the limit of max_concurrency")):
        wrong = await run("concurrency", "slow", number, *place)
        assert wrong.code == 2
        assert wrong.err.startswith("crucible-worker: N is ")
        assert what in wrong.err
