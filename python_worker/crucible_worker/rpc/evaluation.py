"""EvaluationService: decode, call, encode; with the stream in both directions of evaluations that ask their caller."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable

import grpc
import grpc.aio
import structlog

from crucible_bridge.codec.comparisons import compare_request_from_v1, evaluation_comparison_to_v1
from crucible_bridge.codec.data import sample_to_v1
from crucible_bridge.codec.datasets import dataset_from_v1
from crucible_bridge.codec.evaluation import evaluate_request_from_v1, evaluator_info_to_v1, report_format_from_v1
from crucible_bridge.codec.events import with_sample_result
from crucible_bridge.codec.fields import at_least, at_most_bytes, at_most_count
from crucible_bridge.codec.generated import model_ref_from_v1
from crucible_bridge.codec.orchestrator import (
    accepted_to_v1,
    answer_from_v1,
    ended_to_v1,
    question_to_v1,
    start_from_v1,
)
from crucible_bridge.codec.outcomes import problem_to_v1
from crucible_bridge.codec.plans import evaluation_plan_from_v1
from crucible_bridge.codec.results import evaluation_to_v1, sample_result_to_v1, states_from_v1, verdicts_from_v1
from crucible_bridge.errors import BridgeError, Cancelled, InvalidField
from crucible_bridge.problems import MAX_PROBLEM_BYTES, problem_of, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Answer,
    EvaluateRequest,
    Evaluation,
    EvaluatorInfo,
    FindSamplesRequest,
    FindSamplesResponse,
    FollowRunRequest,
    FollowRunResponse,
    GateRequest,
    GateResponse,
    HeldAccepted,
    HeldEnded,
    HeldStart,
    ListRunsRequest,
    ListRunsResponse,
    Metrics,
    OrchestratorModel,
    PauseEvaluationRequest,
    PauseEvaluationResponse,
    Problem,
    RenderSampleRequest,
    RenderSampleResponse,
    ResumeEvaluationRequest,
    ResumeEvaluationResponse,
    SetEvaluationConcurrencyRequest,
    SetEvaluationConcurrencyResponse,
    UnfollowRunRequest,
    UnfollowRunResponse,
    bounds,
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
from crucible_worker.datasets.loading import LoadedDataset, MalformedSample
from crucible_worker.engine.caller_models import CallerConnection
from crucible_worker.evaluations import Evaluations
from crucible_worker.planning.follow.follows import Follows
from crucible_worker.planning.plans import EvaluationPlans
from crucible_worker.reports.writing import MAX_SAMPLES, ReportRequest
from crucible_worker.rpc import registration
from crucible_worker.rpc.calls import Context, Encoded
from crucible_worker.rpc.offload import Offload
from crucible_worker.rpc.telemetry import encoded_page
from crucible_worker.telemetry import bind_contextvars
from crucible_worker.util.limits import WorkerLimits

__all__ = ["BATCH_BYTES", "BATCH_SAMPLES", "EvaluationService", "Frames", "Requests", "evaluate_held"]

# EvaluateWithOrchestratorModel: a stream in both directions, and an evaluation that asks its caller.

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


# Decodes requests of GenerateReport.

_EITHER = "evaluation_ids, run_id or metrics"


def report_request(request: pb.GenerateReportRequest) -> ReportRequest:
    """Decode a request.

    Raises:
        InvalidField: a field is wrong, or not one of evaluation_ids, run_id and metrics is given.
    """
    given = [name for name in ("evaluation_ids", "run_id", "metrics") if getattr(request, name)]
    if not given:
        raise InvalidField("evaluation_ids", f"is empty: give one of {_EITHER}")
    if len(given) > 1:
        raise InvalidField(given[1], f"is given together with {given[0]}: give only one of {_EITHER}")
    at_least(request.max_samples, bounds.GENERATE_REPORT_REQUEST_MAX_SAMPLES_LEAST, "max_samples")
    at_most_bytes(request.title, bounds.GENERATE_REPORT_REQUEST_TITLE_MAX_BYTES, "title")
    at_most_count(request.metrics, bounds.GENERATE_REPORT_REQUEST_METRICS_MAX_COUNT, "metrics")
    for key in request.metrics:
        at_most_bytes(key, bounds.GENERATE_REPORT_REQUEST_METRICS_MAX_BYTES, "metrics")
    return ReportRequest(
        report_format=report_format_from_v1(request.format, "format"),
        evaluation_ids=tuple(request.evaluation_ids),
        run_id=request.run_id or None,
        metrics=Metrics.of(dict(sorted(request.metrics.items()))) if request.metrics else None,
        title=request.title,
        max_samples=request.max_samples or MAX_SAMPLES,
    )


EVALUATIONS_DEFAULT, EVALUATIONS_MAX = 100, bounds.LIST_EVALUATIONS_REQUEST_PAGE_SIZE_MOST
"""Page size of ListEvaluations: the default, and the largest."""

SAMPLES_DEFAULT, SAMPLES_MAX = 1_000, bounds.GET_SAMPLES_REQUEST_PAGE_SIZE_MOST
"""Page size of GetSamples: the default, and the largest."""


BATCH_SAMPLES = 1_000
"""Most samples in a message of ReadDataset."""
BATCH_BYTES = 8 * 1024 * 1024
"""Such a message ends with the sample that exceeds this size: one sample is far below the limit of messages."""
_REPORT_FRAME_BYTES = 1024
"""Most bytes of a message besides its report; a tool's message is JSON."""
_FRAME_BYTES = 6
"""Most bytes of an embedded message besides its own."""


