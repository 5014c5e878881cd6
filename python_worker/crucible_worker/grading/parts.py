"""What graders use that belongs to one worker, handed to them as they are made."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crucible_worker.grading.base import GraderType
    from crucible_worker.grading.code.places import Places
    from crucible_worker.grading.pool import GradingPool

__all__ = ["NO_GRADING_PARTS", "GradingParts"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GradingParts:
    """The worker's. A grader that needs one of them is refused as it is made if there is none."""

    pool: GradingPool | None = None
    """The processes in which mathematics is computed."""
    places: Places | None = None
    """Where programs are run."""
    own_graders: Mapping[str, GraderType] = dataclasses.field(default_factory=dict)
    """Those of files that a user names on the command line, by name; no call can add one."""


NO_GRADING_PARTS = GradingParts()
"""Those of a worker that has none."""
