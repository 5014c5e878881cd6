"""A worker as a process with the processes that grade for it: ready without them, gone with them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import BridgeError
from crucible_bridge.types import Verdict
from tests.processes import alive, processes_below, state_of
from tests.service.grading_kit import CHILDREN, GRADING, HARD

EXIT_WITHIN_SECONDS = 5.5
GONE_WITHIN_SECONDS = 2.0
"""Of its children, after its end."""
START_WITHIN_SECONDS = 30
"""No claim: how long a test waits on a loaded machine."""


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[subprocess.Popen[str], Bridge]]:
    """A worker as an operator starts it, and a client of it; what it logs lies in `folder / "log"`."""
    ready = folder / "ready"
    command = [sys.executable, "-m", "crucible_worker", "serve", "--port=0", "--log-level=warning"]
    command += [f"--ready-file={ready}", f"--state-dir={folder / 'state'}", f"--grading-processes={CHILDREN}"]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stderr=log, text=True) as worker:
        try:
            await until(lambda: ready.exists() or worker.poll() is not None, START_WITHIN_SECONDS)
            async with crucible_bridge.connect(ready.read_text()) as bridge:
                yield worker, bridge
        finally:
            worker.kill()


async def until(condition, seconds: float) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def ended(worker: subprocess.Popen[str], folder: Path) -> str:
    """Send SIGTERM, wait for the end of the worker and of all that it started; what it logged."""
    children = processes_below(worker.pid)
    worker.send_signal(signal.SIGTERM)
    began = time.monotonic()
    await until(lambda: worker.poll() is not None, EXIT_WITHIN_SECONDS)
    assert worker.returncode == 0
    assert time.monotonic() - began < EXIT_WITHIN_SECONDS
    await until(lambda: not alive(children), GONE_WITHIN_SECONDS)
    return (folder / "log").read_text()


async def test_a_worker_is_ready_before_it_grades(tmp_path: Path):
    """It serves as soon as its ready file is there; grading follows, and health tells when."""
    async with serving(tmp_path) as (worker, bridge):
        assert await bridge.worker.health()
        async with asyncio.timeout(START_WITHIN_SECONDS):
            while not await bridge.worker.health(GRADING):
                await asyncio.sleep(0.01)
        (grade,) = (await bridge.grading.grade_math([("x+1", "1+x")])).grades
        # Two that grade, the process that forks them, and the watchdog.
        assert len(processes_below(worker.pid)) == CHILDREN + 2
        log = await ended(worker, tmp_path)

    assert grade.verdict is Verdict.CORRECT
    assert log == ""


async def test_a_worker_ends_in_time_while_its_children_compute(tmp_path: Path):
    """A call that is graded then is told that the worker drains, and no child lives on."""
    async with serving(tmp_path) as (worker, bridge):
        await bridge.grading.grade_math([("x+1", "1+x")])
        pairs = [(f"{HARD}+{number}", f"{HARD}-{number}+z") for number in range(4_000)]
        call = asyncio.create_task(bridge.grading.grade_math(pairs))
        async with asyncio.timeout(START_WITHIN_SECONDS):
            while not (await bridge.worker.get_info()).calls:
                await asyncio.sleep(0.01)
        await until(lambda: any(state_of(pid) == "R" for pid in processes_below(worker.pid)), START_WITHIN_SECONDS)
        log = await ended(worker, tmp_path)
        with pytest.raises(BridgeError) as refused:
            await call

    assert refused.value.reason == "DRAINING"
    assert log == ""


async def test_a_worker_ends_in_time_while_its_children_start(tmp_path: Path):
    """A start is cut short, in silence."""
    async with serving(tmp_path) as (worker, _):
        await until(lambda: processes_below(worker.pid), START_WITHIN_SECONDS)
        log = await ended(worker, tmp_path)

    assert log == ""
