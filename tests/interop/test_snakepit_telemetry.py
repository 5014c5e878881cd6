"""StreamTelemetry as Snakepit takes it: what it knows, each event once, over streams that come and go."""

import asyncio
import contextlib
import json
import sqlite3
from pathlib import Path

import grpc
import pytest

from crucible_bridge.codec.events import event_to_record
from crucible_bridge.errors import NotFound
from crucible_bridge.events import TELEMETRY_NAMES, Event, EventKind
from crucible_bridge.types import Problem
from crucible_worker.journal.schema import JOURNAL_FILE
from crucible_worker.snakepit import event_stream
from crucible_worker.snakepit.event_stream import MAX_TEXT_BYTES, NAMES, telemetry_event
from crucible_worker.snakepit.wire import snakepit_bridge_pb2 as pb
from crucible_worker.testing.scripted import ScriptedModel
from tests.interop.snakepit_kit import evaluation, snakepit_worker
from tests.interop.snakepit_standin import Pool

# Snakepit.Telemetry.Naming and SafeMetadata of 0.13.0.
KNOWN_NAMES = {
    "python.call.start",
    "python.call.stop",
    "python.call.exception",
    "python.memory.sampled",
    "python.cpu.sampled",
    "python.gc.completed",
    "python.error.occurred",
    "tool.execution.start",
    "tool.execution.stop",
    "tool.execution.exception",
    "tool.result_size",
}
KNOWN_MEASUREMENTS = {"duration", "duration_ms", "count"}
NAMES_OF_AN_EVALUATION = [
    ("tool.execution.start", "crucible_bridge.evaluation.start"),
    ("python.call.start", "crucible_bridge.evaluator.start"),
    ("python.call.stop", "crucible_bridge.evaluator.stop"),
    ("python.call.stop", "crucible_kitchen.evaluation.complete"),
    ("tool.execution.stop", "crucible_bridge.evaluation.stop"),
]
METRICS_CALL = {"logprobs": [-1.0, -2.0], "weights": [1, 1]}


def told(pool: Pool) -> list[tuple[str, str]]:
    """Names of what came, Snakepit's and ours."""
    return [(".".join(event.event_parts), event.metadata["operation"]) for event in pool.events]


async def until_told(pool: Pool, count: int) -> None:
    """Wait for so many events."""
    while len(pool.events) < count:
        await asyncio.sleep(0.005)


def test_every_event_has_a_name_that_snakepit_knows():
    """A reported event has a known name and known measurements; samples, progress, pauses and runs are not reported."""
    for kind in EventKind:
        if kind in NAMES:
            record = event_to_record(Event(kind=kind, duration_ns=1_500_000))
            message = telemetry_event(1, record, "log")
            assert ".".join(message.event_parts) in KNOWN_NAMES
            assert set(message.measurements) <= KNOWN_MEASUREMENTS
            assert message.measurements["duration_ms"].float_value == 1.5
    of_runs = {kind for kind in EventKind if TELEMETRY_NAMES[kind][1] in ("run", "checkpoint")}
    assert len(of_runs) == 5
    of_changes = {EventKind.EVALUATION_PAUSED, EventKind.EVALUATION_RESUMED, EventKind.EVALUATION_CONCURRENCY}
    of_work = {EventKind.SAMPLE_COMPLETE, EventKind.EVALUATION_PROGRESS}
    assert set(EventKind) - set(NAMES) == of_work | of_changes | of_runs


def test_an_event_tells_all_it_has():
    """Metrics, problem and ids travel as metadata strings; a key that is Snakepit's own is not taken from it."""
    event = Event(
        kind=EventKind.EVALUATION_EXCEPTION,
        unix_time_ns=12,
        duration_ns=34,
        evaluation_id="e",
        run_id="r",
        step=0,
        evaluator="acc",
        measurements={"accuracy": 0.5},
        metadata={"worker_id": "w", "cause": "x" * 10_000},
        problem=Problem(reason="OUT_OF_MEMORY", message="no room"),
        correlation_id="c",
    )

    message = telemetry_event(9, event_to_record(event), "log")

    assert dict(message.metadata) == {
        "operation": "crucible_bridge.evaluation.exception",
        "library": "crucible_bridge",
        "metrics": '{"accuracy": 0.5}',
        "sequence": "9",
        "log_id": "log",
        "tool": "evaluate",
        "evaluation_id": "e",
        "run_id": "r",
        "step": "0",
        "evaluator": "acc",
        "crucible_worker_id": "w",
        "cause": message.metadata["cause"],
        "error_type": "OUT_OF_MEMORY",
        "error_message": "no room",
    }
    assert len(message.metadata["cause"].encode()) <= MAX_TEXT_BYTES
    assert (message.timestamp_ns, message.correlation_id) == (12, "c")
    assert message.measurements["duration"].int_value == 34


