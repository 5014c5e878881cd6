"""How long one sample may take, by the limits of its evaluation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from crucible_bridge.reasons import Reason
from crucible_bridge.types import Limits, Problem
from crucible_worker.evaluators.base import Bound
from crucible_worker.util.tasks import Timeout, TimeoutQueue

__all__ = ["WIND_UP_SECONDS", "SampleTimeout", "bound_of_task", "sample_timed_out"]

WIND_UP_SECONDS = 10.0
"""Seconds that an evaluator with `stops_itself` has to stop; before a deadline at most a tenth of the time left."""


def sample_timed_out(seconds: float) -> Problem:
    """The problem of a sample that took too long."""
    message = f"took longer than sample_timeout_ms, {seconds * 1000:.0f}"
    return Problem(reason=Reason.SAMPLE_TIMEOUT, message=message, retryable=True)


class SampleTimeout(Timeout):
    """A sample's time: ends the block as `asyncio.timeout` does.

    Args:
        timeouts: of the evaluation.
        seconds: of the request, for the whole sample; None if it names none.
        default_seconds: the worker's, which restart with each answer of a model: a sample of many calls may run as
            long as it makes progress.
        progressed: called with each answer, whatever bounds the sample.
    """

    __slots__ = ("_default_seconds", "_loop", "_progressed", "_seconds")

    def __init__(
        self,
        timeouts: TimeoutQueue,
        seconds: float | None,
        default_seconds: float,
        progressed: Callable[[], None] = lambda: None,
    ) -> None:
        self._seconds, self._default_seconds, self._progressed = seconds, default_seconds, progressed
        self._loop = asyncio.get_running_loop()
        super().__init__(timeouts, self._loop.time() + (default_seconds if seconds is None else seconds))

    @property
    def problem(self) -> Problem | None:
        """What the sample ends with, if its time is over."""
        if not self.expired():
            return None
        if self._seconds is not None:
            return sample_timed_out(self._seconds)
        message = f"had no answer of a model for default_sample_timeout_seconds, {self._default_seconds:g}"
        return Problem(reason=Reason.SAMPLE_TIMEOUT, message=message, retryable=True)

    def seconds_left(self) -> float | None:
        """Seconds until the sample ends by its time, if no model answers before; None if it is not bounded."""
        ends = self.when() if self.running else None
        return None if ends is None else ends - self._loop.time()

    def answered(self) -> None:
        """A model has answered."""
        if self._seconds is None:
            self.reschedule(self._loop.time() + self._default_seconds)
        self._progressed()


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
        problem = Problem(reason=Reason.DEADLINE_EXCEEDED, message=message)
        wind_up = max(0.0, min(WIND_UP_SECONDS, left / 10))
        bounds.append(Bound(seconds=max(0.0, left - wind_up), wind_up_seconds=wind_up, problem=problem))
    return min(bounds, key=lambda bound: bound.seconds, default=None)
