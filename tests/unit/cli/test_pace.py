"""Rates and the time left."""

from collections.abc import Sequence

from crucible_worker.cli.progress import WINDOW_SECONDS, Pace, time_text
from tests.tables import rows


def _paces(looks: Sequence[tuple[float, float]], total: float | None = 100) -> list[str]:
    clock = iter([now for now, _ in looks])
    pace = Pace(lambda: next(clock))
    return [pace.of(done, total) for _, done in looks]


@rows(
    ("looks", "said"),
    [
        ([(0, 0)], ""),
        ([(0, 0), (10, 0)], ""),
        ([(0, 5), (10, 25)], "2.0 a second, 38 s left"),
        ([(0, 0), (0, 10)], ""),
        ([(0, 0), (10, 100)], ""),
        # The time before the first count moves is that of loading a model.
        ([(0, 0), (4, 0), (5, 50)], "50.0 a second, 1 s left"),
        # Only the last seconds count: a slow beginning is forgotten.
        (
            [(0, 0), (WINDOW_SECONDS, 1), (2 * WINDOW_SECONDS, 1 + WINDOW_SECONDS)],
            f"1.0 a second, {time_text(99 - WINDOW_SECONDS)} left",
        ),
        # Work that begins anew is measured anew.
        ([(0, 50), (1, 60), (2, 0), (3, 10)], "10.0 a second, 9 s left"),
    ],
)
def test_the_rate_is_that_of_the_last_seconds(looks: list[tuple[float, float]], said: str):
    """And the time left follows from it; nothing is said before something was done, or when all is."""
    assert _paces(looks)[-1] == said


def test_without_a_total_there_is_no_time_left():
    """The rate alone."""
    assert _paces([(0, 0), (10, 25_000)], None)[-1] == "2,500.0 a second"


def test_looks_that_are_kept_are_few():
    """However often a count is shown."""
    now = 0.0
    pace = Pace(lambda: now)
    for n in range(10_000):
        now = n / 50
        pace.of(n, None)

    assert len(pace._looks) < 100


@rows(("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min 0 s"), (185, "3 min 5 s"), (7800, "2 h 10 min")])
def test_times_are_for_people(seconds: float, text: str):
    """In the two largest units."""
    assert time_text(seconds) == text
