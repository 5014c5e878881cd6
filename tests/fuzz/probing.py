"""Health probes, one after another, as an orchestrator of containers sends them.

Each is sent to two servers at once: to the worker, and to a bare server that does nothing else. What the bare server
takes is the machine's part: the rest is the worker's.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from multiprocessing.connection import Connection

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

__all__ = ["PROBE_SECONDS", "Probe", "probe_for_ever", "serve_bare"]

PROBE_SECONDS = 1.0
"""After which Kubernetes gives a probe up."""
_PAUSE_SECONDS = 0.02
_GIVE_UP_SECONDS = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """One probe."""

    seconds: float
    """What it took."""
    bare_seconds: float
    """What the same probe took at the bare server, sent at the same moment."""
    problem: str = ""
    """Why it failed; empty where it was answered."""

    @property
    def late(self) -> bool:
        """Whether the worker made it wait too long: what a bare server takes as well is left aside."""
        return self.seconds - self.bare_seconds > PROBE_SECONDS

    def describe(self) -> str:
        """It, for a person."""
        took = f"a probe took {self.seconds:.3f} s, and {self.bare_seconds:.3f} s at a bare server"
        return f"{took}{self.problem and '; it failed: '}{self.problem}"


def serve_bare(address: Connection) -> None:
    """Answer probes until this process is ended; the address goes into the pipe."""
    asyncio.run(_serve_bare(address))


async def _serve_bare(address: Connection) -> None:
    server = grpc.aio.server()
    servicer = health.aio.HealthServicer()  # pyright: ignore[reportAttributeAccessIssue]  # missing in the stubs
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    address.send(f"127.0.0.1:{port}")
    await server.wait_for_termination()


def probe_for_ever(results: Connection, address: str, bare: str) -> None:
    """Probe both until this process is ended; each result goes into the pipe."""
    asyncio.run(_probe(results, address, bare))


async def _probe(results: Connection, address: str, bare: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel, grpc.aio.insecure_channel(bare) as bare_channel:
        stubs = [health_pb2_grpc.HealthStub(each) for each in (channel, bare_channel)]
        while True:
            (seconds, problem), (bare_seconds, _) = await asyncio.gather(*map(_answered, stubs))
            results.send(Probe(seconds, bare_seconds, problem))
            await asyncio.sleep(_PAUSE_SECONDS)


async def _answered(stub: health_pb2_grpc.HealthStub) -> tuple[float, str]:
    """What a probe took, and why it failed."""
    began = time.perf_counter()
    problem = ""
    try:
        await stub.Check(health_pb2.HealthCheckRequest(), timeout=_GIVE_UP_SECONDS)  # pyright: ignore[reportGeneralTypeIssues]
    except grpc.aio.AioRpcError as error:
        problem = str(error.code())
    return time.perf_counter() - began, problem