class EvaluationService:
    """Evaluations, over the wire."""

    def __init__(
        self,
        evaluations: Evaluations,
        plans: EvaluationPlans,
        follows: Follows,
        evaluators: Callable[[], Iterable[EvaluatorInfo]],
        limits: WorkerLimits,
        offload: Offload,
    ) -> None:
        """Serve these evaluations, plans and followed runs, within the worker's limits.

        Args:
            evaluations: all of the journal.
            plans: its plans.
            follows: its followed runs.
            evaluators: lists the kinds of evaluators.
            limits: the worker's.
            offload: decodes large requests: a hundred thousand inline samples take a second.
        """
        self._evaluations, self._evaluators, self._limits = evaluations, evaluators, limits
        self._plans, self._follows, self._offload = plans, follows, offload

    def handler(self) -> grpc.GenericRpcHandler:
        """The handler for a server."""
        return registration.registered(
            pb.DESCRIPTOR.services_by_name["EvaluationService"],
            {
                "ListEvaluators": registration.over_messages(self._list_evaluators),
                "Evaluate": registration.over_messages(self._evaluate),
                "StartEvaluation": registration.over_messages(self._start_evaluation),
                "EvaluateWithOrchestratorModel": registration.over_messages(self._evaluate_with_orchestrator_model),
                "WatchEvaluation": registration.over_messages(self._watch_evaluation),
                "GetEvaluation": registration.over_messages(self._get_evaluation),
                "ListEvaluations": registration.over_messages(self._list_evaluations),
                "GetSamples": registration.over_messages(self._get_samples),
                "FindSamples": registration.over_types(self._find_samples, self._offload),
                "CancelEvaluation": registration.over_messages(self._cancel_evaluation),
                "PauseEvaluation": registration.over_types(self._pause_evaluation, self._offload),
                "ResumeEvaluation": registration.over_types(self._resume_evaluation, self._offload),
                "SetEvaluationConcurrency": registration.over_types(self._set_evaluation_concurrency, self._offload),
                "DeleteEvaluation": registration.over_messages(self._delete_evaluation),
                "ListRuns": registration.over_types(self._list_runs, self._offload),
                "GenerateReport": registration.over_messages(self._generate_report),
                "RenderSample": registration.over_types(self._render_sample, self._offload),
                "CompareEvaluations": registration.over_messages(self._compare_evaluations),
                "Gate": registration.over_types(self._gate, self._offload),
                "RegisterPlan": registration.over_messages(self._register_plan),
                "NotifyStep": registration.over_messages(self._notify_step),
                "FollowRun": registration.over_types(self._follow_run, self._offload),
                "UnfollowRun": registration.over_types(self._unfollow_run, self._offload),
                "ReadDataset": registration.over_messages(self._read_dataset),
            },
        )

    async def _list_evaluators(self, request: pb.ListEvaluatorsRequest, context: Context) -> pb.ListEvaluatorsResponse:
        """List evaluators."""
        infos = await asyncio.to_thread(lambda: tuple(self._evaluators()))
        return pb.ListEvaluatorsResponse(evaluators=[evaluator_info_to_v1(info) for info in infos])

    async def _evaluate(self, request: pb.EvaluateRequest, context: Context) -> pb.EvaluateResponse:
        """Run to the end."""
        evaluation = await self._evaluations.evaluate(await _decoded(request, self._offload))
        return pb.EvaluateResponse(evaluation=evaluation_to_v1(evaluation))

    async def _start_evaluation(
        self, request: pb.StartEvaluationRequest, context: Context
    ) -> pb.StartEvaluationResponse:
        """Start, or resume."""
        evaluation, existed = await self._evaluations.start(await _decoded(request.request, self._offload))
        return pb.StartEvaluationResponse(evaluation=evaluation_to_v1(evaluation), existed=existed)

    def _evaluate_with_orchestrator_model(self, request_iterator: Requests, context: Context) -> Frames:
        """Run to the end on the caller's model."""
        return evaluate_held(self._evaluations, self._limits, self._offload, request_iterator)

    async def _watch_evaluation(self, request: pb.WatchEvaluationRequest, context: Context) -> AsyncIterator[Encoded]:
        """Stream its events until it ends."""
        pages = self._evaluations.watch(
            _named(request.evaluation_id),
            after_sequence=request.after_sequence,
            log_id=request.log_id,
            without_samples=request.without_samples,
            new_kinds=request.new_kinds,
            attach=with_sample_result if request.records else None,
            pack=encoded_page,
        )
        async for batch in pages:
            yield batch

    async def _get_evaluation(self, request: pb.GetEvaluationRequest, context: Context) -> pb.GetEvaluationResponse:
        """Return its current state."""
        evaluation = await self._evaluations.get(_named(request.evaluation_id))
        return pb.GetEvaluationResponse(evaluation=evaluation_to_v1(evaluation))

    async def _list_evaluations(self, request: pb.ListEvaluationsRequest, context: Context) -> Encoded:
        """List evaluations, newest first."""
        evaluations, token = await self._evaluations.list(
            run_id=request.run_id if request.HasField("run_id") else None,
            states=states_from_v1(request.states, "states"),
            from_step=request.from_step if request.HasField("from_step") else None,
            to_step=request.to_step if request.HasField("to_step") else None,
            page_size=_page_size(request.page_size, EVALUATIONS_DEFAULT, EVALUATIONS_MAX),
            page_token=request.page_token,
        )
        return await asyncio.to_thread(
            lambda: pb.ListEvaluationsResponse(
                evaluations=[evaluation_to_v1(one) for one in evaluations], next_page_token=token
            ).SerializeToString()
        )

    async def _get_samples(self, request: pb.GetSamplesRequest, context: Context) -> Encoded:
        """List the results of its samples."""
        samples, token = await self._evaluations.samples(
            _named(request.evaluation_id),
            verdicts=verdicts_from_v1(request.verdicts, "verdicts"),
            evaluator=request.evaluator if request.HasField("evaluator") else None,
            page_size=_page_size(request.page_size, SAMPLES_DEFAULT, SAMPLES_MAX),
            page_token=request.page_token,
            records=not request.without_records,
        )
        # In a thread: ten thousand samples would block the event loop for a tenth of a second.
        return await asyncio.to_thread(
            lambda: pb.GetSamplesResponse(
                samples=[sample_result_to_v1(one) for one in samples], next_page_token=token
            ).SerializeToString()
        )

    async def _find_samples(self, request: FindSamplesRequest) -> FindSamplesResponse:
        """Look for results of its samples."""
        return await self._evaluations.find_samples(request)

    async def _cancel_evaluation(
        self, request: pb.CancelEvaluationRequest, context: Context
    ) -> pb.CancelEvaluationResponse:
        """End it early."""
        evaluation = await self._evaluations.cancel(_named(request.evaluation_id), request.reason)
        return pb.CancelEvaluationResponse(evaluation=evaluation_to_v1(evaluation))

    async def _pause_evaluation(self, request: PauseEvaluationRequest) -> PauseEvaluationResponse:
        """Let no further sample begin."""
        bind_contextvars(evaluation_id=request.evaluation_id)
        return PauseEvaluationResponse(evaluation=await self._evaluations.pause(request.evaluation_id))

    async def _resume_evaluation(self, request: ResumeEvaluationRequest) -> ResumeEvaluationResponse:
        """End its pause."""
        bind_contextvars(evaluation_id=request.evaluation_id)
        bounds = {
            field.name: value
            for field in dataclasses.fields(request)
            if field.name != "evaluation_id" and (value := getattr(request, field.name)) is not None
        }
        return ResumeEvaluationResponse(evaluation=await self._evaluations.resume(request.evaluation_id, bounds))

    async def _set_evaluation_concurrency(
        self, request: SetEvaluationConcurrencyRequest
    ) -> SetEvaluationConcurrencyResponse:
        """Set how many samples may be at work at once."""
        bind_contextvars(evaluation_id=request.evaluation_id)
        evaluation = await self._evaluations.set_concurrency(request.evaluation_id, request.concurrency)
        return SetEvaluationConcurrencyResponse(evaluation=evaluation)

    async def _delete_evaluation(
        self, request: pb.DeleteEvaluationRequest, context: Context
    ) -> pb.DeleteEvaluationResponse:
        """Remove it."""
        evaluation = await self._evaluations.delete(_named(request.evaluation_id))
        return pb.DeleteEvaluationResponse(evaluation=evaluation_to_v1(evaluation))

    async def _list_runs(self, request: ListRunsRequest) -> ListRunsResponse:
        """List runs, or the checkpoints of one."""
        return await self._evaluations.registry.list(request)

    async def _generate_report(self, request: pb.GenerateReportRequest, context: Context) -> Encoded:
        """Write a report of evaluations, of a run, or of numbers."""
        room = self._limits.max_message_bytes - _REPORT_FRAME_BYTES
        report = await self._evaluations.report(report_request(request), max_bytes=room)
        # In a thread: an HTML report may be as large as a message.
        return await asyncio.to_thread(lambda: pb.GenerateReportResponse(report=report).SerializeToString())

    async def _render_sample(self, request: RenderSampleRequest) -> RenderSampleResponse:
        """Show the prompt that the model would get."""
        return await self._evaluations.render(request.request, request.sample_id)

    async def _compare_evaluations(
        self, request: pb.CompareEvaluationsRequest, context: Context
    ) -> pb.CompareEvaluationsResponse:
        """Compare them."""
        comparison = await self._evaluations.comparisons.compare(compare_request_from_v1(request))
        # In a thread: a hundred evaluations with a thousand changes each take a while.
        return await asyncio.to_thread(evaluation_comparison_to_v1, comparison)

    async def _gate(self, request: GateRequest) -> GateResponse:
        """Decide by a policy."""
        return await self._evaluations.comparisons.gate(request)

    async def _register_plan(self, request: pb.RegisterPlanRequest, context: Context) -> pb.RegisterPlanResponse:
        """Record a plan."""
        if not request.HasField("plan"):
            raise InvalidField("plan", "is not given")
        bind_contextvars(plan_id=request.plan.plan_id, run_id=request.plan.run_id)
        # In a thread: there may be many inline samples.
        fingerprint, existed = await self._plans.register(
            await asyncio.to_thread(evaluation_plan_from_v1, request.plan)
        )
        return pb.RegisterPlanResponse(fingerprint=fingerprint, existed=existed)

    async def _notify_step(self, request: pb.NotifyStepRequest, context: Context) -> pb.NotifyStepResponse:
        """Start what is due."""
        if not request.plan_id:
            raise InvalidField("plan_id", "is empty")
        bind_contextvars(plan_id=request.plan_id, step=request.step)
        at_least(request.step, 0, "step")
        if not request.HasField("model"):
            raise InvalidField("model", "is not given")
        found = await self._plans.notify(
            request.plan_id, request.step, model_ref_from_v1(request.model, "model"), last=request.last
        )
        return pb.NotifyStepResponse(
            evaluations=[
                pb.StartEvaluationResponse(evaluation=evaluation_to_v1(evaluation), existed=existed)
                for evaluation, existed in found
            ]
        )

    async def _follow_run(self, request: FollowRunRequest) -> FollowRunResponse:
        """Follow a directory of checkpoints."""
        bind_contextvars(run_id=request.run_id)
        return await self._follows.follow_run(request)

    async def _unfollow_run(self, request: UnfollowRunRequest) -> UnfollowRunResponse:
        """Follow it no longer."""
        bind_contextvars(run_id=request.run_id)
        return UnfollowRunResponse(followed=await self._follows.end(request.run_id))

    async def _read_dataset(self, request: pb.ReadDatasetRequest, context: Context) -> AsyncIterator[Encoded]:
        """Stream its samples, batch by batch."""
        if not request.HasField("dataset"):
            raise InvalidField("dataset", "is not given")
        at_least(request.offset, 0, "offset")
        if request.HasField("limit"):
            at_least(request.limit, 1, "limit")
        # In threads: there may be many inline samples in the request, and many samples in a batch.
        dataset = await asyncio.to_thread(dataset_from_v1, request.dataset, "dataset")
        loaded = await self._evaluations.read_dataset(dataset)
        total = len(loaded.samples)
        end = min(total, request.offset + request.limit) if request.HasField("limit") else total
        start = min(request.offset, end)
        while True:
            batch, start = await asyncio.to_thread(_batch, loaded, start, end)
            yield batch
            if start >= end:
                return


