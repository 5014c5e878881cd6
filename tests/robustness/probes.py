"""Whether a real worker answers probes while it works."""

from __future__ import annotations

import asyncio
import math
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

    Without the time for which the worker and this process had no processor: that is the machine's. A probe that is
    refused, as its message came later than its call while other messages arrived, counts as endless.
    """
    worst = 0.0
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        await stub.Check(health_pb2.HealthCheckRequest())
        while True:
            ended = work.done()
            starved, started = Starved(os.getpid(), *pids), time.monotonic()
            try:
                await stub.Check(health_pb2.HealthCheckRequest())
                worst = max(worst, time.monotonic() - started - starved.seconds())
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
                worst = math.inf
            if ended:
                return worst
            await asyncio.sleep(PAUSE_SECONDS)
