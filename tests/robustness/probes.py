"""Whether a real worker answers probes while it works."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.robustness.starved import Starved

__all__ = ["HEALTH_SECONDS", "worst_probe"]

HEALTH_SECONDS = 1.0
"""A Kubernetes probe gives up after so long."""
PAUSE_SECONDS = 0.02


async def worst_probe(address: str, work: asyncio.Future[Any], *pids: int) -> float:
    """The longest that health takes to answer until some work ends; at least one probe.

    Without the time for which the worker and this process had no processor: that is the machine's.
    """
    worst = 0.0
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        await stub.Check(health_pb2.HealthCheckRequest())
        while True:
            ended = work.done()
            starved, started = Starved(os.getpid(), *pids), time.monotonic()
            await stub.Check(health_pb2.HealthCheckRequest())
            worst = max(worst, time.monotonic() - started - starved.seconds())
            if ended:
                return worst
            await asyncio.sleep(PAUSE_SECONDS)
