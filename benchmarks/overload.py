"""What a worker does with more than it can do: 200 callers of evaluations, of mathematics, and of everything at once.

Each caller has a connection, calls without a pause, and waits after a refusal for as long as it says. The worker
and its children have the first half of the cores, the callers and a separate process with health checks (20 a second)
the second half. It prints how long refusals and health checks take, seen by the callers, and what else became of the
calls. The same load of mathematics on a worker that refuses nothing for its work is the baseline of the time that
accepted calls take. Times are printed, not claimed: with two cores, the callers' core is as busy as the worker's.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import itertools
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from _processes import server_process
from _report import Claim, arguments, report
from grpc_health.v1 import health_pb2, health_pb2_grpc

from crucible_bridge.channel import channel_options
from crucible_bridge.codec import grading
from crucible_bridge.codec.evaluation import evaluate_request_to_v1
from crucible_bridge.reasons import Code
from crucible_bridge.status import from_rpc_error
from crucible_bridge.types import (
    Dataset,
    EmbeddedModel,
    EvaluateRequest,
    EvaluatorSpec,
    GradeItem,
    GradeMathRequest,
    MathPolicy,
    SamplingParams,
    ScoreOptions,
    ScoreRequest,
    TextScorer,
)
from crucible_bridge.v1 import evaluation_pb2

CALLERS = 200
SECONDS = 12.0
"""Of each load."""
BEGIN_SECONDS = 1.0
"""The callers begin within this time."""
CHECK_SECONDS = 0.05
"""From one health check to the next."""
ITEMS = 1_024
"""Of a grading call."""
REQUESTS = 100
"""Different ones with mathematics: more answers together than the worker's cache has."""
SAMPLES = 100
"""Of an evaluation."""
UNBOUNDED = 10**9
"""Of `max_grading_work`."""
PREFIX = "/crucible_bridge.v1."

Call = tuple[str, bytes]
"""The path of a method, and a request."""


@dataclasses.dataclass
class Outcome:
    """What became of calls, in seconds each."""

    accepted: list[float] = dataclasses.field(default_factory=list)
    refused: list[float] = dataclasses.field(default_factory=list)
    failed: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    waits: list[float] = dataclasses.field(default_factory=list)
    """What the refusals say about when to call again."""


def _evaluations() -> Iterator[Call]:
    for number in itertools.count():
        request = EvaluateRequest(
            evaluation_id=f"e-{number}",
            run_id="run",
            model=EmbeddedModel(name="arithmetic@320"),
            evaluators=(EvaluatorSpec(kind="accuracy"),),
            dataset=dataclasses.replace(Dataset.of("builtin:arithmetic"), limit=SAMPLES),
            sampling=SamplingParams(max_tokens=8),
        )
        message = evaluate_request_to_v1(request)
        if number % 2:
            yield f"{PREFIX}EvaluationService/Evaluate", message.SerializeToString()
        else:
            started = evaluation_pb2.StartEvaluationRequest(request=message)
            yield f"{PREFIX}EvaluationService/StartEvaluation", started.SerializeToString()


def _mathematics() -> Iterator[Call]:
    numbers = random.Random(0)

    def request() -> bytes:
        pairs = (numbers.sample(range(2, 10**6), k=2) for _ in range(ITEMS))
        items = tuple(GradeItem(answer=rf"\frac{{{a}}}{{{b}}}", targets=(f"{2 * a}/{2 * b}",)) for a, b in pairs)
        return grading.grade_math_request_to_v1(GradeMathRequest(items=items, policy=MathPolicy())).SerializeToString()

    return itertools.cycle([(f"{PREFIX}GradingService/GradeMath", request()) for _ in range(REQUESTS)])


def _scores() -> Iterator[Call]:
    words, options = random.Random(0), ScoreOptions(scorer=TextScorer(kind="f1"))

    def request() -> bytes:
        texts = (" ".join(map(str, words.choices(range(50), k=40))) for _ in range(ITEMS))
        items = tuple(GradeItem(answer=text, targets=(text[::-1],)) for text in texts)
        return grading.score_request_to_v1(ScoreRequest(items=items, options=options)).SerializeToString()

    return itertools.cycle([(f"{PREFIX}GradingService/Score", request()) for _ in range(2)])


def _reads() -> Iterator[Call]:
    request = evaluation_pb2.ListEvaluationsRequest(page_size=10).SerializeToString()
    return itertools.repeat((f"{PREFIX}EvaluationService/ListEvaluations", request))


LOADS: Mapping[str, Sequence[Callable[[], Iterator[Call]]]] = {
    "evaluations": [_evaluations],
    "mathematics": [_mathematics],
    "mixed": [_evaluations, _mathematics, _scores, _reads],
}
"""The calls of each load; as many callers make each of them."""


# Any: the stubs want serializers.
async def _caller(channel: Any, calls: Iterator[Call], ends: float, outcome: Outcome) -> None:
    await asyncio.sleep(random.random() * BEGIN_SECONDS)
    path, request = next(calls)
    while (began := time.perf_counter()) < ends:
        try:
            await channel.unary_unary(path)(request)
        except grpc.aio.AioRpcError as failure:
            took, error = time.perf_counter() - began, from_rpc_error(failure)
            if error.code is not Code.RESOURCE_EXHAUSTED or error.retry_after is None:
                outcome.failed[error.reason] += 1
                return
            outcome.refused.append(took)
            outcome.waits.append(error.retry_after)
            await asyncio.sleep(min(error.retry_after, max(0.0, ends - time.perf_counter())))
        else:
            outcome.accepted.append(time.perf_counter() - began)
            path, request = next(calls)


