"""Which numbers of a run may be ranked: those of enough scores, and of checkpoints that were not written again.

step   accuracy   scored
320    0.62       100 of 100
480    1.00       16 of 100    not ranked: the 16 may be the easy ones
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from crucible_bridge.types import EvaluatorResult, ModelRef, ScoredCount
from crucible_worker.reports.metric_keys import STRICT
from crucible_worker.util.fingerprints import is_of_files, model_part, same
from crucible_worker.util.model_refs import format_original_model

__all__ = ["MIN_SCORED_SHARE", "Written", "enough_scored", "scored_by_key", "scored_in_words", "superseded"]

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


# Evaluations of checkpoints that have been written again: their numbers are those of files that are gone.
#
#     step 500, runs/a/checkpoint-500, digest 1    superseded
#     step 500, runs/a/checkpoint-500, digest 2
#
# A trainer that starts again from an earlier checkpoint writes the later ones again, with other content. Then the
# earlier numbers of these steps are in no table's best, no chart and no comparison of the run; their records stay.


class Written(NamedTuple):
    """What an evaluation of a run has read."""

    evaluation_id: str
    """The evaluation."""
    step: int | None
    """The training step."""
    model: ModelRef
    """The checkpoint."""
    fingerprint: str
    """Its content, and that of judges; empty until it is known."""
    created_ns: int
    """When the evaluation was accepted."""


def superseded(of_run: Iterable[Written]) -> frozenset[str]:
    """The evaluations of a run whose checkpoint has other content in a later one of the same step and place."""
    places: dict[tuple[int | None, str], list[Written]] = {}
    for one in of_run:
        if is_of_files(_model_of(one)):
            places.setdefault((one.step, format_original_model(one.model)), []).append(one)
    found: set[str] = set()
    for written in places.values():
        latest = _model_of(max(written, key=lambda one: one.created_ns))
        found.update(one.evaluation_id for one in written if same(_model_of(one), latest) is False)
    return frozenset(found)


def _model_of(one: Written) -> str:
    return model_part(one.fingerprint)
