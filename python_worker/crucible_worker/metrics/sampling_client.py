"""Which training steps sampled the groups of a batch, and how long that took.

    sampling_client/step_max, step_min, step_mean                       over the groups
    time/sampling_time_max, sampling_time_min, sampling_time_mean       likewise, seconds

After tinker-cookbook's `compute_sampling_client_metrics`, which reads a group's step from `sampling_client_step` and
its seconds from the metric `time/trajectory_group_worker_loop/total`.
"""

from __future__ import annotations

import math

import numpy as np

from crucible_bridge.types import Metrics
from crucible_worker.metrics.sequences import BEYOND_FLOAT64, Defects, check_column, exact_total

__all__ = ["sampling_client_metrics"]

_STEPS, _SECONDS = "sampling_client_steps", "sampling_seconds"


def sampling_client_metrics(steps: np.ndarray, seconds: np.ndarray) -> Metrics:
    """Summarise the sampling of a batch.

    Args:
        steps: training step of the sampling client of each group, shape (groups,), integers.
        seconds: sampling time of each group, shape (groups,).

    Returns:
        The keys of the module's description, none without a group; those of times are undefined if a time is not
        finite.

    Raises:
        InvalidField: steps are not integers, or the columns differ in length.
    """
    if not steps.size and steps.ndim == 1 and steps.shape == seconds.shape:
        return Metrics({})
    check_column(steps, _STEPS, kinds="iu")
    check_column(seconds, _SECONDS, length=steps.size, of="groups")
    values = {
        "sampling_client/step_max": float(steps.max()),
        "sampling_client/step_min": float(steps.min()),
        "sampling_client/step_mean": _sum(steps) / steps.size,
    }
    times = {
        "time/sampling_time_max": float(seconds.max()),
        "time/sampling_time_min": float(seconds.min()),
        "time/sampling_time_mean": exact_total(seconds) / seconds.size,
    }
    if reason := Defects.among(seconds.astype(np.float64)).reason(seconds.size, "sampling times"):
        return Metrics.of(values, dict.fromkeys(times, reason))
    undefined = {key: BEYOND_FLOAT64 for key, value in times.items() if not math.isfinite(value)}
    return Metrics.of({**values, **{key: times[key] for key in times if key not in undefined}}, undefined)


def _sum(steps: np.ndarray) -> int:
    """The sum, which may exceed 64 bits: computed from upper and lower halves, which do not."""
    if steps.dtype.itemsize < np.dtype(np.int64).itemsize:
        return int(steps.sum(dtype=np.int64))
    return (int((steps >> 32).sum(dtype=np.int64)) << 32) + int((steps & 0xFFFFFFFF).sum(dtype=np.int64))
