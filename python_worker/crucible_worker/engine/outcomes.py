"""Which outcomes the journal accepts: finite numbers, and rollouts that fit into a page of samples."""

from __future__ import annotations

import math

from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import MAX_GROUP_BYTES, Problem, SampleResult
from crucible_worker.evaluators.base import Outcome

__all__ = ["RECORD_WEIGHT_BYTES", "WEIGHT_BYTES", "weight", "why_not_kept"]

WEIGHT_BYTES = 16 * 1024
"""Bytes of rollouts that count as much as a result while they wait to be written."""
RECORD_WEIGHT_BYTES = 2 * 1024
"""Likewise for records: samples of large files must not pile up in memory."""


def why_not_kept(outcome: Outcome) -> Problem | None:
    """Why an outcome cannot be recorded; None if it can."""
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
        message = f"the rollouts have {size:,} bytes, at most {MAX_GROUP_BYTES:,} are recorded of a sample"
        return Problem(reason=Reason.GROUP_TOO_LARGE, message=message)
    return None


def weight(result: SampleResult, recorded_bytes: int = 0) -> int:
    """Weight of a result while it waits to be written: 1, and more with the size of its rollouts and record."""
    rollouts = 0 if result.group is None else result.group.size // WEIGHT_BYTES
    return 1 + rollouts + recorded_bytes // RECORD_WEIGHT_BYTES
