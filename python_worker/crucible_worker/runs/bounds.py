"""How long one sample may take, by the limits of its evaluation."""

from __future__ import annotations

from crucible_bridge.types import Limits, Problem
from crucible_worker.evaluators.base import Bound

__all__ = ["WIND_UP_SECONDS", "bound_of_task", "sample_timed_out"]

WIND_UP_SECONDS = 10.0
"""Time that an evaluator which `stops_itself` has for that; before a deadline at most a tenth of what is left."""


def sample_timed_out(seconds: float) -> Problem:
    """What a sample ends with that took longer than its time."""
    message = f"took longer than sample_timeout_ms, {seconds * 1000:.0f}"
    return Problem(reason="SAMPLE_TIMEOUT", message=message, retryable=True)


def bound_of_task(limits: Limits, left: float | None) -> Bound | None:
    """When a sample of an evaluator that `stops_itself` has to end: at its own time-out, or before the deadline.

    Args:
        limits: of the request; the worker's default time of a sample is not for such evaluators.
        left: seconds until the evaluation's deadline; None if it has none.
    """
    bounds: list[Bound] = []
    if limits.sample_timeout_ms is not None:
        seconds = limits.sample_timeout_ms / 1000
        bounds.append(Bound(seconds=seconds, wind_up_seconds=WIND_UP_SECONDS, problem=sample_timed_out(seconds)))
    if left is not None:
        message = f"had not ended shortly before deadline_ms, {limits.deadline_ms}"
        problem = Problem(reason="DEADLINE_EXCEEDED", message=message)
        wind_up = max(0.0, min(WIND_UP_SECONDS, left / 10))
        bounds.append(Bound(seconds=max(0.0, left - wind_up), wind_up_seconds=wind_up, problem=problem))
    return min(bounds, key=lambda bound: bound.seconds, default=None)
