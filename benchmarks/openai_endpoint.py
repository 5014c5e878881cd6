"""Requests a second of the endpoint of OpenAI's API, next to a bare Starlette echo; health beside them.

Both serve by uvicorn, each in a process of its own, and the model answers at once: what is measured is the endpoint.
One client sends to both in turn, over the same number of connections. A stream's delay is the time from the request to
the first piece; no backend has a part of an answer before its end.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _processes import server_process
from _report import Claim, arguments, report
from grpc_health.v1 import health_pb2, health_pb2_grpc

from crucible_bridge.channel import open_channel
from crucible_worker.server.process import write_ready_file

CONNECTIONS = 16
REQUESTS, TURNS = 500, 4
"""Requests of each side over all connections, and how often both sides take turns in a run."""
STREAMS = 200
LEAST = 0.3
"""Bound of the requests a second, as a share of the echo's."""
PATH = "/v1/chat/completions"
BODY = {"model": "embedded:echo", "messages": [{"role": "user", "content": "12+34="}], "max_tokens": 8}


async def serve_bare(ready: Path) -> None:
    """Serve the echo until the process is ended: it reads JSON and answers with it."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    from crucible_worker.web.listening import LOOPBACK, listen

    async def echo(request: Request) -> JSONResponse:
        return JSONResponse(await request.json())

    listener = listen(LOOPBACK, 0)
    app = Starlette(routes=[Route(PATH, echo, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, access_log=False))
    await asyncio.to_thread(write_ready_file, ready, f"{LOOPBACK}:{listener.getsockname()[1]}")
    await server.serve(sockets=[listener])


def serve_worker(folder: Path, port: int, ready: Path) -> None:
    """Serve a worker as `crucible-worker serve` does, with a model that answers at once."""
    from crucible_worker.config import Settings
    from crucible_worker.server import serve
    from crucible_worker.testing import ScriptedModel, scripted_build

    settings = Settings(
        port=0,
        state_dir=folder,
        grading_processes=0,
        openai_listen=("127.0.0.1", port),
        ready_file=ready,
        log_format="json",
        log_level="warning",
    )
    sys.exit(serve(settings.validate(), build=scripted_build({"echo": ScriptedModel(answer=str)})))


def free_port() -> int:
    """A port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def request_of(address: str, body: Any) -> bytes:
    """A request as bytes."""
    content = json.dumps(body).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
    )
    return f"{head}\r\n\r\n".encode() + content


async def answer_of(reader: asyncio.StreamReader) -> bytes:
    """The body of an answer that says its length."""
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return await reader.readexactly(int(length.partition(b":")[2]))


async def rate(address: str) -> float:
    """Requests a second over all connections."""
    host, port = address.split(":")
    request, left = request_of(address, BODY), iter(range(REQUESTS))

    async def one() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in left:
            writer.write(request)
            await answer_of(reader)
        writer.close()

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return REQUESTS / (time.perf_counter() - started)


async def first_piece_ms(address: str) -> float:
    """Median time from the request for a stream to its first piece."""
    host, port = address.split(":")
    request, taken = request_of(address, {**BODY, "stream": True}), []
    reader, writer = await asyncio.open_connection(host, int(port))
    for _ in range(STREAMS):
        started = time.perf_counter()
        writer.write(request)
        await reader.readuntil(b"data: ")
        taken.append((time.perf_counter() - started) * 1e3)
        await reader.readuntil(b"[DONE]\n\n")
        await reader.readuntil(b"0\r\n\r\n")
    writer.close()
    return statistics.median(taken)


async def health_ms(address: str, stop: asyncio.Event) -> float:
    """p99 of health checks, one after another, until they are stopped; at least a hundred."""
    taken: list[float] = []
    async with open_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        while not stop.is_set() or len(taken) < 100:
            started = time.perf_counter()
            await stub.Check(health_pb2.HealthCheckRequest())
            taken.append((time.perf_counter() - started) * 1e3)
            await asyncio.sleep(0.002)
    return statistics.quantiles(taken, n=100)[98]


async def measure(ours: str, grpc: str, bare: str) -> tuple[float, float, float, float, float]:
    """Both rates, the delay of a stream, and the p99 of health beside requests and without them."""
    for address in (ours, bare):
        await rate(address)  # warms both up
    turns = [(await rate(bare), await rate(ours)) for _ in range(TURNS)]
    baseline, alone = (statistics.median(side) for side in zip(*turns))
    delay = await first_piece_ms(ours)
    stop = asyncio.Event()
    probing = asyncio.create_task(health_ms(grpc, stop))
    await rate(ours)
    stop.set()
    quiet = asyncio.Event()
    quiet.set()
    return alone, baseline, delay, await probing, await health_ms(grpc, quiet)


def compare() -> tuple[float, float, float, float, float]:
    """Start both servers anew, and measure."""
    with tempfile.TemporaryDirectory(prefix="crucible-endpoint-") as folder:
        ours, bare, port = Path(folder, "worker-ready"), Path(folder, "bare-ready"), free_port()
        with (
            server_process([__file__, "--worker", str(Path(folder, "state")), str(port), str(ours)], ours) as grpc,
            server_process([__file__, "--bare", str(bare)], bare) as baseline,
        ):
            return asyncio.run(measure(f"127.0.0.1:{port}", grpc, baseline))


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    ours, bare, delay, busy, quiet = (list(column) for column in zip(*(compare() for _ in range(options.runs))))
    none = "none; of this machine"
    report(
        [
            Claim(
                name="openai_endpoint",
                ours=ours,
                baseline=bare,
                unit="requests/s",
                ratio=statistics.median(one / other for one, other in zip(ours, bare)),
                at_least=LEAST,
                claim=f"at least {LEAST} times a bare Starlette echo",
            ),
            Claim(name="openai_endpoint first piece of a stream", ours=delay, unit="ms", claim=none),
            Claim(name="openai_endpoint health p99 beside it", ours=busy, baseline=quiet, unit="ms", claim=none),
        ],
        as_json=options.json,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--bare"]:
        asyncio.run(serve_bare(Path(sys.argv[2])))
    elif sys.argv[1:2] == ["--worker"]:
        serve_worker(Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    else:
        main()
