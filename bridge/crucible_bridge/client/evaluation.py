"""EvaluationService, typed."""

# The timeout is not measured here: it travels to the worker as gRPC's deadline.
# ruff: noqa: ASYNC109

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Unpack

from crucible_bridge.client.caller_parts import EnvironmentFactory, GraderFunction
from crucible_bridge.client.calls import Calls, all_items
from crucible_bridge.client.comparisons import ComparisonCalls
from crucible_bridge.client.datasets import DatasetCalls
from crucible_bridge.client.orchestrator import DEFAULT_WINDOW, evaluate_here
from crucible_bridge.client.patience import DEFAULT_PATIENCE_SECONDS
from crucible_bridge.client.plain_calls import PlainEvaluationCalls
from crucible_bridge.client.plans import PlanCalls, StartedEvaluation
from crucible_bridge.client.request_fields import EvaluateFields, FieldsButModel
from crucible_bridge.client.requests import request_of
from crucible_bridge.client.streams import EventStream
from crucible_bridge.codec.evaluation import evaluate_request_to_v1, report_format_to_v1
from crucible_bridge.codec.fields import made, sendable, several
from crucible_bridge.codec.results import evaluation_from_v1, sample_result_from_v1, state_to_v1, verdict_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    EvaluateRequest,
    Evaluation,
    EvaluationState,
    ModelRef,
    OrchestratorModel,
    ReportFormat,
    SampleResult,
    Verdict,
)
from crucible_bridge.v1 import evaluation_pb2, evaluation_pb2_grpc

