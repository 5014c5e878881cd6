"""The cost of computing metrics by a worker.

Each call is compared with a bare gRPC call that carries the same bytes both ways plus the pure function on decoded
arrays, and with tinker-cookbook's own function in this process, from tinker's own objects. Client, worker and bare
server are separate processes on 127.0.0.1. All sides take turns, call by call, so that other load of the machine
affects all of them; medians of the calls. Without tinker-cookbook the comparisons with it are left out.
Goals are printed next to the measurements, not promised.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import _metrics_inputs as inputs
import grpc
import grpc.aio
from _originals import missing_packages
from _processes import server_process
from _report import Claim, arguments, report

import crucible_bridge
from crucible_bridge.channel import channel_options, open_channel, server_options
from crucible_bridge.client.calls import Calls
from crucible_bridge.client.metrics import MetricsClient
from crucible_worker.server.process import write_ready_file
from crucible_worker.util.memory import tune_malloc

CALLS = 7
"""Calls of each side in a run; small ones fifty times as many."""
SMALL_FACTOR = 50
LOAD_SECONDS = 6.0
PROBE_EVERY_SECONDS = 0.005
ECHO = "/bare/Echo"
REPLY_BYTES = "reply-bytes"


class RecordingCalls(Calls):
    """Stores the bytes of the last call."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        super().__init__(channel, ())
        self.request = self.reply = b""

    async def unary(self, method: Any, request: Any, decode: Any, timeout: float | None = None) -> Any:  # noqa: ASYNC109
        def kept(reply: bytes) -> Any:
            self.reply = reply
            return decode(reply)

        self.request = request
        return await super().unary(method, request, kept, timeout)


async def serve_bare(ready: Path) -> None:
    """Answer with as many bytes as the caller wants, until the process is ended."""
    replies: dict[int, bytes] = {}
    tune_malloc()

    async def echo(request: bytes, context: Any) -> bytes:
        size = int(dict(context.invocation_metadata())[REPLY_BYTES])
        return replies.setdefault(size, bytes(size))

    server = grpc.aio.server(options=server_options())
    handler = grpc.unary_unary_rpc_method_handler(echo, request_deserializer=None, response_serializer=None)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bare", {"Echo": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await asyncio.to_thread(write_ready_file, ready, f"127.0.0.1:{port}")
    await server.wait_for_termination()


async def load(address: str) -> None:
    """Make calls at the message limit back to back, two at a time, until the process is ended."""
    data, training = inputs.at_the_limit()
    async with crucible_bridge.connect(address) as bridge:

        async def calls() -> None:
            while True:
                await bridge.metrics.compute_kl_sample_train(data, training)

        await asyncio.gather(calls(), calls())