async def test_an_evaluation_is_told_as_it_happens(tmp_path: Path):
    """A stream carries the events of an evaluation in order, with the metrics, and ends with OK before its deadline."""
    async with snakepit_worker(tmp_path, {"m": ScriptedModel()}) as (pool, worker):
        listening = asyncio.create_task(pool.listen(seconds=1.0))
        await pool.execute("evaluate", evaluation("e"), correlation_id="corr-1")

        assert await listening is grpc.StatusCode.OK
        described, load = await worker.info()
        last_sequence, log_id = load.last_sequence, described.log_id
    assert {event.metadata["log_id"] for event in pool.events} == {log_id}
    assert told(pool) == NAMES_OF_AN_EVALUATION
    complete = pool.events[3]
    assert json.loads(complete.metadata["metrics"])["accuracy"] == 1.0
    assert complete.metadata["model"] == "embedded:m"
    assert complete.correlation_id == "corr-1"
    assert complete.timestamp_ns > 0
    assert int(pool.events[4].metadata["sequence"]) == last_sequence
    assert pool.events[2].measurements["duration"].int_value > 0


async def test_streams_that_end_lose_and_double_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Events before, between and during streams of short deadlines arrive once each, in order."""
    # What is left of a deadline when a stream ends: enough on a machine that has other things to do.
    monkeypatch.setattr(event_stream, "MARGIN_SECONDS", 5.0)
    monkeypatch.setattr(event_stream, "MARGIN_SHARE", 0.95)
    calls = 400
    async with snakepit_worker(tmp_path) as (pool, _):

        async def compute() -> None:
            for number in range(calls):
                await pool.execute("mean_nll", METRICS_CALL, correlation_id=f"c{number}")

        await pool.execute("mean_nll", METRICS_CALL)
        computing = asyncio.create_task(compute())
        while not (computing.done() and len(pool.events) > calls):
            assert await pool.listen(seconds=3.0) is grpc.StatusCode.OK
        await pool.listen(seconds=3.0)

    assert pool.streams > 2
    sequences = [int(event.metadata["sequence"]) for event in pool.events]
    assert sequences == list(range(1, calls + 2))


async def test_a_stream_goes_on_after_one_that_was_cancelled(tmp_path: Path):
    """A stream whose reader goes away gives its place to the next one, which tells what is left."""
    async with snakepit_worker(tmp_path) as (pool, _):
        first = asyncio.create_task(pool.listen(seconds=60))
        await pool.execute("mean_nll", METRICS_CALL)
        await until_told(pool, 1)
        first.cancel()

        second = asyncio.create_task(pool.listen(seconds=60))
        await pool.execute("mean_nll", METRICS_CALL)
        await until_told(pool, 2)
        second.cancel()
    assert [event.metadata["sequence"] for event in pool.events] == ["1", "2"]


async def test_a_damaged_event_holds_up_none_after_it(tmp_path: Path):
    """An event that cannot be read any more is passed over; what came after it is told."""
    async with snakepit_worker(tmp_path) as (pool, worker):
        for _ in range(3):
            await pool.execute("mean_nll", METRICS_CALL)
        while worker.load().last_sequence < 3:
            await asyncio.sleep(0.005)
        with contextlib.closing(sqlite3.connect(tmp_path / "state" / JOURNAL_FILE)) as journal, journal:
            journal.execute("UPDATE events SET record = X'ff' WHERE sequence = 2")

        listening = asyncio.create_task(pool.listen(seconds=60))
        await until_told(pool, 2)
        listening.cancel()
    assert [event.metadata["sequence"] for event in pool.events] == ["1", "3"]


async def test_the_newest_stream_is_the_one(tmp_path: Path):
    """A stream that is opened beside another ends that one with OK, and has what comes from then on."""
    async with snakepit_worker(tmp_path) as (pool, _):
        older = asyncio.create_task(pool.listen(seconds=60))
        await pool.execute("mean_nll", METRICS_CALL)
        await until_told(pool, 1)

        newer = asyncio.create_task(pool.listen(seconds=60))
        assert await older is grpc.StatusCode.OK
        await pool.execute("mean_nll", METRICS_CALL)
        await until_told(pool, 2)
        newer.cancel()


async def test_each_worker_of_a_journal_tells_what_it_did(tmp_path: Path):
    """Two workers on one journal: together their streams tell every event once."""
    models = {"m": ScriptedModel()}
    async with snakepit_worker(tmp_path, models) as (one, first), snakepit_worker(tmp_path, models) as (other, second):
        listening = [asyncio.create_task(pool.listen(seconds=60)) for pool in (one, other)]
        await asyncio.gather(
            *(pool.execute("evaluate", evaluation(f"e{n}")) for n, pool in enumerate((one, other, one, other)))
        )
        await asyncio.gather(first.stop(), second.stop(), *listening)

    assert {event.metadata["evaluation_id"] for event in one.events} == {"e0", "e2"}
    assert {event.metadata["evaluation_id"] for event in other.events} == {"e1", "e3"}
    assert len(one.events) + len(other.events) == 4 * len(NAMES_OF_AN_EVALUATION)


async def test_elixir_steers_what_is_told(tmp_path: Path):
    """Off is silence; filters go by Snakepit's names; a share of 0 sends nothing of the names that it is for."""
    off = pb.TelemetryControl(toggle=pb.TelemetryToggle(enabled=False))
    deny = pb.TelemetryControl(filter=pb.TelemetryEventFilter(deny=["tool.*"]))
    allow = pb.TelemetryControl(filter=pb.TelemetryEventFilter(allow=["tool.execution.start"]))
    none = pb.TelemetryControl(sampling=pb.TelemetrySamplingUpdate(sampling_rate=0.0, event_patterns=["python.*"]))
    wanted = [
        (off, []),
        (deny, NAMES_OF_AN_EVALUATION[1:4]),
        (allow, [NAMES_OF_AN_EVALUATION[0]]),
        (none, [NAMES_OF_AN_EVALUATION[0], NAMES_OF_AN_EVALUATION[4]]),
    ]
    for number, (control, names) in enumerate(wanted):
        async with snakepit_worker(tmp_path / str(number), {"m": ScriptedModel()}) as (pool, worker):
            listening = asyncio.create_task(pool.listen(seconds=60, controls=[control]))
            await _heeded(pool)
            await pool.execute("evaluate", evaluation(f"e{number}"))
            await worker.stop()
            await listening
            assert told(pool) == names


