"""EvaluateWithOrchestratorModel: frames in, frames out, and between them an evaluation that asks its caller."""

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
from crucible_worker.backends.orchestrator import HeldModel, PendingQuestion, Session, Withdrawn
from crucible_worker.limits import WorkerLimits
from crucible_worker.runs.evaluations import Evaluations
from crucible_worker.runs.held import Hold

__all__ = ["Frames", "Requests", "evaluate_held"]

Requests = AsyncIterator[pb.EvaluateWithOrchestratorModelRequest]
Frames = AsyncGenerator[pb.EvaluateWithOrchestratorModelResponse, None]

_log = structlog.get_logger(__name__)


async def evaluate_held(evaluations: Evaluations, limits: WorkerLimits, requests: Requests) -> Frames:
    """Run an evaluation on the caller's model, to its end, or until the caller leaves: that interrupts it.

    Raises:
        BridgeError: see the service's documentation of the call.
    """
    start = await _start(requests)
    window = min(start.window, limits.max_orchestrator_window)
    session = Session(window)
    model = HeldModel(_name(start.request), start.calls, session)
    try:
        hold = await evaluations.hold(_within(start.request, window, limits), model)
    except BaseException:
        # Whatever may still be on its way to an attempt is told so.
        session.close()
        raise
    listening = asyncio.create_task(_listen(requests, session, hold), name="orchestrator-answers")
    ended = asyncio.create_task(hold.ended(), name="orchestrator-end")
    ended.add_done_callback(functools.partial(_over, session))
    try:
        accepted = HeldAccepted(evaluation=hold.evaluation, existed=hold.existed, window=window)
        yield pb.EvaluateWithOrchestratorModelResponse(accepted=accepted_to_v1(accepted))
        async for frame in session.frames():
            if (message := _frame(session, frame)) is not None:
                yield message
        if listening.done():
            listening.result()  # a bug there is one of this call
        result = HeldEnded(evaluation=await ended, ignored_answers=session.ignored)
        yield pb.EvaluateWithOrchestratorModelResponse(ended=ended_to_v1(result))
    finally:
        # Before the session is closed: questions that fail for that are no results.
        hold.leave()
        session.close()
        listening.cancel()
        ended.cancel()
        if session.ignored:
            _log.warning("answers_ignored", count=session.ignored)


def _over(session: Session, ended: asyncio.Task[Evaluation]) -> None:
    """Nothing more is asked; how it ended may be of no interest any more to anybody."""
    session.close()
    if not ended.cancelled():
        ended.exception()


async def _start(requests: Requests) -> HeldStart:
    async for frame in requests:
        if frame.WhichOneof("frame") != "start":
            raise InvalidField("start", "is missing: the first frame must hold it")
        return await asyncio.to_thread(start_from_v1, frame.start)
    raise InvalidField("start", "is missing: the stream ended without a frame")


async def _listen(requests: Requests, session: Session, hold: Hold) -> None:
    """Hand answers on until the caller has no more to say, which is that it leaves."""
    error: BridgeError | None = None
    try:
        async for frame in requests:
            if frame.WhichOneof("frame") != "answer":
                raise InvalidField("answer", "is missing: every frame but the first must hold one")
            session.answer(frame.answer.id, _answer(frame.answer))
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


def _frame(session: Session, frame: PendingQuestion | Withdrawn) -> pb.EvaluateWithOrchestratorModelResponse | None:
    """The message of a frame; None of a question that none can hold, such as text that is no Unicode."""
    if isinstance(frame, Withdrawn):
        return pb.EvaluateWithOrchestratorModelResponse(withdrawn=frame.id)
    try:
        return pb.EvaluateWithOrchestratorModelResponse(question=question_to_v1(frame.id, frame.question))
    except InvalidField as error:
        session.answer(frame.id, problem_of(error))
        return None


def _within(request: EvaluateRequest, window: int, limits: WorkerLimits) -> EvaluateRequest:
    """No more samples at once than questions: what waits for the window would use up its sample's time."""
    wanted = request.limits.concurrency
    if wanted is not None and wanted > limits.max_concurrency:
        return request  # to be refused, as anywhere
    concurrency = min(window, limits.max_concurrency if wanted is None else wanted)
    return dataclasses.replace(request, limits=dataclasses.replace(request.limits, concurrency=concurrency))


def _name(request: EvaluateRequest) -> str:
    assert isinstance(request.model, OrchestratorModel)  # as `start_from_v1` has seen to
    return request.model.name
