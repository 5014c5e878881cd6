"""What is followed and evaluated, from the options of `crucible-worker follow`, and its errors by these options."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from crucible_bridge.codec.generated import follow_run_request_from_v1, follow_run_request_to_v1
from crucible_bridge.errors import BridgeError, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.suites import load_plan
from crucible_bridge.types import (
    EvaluateRequest,
    EvaluationPlan,
    FollowPolicy,
    FollowRunRequest,
    ModelRef,
    PlannedEvaluation,
    parse_model,
)
from crucible_worker.cli.refusals import refusing
from crucible_worker.cli.requests import EvaluateOptions, evaluations_to_run
from crucible_worker.config import Settings
from crucible_worker.evaluators.registry import EvaluatorParts

__all__ = ["PLACEHOLDER", "FollowOptions", "refusing_follow", "request_of"]

PLACEHOLDER = "embedded:checkpoint"
"""Stands for each checkpoint where options are read as those of an evaluation."""
_FLAGS = {
    "run_id": "--run-id",
    "directory": "DIR",
    "plan_id": "--id",
    "policy": "--policy",
    "every": "--every",
    "name_pattern": "--name-pattern",
    "marker": "--marker",
    "base_model": "--base-model",
    "hold_folder": "--hold-folder",
    "plan.run_id": "--run-id",
    "plan.plan_id": "--id",
}
"""Options, by the field of the request."""
_OF_FLAGS = "evaluations[0]."
"""Where a plan has what options say."""
_WITH_PLAN = ("models", "kept", "made_id")
"""Fields of the options that do not exclude a plan's file."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions:
    """The options that say what is followed, and how."""

    directory: Path
    run_id: str
    plan_id: str | None
    plan_file: Path | None
    policy: str
    every: int | None
    name_pattern: str
    marker: str
    base_model: str | None
    hold_folder: Path | None
    mark: bool


def request_of(typed: EvaluateOptions, asked: FollowOptions, parts: EvaluatorParts | None) -> FollowRunRequest:
    """The request, within the bounds of a call.

    Args:
        typed: the options that say what is evaluated.
        asked: the others.
        parts: evaluators and graders, with those of files that options name.

    Raises:
        InvalidField: names the wrong option, the path in a file, or the field of the request.
    """
    try:
        policy = FollowPolicy(asked.policy)
    except ValueError:
        known = ", ".join(policy.value for policy in FollowPolicy)
        raise InvalidField("--policy", f"is {asked.policy[:60]!r}, must be one of {known}") from None
    request = FollowRunRequest(
        run_id=asked.run_id,
        directory=str(asked.directory),
        plan=_plan(typed, asked, parts),
        policy=policy,
        every=asked.every or 0,
        name_pattern=asked.name_pattern,
        marker=asked.marker,
        base_model=None if asked.base_model is None else _base_model(asked.base_model),
        hold_folder="" if asked.hold_folder is None else str(asked.hold_folder),
        mark=asked.mark,
    )
    return follow_run_request_from_v1(follow_run_request_to_v1(request))


@contextlib.contextmanager
def refusing_follow(settings: Settings, typed: EvaluateOptions, asked: FollowOptions) -> Iterator[None]:
    """As `refusing`, for errors of a request to follow.

    Raises:
        Refused: something is wrong, or missing; the text names the option.
    """
    by_flags = typed.suite is None and asked.plan_file is None
    with refusing(settings, typed.evaluators):
        try:
            yield
        except BridgeError as error:
            error.field = _place(error.field, by_flags=by_flags)
            if error.reason == Reason.OTHER_PLAN:
                error.message += "; take another --id or --run-id for other options"
            raise


def _place(field: str, *, by_flags: bool) -> str:
    """The option that gives a field, or its path in the file."""
    if field in _FLAGS:
        return _FLAGS[field]
    path = field.removeprefix("plan.")
    return path.removeprefix(_OF_FLAGS) if by_flags else path


def _plan(typed: EvaluateOptions, asked: FollowOptions, parts: EvaluatorParts | None) -> EvaluationPlan:
    plan_id = asked.run_id if asked.plan_id is None else asked.plan_id
    shown = os.fsencode(asked.directory.resolve()).decode(errors="backslashreplace")
    if shown != str(asked.directory.resolve()):
        raise InvalidField("DIR", f"is {shown}, a path that is not UTF-8: rename it")
    if not asked.run_id:
        raise InvalidField("--run-id", "is needed: the directory has no name")
    if asked.plan_file is not None:
        _refuse_with_plan(typed)
        try:
            return load_plan(asked.plan_file, plan_id=plan_id, run_id=asked.run_id)
        except OSError as error:
            raise InvalidField("--plan", f"is {str(asked.plan_file)[:200]!r}: {error.strerror}") from error
        except InvalidField as error:
            raise InvalidField(f"--plan {asked.plan_file}: {error.field}", error.message) from error
    _, evaluations = evaluations_to_run(typed, parts)
    return EvaluationPlan(
        plan_id=plan_id,
        run_id=asked.run_id,
        eval_every=1,
        evaluations=tuple(_planned(each.request) for each in evaluations),
    )


def _refuse_with_plan(typed: EvaluateOptions) -> None:
    other = EvaluateOptions(models=typed.models)
    for field in dataclasses.fields(EvaluateOptions):
        if field.name not in _WITH_PLAN and getattr(typed, field.name) != getattr(other, field.name):
            flag = _SINGULAR.get(field.name, field.name).replace("_", "-")
            raise InvalidField(f"--{flag}", "and --plan exclude each other: a plan's file says what is evaluated")


_SINGULAR: Mapping[str, str] = {
    "tasks": "task",
    "evaluators": "evaluator",
    "options": "option",
    "labels": "label",
    "roles": "role",
}


def _planned(request: EvaluateRequest) -> PlannedEvaluation:
    names = [field.name for field in dataclasses.fields(PlannedEvaluation)]
    return PlannedEvaluation(**{name: getattr(request, name) for name in names})


def _base_model(text: str) -> ModelRef:
    if ":" not in text:
        message = f"is {text[:200]!r}: a folder below a model root is local:PATH, a model of the hub hub:OWNER/NAME"
        raise InvalidField("--base-model", message)
    try:
        return parse_model(text)
    except InvalidField as error:
        raise InvalidField("--base-model", error.message) from None
