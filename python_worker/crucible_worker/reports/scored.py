"""Of how many scores a metric is made, and which of its values may be ranked.

step   accuracy   scored
320    0.62       100 of 100
480    1.00       16 of 100    not ranked: the 16 may be the easy ones
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from crucible_bridge.types import EvaluatorResult, ScoredCount
from crucible_worker.reports.metric_keys import STRICT

__all__ = ["MIN_SCORED_SHARE", "enough_scored", "scored_by_key", "scored_in_words"]

MIN_SCORED_SHARE = 0.95
"""A value of fewer scores than this share of what another one has is not ranked with it."""


def scored_by_key(results: Iterable[EvaluatorResult]) -> Mapping[str, ScoredCount]:
    """What each metric is made of, by its full key; without those of which that is not known.

    Strict variants are left out: samples without a score count in them, as wrong.
    """
    return {
        key: ScoredCount(n=result.n, n_scored=result.n_scored)
        for result in results
        if result.n
        for key in result.metrics.values
        if not key.endswith(STRICT)
    }


def enough_scored(counts: Sequence[ScoredCount | None], share: float = MIN_SCORED_SHARE) -> Sequence[bool]:
    """Of values of one metric, which may be ranked.

    Args:
        counts: of each value; None if that is not known: it is ranked.
        share: of the largest number of scores that one of them has.
    """
    most = max((count.n_scored for count in counts if count is not None), default=0)
    return [count is None or count.n_scored >= share * most for count in counts]


def scored_in_words(count: ScoredCount | None) -> str:
    """A count such as "16 of 100 scored"; empty if every sample has a score, or if that is not known."""
    return "" if count is None or count.n_scored == count.n else f"{count.n_scored:,} of {count.n:,} scored"
