"""Runs that register no plan, and a worker that has one for their names."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import InvalidField, NotFound
from crucible_bridge.types import Dataset, EvaluationState
from crucible_worker.config import Settings
from crucible_worker.planning.plans import PatternPlan
from crucible_worker.server import Worker
from crucible_worker.server.parts import Parts, build
from tests.service.evaluation_kit import nll
from tests.service.plans_kit import plan, planned


def patterns(*runs: str, **fields: object) -> tuple[PatternPlan, ...]:
    """Plans that are due at every second step."""
    made = plan(**{"eval_every": 2, "infrequent_evaluations": (), "infrequent_eval_every": 0, **fields})
    return tuple(PatternPlan(runs=pattern, plan=made) for pattern in runs)


@contextlib.asynccontextmanager
async def worker(state_dir: Path, plans: tuple[PatternPlan, ...]) -> AsyncIterator[Bridge]:
    """A worker with these plans."""

    async def built(settings: Settings) -> Parts:
        return dataclasses.replace(await build(settings), plans=plans)

    settings = Settings(port=0, state_dir=state_dir, grading_processes=0, code_sandboxes=0)
    async with Worker(settings, build=built) as running, crucible_bridge.connect(running.address) as bridge:
        yield bridge


async def test_the_first_step_of_a_run_registers_the_plan_that_fits(tmp_path: Path):
    """The run's id is that of the plan; what is due then is as of any plan, and steps again start nothing twice."""
    async with worker(tmp_path, patterns("lab-*")) as bridge:
        assert await bridge.evaluation.notify_step("lab-7", 1, "embedded:arithmetic@180") == ()
        (started,) = await bridge.evaluation.notify_step("lab-7", 2, "embedded:arithmetic@180")
        (again,) = await bridge.evaluation.notify_step("lab-7", 2, "embedded:arithmetic@180")

    assert started.evaluation.evaluation_id == "lab-7-step-2-0"
    assert (started.evaluation.request.run_id, started.existed, again.existed) == ("lab-7", False, True)


async def test_other_runs_have_no_plan(tmp_path: Path):
    """A name that fits no pattern is refused as without patterns."""
    async with worker(tmp_path, patterns("lab-*")) as bridge:
        with pytest.raises(NotFound) as caught:
            await bridge.evaluation.notify_step("other-7", 2, "embedded:arithmetic@180")
    assert caught.value.reason == "UNKNOWN_PLAN"


async def test_the_first_pattern_that_fits_counts(tmp_path: Path):
    """Of two that fit; a registered plan comes before both."""
    first, second = patterns("lab-*", eval_every=1)[0], patterns("*", eval_every=3)[0]
    async with worker(tmp_path, (first, second)) as bridge:
        assert len(await bridge.evaluation.notify_step("lab-1", 1, "embedded:arithmetic@180")) == 1
        assert len(await bridge.evaluation.notify_step("run", 1, "embedded:arithmetic@180")) == 0
        own = plan(plan_id="lab-2", run_id="lab-2", eval_every=5, infrequent_evaluations=(), infrequent_eval_every=0)
        await bridge.evaluation.register_plan(own)
        assert len(await bridge.evaluation.notify_step("lab-2", 1, "embedded:arithmetic@180")) == 0


async def test_a_run_keeps_its_plan_when_the_file_changes(tmp_path: Path):
    """Another start of the worker, or another worker, with another suite changes only runs that begin later."""
    async with worker(tmp_path, patterns("*")) as bridge:
        await bridge.evaluation.notify_step("old", 1, "embedded:arithmetic@180")
    changed = patterns("*", evaluations=(planned(nll("other"), metric_prefix="x/"),))
    async with worker(tmp_path, changed) as bridge:
        (old,) = await bridge.evaluation.notify_step("old", 2, "embedded:arithmetic@180")
        (new,) = await bridge.evaluation.notify_step("new", 2, "embedded:arithmetic@180")
    assert [one.evaluation.request.metric_prefix for one in (old, new)] == ["", "x/"]


async def test_many_first_steps_at_once_register_one_plan(tmp_path: Path):
    """Each gets the same evaluation."""
    async with worker(tmp_path, patterns("*")) as bridge:
        found = await asyncio.gather(
            *(bridge.evaluation.notify_step("run", 2, "embedded:arithmetic@180") for _ in range(8))
        )
    assert {started.evaluation.evaluation_id for (started,) in found} == {"run-step-2-0"}
    assert sum(not started.existed for (started,) in found) == 1


async def test_a_data_set_that_is_missing_fails_the_evaluation_not_the_step(tmp_path: Path):
    """The step is answered before data is read; an unknown evaluator is refused at once, with its place."""
    missing = patterns("*", evaluations=(planned(dataset=Dataset.of("jsonl:nowhere.jsonl")),))
    async with worker(tmp_path / "a", missing) as bridge:
        (started,) = await bridge.evaluation.notify_step("run", 2, "embedded:arithmetic@180")
        async with bridge.evaluation.watch_evaluation(started.evaluation.evaluation_id) as stream:
            async for _ in stream:
                pass
        ended = await bridge.evaluation.get_evaluation(started.evaluation.evaluation_id)
    assert ended.state is EvaluationState.FAILED

    unknown = patterns("*", evaluations=(planned(dataclasses.replace(nll(), kind="charm")),))
    async with worker(tmp_path / "b", unknown) as bridge:
        with pytest.raises(InvalidField) as caught:
            await bridge.evaluation.notify_step("run", 2, "embedded:arithmetic@180")
    assert caught.value.field == "evaluations[0].evaluators[0].kind"
