"""The cost of a tool in a Snakepit pool: a trivial one, and one with a million floats as binary parameters.

The worker is started like Snakepit starts it, and called with Snakepit's messages by one client in Python. A separate
bare grpc.aio server receives the same requests as bytes and replies with the same bytes, nothing
more; calls to both alternate.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
from _processes import server_process
from _report import Claim, arguments, report

from crucible_worker.server.process import write_ready_file
from crucible_worker.snakepit import SCRIPT_PATH
from crucible_worker.snakepit.wire import snakepit_bridge_pb2 as pb

PATH = "/snakepit.bridge.BridgeService/ExecuteTool"
FLOATS = 1_000_000
CALLS = {"trivial": 1_000, "floats": 60}
"""Calls of each side in a run."""

MOST = {"trivial": 2.5, "floats": 2.5}
"""Bounds, as multiples of the bare server's time; the metric is computed meanwhile."""

_UNBOUNDED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def requests() -> dict[str, bytes]:
    """The requests, by the measured tool."""
    trivial = pb.ExecuteToolRequest(session_id="s", tool_name="mean_nll", metadata={"correlation_id": "c"})
    trivial.parameters["logprobs"].value = b"[-1.0,-2.0]"
    trivial.parameters["weights"].value = b"[1,1]"
    floats = pb.ExecuteToolRequest(session_id="s", tool_name="mean_nll", metadata={"correlation_id": "c"})
    described = {"logprobs": {"dtype": "f32", "shape": [FLOATS]}, "weights": {"dtype": "u8", "shape": [FLOATS]}}
    floats.parameters["tensors"].value = json.dumps(described).encode()
    floats.binary_parameters["logprobs"] = np.full(FLOATS, -1.5, "<f4").tobytes()
    floats.binary_parameters["weights"] = np.ones(FLOATS, "u1").tobytes()
    return {"trivial": trivial.SerializeToString(), "floats": floats.SerializeToString()}


async def serve_bare(answer: bytes, ready: Path) -> None:
    """Run the bare server until the process is ended."""

    async def echo(request: bytes, context: object) -> bytes:
        return answer

    server = grpc.aio.server(options=_UNBOUNDED)
    service, _, name = PATH.removeprefix("/").rpartition("/")
    handlers = {name: grpc.unary_unary_rpc_method_handler(echo)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await asyncio.to_thread(write_ready_file, ready, str(port))
    await server.wait_for_termination()


def caller(channel: grpc.aio.Channel) -> Any:
    """The call, from bytes to bytes."""
    untyped: Any = channel
    return untyped.unary_unary(PATH)


async def ask(port: str, request: bytes) -> bytes:
    """The worker's answer."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=_UNBOUNDED) as channel:
        answer = await caller(channel)(request)
        if not pb.ExecuteToolResponse.FromString(answer).success:
            raise SystemExit(pb.ExecuteToolResponse.FromString(answer).error_message)
        return answer


async def measure(ports: tuple[str, str], request: bytes, calls: int) -> tuple[float, ...]:
    """Median latencies in milliseconds: the worker's, the bare server's."""
    async with contextlib.AsyncExitStack() as stack:
        asked = [
            caller(await stack.enter_async_context(grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=_UNBOUNDED)))
            for port in ports
        ]
        taken: tuple[list[float], list[float]] = ([], [])
        for number in range(calls + calls // 4):
            for ask_once, milliseconds in zip(asked, taken):
                started = time.perf_counter()
                await ask_once(request)
                if number >= calls // 4:  # those before warm both up
                    milliseconds.append((time.perf_counter() - started) * 1e3)
        return tuple(statistics.median(milliseconds) for milliseconds in taken)


def compare(name: str, request: bytes) -> tuple[float, ...]:
    """Start both servers anew, and measure: the core on which a process runs matters more than our code."""
    with tempfile.TemporaryDirectory(prefix="crucible-snakepit-") as folder:
        ours, bare = Path(folder, "worker-ready"), Path(folder, "bare-ready")
        command = [str(SCRIPT_PATH), f"--state-dir={folder}/state", "--grading-processes=0"]
        command += ["--port", "0", "--elixir-address", "none", "--snakepit-run-id", "bench"]
        with server_process(command, ours, {"SNAKEPIT_READY_FILE": str(ours), "SNAKEPIT_LOG_LEVEL": "error"}) as port:
            answer = asyncio.run(ask(port, request))
            with server_process([__file__, "--bare", answer.hex(), str(bare)], bare) as baseline:
                return asyncio.run(measure((port, baseline), request, CALLS[name]))


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    asked = requests()
    runs = {name: [compare(name, request) for _ in range(options.runs)] for name, request in asked.items()}
    claims = [
        Claim(
            name=f"snakepit_{name}",
            ours=[ours for ours, _ in each],
            baseline=[bare for _, bare in each],
            unit="ms",
            ratio=statistics.median(ours / bare for ours, bare in each),
            at_most=MOST[name],
            claim=f"at most {MOST[name]} times bare",
        )
        for name, each in runs.items()
    ]
    report(claims, as_json=options.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--bare"]:
        asyncio.run(serve_bare(bytes.fromhex(sys.argv[2]), Path(sys.argv[3])))
    else:
        main()
