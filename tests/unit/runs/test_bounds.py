"""How long one sample may take whose evaluator stops itself: never the default time of a sample."""

import pytest

from crucible_bridge.types import Limits
from crucible_worker.runs.bounds import WIND_UP_SECONDS, bound_of_task


@pytest.mark.parametrize(
    ("limits", "left", "seconds", "reason"),
    [
        (Limits(), None, None, None),
        (Limits(sample_timeout_ms=2_000), None, 2.0, "SAMPLE_TIMEOUT"),
        (Limits(deadline_ms=1), 1_000.0, 1_000.0 - WIND_UP_SECONDS, "DEADLINE_EXCEEDED"),
        (Limits(deadline_ms=1), 10.0, 9.0, "DEADLINE_EXCEEDED"),
        (Limits(deadline_ms=1), -1.0, 0.0, "DEADLINE_EXCEEDED"),
        (Limits(sample_timeout_ms=8_000, deadline_ms=1), 10.0, 8.0, "SAMPLE_TIMEOUT"),
        (Limits(sample_timeout_ms=9_500, deadline_ms=1), 10.0, 9.0, "DEADLINE_EXCEEDED"),
    ],
)
def test_a_task_ends_at_its_own_time_or_before_the_deadline(
    limits: Limits, left: float | None, seconds: float | None, reason: str | None
) -> None:
    """With time to wind up before a deadline: a tenth of what is left, at most ten seconds."""
    bound = bound_of_task(limits, left)

    assert (bound and bound.seconds) == seconds
    assert (bound and bound.problem.reason) == reason
    if bound is not None:
        assert bound.wind_up_seconds <= WIND_UP_SECONDS
        assert left is None or reason == "SAMPLE_TIMEOUT" or bound.seconds + bound.wind_up_seconds == max(0.0, left)
