"""How long health probes take while a worker reads hostile input: the worst text known for each kind of call.

Each kind runs for some seconds against one worker, four calls at a time, each call as large as its limit allows; a
separate process probes meanwhile, one probe after another. It prints the median and 99th percentile of the probes; the
goal for the latter is 100 ms, and Kubernetes abandons a probe after 1 s. Nothing is claimed: the figures depend on how
many cores there are for the worker, its children, the callers and the probes.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

import grpc
from _processes import server_process
from _report import Claim, arguments, report
from grpc_health.v1 import health_pb2, health_pb2_grpc

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import BridgeError
from crucible_bridge.types import (
    CallTest,
    CodeItem,
    CodeLimits,
    FormatScorer,
    GradeItem,
    JsonSchemaForm,
    RegexScorer,
    SamplingParams,
)

CALLS_AT_ONCE = 4
PAUSE_SECONDS = 0.01
"""Seconds between two probes."""
COLLIDING = json.dumps([number * (2**61 - 1) for number in range(20_000)])
"""Integers with the same hash."""
LARGE = "```python\nfrom fractions import Fraction\ndef f(): return Fraction(3**250000, 2**400000)\n```"
FENCE = "```" + " " * 900_000 + "`"

Call = Callable[[], Awaitable[object]]


def _calls(bridge: Bridge) -> Mapping[str, Call]:
    grading, numbers = bridge.grading, CallTest(function="f", expected_json="1")
    unique = FormatScorer(form=JsonSchemaForm('{"uniqueItems": true}'))
    return {
        "idle": lambda: asyncio.sleep(0.05),
        "response of nested boxes": lambda: grading.grade_math(
            [GradeItem(response=r"\boxed{" * 140_000, targets=("1",))]
        ),
        "number of 1 MB": lambda: grading.grade_math([GradeItem(answer="9" * 1_000_000, targets=("1",))]),
        "power tower": lambda: grading.grade_math([GradeItem(answer="9**9**9**9", targets=("x+1",))]),
        "20 responses of 1 MB": lambda: grading.extract_answers(["x = 1. " * 140_000] * 20),
        "fence that does not end": lambda: grading.grade_code([CodeItem(response=FENCE, tests=(numbers,))]),
        "fraction of 100 KB": lambda: grading.grade_code(
            [CodeItem(response=LARGE, tests=(numbers,) * 4)], limits=CodeLimits(timeout_ms=2_000)
        ),
        "unique integers that collide": lambda: grading.score([GradeItem(response=COLLIDING)], unique),
        "regular expression on 1 MB": lambda: grading.score(
            [GradeItem(response="a" * 1_000_000, targets=("(a*)*b",))], RegexScorer()
        ),
        "labels": lambda: bridge.metrics.compute_classification_metrics(
            [f"l{number}" for number in range(50_000)], [f"l{number}" for number in range(50_000)][::-1]
        ),
        "prompt of 1 MB": lambda: bridge.models.sample(
            "embedded:arithmetic@600", ["1+" * 500_000], SamplingParams(max_tokens=1)
        ),
    }


def _probe(results: Connection, address: str) -> None:
    """Probe until the parent stops it; then send the time of each probe."""
    took: list[float] = []
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        while not results.poll():
            began = time.perf_counter()
            stub.Check(health_pb2.HealthCheckRequest(), timeout=60.0)
            took.append(time.perf_counter() - began)
            time.sleep(PAUSE_SECONDS)
    results.send(took)


async def _load(call: Call, seconds: float) -> None:
    ends = time.perf_counter() + seconds

    async def repeat() -> None:
        while time.perf_counter() < ends:
            try:
                await asyncio.wait_for(call(), max(0.1, ends - time.perf_counter()))
            except (BridgeError, TimeoutError):
                # Refused, or not done in time: the probes are what counts.
                await asyncio.sleep(0.01)

    await asyncio.gather(*(repeat() for _ in range(CALLS_AT_ONCE)))


async def _measure(address: str, seconds: float) -> dict[str, list[float]]:
    context, taken = multiprocessing.get_context("spawn"), {}
    async with crucible_bridge.connect(address) as bridge:
        for name, call in _calls(bridge).items():
            ours, theirs = context.Pipe()
            process = context.Process(target=_probe, args=(theirs, address), daemon=True)
            process.start()
            await _load(call, seconds)
            ours.send("stop")
            taken[name] = await asyncio.to_thread(ours.recv)
            process.join()
    return taken


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="crucible-health-") as folder:
        ready = Path(folder, "ready")
        command = ["-m", "crucible_worker", "serve", "--port", "0", "--state-dir", str(Path(folder, "state"))]
        command += ["--ready-file", str(ready), "--log-level", "error"]
        with server_process(command, ready) as address:
            taken = asyncio.run(_measure(address, float(options.runs)))
    report(
        [
            Claim(name=f"{name}, {what}", ours=[1000 * value], unit="ms", claim="printed; goal of the p99: 100 ms")
            for name, took in taken.items()
            for what, value in (
                ("median", statistics.median(took)),
                ("p99", statistics.quantiles(took, n=100, method="inclusive")[98]),
                ("most", max(took)),
            )
        ],
        as_json=options.json,
    )


if __name__ == "__main__":
    main()
