"""A worker whose evaluations do as they are told: the server's own rules, without the engine behind it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import structlog
from grpc_health.v1 import health_pb2_grpc

from crucible_bridge.channel import authorization
from crucible_bridge.codec.events import event_to_record
from crucible_bridge.errors import BridgeError, NotFound, Unavailable
from crucible_bridge.events import Event, EventKind
from crucible_bridge.status import from_rpc_error
from crucible_bridge.types import (
    BackendInfo,
    Dataset,
    EmbeddedModel,
    EvaluateRequest,
    Evaluation,
    EvaluationState,
    EvaluatorInfo,
    EvaluatorKind,
    EvaluatorSpec,
    ModelRef,
    ModelUsage,
)
from crucible_bridge.v1 import evaluation_pb2, evaluation_pb2_grpc, events_pb2_grpc, types_pb2, worker_pb2_grpc
from crucible_worker.backends.base import Backend
from crucible_worker.config import Settings
from crucible_worker.engine.usage import Spending
from crucible_worker.journal.queries import Head
from crucible_worker.reports.writing import ReportRequest
from crucible_worker.server import Parts, Worker
from crucible_worker.util.tasks import Background

LOG_ID = "log"


@dataclasses.dataclass
class Page:
    """A page of events, as the engine gives it."""

    records: Sequence[tuple[int, bytes]]
    log_id: str
    through_sequence: int


class ScriptedEvaluations:
    """Stands in for the engine: calls wait at a gate, or raise, and drains are counted."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.raises: BaseException | None = None
        self.waiting = 0
        self.cancelled_waits = 0
        self.drains = 0
        self.drain_hangs = False
        self.closed = False
        self.writable = True
        self.on_writable_change: Callable[[bool], None] = lambda writable: None
        self.worker_id, self.log_id, self.load = "worker-1", LOG_ID, (1, 2)
        self.listed: list[int] = []
        self.reported: list[tuple[ReportRequest, int]] = []
        self.spending = Spending(())
        self.experiments = None
        self.usage: tuple[ModelUsage, ...] = ()
        self.background = Background()

    def note(self, event: Event) -> None:
        pass

    def plans(self, encode: object, decode: object, patterns: object) -> None:
        """It has none."""

    def follow_records(self) -> contextlib.ExitStack:
        """It has none; what is returned can be closed."""
        return contextlib.ExitStack()

    def head(self) -> Head:
        return Head(log_id=self.log_id, sequence=3, oldest=1)

    async def evaluate(self, request: EvaluateRequest) -> Evaluation:
        # As the engine does: it names what has no name, and binds it to the call.
        structlog.contextvars.bind_contextvars(evaluation_id=request.evaluation_id or "made-here")
        await self._wait()
        return stands(request.evaluation_id)

    async def start(self, request: EvaluateRequest) -> tuple[Evaluation, bool]:
        return stands(request.evaluation_id), False

    async def get(self, evaluation_id: str) -> Evaluation:
        if self.raises is not None:
            raise self.raises
        if evaluation_id == "unknown":
            raise NotFound(f"no evaluation {evaluation_id!r}", metadata={"evaluation_id": evaluation_id})
        if evaluation_id == "slow":
            await self._wait()
        return stands(evaluation_id)

    async def list(self, *, page_size: int, **filters: Any) -> tuple[Sequence[Evaluation], str]:
        self.listed.append(page_size)
        return [stands("one")], "next"

    async def samples(self, evaluation_id: str, *, page_size: int, **filters: Any) -> tuple[Sequence[Any], str]:
        self.listed.append(page_size)
        return [], ""

    async def cancel(self, evaluation_id: str, reason: str) -> Evaluation:
        return dataclasses.replace(stands(evaluation_id), state=EvaluationState.CANCELLED)

    async def report(self, request: ReportRequest, *, max_bytes: int) -> str:
        self.reported.append((request, max_bytes))
        return f"{request.report_format}: {', '.join(request.evaluation_ids)}"

    async def watch(self, evaluation_id: str, *, pack: Callable[[Any], Any], **position: Any) -> AsyncIterator[Any]:
        yield pack(page(1))
        await self._wait()
        yield pack(page(2))

    async def subscribe(self, *, pack: Callable[[Any], Any], **position: Any) -> AsyncIterator[Any]:
        yield pack(page(1))
        await self._wait()

    async def drain(self) -> Sequence[str]:
        self.drains += 1
        if self.drain_hangs:
            await asyncio.Event().wait()
        return ("interrupted-1",)

    async def aclose(self) -> None:
        self.closed = True

    async def _wait(self) -> None:
        self.waiting += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled_waits += 1
            raise
        finally:
            self.waiting -= 1
        if self.raises is not None:
            raise self.raises


