"""Samples a second with a model server that answers at once, against a bare loop of the same HTTP client.

The server, the worker and this process are three processes. Ours is the whole remote call: request, a JSONL data set,
engine, grading, journal, an event per sample, reply. The baseline is a loop of aiohttp over the same questions with as
many tasks at once: question, answer, JSON. While four evaluations run at the default concurrency, `grpc.health.v1` is
called every 10 ms, as by a probe; its baseline is the same worker at rest.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
from _processes import server_process
from _report import Claim, arguments, report
from grpc_health.v1 import health_pb2, health_pb2_grpc

import crucible_bridge
from crucible_bridge.channel import open_channel
from crucible_bridge.client import Bridge
from crucible_bridge.types import EvaluatorSpec, Limits, SamplingParams
from crucible_worker.server.process import write_ready_file
from crucible_worker.util.limits import WorkerLimits

SAMPLES = 4_000
CONCURRENCIES = (16, 32, 64, 256)
"""Concurrencies of one evaluation, around the default; above the server's `max_connections`, 64, samples wait."""
AT_ONCE = 4
PROBE_SECONDS = 0.01
IDLE_SECONDS = 3.0
LEAST = 0.3
"""Bound, relative to the bare loop."""
STEADY = 0.9
"""Bound, relative to the next lower concurrency; repeated runs differ by the rest."""

_BODY = {
    "choices": [{"index": 0, "finish_reason": "stop", "text": "42"}],
    "usage": {"prompt_tokens": 5, "completion_tokens": 2},
}


class Answering(asyncio.Protocol):
    """A server whose answer is ready before the question."""

    def __init__(self) -> None:
        content = json.dumps(_BODY).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        self._answer = head.encode() + content
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            _, found, rest = self._received[:end].lower().partition(b"content-length:")
            whole = end + 4 + (int(rest.split(b"\r\n")[0]) if found else 0)
            if len(self._received) < whole:
                return
            self._received = self._received[whole:]
            self._transport.write(self._answer)


async def serve(ready: Path) -> None:
    """Run the server until the process is ended."""
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await asyncio.to_thread(write_ready_file, ready, f"http://127.0.0.1:{port}/v1")
    await server.serve_forever()


async def bare(url: str, concurrency: int) -> float:
    """Samples a second of a loop of the client alone."""

    async def ask(indices: Iterator[int]) -> None:
        for index in indices:
            body = {"model": "m", "prompt": f"{index}*7=", "max_tokens": 4, "temperature": 0.0}
            async with session.post(f"{url}/completions", json=body) as response:
                assert json.loads(await response.read())["choices"][0]["text"] == "42"

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session, asyncio.TaskGroup() as group:
        started = time.perf_counter()
        indices = iter(range(SAMPLES))
        tasks = [group.create_task(ask(indices)) for _ in range(concurrency)]
        await asyncio.gather(*tasks)
        return SAMPLES / (time.perf_counter() - started)


async def evaluated(bridge: Bridge, concurrency: int | None) -> float:
    """Samples a second of an evaluation, from the call to its reply."""
    started = time.perf_counter()
    evaluation = await bridge.evaluation.evaluate(
        model="openai:s/m",
        # The server knows no messages: it completes texts.
        evaluators=[EvaluatorSpec(kind="accuracy", options={"renderer": "raw"})],
        dataset="jsonl:data.jsonl",
        sampling=SamplingParams(max_tokens=4),
        limits=Limits(concurrency=concurrency),
    )
    seconds = time.perf_counter() - started
    assert (evaluation.done, evaluation.metrics.values["accuracy"]) == (SAMPLES, 1.0)
    return SAMPLES / seconds


async def several(bridge: Bridge) -> float:
    """Samples a second of evaluations that run at once."""
    started = time.perf_counter()
    await asyncio.gather(*(evaluated(bridge, None) for _ in range(AT_ONCE)))
    return AT_ONCE * SAMPLES / (time.perf_counter() - started)


