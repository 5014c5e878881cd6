"""GradingService while its processes warm up, without any, and at the end."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import Code, Unavailable
from crucible_bridge.types import Verdict
from crucible_worker.config import Settings
from crucible_worker.server import Parts
from crucible_worker.server import worker as server
from crucible_worker.testing import ScriptedModel, run_worker
from tests.service.evaluation_kit import refused
from tests.service.grading_kit import CHILDREN, GRADING
from tests.service.server_kit import ScriptedBackend, ScriptedEvaluations, parts_of, serving, settings_for, until


@dataclasses.dataclass
class HeldPool:
    """Processes that are warm when they are told to be."""

    warm: bool = False
    started: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    closed: bool = False
    failures: int = 0
    starts: int = 0
    on_warm_change: Callable[[bool], object] = lambda warm: None

    async def start(self) -> None:
        self.starts += 1
        self.started.set()
        if self.starts <= self.failures:
            raise Unavailable("the children do not start", reason="GRADING_POOL")
        if self.failures:
            self.become(True)

    def become(self, warm: bool) -> None:
        self.warm = warm
        self.on_warm_change(warm)

    async def aclose(self) -> None:
        self.closed = True


@contextlib.asynccontextmanager
async def held(folder: Path, pool: HeldPool) -> AsyncIterator[Bridge]:
    """A worker whose grading processes are scripted."""

    async def build(_: Settings) -> Parts:
        grading: Any = pool
        return dataclasses.replace(parts_of(ScriptedEvaluations(), ScriptedBackend()), grading=grading)

    async with serving(settings_for(folder), build=build) as rig, crucible_bridge.connect(rig.worker.address) as bridge:
        yield bridge


async def test_it_serves_once_a_child_is_warm(tmp_path: Path):
    """Until then it is NOT_SERVING, and the worker as a whole serves."""
    pool = HeldPool()
    async with held(tmp_path, pool) as bridge:
        await asyncio.wait_for(pool.started.wait(), 5)
        assert await bridge.worker.health()
        assert await bridge.worker.health("crucible_bridge.v1.MetricsService")
        assert not await bridge.worker.health(GRADING)

        pool.become(True)
        assert await bridge.worker.health(GRADING)
        pool.become(False)
        assert not await bridge.worker.health(GRADING)
        assert not pool.closed

    assert pool.closed


async def test_processes_that_do_not_start_leave_a_worker_that_serves(tmp_path: Path):
    """Grading alone is NOT_SERVING."""
    pool = HeldPool(failures=1)
    async with held(tmp_path, pool) as bridge:
        await asyncio.wait_for(pool.started.wait(), 5)

        assert await bridge.worker.health()
        assert not await bridge.worker.health(GRADING)


async def test_processes_that_do_not_start_are_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Nobody calls a service that is NOT_SERVING, so the worker does it by itself."""
    monkeypatch.setattr(server, "GRADING_RETRY_SECONDS", 0.01)
    async with held(tmp_path, HeldPool(failures=3)) as bridge, asyncio.timeout(5):
        while not await bridge.worker.health(GRADING):
            await asyncio.sleep(0.01)


async def test_processes_that_end_are_started_again(tmp_path: Path):
    """Likewise; meanwhile the service is NOT_SERVING. The log has a line each time that grading works."""
    pool = HeldPool()
    with capture_logs() as lines:
        async with held(tmp_path, pool):
            await asyncio.wait_for(pool.started.wait(), 5)
            pool.become(True)
            pool.become(False)
            await until(lambda: pool.starts == 2)
            assert [line["event"] for line in lines].count("grading_ready") == 1
            pool.become(True)

    assert [line["event"] for line in lines].count("grading_ready") == 2


async def test_a_worker_that_drains_does_not_serve(tmp_path: Path):
    """Whatever its processes say then."""
    pool = HeldPool()
    async with held(tmp_path, pool) as bridge:
        await asyncio.wait_for(pool.started.wait(), 5)
        pool.become(True)
        await bridge.worker.drain()
        pool.become(True)

        with pytest.raises(crucible_bridge.BridgeError) as refusal:
            await bridge.grading.grade_math([("1", "1")])

    assert isinstance(refusal.value, Unavailable)


async def test_a_worker_without_processes_grades_no_math():
    """It says why; all else of the service works, and health says that not everything does."""
    async with run_worker({"m": ScriptedModel()}, grading_processes=0) as worker:
        bridge = worker.bridge
        await refused(bridge.grading.grade_math([("1", "1")]), Code.FAILED_PRECONDITION, "NO_GRADING_POOL")
        (answer,) = await bridge.grading.extract_answers(["\\boxed{5}"])
        (grade,) = await bridge.grading.score([("5", "5")], "exact_match")

        assert (answer.answer, grade.verdict) == ("5", Verdict.CORRECT)
        assert not await bridge.worker.health(GRADING)


async def test_a_call_that_comes_early_waits_for_the_processes():
    """It is answered once they are warm, and the service then says that it serves."""
    async with run_worker({"m": ScriptedModel()}, grading_processes=CHILDREN) as worker:
        (grade,) = (await worker.bridge.grading.grade_math([("x+1", "1+x")])).grades

        assert grade.verdict is Verdict.CORRECT
        assert await worker.bridge.worker.health(GRADING)


async def test_a_worker_that_ends_while_its_processes_start_ends_in_order():
    """A start is given up, not waited for."""
    async with run_worker({"m": ScriptedModel()}, grading_processes=CHILDREN) as worker:
        call = asyncio.create_task(worker.bridge.grading.grade_math([("x+1", "1+x")]))
        await until(lambda: True)

    with pytest.raises(crucible_bridge.BridgeError):
        await asyncio.wait_for(call, 60.0)
