"""The cost of a unary call to the worker beyond a bare grpc.aio one: `GetInfo`, the same answer from both.

The bare server is grpc.aio with the generated servicer and nothing else, in a separate process, like the worker. One
client alternates between both, call by call, so that other load of the machine affects both.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc.aio
from _processes import server_process
from _report import Claim, arguments, report

from crucible_bridge.channel import open_channel, server_options
from crucible_bridge.v1 import worker_pb2, worker_pb2_grpc
from crucible_worker.server.process import write_ready_file

CALLS = 1_000
"""Calls of each side in a run."""

MOST = 1.3
"""Bound, as a multiple of a bare call's time."""


class BareService(worker_pb2_grpc.WorkerServiceServicer):
    """Replies with a given message."""

    def __init__(self, answer: worker_pb2.GetInfoResponse) -> None:
        self._answer = answer

    async def GetInfo(self, request: worker_pb2.GetInfoRequest, context: object) -> worker_pb2.GetInfoResponse:
        """The same answer each time."""
        return self._answer


async def serve_bare(answer: bytes, ready: Path) -> None:
    """Run the bare server until the process is ended."""
    server = grpc.aio.server(options=server_options())
    # Drain is never called.
    service: Any = BareService(worker_pb2.GetInfoResponse.FromString(answer))  # pyright: ignore[reportAbstractUsage]
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await asyncio.to_thread(write_ready_file, ready, f"127.0.0.1:{port}")
    await server.wait_for_termination()


async def ask(address: str) -> bytes:
    """The worker's answer."""
    async with open_channel(address) as channel:
        stub: Any = worker_pb2_grpc.WorkerServiceStub(channel)
        return (await stub.GetInfo(worker_pb2.GetInfoRequest())).SerializeToString()


async def measure(addresses: tuple[str, str]) -> tuple[float, ...]:
    """Median latencies in microseconds: the worker's, the bare server's."""
    async with open_channel(addresses[0]) as worker, open_channel(addresses[1]) as bare:
        stubs: list[Any] = [worker_pb2_grpc.WorkerServiceStub(channel) for channel in (worker, bare)]
        await measure_once(stubs)  # warms both up
        return await measure_once(stubs)


async def measure_once(stubs: list[Any]) -> tuple[float, ...]:
    """One run: both alternating, call by call."""
    request = worker_pb2.GetInfoRequest()
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(CALLS):
        for stub, seconds in zip(stubs, taken):
            started = time.perf_counter()
            await stub.GetInfo(request)
            seconds.append(time.perf_counter() - started)
    return tuple(statistics.median(seconds) * 1e6 for seconds in taken)


def compare() -> tuple[float, ...]:
    """Start both servers anew, and measure: the core on which a process runs matters more than our code."""
    with tempfile.TemporaryDirectory(prefix="crucible-unary-") as folder:
        ours, bare = Path(folder, "worker-ready"), Path(folder, "bare-ready")
        serve = ["-m", "crucible_worker", "serve", "--port", "0", "--state-dir", str(Path(folder, "state"))]
        with server_process([*serve, "--ready-file", str(ours), "--log-level", "warning"], ours) as worker:
            answer = asyncio.run(ask(worker))
            with server_process([__file__, "--bare", answer.hex(), str(bare)], bare) as baseline:
                return asyncio.run(measure((worker, baseline)))


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    runs = [compare() for _ in range(options.runs)]
    ours, bare = [run[0] for run in runs], [run[1] for run in runs]
    ratio = statistics.median(run[0] / run[1] for run in runs)
    claim = Claim(
        name="unary_call",
        ours=ours,
        baseline=bare,
        unit="us",
        ratio=ratio,
        at_most=MOST,
        claim=f"at most {MOST} times bare",
    )
    report([claim], as_json=options.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--bare"]:
        asyncio.run(serve_bare(bytes.fromhex(sys.argv[2]), Path(sys.argv[3])))
    else:
        main()