async def _load(results: Connection, address: str, load: str) -> None:
    """Send the outcome of a load; calls that are accepted and not answered by its end do not count."""
    options = [*channel_options(), ("grpc.use_local_subchannel_pool", 1)]
    calls = [make() for make in LOADS[load]]
    channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(CALLERS)]
    await asyncio.gather(*(channel.channel_ready() for channel in channels))
    outcome, ends = Outcome(), time.perf_counter() + SECONDS
    tasks = [asyncio.create_task(_caller(*each, ends, outcome)) for each in zip(channels, itertools.cycle(calls))]
    done, _ = await asyncio.wait(tasks, timeout=SECONDS)
    for task in done:
        task.result()
    results.send(outcome)


def _call(results: Connection, cores: Sequence[int], address: str, load: str) -> None:
    os.sched_setaffinity(0, cores)
    asyncio.run(_load(results, address, load))


def _check(results: Connection, cores: Sequence[int], address: str) -> None:
    """Check health; a check that cannot begin in time, as the one before is late, counts from when it should have."""
    os.sched_setaffinity(0, cores)
    took: list[float] = []
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        stub.Check(health_pb2.HealthCheckRequest(), timeout=60.0, wait_for_ready=True)
        first = time.perf_counter()
        for number in range(round(SECONDS / CHECK_SECONDS)):
            due = first + number * CHECK_SECONDS
            if (wait := due - time.perf_counter()) > 0:
                time.sleep(wait)
                due = time.perf_counter()
            stub.Check(health_pb2.HealthCheckRequest(), timeout=60.0)
            took.append(time.perf_counter() - due)
    results.send(took)


def _measure(load: str, worker: Sequence[int], callers: Sequence[int], limits: Mapping[str, int]) -> Iterator[Claim]:
    """Serve a load by a new worker."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="crucible-overload-") as folder:
        ready = Path(folder, "ready")
        command = ["-m", "crucible_worker", "serve", "--port", "0", "--state-dir", str(Path(folder, "state"))]
        command += ["--ready-file", str(ready), "--log-level", "error"]
        for name, value in limits.items():
            command += ["--limit", f"{name}={value}"]
        os.sched_setaffinity(0, worker)
        with server_process(command, ready) as address:
            os.sched_setaffinity(0, callers)
            asyncio.run(_warm(address))
            jobs = ((_call, (load,)), (_check, ()))
            pipes = [context.Pipe() for _ in jobs]
            processes = [
                context.Process(target=target, args=(theirs, callers, address, *rest), daemon=True)
                for (target, rest), (_, theirs) in zip(jobs, pipes)
            ]
            for process in processes:
                process.start()
            outcome, checks = (ours.recv() for ours, _ in pipes)
            for process in processes:
                process.kill()  # with the calls that are open
                process.join()
    unbounded = " without a bound of work" if limits else ""
    yield from _claims(f"{load}{unbounded}", outcome, checks)


async def _warm(address: str) -> None:
    channel: Any
    async with grpc.aio.insecure_channel(address) as channel:
        await channel.unary_unary(f"{PREFIX}GradingService/GradeMath")(next(_mathematics())[1], wait_for_ready=True)


def _claims(load: str, outcome: Outcome, checks: Sequence[float]) -> Iterator[Claim]:
    def times(what: str, seconds: Sequence[float], goal: str) -> Iterator[Claim]:
        if len(seconds) > 1:
            cuts = statistics.quantiles(seconds, n=100, method="inclusive")
            yield Claim(name=f"{load}, {what}, p50", ours=[1000 * cuts[49]], unit="ms", claim=goal)
            yield Claim(name=f"{load}, {what}, p99", ours=[1000 * cuts[98]], unit="ms", claim=goal)

    yield from times("refusals", outcome.refused, "printed; goal of the p99: 20 ms")
    yield from times("health checks", checks, "printed; goal of the p99: 50 ms")
    yield from times("accepted calls", outcome.accepted, "printed")
    yield from times("time to wait that refusals give", outcome.waits, "printed")
    rate = len(outcome.accepted) / SECONDS
    yield Claim(name=f"{load}, accepted and answered", ours=[rate], unit="calls/s", claim="printed")
    yield Claim(name=f"{load}, refused", ours=[len(outcome.refused)], unit="calls", claim="printed")
    failed = outcome.failed.total()
    named = f"none fails otherwise; failed: {dict(outcome.failed)}" if failed else "none fails otherwise"
    yield Claim(name=f"{load}, failed otherwise", ours=[failed], unit="calls", at_most=0, claim=named)


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    cores = sorted(os.sched_getaffinity(0))
    half = max(1, len(cores) // 2)
    worker, callers = cores[:half], cores[half:] or cores
    rows: list[Claim] = []
    for load in LOADS:
        rows += _measure(load, worker, callers, {})
    rows += _measure("mathematics", worker, callers, {"max_grading_work": UNBOUNDED})
    report(rows, as_json=options.json)


if __name__ == "__main__":
    main()
