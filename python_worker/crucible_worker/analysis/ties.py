"""Evaluations that cannot be told from the best one of a metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from crucible_bridge.types import CompareRequest, Evaluation
from crucible_worker.analysis.clusters import Clusters
from crucible_worker.analysis.pairing import Known, SampleScores, index_of_key, place_of, sample_scores, why_not
from crucible_worker.journal.queries import Reads
from crucible_worker.metrics.paired import paired_difference

__all__ = ["PAIRED_SCORES", "VALUES", "tied_with"]

PAIRED_SCORES, VALUES = "paired_scores", "values"
"""What a statement about a metric rests on: scores of the same samples, or the values of the metric alone."""


def tied_with(
    best: Evaluation,
    connection: Reads,
    numbers: Mapping[str, int],
    evaluations: Sequence[Evaluation],
    request: CompareRequest,
    known: Known,
) -> tuple[tuple[str, ...], str]:
    """The evaluations that are tied with the best one of the request's metric, and what that rests on.

    Args:
        best: the evaluation with the best value.
        connection: to the journal.
        numbers: of the evaluations in the journal, by id.
        evaluations: that may be tied.
        request: has the metric, the confidence and the key of clusters.
        known: returns the declarations of evaluators.

    Returns:
        Ids in the order of `evaluations`, without that of the best; and PAIRED_SCORES or VALUES.
    """
    assert request.rank_by is not None
    metric = request.rank_by.metric
    value = best.metrics.values[metric]
    index = index_of_key(best, metric)
    scores = None if index is None else sample_scores(connection, numbers[best.evaluation_id], index)
    others = [one for one in evaluations if one is not best and metric in one.metrics.values]
    if index is None or scores is None or not scores.is_mean(value):
        return tuple(one.evaluation_id for one in others if one.metrics.values[metric] == value), VALUES
    clusters = Clusters(request.cluster_by, "cluster_by")
    clusters.read(connection, numbers[best.evaluation_id], index, best.dataset_fingerprint)
    tied: list[str] = []
    for other in others:
        place = place_of(other, best.request.evaluators[index])
        if place is None:
            continue
        if why_not(best, index, other, place, known, across_rules=request.across_rules) is not None:
            continue
        theirs = sample_scores(connection, numbers[other.evaluation_id], place)
        if _includes_zero(scores, theirs, clusters, request.confidence):
            tied.append(other.evaluation_id)
    return tuple(tied), PAIRED_SCORES


def _includes_zero(best: SampleScores, other: SampleScores, clusters: Clusters, confidence: float) -> bool:
    matched = [sample_id for sample_id in best.by_sample if sample_id in other.by_sample]
    ours, theirs = (np.array([each.by_sample[one] for one in matched], np.float64) for each in (best, other))
    found = paired_difference(ours, theirs, confidence=confidence, clusters=clusters.of(matched)).metrics.values
    low, high = found.get("difference_ci_low"), found.get("difference_ci_high")
    return low is not None and high is not None and low <= 0 <= high
