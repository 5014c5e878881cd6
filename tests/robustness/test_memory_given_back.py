"""Memory of large messages goes back to the system."""

from __future__ import annotations

import asyncio
import ctypes

import numpy as np
import pytest

from crucible_bridge.errors import ResourceExhausted
from crucible_worker.server.memory import WORTH_BYTES
from tests.robustness.harness import until, workshop

CALLS = 12
"""Large calls at once."""
NUMBERS = 5 * 1024 * 1024
"""Log-probabilities in each, and as many weights: 40 MB."""

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library has no malloc_trim: it keeps what it keeps"
)


async def test_memory_goes_back_once_no_large_request_is_in_work(tmp_path):
    """Large calls leave hundreds of MB with the process, and none of it once the worker was idle for its time."""
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
        # What stays: caches, one message that a thread still refers to.
        await until(lambda: worker.rss() - before < (peak - before) / 2 and worker.rss() - before < 2 * WORTH_BYTES)
