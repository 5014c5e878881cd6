"""Every tool: the call that it stands for, how its parameters are read, and how its answer is written."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from crucible_bridge.idempotency import service_modules
from crucible_bridge.v1 import evaluation_pb2, events_pb2, grading_pb2, metrics_pb2, models_pb2, worker_pb2
from crucible_worker.snakepit.call_descriptions import CALL_DESCRIPTIONS
from crucible_worker.snakepit.parameters import Arguments
from crucible_worker.snakepit.results import Output, to_json
from crucible_worker.snakepit.tools_fields import fields_reader
from crucible_worker.snakepit.tools_metrics import columns_reader, write_penalty
from crucible_worker.snakepit.tools_trajectories import read_trajectories

__all__ = ["NO_TOOLS", "TOOLS", "Tool"]

NO_TOOLS: Mapping[str, str] = {
    "/crucible_bridge.v1.EvaluationService/EvaluateWithOrchestratorModel": "a tool cannot ask its caller back",
}
"""Calls that are no tools, and why."""

Names = Mapping[str, tuple[str, ...]]
"""By a name, other names for the same."""


def _write(arguments: Arguments, message: Any, output: Output) -> dict[str, Any]:
    return to_json(message, output)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A call as a tool."""

    name: str
    """What Snakepit calls it by."""
    path: str
    """The call: "/crucible_bridge.v1.MetricsService/ComputeMeanNLL"."""
    description: str
    """What it does, one sentence."""
    request: Any
    """The message that is asked."""
    response: Any
    """The message of the answer, or of each answer of a stream."""
    streams: bool
    """Whether it answers with a stream."""
    read: Callable[[Arguments], Any]
    """Makes the request of the parameters, or its bytes."""
    write: Callable[[Arguments, Any, Output], dict[str, Any]]
    """Makes plain values of an answer."""
    part: str
    """The field of the request whose fields the parameters are, where they are not its own."""
    names: Names
    """By field, other names for it."""
    single: tuple[str, ...]
    """Fields that hold lists, and take one value for a list of one."""
    arrays: Names
    """Parameters that are arrays of all sequences, and other names for them."""


def _tool(
    name: str,
    service: ServiceDescriptor,
    method: str,
    description: str,
    *,
    read: Callable[[Arguments], Any] | None = None,
    write: Callable[[Arguments, Any, Output], dict[str, Any]] = _write,
    part: str = "",
    names: Names | None = None,
    arrays: Names | None = None,
    single: tuple[str, ...] = (),
    correlated: bool = False,
) -> Tool:
    found = service.methods_by_name[method]
    request, names, arrays = GetMessageClass(found.input_type), names or {}, arrays or {}
    if read is None and arrays:
        read = columns_reader(request, arrays, names=names)
    return Tool(
        name=name,
        path=f"/{service.full_name}/{method}",
        description=description,
        request=request,
        response=GetMessageClass(found.output_type),
        streams=found.server_streaming,
        read=read or fields_reader(request, part=part, names=names, single=single, correlated=correlated),
        write=write,
        part=part,
        names=names,
        single=single,
        arrays=arrays,
    )


def _write_grades(arguments: Arguments, message: Any, output: Output) -> dict[str, Any]:
    """Write grades, each with the id of its item as it came: a number stays one."""
    value = to_json(message, output)
    for grade, given in zip(value["grades"], arguments.noted.get("ids", ())):
        grade["id"] = given
    return value


_EVALUATION = evaluation_pb2.DESCRIPTOR.services_by_name["EvaluationService"]
_METRICS = metrics_pb2.DESCRIPTOR.services_by_name["MetricsService"]
_GRADING = grading_pb2.DESCRIPTOR.services_by_name["GradingService"]
_MODELS = models_pb2.DESCRIPTOR.services_by_name["ModelService"]
_TELEMETRY = events_pb2.DESCRIPTOR.services_by_name["TelemetryService"]
_WORKER = worker_pb2.DESCRIPTOR.services_by_name["WorkerService"]

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ITEMS: Names = {"items": ("pairs",)}
_POLICY: Names = {"logprobs": (), "mask": ("masks",)}