async def test_a_drain_is_told_to_the_end(tmp_path: Path):
    """What the drain interrupts is told before the stream ends with it."""
    model = ScriptedModel(latency=30)
    async with snakepit_worker(tmp_path, {"m": model}) as (pool, worker):
        listening = asyncio.create_task(pool.listen(seconds=60))
        await pool.execute("start_evaluation", evaluation("e"))
        await until_told(pool, 1)

        await worker.stop()

        assert await listening is grpc.StatusCode.OK
    assert told(pool)[-1] == ("tool.execution.stop", "crucible_bridge.evaluation.interrupt")


async def test_a_model_that_fails_is_an_exception(tmp_path: Path):
    """An evaluation that fails ends in an exception with its reason."""
    model = ScriptedModel(fault=lambda call: NotFound("no such model", reason="MODEL_GONE"))
    async with snakepit_worker(tmp_path, {"m": model}) as (pool, worker):
        listening = asyncio.create_task(pool.listen(seconds=60))
        asked = evaluation("e")
        asked["limits"] = {"max_unscored": 0}
        await pool.execute("evaluate", asked)
        await worker.stop()
        await listening

    names = [name for name, _ in told(pool)]
    assert names[0] == "tool.execution.start"
    assert names[-1] == "tool.execution.exception"
    assert pool.events[-1].metadata["error_type"]


async def _heeded(pool: Pool) -> None:
    """Wait until the controls have arrived: they were sent before this."""
    while pool.streams == 0:
        await asyncio.sleep(0.005)
    await pool.heartbeat()
