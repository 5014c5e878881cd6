"""Sampling-client metrics: extremes and means of steps and seconds."""

import math

import numpy as np
import pytest

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Metrics
from crucible_worker.metrics.sampling_client import sampling_client_metrics
from tests.tables import rows


def test_the_formulas() -> None:
    """Largest, smallest and mean, of steps and of seconds."""
    metrics = sampling_client_metrics(np.array([3, 7, 5]), np.array([0.5, 2.0, 0.5]))

    assert metrics.undefined == {}
    assert metrics.values == {
        "sampling_client/step_max": 7,
        "sampling_client/step_min": 3,
        "sampling_client/step_mean": 5,
        "time/sampling_time_max": 2.0,
        "time/sampling_time_min": 0.5,
        "time/sampling_time_mean": 1.0,
    }


def test_steps_may_sum_beyond_64_bits() -> None:
    """The mean of large steps is their mean."""
    steps = np.full(4, 2**62, np.int64)

    assert sampling_client_metrics(steps, np.zeros(4)).values["sampling_client/step_mean"] == 2**62


@pytest.mark.parametrize("dtype", ["u1", "i4", "i8"])
def test_the_mean_of_steps_is_that_of_their_exact_sum(dtype: str) -> None:
    """Of either sign, whatever their size."""
    limits = np.iinfo(dtype)
    steps = np.random.default_rng(8).integers(limits.min, limits.max, 1_001, dtype, endpoint=True)

    mean = sampling_client_metrics(steps, np.zeros(1_001)).values["sampling_client/step_mean"]

    assert mean == sum(steps.tolist()) / 1_001


@pytest.mark.parametrize(
    ("seconds", "reason"),
    [
        ([1.0, math.nan], "1 of 2 sampling times is NaN"),
        ([math.inf, math.inf], "2 of 2 sampling times are +inf"),
    ],
)
def test_times_that_are_not_finite_are_told(seconds: list[float], reason: str) -> None:
    """Keys of times are undefined, those of steps are not."""
    metrics = sampling_client_metrics(np.array([1, 2]), np.array(seconds))

    assert set(metrics.values) == {f"sampling_client/step_{which}" for which in ("max", "min", "mean")}
    assert metrics.undefined == {f"time/sampling_time_{which}": reason for which in ("max", "min", "mean")}


def test_a_mean_beyond_float64_leaves_the_extremes_alone() -> None:
    """Finite times have extremes."""
    metrics = sampling_client_metrics(np.array([1, 2]), np.array([1e308, 1.5e308]))

    assert metrics.undefined == {"time/sampling_time_mean": "the sum is beyond float64"}
    assert metrics.values["time/sampling_time_max"] == 1.5e308


@rows(
    ("steps", "seconds", "field"),
    [
        (np.zeros(2), np.zeros(2), "sampling_client_steps"),
        (np.zeros((2, 1), int), np.zeros(2), "sampling_client_steps"),
        (np.zeros(2, int), np.zeros(3), "sampling_seconds"),
        (np.zeros(2, int), np.array(["1", "2"]), "sampling_seconds"),
    ],
)
def test_columns_that_do_not_fit_name_the_field(steps: np.ndarray, seconds: np.ndarray, field: str) -> None:
    """At least one group, integers as steps, as many times as steps."""
    with pytest.raises(InvalidField) as caught:
        sampling_client_metrics(steps, seconds)

    assert caught.value.field == field


def test_no_group_has_no_metrics():
    """As of tinker-cookbook: a batch that was filtered to nothing is no error."""
    assert sampling_client_metrics(np.zeros(0, int), np.zeros(0)) == Metrics({})