class ScriptedBackend(Backend[ModelRef]):
    """A backend that only says that it was closed."""

    def __init__(self) -> None:
        self.closed = False

    def info(self) -> BackendInfo:
        return BackendInfo(name="scripted", models=("one",))

    async def check(self, model: object) -> None:
        raise Unavailable("opens nothing")

    async def open(self, model: object) -> Any:
        raise Unavailable("opens nothing")

    async def aclose(self) -> None:
        self.closed = True


@dataclasses.dataclass
class Rig:
    """A worker that serves, and what it was put together from."""

    worker: Worker
    evaluations: ScriptedEvaluations
    backend: ScriptedBackend
    channel: grpc.aio.Channel

    # Any: the generated stubs are typed for blocking channels first.
    @property
    def evaluation(self) -> Any:
        return evaluation_pb2_grpc.EvaluationServiceStub(self.channel)

    @property
    def telemetry(self) -> Any:
        return events_pb2_grpc.TelemetryServiceStub(self.channel)

    @property
    def about(self) -> Any:
        return worker_pb2_grpc.WorkerServiceStub(self.channel)

    @property
    def health(self) -> Any:
        return health_pb2_grpc.HealthStub(self.channel)


def stands(evaluation_id: str) -> Evaluation:
    """An evaluation as the engine would tell of it."""
    request = EvaluateRequest(
        evaluation_id=evaluation_id,
        model=EmbeddedModel(name="arithmetic@1"),
        evaluators=(EvaluatorSpec(kind="nll"),),
        dataset=Dataset.of("builtin:arithmetic"),
    )
    return Evaluation(evaluation_id=evaluation_id, state=EvaluationState.RUNNING, request=request)


def page(sequence: int) -> Page:
    """One event."""
    return Page([(sequence, event_to_record(Event(kind=EventKind.EVALUATION_START)))], LOG_ID, sequence)


def evaluate_request(evaluation_id: str = "e1") -> evaluation_pb2.EvaluateRequest:
    """A request that decodes."""
    return evaluation_pb2.EvaluateRequest(
        evaluation_id=evaluation_id,
        run_id="run-7",
        model=types_pb2.ModelRef(embedded="arithmetic@1"),
        evaluators=[evaluation_pb2.EvaluatorSpec(kind="nll")],
        dataset=evaluation_pb2.Dataset(builtin="arithmetic"),
    )


def settings_for(folder: Path, **fields: Any) -> Settings:
    """Settings of a worker on any free port, with its state below a folder."""
    return Settings(**{"port": 0, "state_dir": folder, **fields}).validate()


def token_file(folder: Path, token: str) -> Path:
    """A token's file, readable by its owner alone."""
    path = folder / "token"
    path.touch(mode=0o600)
    path.write_text(token)
    return path


def parts_of(evaluations: ScriptedEvaluations, backend: ScriptedBackend) -> Parts:
    """What a worker is put together from, scripted."""
    info = EvaluatorInfo(
        kind="nll", kinds=(EvaluatorKind.TRAINING,), description="", options_schema={}, keys={"nll": "nats"}
    )
    return Parts(
        evaluations=evaluations,  # pyright: ignore[reportArgumentType] - stands in for it
        backends=(backend,),
        evaluators=lambda: (info,),
        evaluator_kinds=lambda: (info.kind,),
        datasets=("arithmetic",),
    )


@contextlib.asynccontextmanager
async def serving(settings: Settings, **worker_options: Any) -> AsyncIterator[Rig]:
    """A worker in this event loop, and a plain channel to it."""
    evaluations, backend = ScriptedEvaluations(), ScriptedBackend()

    async def build(_: Settings) -> Parts:
        return parts_of(evaluations, backend)

    async with (
        Worker(settings, **{"build": build, **worker_options}) as worker,
        grpc.aio.insecure_channel(worker.address) as channel,
    ):
        yield Rig(worker, evaluations, backend, channel)


async def until(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for a condition; it fails after five seconds, which is long for what the event loop's own work brings."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.001)


async def error_of(call: Any) -> BridgeError:
    """The error that a call ends with."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return from_rpc_error(error)
    raise AssertionError("the call went well")


def bearer(token: str) -> Any:
    """Metadata that shows a token."""
    return authorization(token)