async def probed(address: str, work: Coroutine[Any, Any, Any]) -> tuple[Any, float]:
    """The result of some work, and the p99 of health meanwhile, in milliseconds."""
    taken: list[float] = []
    async with open_channel(address) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        working = asyncio.ensure_future(work)
        while not working.done():
            began = time.perf_counter()
            await stub.Check(health_pb2.HealthCheckRequest())
            taken.append((time.perf_counter() - began) * 1e3)
            await asyncio.sleep(PROBE_SECONDS)
        return await working, statistics.quantiles(taken, n=100)[-1]


async def measure(url: str, address: str, runs: int) -> list[Claim]:
    """Every claim, both sides alternating."""
    ours: dict[int, list[float]] = {concurrency: [] for concurrency in CONCURRENCIES}
    theirs: dict[int, list[float]] = {concurrency: [] for concurrency in CONCURRENCIES}
    together: list[float] = []
    health: dict[str, list[float]] = {"busy": [], "idle": []}
    async with crucible_bridge.connect(address) as bridge:
        await evaluated(bridge, None)  # warms the worker up
        for _ in range(runs):
            for concurrency in CONCURRENCIES:
                theirs[concurrency].append(await bare(url, concurrency))
                ours[concurrency].append(await evaluated(bridge, concurrency))
            health["idle"].append((await probed(address, asyncio.sleep(IDLE_SECONDS)))[1])
            rate, latency = await probed(address, several(bridge))
            together.append(rate)
            health["busy"].append(latency)
    return [
        *(against_bare(concurrency, ours[concurrency], theirs[concurrency]) for concurrency in CONCURRENCIES),
        *(steady(low, high, ours) for low, high in itertools.pairwise(CONCURRENCIES)),
        Claim(
            name=f"{AT_ONCE} evaluations at the default concurrency, {WorkerLimits().default_concurrency} each",
            ours=together,
            unit="samples/s",
            claim="printed, not promised",
        ),
        Claim(
            name="p99 of health meanwhile",
            ours=health["busy"],
            baseline=health["idle"],
            unit="ms",
            claim="goal 50 ms; printed, not promised",
        ),
    ]


def against_bare(concurrency: int, ours: Sequence[float], theirs: Sequence[float]) -> Claim:
    """The worker's rate relative to the bare client's."""
    return Claim(
        name=f"one evaluation at concurrency {concurrency} against a bare loop",
        ours=ours,
        baseline=theirs,
        unit="samples/s",
        ratio=statistics.median(mine / other for mine, other in zip(ours, theirs)),
        at_least=LEAST,
        claim=f">= {LEAST:g} of it",
    )


def steady(low: int, high: int, ours: dict[int, list[float]]) -> Claim:
    """A higher concurrency is not slower; of each, the least disturbed run counts."""
    return Claim(
        name=f"concurrency {high} against {low}",
        ours=ours[high],
        baseline=ours[low],
        unit="samples/s",
        ratio=max(ours[high]) / max(ours[low]),
        at_least=STEADY,
        claim="never fewer, up to the noise",
    )


def main() -> None:
    """Start both servers, measure and print."""
    options = arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="crucible-server-") as folder:
        data = Path(folder, "data.jsonl")
        data.write_text("".join(f'{{"input": "{index}*7=", "target": "42"}}\n' for index in range(SAMPLES)))
        ready = {name: Path(folder, name) for name in ("server", "worker")}
        with server_process([__file__, "--server", str(ready["server"])], ready["server"]) as url:
            command = ["-m", "crucible_worker", "serve", "--port", "0", "--ready-file", str(ready["worker"])]
            command += ["--state-dir", str(Path(folder, "state")), "--data-root", folder, "--log-level", "warning"]
            command += ["--grading-processes", "0", "--openai-server", f"s={url}"]
            with server_process(command, ready["worker"]) as address:
                claims = asyncio.run(measure(url, address, options.runs))
    report(claims, as_json=options.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--server"]:
        asyncio.run(serve(Path(sys.argv[2])))
    else:
        main()
