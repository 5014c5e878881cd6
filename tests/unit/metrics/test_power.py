"""What tests of paired differences can see, against simulations of those tests."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.metrics.paired import mcnemar_p
from crucible_worker.metrics.significance import detectable, detectable_split, needed, needed_split, t_quantile
from tests.tables import rows

RUNS = 20_000


@rows(("n", "confidence"), [(12, 0.95), (60, 0.95), (60, 0.8)])
def test_the_detectable_difference_is_detected_four_times_in_five(n: int, confidence: float):
    """A t-test of differences that are shifted by it rejects 80 % of samples; by a twentieth less, fewer."""
    random = np.random.default_rng(5)
    noise = random.normal(0, 1, (RUNS, n))
    means, errors = noise.mean(axis=1), noise.std(axis=1, ddof=1) / math.sqrt(n)
    critical = t_quantile((1 + confidence) / 2, n - 1)

    def power(shift: float) -> float:
        return float(np.mean(np.abs(means + shift) > critical * errors))

    told = detectable(1 / math.sqrt(n), n, confidence)
    assert power(0.95 * told) < 0.8 < power(1.05 * told)


@rows(("n", "changed"), [(200, 60), (400, 200)])
def test_the_detectable_difference_of_shares_is_detected_four_times_in_five(n: int, changed: int):
    """Likewise by McNemar's exact test, where the number of changes is random too."""
    random = np.random.default_rng(5)
    told = detectable_split(changed, n, 0.95)
    assert told is not None
    totals = random.binomial(n, changed / n, RUNS)
    rejects = {
        int(total): [mcnemar_p(gained, int(total) - gained) <= 0.05 for gained in range(int(total) + 1)]
        for total in set(totals.tolist())
    }

    def power(difference: float) -> float:
        gained = random.binomial(totals, (1 + difference * n / changed) / 2)
        return float(np.mean([rejects[total][gain] for total, gain in zip(totals.tolist(), gained.tolist())]))

    assert power(0.95 * told) < 0.8 < power(1.05 * told)


def test_too_few_changes_are_never_detected():
    """Five changes reject at no split; many do."""
    assert detectable_split(0, 100, 0.95) is None
    assert detectable_split(5, 100, 0.95) is None
    assert detectable_split(40, 100, 0.95) is not None


@given(st.floats(0.05, 3), st.floats(0.01, 1), st.integers(2, 200))
def test_the_needed_units_are_the_least_that_detect(difference: float, stderr: float, units: int):
    """With so many the difference is detectable, with one less it is not."""
    found = needed(difference, stderr, units, 0.95)
    assert found is not None

    def detects(count: float) -> bool:
        return detectable(stderr * math.sqrt(units / count), int(count), 0.95) <= difference * (1 + 1e-9)

    assert detects(found)
    assert found == 2 or not detects(found - 1)


@given(st.integers(0, 400), st.integers(0, 400), st.integers(0, 4_000))
def test_needed_samples_of_shares_detect_the_same_split(gained: int, lost: int, same: int):
    """In a sample of the needed size with the same shares, the difference is detectable."""
    n = max(1, gained + lost + same)
    found = needed_split(gained, lost, n, 0.95)
    if gained == lost:
        assert found is None
        return
    assert found is not None
    # Shares of a whole number of samples are rounded up: both sides then have room for it.
    changed = math.ceil((gained + lost) / n * found)
    told = detectable_split(changed, math.ceil(found), 0.95)
    size = abs(gained - lost) / n
    assert told is None or told <= size + 2 / math.sqrt(found)


def test_no_difference_needs_no_number():
    """A difference of 0 is detected by no number of samples."""
    assert needed(0.0, 1.0, 10, 0.95) is None


def test_a_difference_that_is_nothing_next_to_its_error_needs_no_number():
    """A float64 could not have that number; it can have any smaller one."""
    assert needed(1e-151, 1.0, 2_000_000, 0.999) is None
    assert needed(1e-300, 1e-160, 10, 0.95) is not None
    largest = needed(1.1e-150, 1.0, 2_000_000, 0.999)
    assert largest is not None
    assert math.isfinite(largest)
