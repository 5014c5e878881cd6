"""The parts of a worker that graders use, passed to them when they are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crucible_worker.grading.base import GraderType
    from crucible_worker.grading.code.sandbox_slots import SandboxSlots
    from crucible_worker.grading.fanout.fanout import Fanout
    from crucible_worker.grading.fanout.graders import ClusterPlaces
    from crucible_worker.grading.pool import GradingPool

__all__ = ["NO_GRADING_PARTS", "GradingParts"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GradingParts:
    """The parts of one worker. A grader that needs a missing part is refused when it is made."""

    pool: GradingPool | Fanout | None = None
    """The processes in which mathematics is computed, or the cluster that has them."""
    places: SandboxSlots | ClusterPlaces | None = None
    """The places where programs run."""
    own_graders: Mapping[str, GraderType] = dataclasses.field(default_factory=dict)
    """Graders of files that a user names on the command line, by name; no call can add one."""


NO_GRADING_PARTS = GradingParts()
"""The parts of a worker that has none."""
