"""Every tool: its call, how its parameters are read, and how its result is written."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from crucible_bridge.idempotency import service_modules
from crucible_bridge.v1 import evaluation_pb2, grading_pb2, metrics_pb2, models_pb2
from crucible_worker.snakepit.arguments import Arguments
from crucible_worker.snakepit.call_descriptions import CALL_DESCRIPTIONS
from crucible_worker.snakepit.results import Output, to_json
from crucible_worker.snakepit.tools_fields import fields_reader
from crucible_worker.snakepit.tools_metrics import columns_reader, write_penalty
from crucible_worker.snakepit.tools_trajectories import read_trajectories

__all__ = ["NO_TOOLS", "TOOLS", "Tool"]

NO_TOOLS: Mapping[str, str] = {
    "/crucible_bridge.v1.EvaluationService/EvaluateWithOrchestratorModel": "a tool cannot query its caller",
}
"""Calls that are not tools, and why."""

Names = Mapping[str, tuple[str, ...]]
"""Other names of a field, by its name."""


def _write(arguments: Arguments, message: Any, output: Output) -> dict[str, Any]:
    return to_json(message, output)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A call as a tool."""

    name: str
    """Its name in Snakepit."""
    path: str
    """The call: "/crucible_bridge.v1.MetricsService/ComputeMeanNLL"."""
    description: str
    """What it does, one sentence."""
    request: Any
    """The request's message."""
    response: Any
    """The message of the reply, or of each reply of a stream."""
    streams: bool
    """Whether its reply is a stream."""
    read: Callable[[Arguments], Any]
    """Makes the request, or its bytes, from the parameters."""
    write: Callable[[Arguments, Any, Output], dict[str, Any]]
    """Makes plain values from a reply."""
    part: str
    """The field of the request that the parameters fill, if they do not fill the request itself."""
    names: Names
    """Other names of fields, by field."""
    single: tuple[str, ...]
    """List fields that also accept a single value."""
    arrays: Names
    """Parameters that are arrays of all sequences, and their other names."""


def _tool(
    name: str,
    service: ServiceDescriptor,
    method: str,
    *,
    read: Callable[[Arguments], Any] | None = None,
    write: Callable[[Arguments, Any, Output], dict[str, Any]] = _write,
    part: str = "",
    names: Names | None = None,
    arrays: Names | None = None,
    single: tuple[str, ...] = (),
    correlated: bool = False,
) -> Tool:
    found, path = service.methods_by_name[method], f"/{service.full_name}/{method}"
    request, names, arrays = GetMessageClass(found.input_type), names or {}, arrays or {}
    if read is None and arrays:
        read = columns_reader(request, arrays, names=names)
    return Tool(
        name=name,
        path=path,
        description=CALL_DESCRIPTIONS[path],
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
    """Write grades, each with the unchanged id of its item: a number stays a number."""
    value = to_json(message, output)
    for grade, given in zip(value["grades"], arguments.noted.get("ids", ())):
        grade["id"] = given
    return value


_EVALUATION = evaluation_pb2.DESCRIPTOR.services_by_name["EvaluationService"]
_METRICS = metrics_pb2.DESCRIPTOR.services_by_name["MetricsService"]
_GRADING = grading_pb2.DESCRIPTOR.services_by_name["GradingService"]
_MODELS = models_pb2.DESCRIPTOR.services_by_name["ModelService"]

_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_ITEMS: Names = {"items": ("pairs",)}
_POLICY: Names = {"logprobs": (), "mask": ("masks",)}

_NAMED: tuple[Tool, ...] = (
    _tool("evaluate", _EVALUATION, "Evaluate", single=("evaluators",), correlated=True),
    _tool("start_evaluation", _EVALUATION, "StartEvaluation", part="request", single=("evaluators",), correlated=True),
    _tool("register_plan", _EVALUATION, "RegisterPlan", part="plan"),
    _tool("kl_sample_train", _METRICS, "ComputeKLSampleTrain", arrays={**_POLICY, "training_logprobs": ("training",)}),
    _tool("kl_post_update", _METRICS, "ComputeKLPostUpdate", arrays={**_POLICY, "updated_logprobs": ("updated",)}),
    _tool(
        "incorporate_kl_penalty",
        _METRICS,
        "IncorporateKLPenalty",
        arrays={**_POLICY, "advantages": (), "base_logprobs": ("base",)},
        names={"kl_penalty_coef": ("coef",), "kl_discount_factor": ("discount",)},
        write=write_penalty,
    ),
    _tool("mean_nll", _METRICS, "ComputeMeanNLL", arrays={"logprobs": (), "weights": ()}),
    _tool("trajectory_metrics", _METRICS, "ComputeTrajectoryMetrics", read=read_trajectories),
    _tool("dpo_metrics", _METRICS, "ComputeDPOMetrics"),
    _tool("sampling_client_metrics", _METRICS, "ComputeSamplingClientMetrics"),
    _tool("classification_metrics", _METRICS, "ComputeClassificationMetrics"),
    _tool("pass_at_k", _METRICS, "ComputePassAtK"),
    _tool("grade_math", _GRADING, "GradeMath", names={**_ITEMS, "policy": ("options",)}, write=_write_grades),
    _tool("score", _GRADING, "Score", names=_ITEMS, write=_write_grades),
    _tool("sample", _MODELS, "Sample", names={"items": ("prompts",)}),
)
"""Tools whose name or parameters are shorter than those of their call."""


def _others() -> Iterator[Tool]:
    """The calls that need nothing except their protos, by their own names."""
    done = {*(tool.path for tool in _NAMED), *NO_TOOLS}
    for module in service_modules():
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                if f"/{service.full_name}/{method.name}" not in done:
                    yield _tool(_WORDS.sub("_", method.name).lower(), service, method.name)


TOOLS: tuple[Tool, ...] = (*_NAMED, *_others())
"""Every call of the worker except NO_TOOLS."""
