"""A worker of canned replies behind a real server, so that the client alone is under test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from crucible_bridge.channel import server_options
from crucible_bridge.codec.events import page_to_v1
from crucible_bridge.errors import BridgeError
from crucible_bridge.status import to_status
from crucible_bridge.v1 import (
    evaluation_pb2_grpc,
    events_pb2_grpc,
    experiments_pb2_grpc,
    grading_pb2_grpc,
    models_pb2_grpc,
    rendering_pb2_grpc,
    worker_pb2_grpc,
)


def _unary(name: str) -> Any:
    async def answer(self: CannedWorker, request: Any, context: Any) -> Any:
        self.requests.append((name, request))
        self.metadata = dict(context.invocation_metadata())
        reply = self.replies[name]
        if callable(reply):
            reply = reply(request)
            if isinstance(reply, Awaitable):
                reply = await reply
        if isinstance(reply, BridgeError):
            await context.abort(*to_status(reply))
        return reply

    return answer


def _streaming(name: str) -> Any:
    async def answer(self: CannedWorker, request: Any, context: Any) -> AsyncIterator[Any]:
        self.requests.append((name, request))
        self.stream_arrived.set()
        try:
            for page in self.pages:
                if isinstance(page, BridgeError):
                    await context.abort(*to_status(page))
                else:
                    yield page_to_v1(*page)
            if self.hold_streams:
                await asyncio.Event().wait()
        finally:
            self.streams_ended.set()

    return answer


class CannedWorker(
    evaluation_pb2_grpc.EvaluationServiceServicer,
    events_pb2_grpc.TelemetryServiceServicer,
    experiments_pb2_grpc.ExperimentServiceServicer,
    grading_pb2_grpc.GradingServiceServicer,
    models_pb2_grpc.ModelServiceServicer,
    rendering_pb2_grpc.RenderingServiceServicer,
    worker_pb2_grpc.WorkerServiceServicer,
):
    """Answers every call by what `replies` holds for its name: a message, an error, or a function of the request."""

    def __init__(self) -> None:
        self.replies: dict[str, Any] = {}
        self.requests: list[tuple[str, Any]] = []
        self.metadata: dict[str, Any] = {}
        self.pages: list[Any] = []
        """What streams carry: (records, log_id, through_sequence), or an error that ends them."""
        self.hold_streams = False
        """Keep a stream open after its pages, until its caller goes."""
        self.stream_arrived = asyncio.Event()
        self.streams_ended = asyncio.Event()

    ListEvaluators = _unary("ListEvaluators")
    Evaluate = _unary("Evaluate")
    StartEvaluation = _unary("StartEvaluation")
    WatchEvaluation = _streaming("WatchEvaluation")
    GetEvaluation = _unary("GetEvaluation")
    ListEvaluations = _unary("ListEvaluations")
    GetSamples = _unary("GetSamples")
    FindSamples = _unary("FindSamples")
    CancelEvaluation = _unary("CancelEvaluation")
    PauseEvaluation = _unary("PauseEvaluation")
    ResumeEvaluation = _unary("ResumeEvaluation")
    SetEvaluationConcurrency = _unary("SetEvaluationConcurrency")
    DeleteEvaluation = _unary("DeleteEvaluation")
    ListRuns = _unary("ListRuns")
    GenerateReport = _unary("GenerateReport")
    CompareEvaluations = _unary("CompareEvaluations")
    Gate = _unary("Gate")
    EvaluateWithOrchestratorModel = _streaming("EvaluateWithOrchestratorModel")
    RegisterPlan = _unary("RegisterPlan")
    FollowRun = _unary("FollowRun")
    UnfollowRun = _unary("UnfollowRun")
    NotifyStep = _unary("NotifyStep")
    ReadDataset = _streaming("ReadDataset")
    RenderSample = _unary("RenderSample")
    Subscribe = _streaming("Subscribe")
    OpenExperiment = _unary("OpenExperiment")
    LogHparams = _unary("LogHparams")
    LogMetrics = _unary("LogMetrics")
    LogLongText = _unary("LogLongText")
    Sync = _unary("Sync")
    CloseExperiment = _unary("CloseExperiment")
    GetUrl = _unary("GetUrl")
    GradeMath = _unary("GradeMath")
    ExtractAnswer = _unary("ExtractAnswer")
    Score = _unary("Score")
    GradeCode = _unary("GradeCode")
    ExtractCode = _unary("ExtractCode")
    GradeRubric = _unary("GradeRubric")
    Sample = _unary("Sample")
    ComputeLogprobs = _unary("ComputeLogprobs")
    Forward = _unary("Forward")
    ListRenderers = _unary("ListRenderers")
    BuildGenerationPrompt = _unary("BuildGenerationPrompt")
    BuildSupervisedExample = _unary("BuildSupervisedExample")
    ParseResponse = _unary("ParseResponse")
    GetStopSequences = _unary("GetStopSequences")
    Tokenize = _unary("Tokenize")
    Detokenize = _unary("Detokenize")
    GetInfo = _unary("GetInfo")
    Drain = _unary("Drain")


@pytest.fixture
def worker() -> CannedWorker:
    """The replies, and what was asked."""
    return CannedWorker()


@pytest.fixture
async def address(worker: CannedWorker) -> AsyncIterator[str]:
    """Where the canned worker listens: this machine, a port of the system's choice."""
    server = grpc.aio.server(options=server_options())
    evaluation_pb2_grpc.add_EvaluationServiceServicer_to_server(worker, server)
    events_pb2_grpc.add_TelemetryServiceServicer_to_server(worker, server)
    experiments_pb2_grpc.add_ExperimentServiceServicer_to_server(worker, server)
    grading_pb2_grpc.add_GradingServiceServicer_to_server(worker, server)
    models_pb2_grpc.add_ModelServiceServicer_to_server(worker, server)
    rendering_pb2_grpc.add_RenderingServiceServicer_to_server(worker, server)
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(worker, server)
    servicer = health.aio.HealthServicer()  # pyright: ignore[reportAttributeAccessIssue]  # missing in the stubs
    await servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    await servicer.set("warming", health_pb2.HealthCheckResponse.NOT_SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)
