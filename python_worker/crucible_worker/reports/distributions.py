"""What the samples of an evaluation have, in one pass: how they are spread, and the fields of their metadata.

Spread are verdicts, reasons, scores, times and lengths.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.types import SampleResult
from crucible_worker.reports.plain_json import plain, replace_surrogates

__all__ = [
    "MAX_BINS",
    "MAX_FIELDS",
    "MAX_VALUES",
    "MAX_VALUE_CHARS",
    "MetadataFields",
    "ResultDistributions",
    "histogram",
    "typical",
]

MAX_BINS = 40
"""Of a histogram."""

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


class ResultDistributions:
    """Takes the results of an evaluation one by one. Of each it keeps three numbers, so 200,000 take 5 MB."""

    def __init__(self) -> None:
        """Begin with none."""
        self._spreads: dict[str, _Spread] = {}

    def add(self, result: SampleResult) -> None:
        """Count a result."""
        spread = self._spreads.get(result.evaluator)
        if spread is None:
            spread = self._spreads[result.evaluator] = _Spread()
        spread.add(result)

    def as_data(self) -> dict[str, Any]:
        """By the label of the evaluator, as it stands."""
        return plain({label: spread.as_data() for label, spread in self._spreads.items()})


class _Spread:
    """The results of one evaluator."""

    __slots__ = ("_output_tokens", "_scores", "_seconds", "_stops", "_unscored", "_verdicts")

    def __init__(self) -> None:
        self._verdicts: Counter[str] = Counter()
        self._unscored: Counter[str] = Counter()
        self._stops: Counter[str] = Counter()
        self._scores, self._seconds, self._output_tokens = array("d"), array("d"), array("d")

    def add(self, result: SampleResult) -> None:
        self._verdicts[result.verdict.value] += 1
        if not result.verdict.scored:
            self._unscored[result.verdict.value if result.problem is None else result.problem.reason] += 1
        if result.score is not None and math.isfinite(result.score):
            self._scores.append(result.score)
        if result.duration_ns > 0:
            self._seconds.append(result.duration_ns / 1e9)
        tokens = result.output_tokens
        if result.stop_reason or tokens or (tokens is None and result.output):
            self._stops[result.stop_reason] += 1
            if tokens is not None:
                self._output_tokens.append(tokens)

    def as_data(self) -> dict[str, Any]:
        return {
            "verdicts": dict(self._verdicts),
            "unscored": [[reason, n] for reason, n in self._unscored.most_common()],
            "stops": dict(self._stops),
            "score": histogram(self._scores),
            "seconds": histogram(self._seconds),
            "output_tokens": histogram(self._output_tokens, whole=True),
            "typical": {
                "score": typical(self._scores),
                "seconds": typical(self._seconds),
                "output_tokens": typical(self._output_tokens),
            },
        }


def typical(values: Sequence[float]) -> Mapping[str, float] | None:
    """The mean, and those values that a half and 95 % of all do not exceed; None if there are no values.

    Args:
        values: finite.
    """
    if not len(values):
        return None
    numbers = np.asarray(values, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # the mean of huge numbers may be none, which is null as data
        mean = float(numbers.mean())
    median, most_of_all = np.quantile(numbers, (0.5, 0.95), method="inverted_cdf")
    return {"mean": mean, "median": float(median), "p95": float(most_of_all)}


def histogram(values: Sequence[float], *, whole: bool = False) -> Mapping[str, list[Any]] | None:
    """Count values in at most `MAX_BINS` bins of one round width; None if there are no values.

    Args:
        values: finite.
        whole: they are whole numbers: so are the edges, and the last one is above every value.
    """
    if not len(values):
        return None
    numbers = np.frombuffer(values, np.float64) if isinstance(values, array) else np.asarray(values, np.float64)
    low, high = float(numbers.min()), float(numbers.max())
    last = high + 1 if whole else high
    # Halves: the distance of two finite numbers may be none.
    span = last / 2 - low / 2
    if span <= 0 or not math.isfinite(1 / span):
        return {"edges": [low, high], "counts": [len(numbers)]}
    edges = _edges(low, last, _width(2 * (span / MAX_BINS), whole=whole))
    counts, _ = np.histogram(numbers, bins=edges)
    return {"edges": [float(edge) for edge in edges], "counts": [int(count) for count in counts]}


def _width(least: float, *, whole: bool) -> float:
    """The next round number; a whole one for whole numbers."""
    power = 10.0 ** math.floor(math.log10(least))
    width = next((step * power for step in _STEPS if step * power >= least), 10 * power)
    return max(1.0, math.ceil(width)) if whole else width


def _edges(low: float, last: float, width: float) -> np.ndarray:
    first = math.floor(low / width)
    count = max(1, math.ceil(last / width) - first)
    if count > MAX_BINS:  # the lowest and the highest value lie in the middle of a bin
        return _edges(low, last, 2 * width)
    edges = np.nan_to_num([float(f"{(first + n) * width:.12g}") for n in range(count + 1)])
    # By rounding, an edge may lie beyond a value.
    edges[0], edges[-1] = min(edges[0], low), max(edges[-1], last)
    return edges


# The metadata that samples have, so that people choose among fields and values in place of typing them.

MAX_FIELDS = 50
"""Fields to choose from; those that come later are not offered."""
MAX_VALUES = 50
"""Values of a field to choose from; a field with more of them is offered without values."""
MAX_VALUE_CHARS = 100
"""A field with a longer value is offered without values, too."""


class MetadataFields:
    """Takes the metadata of samples one by one.

    fields = MetadataFields()
    fields.add({"level": "2", "source": text})
    fields.as_data()                    # {"level": ["1", "2"], "source": None}
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._values: dict[str, dict[str, None] | None] = {}

    def add(self, metadata: Mapping[str, str]) -> None:
        """Count a sample."""
        for key, value in metadata.items():
            # What filters by metadata reads "field=value".
            if not key or "=" in key or len(key) > MAX_VALUE_CHARS:
                continue
            if key not in self._values:
                if len(self._values) == MAX_FIELDS:
                    continue
                self._values[key] = {}
            values = self._values[key]
            if values is None or value in values:
                continue
            if len(values) == MAX_VALUES or len(value) > MAX_VALUE_CHARS:
                self._values[key] = None
            else:
                values[value] = None

    def as_data(self) -> Mapping[str, Sequence[str] | None]:
        """The values by field, both in order; None where they are too many or too long to choose from."""
        return {
            replace_surrogates(key): None if values is None else sorted(map(replace_surrogates, values))
            for key, values in sorted(self._values.items())
        }
