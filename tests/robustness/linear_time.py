"""Measures whether work on foreign input costs time in proportion to the input's size."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

DOUBLINGS = 3
MAX_RATIO = 3.0
"""Of CPU time at each doubling: linear work costs about 2, quadratic work 4."""
MIN_SECONDS = 0.004
"""Of one measurement at the smallest size; shorter work is repeated until it takes so long."""
MIN_ROUNDS, MAX_ROUNDS = 3, 10
"""Each size is measured in each round, and its smallest value counts. Noise costs further rounds, never a verdict."""
TRIALS = 5
"""Each begins anew: a clock of a virtual machine that once counts too little spoils one of them, as its value stays."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One function with an input that is as bad for it as any of that size."""

    make: Callable[[int], Any]
    """The input of a size; its cost is not measured."""
    run: Callable[[Any], object]
    """The work. It must raise nothing, and keep nothing from call to call."""
    size: int
    """The smallest; large enough that a quadratic term would dominate. The largest is 8 times as large."""


def ratios(row: Row) -> Sequence[float]:
    """How CPU time of this thread grows at each of `DOUBLINGS` doublings."""
    inputs = [row.make(row.size << step) for step in range(DOUBLINGS + 1)]
    once = _seconds(row.run, inputs[0], 1)
    loops = max(1, math.ceil(MIN_SECONDS / max(once, 1e-7)))
    found: Sequence[float] = ()
    for _ in range(TRIALS):
        best = [math.inf] * len(inputs)
        for done in range(1, MAX_ROUNDS + 1):
            for at, value in enumerate(inputs):
                best[at] = min(best[at], _seconds(row.run, value, loops))
            found = [after / before for before, after in itertools.pairwise(best)]
            if done >= MIN_ROUNDS and max(found) < MAX_RATIO:
                return found
    return found


def _seconds(run: Callable[[Any], object], value: Any, loops: int) -> float:
    # Without the collector: its passes over all of a process are linear over many calls, not within one.
    collecting = gc.isenabled()
    gc.disable()
    try:
        started = time.thread_time()
        for _ in range(loops):
            run(value)
        return time.thread_time() - started
    finally:
        if collecting:
            gc.enable()
