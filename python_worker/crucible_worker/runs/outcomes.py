"""What the journal takes of an outcome: finite numbers, and rollouts that a page of samples has room for."""

from __future__ import annotations

import math

from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import MAX_GROUP_BYTES, Problem, SampleResult
from crucible_worker.evaluators.base import Outcome

__all__ = ["WEIGHT_BYTES", "weight", "why_not_kept"]

WEIGHT_BYTES = 16 * 1024
"""Bytes of rollouts and records that count as much as a result while they wait to be written."""


def why_not_kept(outcome: Outcome) -> Problem | None:
    """Why an outcome cannot be kept, if it cannot."""
    numbers = [*outcome.measurements.values(), 0.0 if outcome.score is None else outcome.score]
    if not all(map(math.isfinite, numbers)):
        return Problem(reason=Reason.NOT_FINITE, message="a score or measurement is not finite")
    if outcome.group is None:
        return None
    try:
        size = outcome.group.checked("group").size
    except InvalidField as error:
        return Problem(reason=Reason.BAD_GROUP, message=error.message, field=error.field)
    if size > MAX_GROUP_BYTES:
        message = f"the rollouts have {size:,} bytes, at most {MAX_GROUP_BYTES:,} are kept of a sample"
        return Problem(reason=Reason.GROUP_TOO_LARGE, message=message)
    return None


def weight(result: SampleResult, recorded_bytes: int = 0) -> int:
    """How much a result counts while it waits to be written: 1, and more with the size of its rollouts and record."""
    size = recorded_bytes if result.group is None else recorded_bytes + result.group.size
    return 1 + size // WEIGHT_BYTES
