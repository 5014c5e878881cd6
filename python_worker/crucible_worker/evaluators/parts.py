"""The parts of a worker that evaluators use, and the models of their request, passed to them when they are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from crucible_bridge.types import ModelRef
from crucible_worker.evaluators.environments.described import Environments
from crucible_worker.evaluators.guarded import GuardedType
from crucible_worker.evaluators.inspect.allowed import InspectAllowlist
from crucible_worker.grading.registry import NO_GRADING_PARTS, GradingParts

__all__ = ["EvaluatorParts"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorParts:
    """The parts of one worker; without arguments, a worker that has none."""

    grading: GradingParts = NO_GRADING_PARTS
    """The parts for graders."""
    inspect: InspectAllowlist | None = None
    """The Inspect tasks that may be run. None if none may."""
    environments: Environments = dataclasses.field(default_factory=Environments)
    """Users' environments, and the variables that their processes get from the worker."""
    own_evaluators: Mapping[str, GuardedType] = dataclasses.field(default_factory=dict)
    """Evaluators of files that a user names on the command line, by kind; no call can add one."""
    models: Mapping[str, ModelRef] = dataclasses.field(default_factory=dict)
    """Further models of one request, by role or by the name that a task has for them; empty outside of a request."""
