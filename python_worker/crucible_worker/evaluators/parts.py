"""What evaluators use that belongs to one worker, handed to them as they are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from crucible_worker.evaluators.environments.described import Environments
from crucible_worker.evaluators.guarded import GuardedType
from crucible_worker.evaluators.inspect.allowed import Allowed
from crucible_worker.grading.parts import NO_GRADING_PARTS, GradingParts

__all__ = ["EvaluatorParts"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorParts:
    """The worker's; without arguments those of a worker that has none."""

    grading: GradingParts = NO_GRADING_PARTS
    """What graders use."""
    inspect: Allowed | None = None
    """Which tasks of Inspect may be run. None if none may."""
    environments: Environments = dataclasses.field(default_factory=Environments)
    """Environments of users, and what their processes get of the worker's variables."""
    own_evaluators: Mapping[str, GuardedType] = dataclasses.field(default_factory=dict)
    """Those of files that a user names on the command line, by kind; no call can add one."""
