"""What a worker does with more than it can do: 200 callers of evaluations, of mathematics, and of everything at once.

Each caller has a connection, calls without a pause, and waits after a refusal for as long as it says; one that reads
waits for a second after each answer. The worker has the first half of the cores, with its children. The callers, and
processes with health checks (20 a second), have the second half. It prints how long refusals and health checks take,
seen by the callers, and what else became of the calls.

Times are printed, not claimed: with two cores, the callers' core is as busy as the worker's. The baseline of the health
checks is a bare grpc.aio server on the worker's cores, at the same time: what it takes is due to the machine. A worker
that refuses nothing for its work, under the same load of mathematics, shows what the bound does.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
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
SETTLED_SECONDS = 3.0
"""From then on, most of what is begun was refused before: figures are also given without the time before it."""
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
READ = f"{PREFIX}EvaluationService/ListEvaluations"
READ_SECONDS = 1.0
"""From an answer of a read to the next one: reads are not refused."""

Call = tuple[str, bytes]
"""The path of a method, and a request."""
Timed = tuple[float, float]
"""When something began, in seconds of the load, and how many seconds it took."""


@dataclasses.dataclass
class Outcome:
    """What became of calls, in seconds each."""

    accepted: list[float] = dataclasses.field(default_factory=list)
    refused: list[Timed] = dataclasses.field(default_factory=list)
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


def _mathematics(seed: int = 0) -> Iterator[Call]:
    numbers = random.Random(seed)

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
    return itertools.repeat((READ, request))


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
            outcome.refused.append((began - ends + SECONDS, took))
            outcome.waits.append(error.retry_after)
            await asyncio.sleep(min(error.retry_after, max(0.0, ends - time.perf_counter())))
        else:
            outcome.accepted.append(time.perf_counter() - began)
            path, request = next(calls)
            if path == READ:
                await asyncio.sleep(READ_SECONDS)


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
    """Check health at fixed times, whether or not earlier checks have been answered."""
    os.sched_setaffinity(0, cores)
    took: list[Timed] = []
    with grpc.insecure_channel(address) as channel:
        check: Any = health_pb2_grpc.HealthStub(channel).Check  # Any: the stubs lack `future`
        check(health_pb2.HealthCheckRequest(), timeout=60.0, wait_for_ready=True)
        first, checks = time.perf_counter(), []
        for number in range(round(SECONDS / CHECK_SECONDS)):
            time.sleep(max(0.0, first + number * CHECK_SECONDS - time.perf_counter()))
            began = time.perf_counter()
            checks.append(check.future(health_pb2.HealthCheckRequest(), timeout=60.0))
            checks[-1].add_done_callback(
                lambda _, began=began: took.append((began - first, time.perf_counter() - began))
            )
        for one in checks:
            one.result()
    results.send(took)


class _BareHealth(health_pb2_grpc.HealthServicer):
    """Replies, and does nothing else."""

    async def Check(self, request: health_pb2.HealthCheckRequest, context: object) -> health_pb2.HealthCheckResponse:
        """The same answer each time."""
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)


async def _serve_bare(results: Connection) -> None:
    server = grpc.aio.server()
    health_pb2_grpc.add_HealthServicer_to_server(_BareHealth(), server)
    results.send(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
    await server.start()
    await server.wait_for_termination()


def _bare(results: Connection, cores: Sequence[int]) -> None:
    os.sched_setaffinity(0, cores)
    asyncio.run(_serve_bare(results))


@contextlib.contextmanager
def _process(target: Callable[..., None], cores: Sequence[int], *order: object) -> Iterator[Connection]:
    """Run a function in a process; yields where it sends its result. The process is killed at the end."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, cores, *order), daemon=True)
    process.start()
    try:
        yield ours
    finally:
        process.kill()
        process.join()


def _measure(load: str, worker: Sequence[int], callers: Sequence[int], limits: Mapping[str, int]) -> Iterator[Claim]:
    """Serve a load by a new worker."""
    with tempfile.TemporaryDirectory(prefix="crucible-overload-") as folder, _process(_bare, worker) as bare:
        ready = Path(folder, "ready")
        command = ["-m", "crucible_worker", "serve", "--port", "0", "--state-dir", str(Path(folder, "state"))]
        command += ["--ready-file", str(ready), "--log-level", "error"]
        for name, value in limits.items():
            command += ["--limit", f"{name}={value}"]
        os.sched_setaffinity(0, worker)
        with server_process(command, ready) as address:
            os.sched_setaffinity(0, callers)
            asyncio.run(_warm(address))
            with (
                _process(_call, callers, address, load) as outcomes,
                _process(_check, callers, address) as checks,
                _process(_check, callers, bare.recv()) as bare_checks,
            ):
                outcome, checked, bare_checked = outcomes.recv(), checks.recv(), bare_checks.recv()
    unbounded = " without a bound of work" if limits else ""
    yield from _claims(f"{load}{unbounded}", outcome, checked, bare_checked)


async def _warm(address: str) -> None:
    channel: Any
    async with grpc.aio.insecure_channel(address) as channel:
        await channel.unary_unary(f"{PREFIX}GradingService/GradeMath")(
            next(_mathematics(seed=1))[1], wait_for_ready=True
        )


def _claims(load: str, outcome: Outcome, checked: Sequence[Timed], bare_checked: Sequence[Timed]) -> Iterator[Claim]:
    def times(what: str, seconds: Sequence[float], claim: str, baseline: Sequence[float] = ()) -> Iterator[Claim]:
        if len(seconds) < 2:
            return
        for name, at in (("p50", 49), ("p99", 98)):
            ours, theirs = (
                [1000 * statistics.quantiles(each, n=100, method="inclusive")[at]] if each else []
                for each in (seconds, baseline)
            )
            yield Claim(name=f"{load}, {what}, {name}", ours=ours, baseline=theirs, unit="ms", claim=claim)

    for since, said in ((0.0, ""), (SETTLED_SECONDS, f" after {SETTLED_SECONDS:g} s")):
        refused, ours, bare = (
            [took for began, took in each if began >= since] for each in (outcome.refused, checked, bare_checked)
        )
        yield from times(f"refusals{said}", refused, "printed; goal of the p99: 20 ms")
        yield from times(f"health checks{said}", ours, "printed; goal of the p99: 50 ms", bare)
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
