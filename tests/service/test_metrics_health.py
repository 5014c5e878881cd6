"""Probes while calls at the message limit run back to back."""

from __future__ import annotations

import asyncio
import contextlib
import math
import statistics
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_worker.services.metrics import PROBE_WAIT_SECONDS

PROBES = 100
ATTEMPTS = 5
"""Rounds of probes, of which one must keep the promise: other work on the machine slows some of them down."""
CALLERS = 2
LOAD = """
import asyncio, sys
import numpy as np
import crucible_bridge
from crucible_bridge.types import Datum

async def main():
    logprobs, mask = np.full(2048, -1.0, np.float32), np.ones(2048, np.uint8)
    data = [Datum(model_input=[], loss_fn_inputs={"logprobs": logprobs, "mask": mask})] * 3600
    async with crucible_bridge.connect(sys.argv[1]) as bridge:
        async def call():
            while True:
                await bridge.metrics.compute_kl_sample_train(data, [logprobs] * len(data))
        await asyncio.gather(*(call() for _ in range(int(sys.argv[2]))))

asyncio.run(main())
"""
"""The caller: a process of its own, as what it sends keeps it busy."""


@contextlib.asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[None]:
    """A Python process, ended with the block."""
    child = await asyncio.create_subprocess_exec(sys.executable, *arguments)
    try:
        yield
    finally:
        child.kill()
        await child.wait()


async def test_probes_are_answered_while_large_calls_run(tmp_path: Path):
    """Large calls are parsed and computed by threads: nine probes of ten are answered within the promised time.

    What the slowest takes is told by the benchmark: on a machine that does other things as well, it is theirs.
    """
    ready = tmp_path / "ready"
    serve = ["-m", "crucible_worker", "serve", "--port", "0", "--log-level", "error", "--ready-file", str(ready)]
    async with process(*serve, "--state-dir", str(tmp_path / "state")):
        async with asyncio.timeout(30):
            while not ready.exists():
                await asyncio.sleep(0.01)
        address = ready.read_text()
        async with process("-c", LOAD, address, str(CALLERS)), crucible_bridge.connect(address) as bridge:
            async with asyncio.timeout(60):
                # The first call is there: what follows is measured under load.
                while (await bridge.worker.get_info()).last_sequence == 0:
                    await asyncio.sleep(0.01)
            before, taken = (await bridge.worker.get_info()).last_sequence, []
            while len(taken) < ATTEMPTS and min(taken, default=math.inf) >= PROBE_WAIT_SECONDS:
                taken.append(await _ninth_tenth(bridge))
            calls = (await bridge.worker.get_info()).last_sequence - before

    assert calls > 0
    assert min(taken) < PROBE_WAIT_SECONDS


async def _ninth_tenth(bridge: Bridge) -> float:
    """Seconds within which nine probes of ten were answered."""
    seconds = []
    for _ in range(PROBES):
        started = time.perf_counter()
        assert await bridge.worker.health("crucible_bridge.v1.MetricsService")
        seconds.append(time.perf_counter() - started)
        await asyncio.sleep(0.01)
    return statistics.quantiles(seconds, n=10)[-1]