class Bench:
    """Both servers, and the measurements."""

    def __init__(self, worker: grpc.aio.Channel, bare: grpc.aio.Channel, runs: int) -> None:
        self.calls = RecordingCalls(worker)
        self.metrics = MetricsClient(self.calls)
        self._echo = bare.unary_unary(ECHO, None, None)
        self._runs = runs
        self.claims: list[Claim] = []

    async def take_turns(self, case: inputs.Case, times: int) -> dict[str, list[float]]:
        """Milliseconds of each side's calls: ours, the bare one, the pure function, the original."""
        await case.ours(self.metrics)
        request, reply = self.calls.request, str(len(self.calls.reply))
        pure = case.pure(request)
        # Each makes a call, ready to be timed.
        sides: dict[str, Callable[[], Callable[[], Any]]] = {
            "ours": lambda: lambda: case.ours(self.metrics),
            "bare": lambda: lambda: self._echo(request, metadata=((REPLY_BYTES, reply),)),
            "pure": lambda: pure,
        }
        if case.original is not None:
            sides["original"] = case.original
        taken: dict[str, list[float]] = {side: [] for side in sides}
        order, shuffle = list(sides), random.Random(0).shuffle
        for _ in range(times + 2):
            # The side after the original finds the caches full of its objects, so the order rotates.
            shuffle(order)
            for side in order:
                call = sides[side]()
                started = time.perf_counter()
                answer = call()
                if isinstance(answer, Awaitable):
                    await answer
                taken[side].append((time.perf_counter() - started) * 1e3)
        return {side: milliseconds[2:] for side, milliseconds in taken.items()}

    async def measure(self, case: inputs.Case) -> None:
        """A call against bare plus pure, and against its original."""
        taken = await self.take_turns(case, CALLS * self._runs)
        floor = [bare + pure for bare, pure in zip(taken["bare"], taken["pure"])]
        ratio = statistics.median(taken["ours"]) / statistics.median(floor)
        self._claim(f"{case.name}_over_bare_plus_function", taken["ours"], floor, ratio, "goal: at most 2 times")
        if "original" in taken:
            ratio = statistics.median(taken["original"]) / statistics.median(taken["ours"])
            self._claim(f"{case.name}_against_original", taken["ours"], taken["original"], ratio, case.claim)

    async def measure_small(self) -> None:
        """A small call against a bare one."""
        taken = await self.take_turns(inputs.kl_sample_train(8, 128), CALLS * SMALL_FACTOR * self._runs)
        more = statistics.median(taken["ours"]) - statistics.median(taken["bare"])
        self._claim("small_call_beyond_bare", [more], (), None, "goal: at most 0.5 ms more")

    async def measure_sizes(self) -> None:
        """Cost per token, ours and that of a bare call of the same bytes, from 10,000 tokens to the message limit."""
        for tokens in (10_000, 100_000, 1_000_000, inputs.LIMIT_SEQUENCES * inputs.TOKENS):
            case = inputs.kl_sample_train(max(1, tokens // inputs.TOKENS), inputs.TOKENS)
            taken = await self.take_turns(case, CALLS * self._runs)
            count = max(1, tokens // inputs.TOKENS) * inputs.TOKENS
            for side in ("ours", "bare"):
                nanoseconds = [milliseconds * 1e6 / count for milliseconds in taken[side]]
                self._claim(f"per_token_at_{count}_{side}", nanoseconds, (), None, "goal: flat", unit="ns")

    def _claim(self, name: str, ours: Any, baseline: Any, ratio: float | None, claim: str, unit: str = "ms") -> None:
        self.claims.append(Claim(name=name, ours=ours, baseline=baseline, unit=unit, ratio=ratio, claim=claim))


async def probe_under_load(address: str) -> list[float]:
    """Milliseconds of health checks while another process makes calls at the message limit."""
    taken: list[float] = []
    child = await asyncio.create_subprocess_exec(sys.executable, __file__, "--load", address)
    try:
        async with crucible_bridge.connect(address) as bridge:
            # Wait until the load runs; it takes seconds to build.
            while (await bridge.worker.get_info()).calls == 0:
                await asyncio.sleep(0.01)
            end = time.monotonic() + LOAD_SECONDS
            while time.monotonic() < end:
                started = time.perf_counter()
                await bridge.worker.health()
                taken.append((time.perf_counter() - started) * 1e3)
                await asyncio.sleep(PROBE_EVERY_SECONDS)
    finally:
        child.terminate()
        await child.wait()
    return taken


async def compare(worker: str, bare: str, runs: int) -> list[Claim]:
    """Every claim."""
    async with open_channel(worker) as ours, grpc.aio.insecure_channel(bare, options=channel_options()) as baseline:
        bench = Bench(ours, baseline, runs)
        for case in inputs.cases():
            await bench.measure(case)
        await bench.measure_small()
        await bench.measure_sizes()
    # In a separate process: this one is large by now, and its pauses are not the worker's.
    prober = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--probe", worker, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await prober.communicate()
    taken = json.loads(said)
    worst = Claim(name="health_under_load_worst", ours=[max(taken)], unit="ms", claim="goal: at most 50 ms")
    usual = Claim(name="health_under_load", ours=taken, unit="ms", claim="the median of the same checks")
    return [*bench.claims, usual, worst]


def main() -> None:
    """Start both servers, measure and print."""
    options = arguments(__doc__)
    if missing := missing_packages():
        print(f"without tinker-cookbook: {missing}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="crucible-metrics-") as folder:
        ours, bare = Path(folder, "worker-ready"), Path(folder, "bare-ready")
        serve = ["-m", "crucible_worker", "serve", "--port", "0", "--state-dir", str(Path(folder, "state"))]
        with (
            server_process([*serve, "--ready-file", str(ours), "--log-level", "warning"], ours) as worker,
            server_process([__file__, "--bare", str(bare)], bare) as baseline,
        ):
            claims = asyncio.run(compare(worker, baseline, options.runs))
    report(claims, as_json=options.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--bare"]:
        asyncio.run(serve_bare(Path(sys.argv[2])))
    elif sys.argv[1:2] == ["--load"]:
        asyncio.run(load(sys.argv[2]))
    elif sys.argv[1:2] == ["--probe"]:
        print(json.dumps(asyncio.run(probe_under_load(sys.argv[2]))))
    else:
        main()
