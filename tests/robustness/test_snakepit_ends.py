"""The end of a Snakepit worker: by SIGTERM whatever runs, by the death of its parent, and never with an orphan."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import numpy as np
import pytest

from tests.interop.snakepit_kit import evaluation
from tests.interop.snakepit_standin import Launched, PythonError, command, connected, environment, launched, pool_worker
from tests.service.openai_kit import Fault, ScriptedServer

SIGTERM_SECONDS = 5.5
"""From SIGTERM to exit code 0; Snakepit kills after 6."""
ORPHAN_SECONDS = 2.0
"""From the parent's death to the end of the worker and its children."""
SLOW_PAIRS = [
    {"id": n, "gold": f"\\sin^{{{n}}}(x)+\\cos(x)", "pred": f"\\cos(x)+\\sin^{{{n}}}(x)+0"} for n in range(9, 400)
]
"""Each takes the mathematics a while."""

# Snakepit in one line: starts the worker, with pipes, says its pid, and lives on.
PARENT = """
import subprocess, sys, time
worker = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE)
print(worker.pid, flush=True)
time.sleep(600)
"""


async def gone(worker: Launched, seconds: float) -> None:
    """Wait until nobody of the worker's session lives."""
    async with asyncio.timeout(seconds):
        while worker.family():
            await asyncio.sleep(0.01)


@contextlib.contextmanager
def adopted(folder: Path, *adapter_args: str) -> Iterator[tuple[subprocess.Popen[str], Launched]]:
    """A worker whose parent is a process of its own, to be killed."""
    ready_file, log_file = folder / "ready", folder / "log"
    line = [sys.executable, "-c", PARENT, *command(folder / "state", *adapter_args)]
    with log_file.open("wb") as log:
        parent = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=log, env=environment(ready_file), text=True)
    assert parent.stdout is not None
    adopted_process: Any = _Pid(int(parent.stdout.readline()))
    worker = Launched(adopted_process, ready_file, log_file)
    try:
        yield parent, worker
    finally:
        for pid in worker.family():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        parent.kill()
        parent.wait()
        parent.stdout.close()


class _Pid:
    """As much of a process as can be known of somebody else's child."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        return None if Path(f"/proc/{self.pid}").exists() else -1


async def test_sigterm_while_a_model_is_asked(tmp_path: Path):
    """The group gets SIGTERM while an evaluation waits for its model: the tool is answered, and the exit code is 0."""
    async with (
        ScriptedServer(lambda request: Fault.STALL).serving() as server,
        pool_worker(tmp_path, f"--openai-server=s={server.url}", "--grading-processes=2") as pool,
    ):
        waiting = asyncio.create_task(pool.execute("evaluate", evaluation("e", model="openai:s/m")))
        await server.stalled.wait()

        began = time.monotonic()
        pool.worker.terminate()
        with pytest.raises(PythonError) as caught:
            await waiting
        assert await pool.worker.exit_code(SIGTERM_SECONDS) == 0
        assert time.monotonic() - began < SIGTERM_SECONDS
        await gone(pool.worker, ORPHAN_SECONDS)
    assert caught.value.context["reason"] == "DRAINING"


async def test_sigterm_while_everything_computes(tmp_path: Path):
    """With grading and large metrics at work, their children signalled as well, the worker exits with 0 in time."""
    async with pool_worker(tmp_path, "--grading-processes=2") as pool:
        await pool.execute("grade_math", {"pairs": SLOW_PAIRS[:1]})
        count = 2_000_000
        packed = {"logprobs": np.full(count, -1, "<f4").tobytes(), "weights": np.ones(count, "u1").tobytes()}
        described = {"logprobs": {"dtype": "f32", "shape": [count]}, "weights": {"dtype": "u8", "shape": [count]}}
        busy = [
            asyncio.create_task(pool.execute("grade_math", {"pairs": SLOW_PAIRS})),
            *(asyncio.create_task(pool.execute("mean_nll", {"tensors": described}, packed)) for _ in range(8)),
        ]
        await pool.heartbeat()

        pool.worker.terminate()
        assert await pool.worker.exit_code(SIGTERM_SECONDS) == 0
        await gone(pool.worker, ORPHAN_SECONDS)
        ended = await asyncio.gather(*busy, return_exceptions=True)
    # Each was answered, or lost its connection: none hangs, and none fails in another way.
    assert all(isinstance(end, dict | PythonError | grpc.aio.AioRpcError) for end in ended)
    assert "Traceback" not in pool.worker.log()


async def test_the_parents_death_ends_what_computes(tmp_path: Path):
    """A SIGKILL of the parent ends the worker, its model host and its grading processes while all of them work."""
    with adopted(tmp_path, "--grading-processes=2") as (parent, worker):
        async with connected(await worker.port()) as pool:
            sampled = {"model": "embedded:arithmetic@320", "prompts": ["1+1="], "sampling": {"max_tokens": 2}}
            await pool.execute("sample", sampled, seconds=100)
            busy = [
                asyncio.create_task(pool.execute("grade_math", {"pairs": SLOW_PAIRS})),
                asyncio.create_task(pool.execute("sample", {**sampled, "prompts": ["1+1="] * 500})),
            ]
            await pool.heartbeat()
            assert len(worker.family()) >= 4  # the worker, the models, and graders with what forks them

            parent.kill()
            await gone(worker, ORPHAN_SECONDS)
            ended = await asyncio.gather(*busy, return_exceptions=True)
    assert all(isinstance(end, dict | PythonError | grpc.aio.AioRpcError) for end in ended)


async def test_a_parent_that_dies_at_once_leaves_nobody(tmp_path: Path):
    """A worker whose parent is gone before it is ready ends as well."""
    with adopted(tmp_path, "--grading-processes=2") as (parent, worker):
        parent.kill()
        await gone(worker, 20.0)


async def test_without_a_pipe_the_worker_stays(tmp_path: Path):
    """Started by hand, with no pipe for its standard input, it lives until SIGTERM."""
    ready = tmp_path / "ready"
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            command(tmp_path / "state", "--grading-processes=0"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment(ready),
        )
    worker = Launched(process, ready, tmp_path / "log")
    try:
        async with connected(await worker.port()) as pool:
            assert (await pool.heartbeat()).session_valid
        worker.terminate()
        assert await worker.exit_code(SIGTERM_SECONDS) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("rounds", [2, pytest.param(200, marks=pytest.mark.torture)])
async def test_starts_and_stops_leave_no_orphan(tmp_path: Path, rounds: int):
    """Workers that are stopped, or whose parents die, at any moment of their lives leave no process behind."""
    chance = random.Random(rounds)
    for number in range(rounds):
        with launched(tmp_path, "--grading-processes=2", name=f"worker-{number % 5}") as worker:
            if chance.random() < 0.8:
                async with connected(await worker.port()) as pool:
                    await pool.shake_hands()
                    if chance.random() < 0.25:
                        await pool.execute("grade_math", {"pairs": SLOW_PAIRS[:2]})
            await asyncio.sleep(chance.random() * 0.3)
            by_parent = chance.random() < 0.4
            if by_parent:
                assert worker.process.stdin is not None
                worker.process.stdin.close()
            else:
                os.kill(worker.pid, signal.SIGTERM)
            # Before it has a handler, a signal ends it as Snakepit knows it.
            assert await worker.exit_code(20.0) in (0, -signal.SIGTERM)
            await gone(worker, ORPHAN_SECONDS)