__all__ = ["EvaluationClient", "EvaluationPage", "SamplePage", "request_of"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPage:
    """Some evaluations."""

    items: tuple[Evaluation, ...]
    """The evaluations, newest first."""
    next_page_token: str
    """Where the next page begins; empty at the end."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SamplePage:
    """Some samples of an evaluation."""

    items: tuple[SampleResult, ...]
    """The results, in the data set's order."""
    next_page_token: str
    """Where the next page begins; empty at the end."""


class EvaluationClient(PlainEvaluationCalls, ComparisonCalls, DatasetCalls, PlanCalls):
    """Durable evaluations: start, watch, read, cancel."""

    def __init__(self, calls: Calls) -> None:
        super().__init__(calls, evaluation_pb2_grpc.EvaluationServiceStub(calls.channel))

    async def evaluate(
        self,
        request: EvaluateRequest | None = None,
        /,
        *,
        timeout: float | None = None,
        **fields: Unpack[EvaluateFields],
    ) -> Evaluation:
        """Run an evaluation to its end.

        A client of several workers resumes it at another worker, under the same id, if its worker stops.

        Args:
            request: what to run, or None with its fields as keywords; keywords replace fields of a given request.
            timeout: seconds to wait for the end; the evaluation itself is bounded by `limits.deadline_ms` alone.
            **fields: see `request_of`.

        Raises:
            BridgeError: it was refused, or the wait ended; DeadlineExceeded has the `evaluation_id` in its metadata.
        """
        asked = self._identified(request_of(request, **fields))
        message = evaluate_request_to_v1(asked)
        return await self._calls.repeatable(self._stub.Evaluate, message, _evaluation, timeout)

    async def evaluate_with_orchestrator_model(
        self,
        request: EvaluateRequest | None = None,
        /,
        *,
        model: object | None = None,
        name: str | None = None,
        graders: Mapping[str, GraderFunction] | None = None,
        environments: Mapping[str, EnvironmentFactory] | None = None,
        window: int = DEFAULT_WINDOW,
        patience: float = DEFAULT_PATIENCE_SECONDS,
        **fields: Unpack[FieldsButModel],
    ) -> Evaluation:
        """Run an evaluation to its end on what this process has: a model, graders, environments.

        The worker asks over the stream. With graders or environments, the model may be any of the worker's.

        The evaluation is interrupted when the caller leaves. A stream that breaks is opened again, and the evaluation
        resumes. A later call with the same `evaluation_id` resumes it too, at any worker of the journal.

        Args:
            request: what to run, or None with its fields as keywords.
            model: any object with `sample`, `compute_logprobs`, `compute_argmax` or `forward`, see
                `crucible_bridge.client.Answerer`; or one of the worker's, as in `evaluate`; or None for the request's
                model.
            name: the name of a model of this process; another checkpoint needs another name. None for the request's
                model.
            graders: by name, functions that grade an answer; an evaluator names one in its option `grader` as
                "caller:NAME", or as "caller" if there is only one.
            environments: by name, functions that make the environment of an episode; `rl_test_set` names one in its
                option `environment` likewise.
            window: questions at once, at most. As many samples are in flight, unless `limits.concurrency` is less.
            patience: seconds to keep trying when a stream breaks, or cannot be opened.
            **fields: see `request_of`; `model` excepted.

        Raises:
            BridgeError: it was refused, the worker did not come back, or another stream took over (TAKEN_OVER).
        """
        stub = self._stub.EvaluateWithOrchestratorModel
        if isinstance(model, str | ModelRef):
            if name is not None:
                raise InvalidField("name", "is for a model of this process, and `model` is one of the worker's")
            asked, model = request_of(request, **fields, model=model), None
        elif name is None:
            asked = request_of(request, **fields)
        else:
            asked = request_of(request, **fields, model=OrchestratorModel(name))
        return await evaluate_here(
            self._calls,
            stub,
            asked,
            model,
            graders=graders or {},
            environments=environments or {},
            window=window,
            patience=patience,
        )

    async def start_evaluation(
        self,
        request: EvaluateRequest | None = None,
        /,
        *,
        timeout: float | None = None,
        **fields: Unpack[EvaluateFields],
    ) -> StartedEvaluation:
        """Start an evaluation that outlives the call, or resume the one of the same id.

        Args:
            request: as for `evaluate`.
            timeout: seconds for the call.
            **fields: see `request_of`.

        Raises:
            AlreadyExists: the id belongs to another specification.
        """
        asked = self._identified(request_of(request, **fields))
        message = evaluation_pb2.StartEvaluationRequest(request=evaluate_request_to_v1(asked))
        return await self._calls.repeatable(
            self._stub.StartEvaluation,
            message,
            lambda reply: StartedEvaluation(evaluation=_evaluation(reply), existed=reply.existed),
            timeout,
        )

    def watch_evaluation(
        self,
        evaluation_id: str,
        after_sequence: int = 0,
        log_id: str | None = None,
        without_samples: bool = False,
        records: bool = False,
    ) -> EventStream:
        """Its events after a sequence, until it ends; kinds that this version does not know are skipped.

        Args:
            evaluation_id: which.
            after_sequence: 0 for its first event.
            log_id: the log that this sequence belongs to; unchecked if None.
            without_samples: leave out SAMPLE_COMPLETE.
            records: send the result of each sample with its SAMPLE_COMPLETE, as `sample_result`.
        """
        request = made(
            evaluation_pb2.WatchEvaluationRequest,
            "",
            evaluation_id=evaluation_id,
            after_sequence=after_sequence,
            without_samples=without_samples,
            log_id=log_id or "",
            new_kinds=True,
            records=records,
        )
        return self._calls.events(
            self._stub.WatchEvaluation, request, after_sequence=after_sequence, log_id=log_id or ""
        )

    async def list_evaluations(
        self,
        *,
        run_id: str | None = None,
        states: Sequence[EvaluationState] = (),
        from_step: int | None = None,
        to_step: int | None = None,
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
    ) -> EvaluationPage:
        """A page of evaluations, newest first.

        Args:
            run_id: only this run.
            states: only these; all if empty.
            from_step: from this step.
            to_step: to this step.
            page_size: at most so many; the worker's default if 0.
            page_token: from the page before.
            timeout: seconds for the call.
        """
        with sendable("states"):
            wanted = [state_to_v1(EvaluationState(state)) for state in several(states, "states")]
        request = made(
            evaluation_pb2.ListEvaluationsRequest,
            "",
            run_id=run_id,
            states=wanted,
            from_step=from_step,
            to_step=to_step,
            page_size=page_size,
            page_token=page_token,
        )
        return await self._calls.unary(
            self._stub.ListEvaluations,
            request,
            lambda reply: EvaluationPage(
                items=tuple(
                    evaluation_from_v1(evaluation, f"evaluations[{index}]")
                    for index, evaluation in enumerate(reply.evaluations)
                ),
                next_page_token=reply.next_page_token,
            ),
            timeout,
        )

    def all_evaluations(
        self,
        *,
        run_id: str | None = None,
        states: Sequence[EvaluationState] = (),
        from_step: int | None = None,
        to_step: int | None = None,
        page_size: int = 0,
        timeout: float | None = None,
    ) -> AsyncIterator[Evaluation]:
        """Every evaluation of every page; same arguments as `list_evaluations`, except `page_token`."""
        return all_items(
            lambda token: self.list_evaluations(
                run_id=run_id,
                states=states,
                from_step=from_step,
                to_step=to_step,
                page_size=page_size,
                page_token=token,
                timeout=timeout,
            )
        )

    async def get_samples(
        self,
        evaluation_id: str,
        *,
        verdicts: Sequence[Verdict] = (),
        evaluator: str | None = None,
        without_records: bool = False,
        page_size: int = 0,
        page_token: str = "",
        timeout: float | None = None,
    ) -> SamplePage:
        """A page of the samples' results, in the data set's order.

        Args:
            evaluation_id: which.
            verdicts: only these; all if empty.
            evaluator: only this one: its name, or its kind if it has no name.
            without_records: leave out `sample`, `prompt` and `turns`.
            page_size: at most so many; the worker's default if 0.
            page_token: from the page before.
            timeout: seconds for the call.
        """
        with sendable("verdicts"):
            wanted = [verdict_to_v1(Verdict(verdict)) for verdict in verdicts]
        request = made(
            evaluation_pb2.GetSamplesRequest,
            "",
            evaluation_id=evaluation_id,
            verdicts=wanted,
            evaluator=evaluator,
            without_records=without_records,
            page_size=page_size,
            page_token=page_token,
        )
        return await self._calls.unary(
            self._stub.GetSamples,
            request,
            lambda reply: SamplePage(
                items=tuple(
                    sample_result_from_v1(sample, f"samples[{index}]") for index, sample in enumerate(reply.samples)
                ),
                next_page_token=reply.next_page_token,
            ),
            timeout,
        )

    def all_samples(
        self,
        evaluation_id: str,
        *,
        verdicts: Sequence[Verdict] = (),
        evaluator: str | None = None,
        without_records: bool = False,
        page_size: int = 0,
        timeout: float | None = None,
    ) -> AsyncIterator[SampleResult]:
        """Every sample of every page; same arguments as `get_samples`, except `page_token`."""
        return all_items(
            lambda token: self.get_samples(
                evaluation_id,
                verdicts=verdicts,
                evaluator=evaluator,
                without_records=without_records,
                page_size=page_size,
                page_token=token,
                timeout=timeout,
            )
        )

    async def generate_report(
        self,
        evaluation_ids: str | Sequence[str] = (),
        report_format: ReportFormat = ReportFormat.MARKDOWN,
        *,
        run_id: str = "",
        metrics: Mapping[str, float] | None = None,
        title: str = "",
        max_samples: int = 0,
        timeout: float | None = None,
    ) -> str:
        """A report of one evaluation, of several, of a run, or of separate numbers.

        Args:
            evaluation_ids: these evaluations, in this order. Either these, or `run_id`, or `metrics`.
            report_format: its format.
            run_id: all evaluations of this run, by step.
            metrics: results that belong to no evaluation.
            title: its title; if empty, the evaluations or the run.
            max_samples: most samples in HTML, of all evaluations together; 20,000 if 0.
            timeout: seconds for the call.

        Raises:
            BridgeError: the call failed.
        """
        ids = [evaluation_ids] if isinstance(evaluation_ids, str) else several(evaluation_ids, "evaluation_ids")
        with sendable("report_format"):
            form = report_format_to_v1(ReportFormat(report_format))
        request = made(
            evaluation_pb2.GenerateReportRequest,
            "",
            evaluation_ids=ids,
            format=form,
            run_id=run_id,
            metrics=metrics,
            title=title,
            max_samples=max_samples,
        )
        return await self._calls.unary(self._stub.GenerateReport, request, lambda reply: reply.report, timeout)

    def _identified(self, request: EvaluateRequest) -> EvaluateRequest:
        """The request; with an id made here if it may have to be sent again."""
        if request.evaluation_id or not self._calls.patience:
            return request
        return dataclasses.replace(request, evaluation_id=uuid.uuid4().hex)


def _evaluation(reply: Any) -> Evaluation:
    return evaluation_from_v1(reply.evaluation, "evaluation")
