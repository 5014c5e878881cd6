"""EvaluateWithOrchestratorModel: a stream in both directions, and an evaluation that asks its caller."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import AsyncGenerator, AsyncIterator

import grpc.aio
import structlog

from crucible_bridge.codec.orchestrator import (
    accepted_to_v1,
    answer_from_v1,
    ended_to_v1,
    question_to_v1,
    start_from_v1,
)
from crucible_bridge.errors import BridgeError, Cancelled, InvalidField
from crucible_bridge.problems import MAX_PROBLEM_BYTES, problem_of, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Answer,
    EvaluateRequest,
    Evaluation,
    HeldAccepted,
    HeldEnded,
    HeldStart,
    OrchestratorModel,
    Problem,
)
from crucible_bridge.v1 import evaluation_pb2 as pb
from crucible_bridge.v1 import orchestrator_pb2
from crucible_worker.backends.orchestrator import (
    Caller,
    CallerSession,
    ClosedEpisode,
    PendingQuestion,
    RemoteOrchestratorModel,
    Withdrawn,
)
from crucible_worker.engine.caller_models import CallerConnection
from crucible_worker.evaluations import Evaluations
from crucible_worker.rpc.offload import Offload
from crucible_worker.util.limits import WorkerLimits

__all__ = ["Frames", "Requests", "evaluate_held"]

Requests = AsyncIterator[pb.EvaluateWithOrchestratorModelRequest]
Frames = AsyncGenerator[pb.EvaluateWithOrchestratorModelResponse, None]

_log = structlog.get_logger(__name__)


async def evaluate_held(evaluations: Evaluations, limits: WorkerLimits, offload: Offload, requests: Requests) -> Frames:
    """Run an evaluation on what the caller has until it ends, or until the caller disconnects, which interrupts it.

    Raises:
        BridgeError: see the service's documentation of the call.
    """
    start = await _start(requests)
    window = min(start.window, limits.max_orchestrator_window)
    session = CallerSession(window)
    caller = Caller(session, model=_model(start, session), graders=start.graders, environments=start.environments)
    try:
        hold = await evaluations.connect_caller(_within(start.request, window, limits), caller)
    except BaseException:
        # Questions of an attempt that is still running get this error.
        session.close()
        raise
    listening = asyncio.create_task(_listen(requests, session, hold, offload), name="orchestrator-answers")
    ended = asyncio.create_task(hold.ended(), name="orchestrator-end")
    ended.add_done_callback(functools.partial(_close, session))
    try:
        accepted = HeldAccepted(evaluation=hold.evaluation, existed=hold.existed, window=window)
        yield pb.EvaluateWithOrchestratorModelResponse(accepted=accepted_to_v1(accepted))
        async for frame in session.frames():
            if (message := _frame(session, frame)) is not None:
                yield message
        if listening.done():
            listening.result()  # raises a bug there as an error of this call
        result = HeldEnded(evaluation=await ended, ignored_answers=session.ignored)
        yield pb.EvaluateWithOrchestratorModelResponse(ended=ended_to_v1(result))
    finally:
        # Before the session is closed: questions that fail because of that must not become results.
        hold.leave()
        session.close()
        listening.cancel()
        ended.cancel()
        if session.ignored:
            _log.warning("answers_ignored", count=session.ignored)


def _close(session: CallerSession, ended: asyncio.Task[Evaluation]) -> None:
    """Close the session; retrieve the result, so that asyncio logs no error."""
    session.close()
    if not ended.cancelled():
        ended.exception()


async def _start(requests: Requests) -> HeldStart:
    async for frame in requests:
        if frame.WhichOneof("frame") != "start":
            raise InvalidField("start", "is missing: the first frame must have it")
        return await asyncio.to_thread(start_from_v1, frame.start)
    raise InvalidField("start", "is missing: the stream ended without a frame")


async def _listen(requests: Requests, session: CallerSession, hold: CallerConnection, offload: Offload) -> None:
    """Pass answers on until the caller closes its side, which means that it leaves."""
    error: BridgeError | None = None
    try:
        async for frame in requests:
            if frame.WhichOneof("frame") != "answer":
                raise InvalidField("answer", "is missing: every frame except the first must have one")
            answer = await offload.run(frame.answer.ByteSize(), functools.partial(_answer, frame.answer))
            session.answer(frame.answer.id, answer)
        error = Cancelled("the sending side was closed before the evaluation had ended", reason=Reason.CALLER_LEFT)
    except BridgeError as refused:
        error = refused
    except grpc.aio.BaseError:
        error = Cancelled("the stream broke", reason=Reason.CALLER_LEFT)
    finally:
        hold.leave(error)


def _answer(message: orchestrator_pb2.OrchestratorAnswer) -> Answer:
    try:
        return answer_from_v1(message)
    except InvalidField as error:
        return Problem(
            reason=Reason.BACKEND_ANSWER, message=shorten(f"the answer is malformed: {error}", MAX_PROBLEM_BYTES)
        )


def _frame(
    session: CallerSession, frame: PendingQuestion | Withdrawn | ClosedEpisode
) -> pb.EvaluateWithOrchestratorModelResponse | None:
    """The message of a frame; None if the question cannot be encoded, such as text that is no Unicode."""
    if isinstance(frame, Withdrawn):
        return pb.EvaluateWithOrchestratorModelResponse(withdrawn=frame.id)
    if isinstance(frame, ClosedEpisode):
        return pb.EvaluateWithOrchestratorModelResponse(closed=frame.id)
    try:
        return pb.EvaluateWithOrchestratorModelResponse(question=question_to_v1(frame.id, frame.question))
    except InvalidField as error:
        session.answer(frame.id, problem_of(error))
        return None


def _within(request: EvaluateRequest, window: int, limits: WorkerLimits) -> EvaluateRequest:
    """Limit concurrent samples to the window of questions: waiting for the window would use up a sample's time."""
    wanted = request.limits.concurrency
    if wanted is not None and wanted > limits.max_concurrency:
        return request  # will be refused, as in other calls
    concurrency = min(window, limits.max_concurrency if wanted is None else wanted)
    return dataclasses.replace(request, limits=dataclasses.replace(request.limits, concurrency=concurrency))


def _model(start: HeldStart, session: CallerSession) -> RemoteOrchestratorModel | None:
    """The caller's model; None if the evaluated model is the worker's."""
    if not isinstance(start.request.model, OrchestratorModel):
        return None
    return RemoteOrchestratorModel(start.request.model.name, start.calls, session)