async def _decoded(message: pb.EvaluateRequest, offload: Offload) -> EvaluateRequest:
    """Decode the message that Evaluate and StartEvaluation share; in both, paths begin at its fields."""
    names = {name: getattr(message, name) for name in ("evaluation_id", "run_id", "correlation_id")}
    bind_contextvars(**{name: value for name, value in names.items() if value})
    return await offload.run(message.ByteSize(), lambda: evaluate_request_from_v1(message))


def _named(evaluation_id: str) -> str:
    if not evaluation_id:
        raise InvalidField("evaluation_id", "is empty")
    bind_contextvars(evaluation_id=evaluation_id)
    return evaluation_id


def _batch(loaded: LoadedDataset, start: int, end: int) -> tuple[bytes, int]:
    """The next samples as a message, and the index of the sample after them."""
    message = pb.ReadDatasetResponse(total=len(loaded.samples), dataset_fingerprint=loaded.fingerprint)
    size, index = 0, start
    while index < min(end, start + BATCH_SAMPLES) and size < BATCH_BYTES:
        sample = loaded.samples[index]
        if isinstance(sample, MalformedSample):
            skipped = pb.SkippedLine(id=sample.id, index=index, problem=problem_to_v1(sample.problem))
            message.skipped.append(skipped)
            size += skipped.ByteSize() + _FRAME_BYTES
        else:
            encoded = sample_to_v1(sample)
            message.samples.append(encoded)
            size += encoded.ByteSize() + _FRAME_BYTES
        index += 1
    return message.SerializeToString(), index


def _page_size(asked: int, default: int, largest: int) -> int:
    """The page size to use: the default for 0, the value of an unset field.

    Raises:
        InvalidField: it is negative or too large.
    """
    if not 0 <= asked <= largest:
        raise InvalidField("page_size", f"is {asked}, must be within 1 and {largest:,}, or 0 for {default:,}")
    return asked or default
