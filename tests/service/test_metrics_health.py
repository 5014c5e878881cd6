"""Probes while calls at the message limit run back to back."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_worker.rpc.metrics import PROBE_WAIT_SECONDS

PROBES = 100
TURNS = 3
"""How many times the worker may wait for the machine where a bare server waits once: its threads wait as well."""
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
BARE = """
import asyncio, sys
import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

async def main():
    server, servicer = grpc.aio.server(), health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    await servicer.set("crucible_bridge.v1.MetricsService", health_pb2.HealthCheckResponse.SERVING)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()

asyncio.run(main())
"""
"""A server that does nothing but answer probes: what it takes is the machine's part."""


@contextlib.asynccontextmanager
async def process(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python process, ended with the block."""
    child = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    try:
        yield child
    finally:
        child.kill()
        await child.wait()


async def test_probes_are_answered_while_large_calls_run(tmp_path: Path):
    """Large calls are parsed and computed by threads: nine probes of ten wait at most for the promised time.

    A bare server is probed in turn with the worker. What its probes take is the time of a machine that has other work,
    and is not the worker's; the rest is. The benchmark prints what the slowest takes.
    """
    ready = tmp_path / "ready"
    serve = ["-m", "crucible_worker", "serve", "--port", "0", "--log-level", "error", "--ready-file", str(ready)]
    async with process(*serve, "--state-dir", str(tmp_path / "state")), process("-c", BARE) as bare:
        async with asyncio.timeout(60):
            while not ready.exists():
                await asyncio.sleep(0.01)
            assert bare.stdout is not None
            bare_address = (await bare.stdout.readline()).decode().strip()
        address = ready.read_text()
        async with (
            process("-c", LOAD, address, str(CALLERS)),
            crucible_bridge.connect(address) as bridge,
            crucible_bridge.connect(bare_address) as other,
        ):
            async with asyncio.timeout(60):
                # The first call is there: what follows is measured under load.
                while (await bridge.worker.get_info()).last_sequence == 0:
                    await asyncio.sleep(0.01)
            before, ours, machine = (await bridge.worker.get_info()).last_sequence, [], []
            for _ in range(PROBES):
                ours.append(await _probe(bridge))
                machine.append(await _probe(other))
                await asyncio.sleep(0.01)
            calls = (await bridge.worker.get_info()).last_sequence - before

    assert calls > 0
    # A probe takes several turns of each process: on a busy machine the worker waits for each as the bare server does.
    assert _ninth_tenth(ours) < PROBE_WAIT_SECONDS + TURNS * _ninth_tenth(machine)


async def _probe(bridge: Bridge) -> float:
    started = time.perf_counter()
    assert await bridge.worker.health("crucible_bridge.v1.MetricsService")
    return time.perf_counter() - started


def _ninth_tenth(seconds: list[float]) -> float:
    """Seconds within which nine probes of ten were answered."""
    return statistics.quantiles(seconds, n=10)[-1]
