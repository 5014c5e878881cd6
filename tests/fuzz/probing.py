"""Health probes, one after another, as an orchestrator of containers sends them."""

from __future__ import annotations

import dataclasses
import time
from multiprocessing.connection import Connection

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

__all__ = ["PROBE_SECONDS", "Probe", "probe_for_ever"]

PROBE_SECONDS = 1.0
"""After which Kubernetes gives a probe up."""
_PAUSE_SECONDS = 0.02
_GIVE_UP_SECONDS = 30.0


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """One probe."""

    seconds: float
    """What it took."""
    problem: str = ""
    """Why it failed; empty where it was answered."""

    def describe(self) -> str:
        """It, for a person."""
        return f"a probe took {self.seconds:.3f} s{self.problem and ' and failed: '}{self.problem}"


def probe_for_ever(results: Connection, address: str) -> None:
    """Probe until this process is ended; each result goes into the pipe."""
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while True:
            began = time.perf_counter()
            problem = ""
            try:
                stub.Check(health_pb2.HealthCheckRequest(), timeout=_GIVE_UP_SECONDS)
            except grpc.RpcError as error:
                problem = str(error.code())  # pyright: ignore[reportAttributeAccessIssue]
            results.send(Probe(time.perf_counter() - began, problem))
            time.sleep(_PAUSE_SECONDS)
