"""How long to wait after failures in a row."""

from crucible_worker.util.tasks import Backoff


def test_each_failure_doubles_the_wait_up_to_the_longest():
    """The first failure waits for the first time, and any number of them never overflows."""
    backoff = Backoff(0.5, 3.0)

    assert [backoff.after(failures) for failures in (1, 2, 3, 4, 100_000)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_what_failed_together_comes_again_apart():
    """A drawn wait is between half of that time and all of it, and is another one each time."""
    drawn = [Backoff(8.0, 60.0).drawn_after(2) for _ in range(100)]

    assert all(8.0 <= seconds <= 16.0 for seconds in drawn)
    assert len(set(drawn)) > 90
