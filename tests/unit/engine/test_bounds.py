"""How long one sample may take: without an answer by default, as a whole if the request says so."""

import asyncio
import contextlib
import time

from crucible_bridge.types import Limits
from crucible_worker.engine.sample_runner import WIND_UP_SECONDS, SampleTimeout, bound_of_task
from crucible_worker.util.tasks import TimeoutQueue
from tests import virtual_time
from tests.tables import rows


@rows(
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
    bound = bound_of_task(limits, left, time.monotonic)

    assert (bound and bound.seconds) == seconds
    assert (bound and bound.problem.reason) == reason
    if bound is not None:
        assert bound.wind_up_seconds <= WIND_UP_SECONDS
        assert left is None or reason == "SAMPLE_TIMEOUT" or bound.seconds + bound.wind_up_seconds == max(0.0, left)


async def _lasted(requested: float | None, default: float, answers: int) -> tuple[SampleTimeout, float]:
    """Seconds until a block ends in which models answer so often, each time half a second after the last."""
    loop, patience = asyncio.get_running_loop(), SampleTimeout(TimeoutQueue(), requested, default)
    started = loop.time()
    with contextlib.suppress(TimeoutError), patience:  # `problem` says whether it came
        for _ in range(answers):
            await asyncio.sleep(0.5)
            patience.answered()
        await asyncio.Event().wait()
    return patience, loop.time() - started


def test_answers_renew_the_default_time_of_a_sample():
    """Without one more the sample ends, and says for how long it had none."""
    patience, seconds = virtual_time.run(_lasted(None, 1.5, answers=3))

    assert seconds == 3 * 0.5 + 1.5
    problem = patience.problem
    assert problem is not None
    assert (problem.reason, problem.retryable) == ("SAMPLE_TIMEOUT", True)
    assert problem.message == "had no answer of a model for default_sample_timeout_seconds, 1.5"


def test_answers_do_not_renew_a_time_of_the_request():
    """It is for the sample as a whole."""
    patience, seconds = virtual_time.run(_lasted(1.5, 60.0, answers=1_000))

    assert seconds == 1.5
    assert patience.problem is not None
    assert patience.problem.message == "took longer than sample_timeout_ms, 1500"


async def test_an_answer_outside_of_its_sample_changes_nothing():
    """As one that comes to a group which has been given up."""
    patience = SampleTimeout(TimeoutQueue(), None, 60.0)
    patience.answered()
    with patience:
        patience.answered()
    patience.answered()

    assert patience.problem is None