_NAMED: tuple[Tool, ...] = (
    _tool("list_evaluators", _EVALUATION, "ListEvaluators", "What evaluators there are, with their options and keys."),
    _tool(
        "evaluate",
        _EVALUATION,
        "Evaluate",
        "Evaluates a model to the end, durably: asked again, it goes on.",
        single=("evaluators",),
        correlated=True,
    ),
    _tool(
        "start_evaluation",
        _EVALUATION,
        "StartEvaluation",
        "Starts, or goes on with, an evaluation that outlives the call.",
        part="request",
        single=("evaluators",),
        correlated=True,
    ),
    _tool("watch_evaluation", _EVALUATION, "WatchEvaluation", "Streams the events of an evaluation until it ends."),
    _tool("get_evaluation", _EVALUATION, "GetEvaluation", "An evaluation as it stands."),
    _tool("list_evaluations", _EVALUATION, "ListEvaluations", "Evaluations, newest first, by page."),
    _tool("get_samples", _EVALUATION, "GetSamples", "What became of the samples of an evaluation, by page."),
    _tool("cancel_evaluation", _EVALUATION, "CancelEvaluation", "Ends an evaluation early."),
    _tool("generate_report", _EVALUATION, "GenerateReport", "A report of evaluations, as Markdown or JSON."),
    _tool(
        "compare_evaluations",
        _EVALUATION,
        "CompareEvaluations",
        "Evaluations of one data set beside each other, sample by sample.",
    ),
    _tool("register_plan", _EVALUATION, "RegisterPlan", "Keeps a plan of evaluations for steps to come.", part="plan"),
    _tool("notify_step", _EVALUATION, "NotifyStep", "Starts the evaluations of a plan that are due at a step."),
    _tool(
        "kl_sample_train",
        _METRICS,
        "ComputeKLSampleTrain",
        "KL divergence between the policy that sampled and the policy that trains.",
        arrays={**_POLICY, "training_logprobs": ("training",)},
    ),
    _tool(
        "kl_post_update",
        _METRICS,
        "ComputeKLPostUpdate",
        "KL divergence between a policy before and after an update.",
        arrays={**_POLICY, "updated_logprobs": ("updated",)},
    ),
    _tool(
        "incorporate_kl_penalty",
        _METRICS,
        "IncorporateKLPenalty",
        "Advantages with a penalty for leaving the base policy.",
        arrays={**_POLICY, "advantages": (), "base_logprobs": ("base",)},
        names={"kl_penalty_coef": ("coef",), "kl_discount_factor": ("discount",)},
        write=write_penalty,
    ),
    _tool(
        "mean_nll",
        _METRICS,
        "ComputeMeanNLL",
        "Mean negative log-likelihood and perplexity, by weights.",
        arrays={"logprobs": (), "weights": ()},
    ),
    _tool(
        "trajectory_metrics",
        _METRICS,
        "ComputeTrajectoryMetrics",
        "What groups of trajectories were like: env/all/... and env/<tag>/...",
        read=read_trajectories,
    ),
    _tool("dpo_metrics", _METRICS, "ComputeDPOMetrics", "Loss, accuracy and rewards of preference pairs."),
    _tool(
        "sampling_client_metrics",
        _METRICS,
        "ComputeSamplingClientMetrics",
        "Which training steps sampled, and how long that took.",
    ),
    _tool(
        "classification_metrics",
        _METRICS,
        "ComputeClassificationMetrics",
        "Accuracy, precision, recall and F1 of predicted labels.",
    ),
    _tool("pass_at_k", _METRICS, "ComputePassAtK", "How likely one of k samples is right, unbiased."),
    _tool(
        "grade_math",
        _GRADING,
        "GradeMath",
        "Whether answers are mathematically equal to what is right.",
        names={**_ITEMS, "policy": ("options",)},
        write=_write_grades,
    ),
    _tool("extract_answer", _GRADING, "ExtractAnswer", "The answers inside of responses."),
    _tool("score", _GRADING, "Score", "Scores of texts by one scorer.", names=_ITEMS, write=_write_grades),
    _tool("grade_code", _GRADING, "GradeCode", "Whether programs pass their tests, run in sandboxes."),
    _tool("extract_code", _GRADING, "ExtractCode", "The programs inside responses, as grade_code takes them."),
    _tool("grade_rubric", _GRADING, "GradeRubric", "What a model holds of responses, by weighted criteria."),
    _tool("sample", _MODELS, "Sample", "Continuations of prompts by a model.", names={"items": ("prompts",)}),
    _tool("compute_logprobs", _MODELS, "ComputeLogprobs", "Log-probabilities of every token of sequences by a model."),
    _tool("forward", _MODELS, "Forward", "Log-probabilities of given targets by a model's forward passes."),
    _tool("subscribe", _TELEMETRY, "Subscribe", "Streams the event log of all evaluations of the machine."),
    _tool("get_info", _WORKER, "GetInfo", "Versions, backends, evaluators, limits and load of the worker."),
    _tool("drain", _WORKER, "Drain", "Interrupts what runs and ends the worker, which Snakepit replaces."),
)
"""Tools whose name or parameters are shorter than those of their call."""


def _others() -> Iterator[Tool]:
    """The calls of which there is no more to do than the protos tell, by their own names."""
    done = {*(tool.path for tool in _NAMED), *NO_TOOLS}
    for module in service_modules():
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                if (path := f"/{service.full_name}/{method.name}") not in done:
                    yield _tool(_WORDS.sub("_", method.name).lower(), service, method.name, CALL_DESCRIPTIONS[path])


TOOLS: tuple[Tool, ...] = (*_NAMED, *_others())
"""Every call of the worker but NO_TOOLS."""
