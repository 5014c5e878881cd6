"""Memory of large messages goes back to the system."""

from __future__ import annotations

import asyncio
import ctypes
import subprocess
import sys

import numpy as np
import pytest

from crucible_bridge.errors import ResourceExhausted
from crucible_worker.util.memory import WORTH_BYTES
from tests.robustness.harness import until, workshop

CALLS = 12
"""Large calls at once."""
NUMBERS = 5 * 1024 * 1024
"""Log-probabilities in each, and as many weights: 40 MB."""

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library has no malloc_trim (run on glibc)"
)


async def test_memory_goes_back_once_no_large_request_is_in_work(tmp_path):
    """Large calls leave hundreds of MB with the process, and most of it goes back once the worker was idle."""
    values, weights = np.full(NUMBERS, -1.0, np.float32), np.ones(NUMBERS, np.float32)
    limits = {"memory_idle_seconds": 1.0}
    async with workshop(tmp_path, {"m": {}}, limits=limits) as shop:
        worker = await shop.start()

        async def call() -> None:
            while True:
                try:
                    found = await worker.bridge.metrics.compute_mean_nll([values], [weights])
                except ResourceExhausted as error:
                    await asyncio.sleep(error.retry_after or 0)
                else:
                    assert found.metrics.values["nll"] == 1.0
                    return

        before, peak = worker.rss(), 0
        calls = asyncio.gather(*(call() for _ in range(CALLS)))
        while not calls.done():
            peak = max(peak, worker.rss())
            await asyncio.sleep(0.01)
        await calls
        assert peak - before > 2 * WORTH_BYTES  # else there is nothing to see
        # What stays: caches, and pages of which a small part is in use.
        await until(lambda: worker.rss() - before < (peak - before) / 2)


_HELD = """
import asyncio, structlog, sys
from crucible_worker.util.memory import WORTH_BYTES, give_back_when_idle, tune_malloc, resident_bytes

async def run():
    assert tune_malloc()
    giving = asyncio.create_task(give_back_when_idle(lambda: 60.0, 0.05))
    await asyncio.sleep(0)  # it has seen what a process without messages needs
    before = resident_bytes()
    held = [b"x" * 100_000 for _ in range(2_000)]
    assert resident_bytes() - before > 2 * WORTH_BYTES
    with structlog.testing.capture_logs() as logs:
        while not logs:
            await asyncio.sleep(0.01)
    assert logs[0]["bytes"] < WORTH_BYTES, logs
    held.clear()
    while resident_bytes() - before > WORTH_BYTES:
        await asyncio.sleep(0.01)

asyncio.run(asyncio.wait_for(run(), 60))
"""


def test_memory_that_was_in_use_at_the_first_attempt_goes_back_later():
    """An attempt while the memory is in use is not the last one."""
    done = subprocess.run([sys.executable, "-c", _HELD], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


_CYCLES = """
import asyncio, gc
from crucible_worker.util.memory import (
    NEW_OBJECTS, WORTH_BYTES, collect_rarely, give_back_when_idle, tune_malloc, resident_bytes
)

async def run():
    assert tune_malloc()
    collect_rarely()
    assert gc.get_freeze_count() > 0 and gc.get_threshold()[0] == NEW_OBJECTS
    giving = asyncio.create_task(give_back_when_idle(lambda: 60.0, 0.05))
    await asyncio.sleep(0)
    before = resident_bytes()
    cycle = [[b"x" * 100_000 for _ in range(2_000)]]
    cycle.append(cycle)
    assert resident_bytes() - before > 2 * WORTH_BYTES
    del cycle
    while resident_bytes() - before > WORTH_BYTES:
        await asyncio.sleep(0.01)

asyncio.run(asyncio.wait_for(run(), 60))
"""


def test_memory_of_new_cycles_goes_back_though_cycles_are_looked_for_rarely():
    """An idle worker makes no objects that would start the collector."""
    done = subprocess.run([sys.executable, "-c", _CYCLES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
