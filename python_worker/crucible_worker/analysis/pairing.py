"""Whether an evaluator's results in two evaluations can be compared, their scores, and what these cannot tell apart.

Samples may be of clusters, which are not independent of each other.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from crucible_bridge.errors import FailedPrecondition, InvalidField, ResourceExhausted, clipped
from crucible_bridge.reasons import Reason
from crucible_bridge.types import CompareRequest, Evaluation, EvaluatorInfo, EvaluatorSpec, Goal, Problem
from crucible_worker.journal.queries import Reads, metadata_by_sample, scores_of
from crucible_worker.metrics.paired import paired_difference
from crucible_worker.reports.versions import grader_versions, other_grader, rules_in_words, version_in_words
from crucible_worker.util.fingerprints import same

__all__ = [
    "PAIRED_SCORES",
    "VALUES",
    "Clusters",
    "Known",
    "SampleScores",
    "check_comparable",
    "goal_of",
    "index_of_key",
    "place_of",
    "sample_scores",
    "tied_with",
    "why_not",
]

# Clusters of samples, by a key of their metadata, as it is recorded with the evaluations.

_MAX_KEYS_SHOWN = 20  # keys that an error names


class Clusters:
    """The clusters of one data set's samples.

    Args:
        key: of the metadata; there are no clusters if it is empty.
        field: the path of the key in the request.
    """

    def __init__(self, key: str, field: str) -> None:
        self._key, self._field = key, field
        self._values: dict[str, str | None] = {}

    def read(self, connection: Reads, number: int, evaluator: int, dataset_fingerprint: str) -> None:
        """Read the values of one evaluator's samples, unless there are no clusters.

        Args:
            connection: to the journal.
            number: of an evaluation.
            evaluator: its index there.
            dataset_fingerprint: of its data set.

        Raises:
            FailedPrecondition: the metadata of a sample is not recorded, or truncated (METADATA_NOT_RECORDED).
            InvalidField: no sample has the key.
        """
        if not self._key:
            return
        keys: set[str] = set()
        read = 0
        for sample_id, metadata in metadata_by_sample(connection, number, evaluator, dataset_fingerprint):
            if metadata is None:
                raise FailedPrecondition(
                    f"{self._key!r} is not known of sample {clipped(sample_id)}: what the samples are is not recorded "
                    "completely, see `record` and the limits of records",
                    reason=Reason.METADATA_NOT_RECORDED,
                    field=self._field,
                )
            self._values[sample_id] = metadata.get(self._key)
            keys.update(metadata)
            read += 1
        if read and self._key not in keys:
            shown = ", ".join(repr(key[:60]) for key in sorted(keys)[:_MAX_KEYS_SHOWN]) or "none"
            raise InvalidField(self._field, f"is {self._key!r}, which no sample has; keys of their metadata: {shown}")

    def of(self, sample_ids: Sequence[str]) -> np.ndarray | None:
        """The number of each sample's cluster, from 0, int64, shape (samples,); None if there are no clusters."""
        if not self._key:
            return None
        numbers: dict[tuple[str, ...], int] = {}
        places = (_place(sample_id, self._values) for sample_id in sample_ids)
        return np.fromiter((numbers.setdefault(place, len(numbers)) for place in places), np.int64, len(sample_ids))


def _place(sample_id: str, values: Mapping[str, str | None]) -> tuple[str, ...]:
    """What tells a cluster from the others: its value, or a sample's id behind a blank for one by itself."""
    value = values.get(sample_id)
    return (value,) if value is not None else ("", sample_id)


_MAX_SHOWN = 5  # fingerprints that an error names

Known = Callable[[str], EvaluatorInfo | None]
"""The declaration of a kind of evaluator; None if it cannot be known."""


def check_comparable(evaluations: Sequence[Evaluation], max_samples: int) -> None:
    """Refuse evaluations that cannot be compared.

    Raises:
        FailedPrecondition: one has not ended (NOT_ENDED), or they are of several data sets (DIFFERENT_DATASETS).
        ResourceExhausted: they have more results of samples than this (TOO_MANY_SAMPLES).
    """
    for evaluation in evaluations:
        if not evaluation.state.terminal:
            message = f"{evaluation.evaluation_id!r} is {evaluation.state.value}: only what has ended is compared"
            raise FailedPrecondition(message, reason=Reason.NOT_ENDED)
    # One that failed before its data set was read has no result to compare, and its data set is unknown.
    read = [evaluation for evaluation in evaluations if evaluation.dataset_fingerprint]
    fingerprints = {evaluation.dataset_fingerprint: evaluation.evaluation_id for evaluation in read}
    if len(fingerprints) > 1:
        _refuse_data_sets(fingerprints)
    done = sum(evaluation.done for evaluation in evaluations)
    if done > max_samples:
        raise ResourceExhausted(
            f"the evaluations have {done:,} results of samples, at most {max_samples:,} are compared "
            "(limit max_compared_samples)",
            reason=Reason.TOO_MANY_SAMPLES,
        )


def _refuse_data_sets(fingerprints: Mapping[str, str]) -> NoReturn:
    shown = [f"{fingerprint} ({name!r})" for fingerprint, name in list(fingerprints.items())[:_MAX_SHOWN]]
    more = f" and {len(fingerprints) - _MAX_SHOWN} more" if len(fingerprints) > _MAX_SHOWN else ""
    raise FailedPrecondition(
        f"the evaluations are of {len(fingerprints)} data sets: {', '.join(shown)}{more}",
        reason=Reason.DIFFERENT_DATASETS,
    )


def index_of_key(evaluation: Evaluation, key: str) -> int | None:
    """The index of the evaluator whose metrics have this full key, with a value or without; None if none has."""
    for index, result in enumerate(evaluation.results):
        if key in result.metrics.values or key in result.metrics.undefined:
            return index
    return None


def place_of(evaluation: Evaluation, spec: EvaluatorSpec) -> int | None:
    """The index of the evaluator of this name and kind; None if there is none."""
    labels = [(theirs.label, theirs.kind) for theirs in evaluation.request.evaluators]
    pair = (spec.label, spec.kind)
    return labels.index(pair) if pair in labels else None


def why_not(
    baseline: Evaluation, index: int, other: Evaluation, place: int, known: Known, *, across_rules: bool = False
) -> Problem | None:
    """Why the results of an evaluator cannot be compared; None if they can.

    Args:
        baseline: one evaluation.
        index: the evaluator's index in its request.
        other: the other evaluation.
        place: likewise there.
        known: returns the declarations of evaluators.
        across_rules: whether evaluations by other rules, and by other versions of graders, can be compared.
    """
    spec = baseline.request.evaluators[index]
    return (
        _problem(baseline, index)
        or _problem(other, place)
        or (None if across_rules else _other_rules(baseline, other) or _other_grader(spec, baseline, other))
        or _difference(spec, other, place, known)
        or _other_judge(spec, baseline, other)
    )


def _problem(evaluation: Evaluation, index: int) -> Problem | None:
    if not evaluation.dataset_fingerprint:
        message = f"{evaluation.evaluation_id!r} ended before its data set was read"
        return Problem(reason=Reason.DATASET_NOT_READ, message=message)
    problem = evaluation.results[index].problem if index < len(evaluation.results) else None
    if problem is None or problem.reason == Reason.TOO_MANY_UNSCORED:  # the scores that there are can be compared
        return None
    message = f"it failed in {evaluation.evaluation_id!r}: {problem.reason}: {problem.message}"
    return Problem(reason=Reason.EVALUATOR_FAILED, message=message)


def _other_rules(baseline: Evaluation, other: Evaluation) -> Problem | None:
    if baseline.rules_version == other.rules_version != 0:  # of two that are 0, each may have other versions
        return None
    message = (
        f"{other.evaluation_id!r} was measured by rules {rules_in_words(other.rules_version)}, the baseline by rules "
        f"{rules_in_words(baseline.rules_version)}: measure one of them again, or set across_rules (--across-rules)"
    )
    return Problem(reason=Reason.RULES_DIFFER, message=message)


def _other_grader(spec: EvaluatorSpec, baseline: Evaluation, other: Evaluation) -> Problem | None:
    ours, theirs = (grader_versions(one, spec.label) for one in (baseline, other))
    name = other_grader(ours, theirs)
    if name is None:
        return None
    message = (
        f"{other.evaluation_id!r} was judged by {version_in_words(name, theirs)}, the baseline by "
        f"{version_in_words(name, ours)}: measure one of them again, or set across_rules (--across-rules)"
    )
    return Problem(reason=Reason.RULES_DIFFER, message=message)


def _difference(spec: EvaluatorSpec, other: Evaluation, place: int, known: Known) -> Problem | None:
    if _options(other.request.evaluators[place], known) == _options(spec, known):
        return None
    message = f"its options in {other.evaluation_id!r} are not those in the baseline"
    return Problem(reason=Reason.EVALUATORS_DIFFER, message=message)


def _other_judge(spec: EvaluatorSpec, baseline: Evaluation, other: Evaluation) -> Problem | None:
    given = spec.options.get("grader_options")
    if not ("judge" in spec.options or (isinstance(given, Mapping) and "judge" in given)):
        return None
    # They follow the model's, see `Plan.model_fingerprint`. It does not say which judge each belongs to: if there are
    # several, one in common is enough.
    ours, theirs = (evaluation.model_fingerprint.split("+")[1:] for evaluation in (baseline, other))
    found = [same(one, another) for one in ours for another in theirs]
    if not found or True in found:
        return None
    if None in found:
        message = (
            f"whether its judge in {other.evaluation_id!r} has the weights of that in the baseline is not known: "
            "one of them was recorded by an earlier release"
        )
    else:
        message = f"its judge has other weights in {other.evaluation_id!r} than in the baseline"
    return Problem(reason=Reason.EVALUATORS_DIFFER, message=message)


def _options(spec: EvaluatorSpec, known: Known) -> Mapping[str, Any]:
    """Its options and its grader's; an option that is not given equals one that spells the default out."""
    info = known(spec.kind)
    schema = {} if info is None else info.options_schema
    options = _filled(spec.options, schema)
    grader, given = options.get("grader"), options.get("grader_options")
    if not (isinstance(grader, str) and isinstance(given, Mapping)):
        return options
    return {**options, "grader_options": _filled(given, schema.get("$defs", {}).get(grader, {}))}


def _filled(options: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    known = schema.get("properties", {})
    return {**{name: option["default"] for name, option in known.items() if "default" in option}, **options}


def goal_of(spec: EvaluatorSpec, known: Known) -> Goal | None:
    """Which scores of an evaluator are better; None if that is not known."""
    info = known(spec.kind)
    return None if info is None else info.score_goal


@dataclasses.dataclass(frozen=True, slots=True)
class SampleScores:
    """The scores of an evaluator's samples."""

    by_sample: Mapping[str, float]
    """The mean score of every sample with one, in the data set's order."""
    counts: Mapping[str, int]
    """The number of scores of each of these samples: that of its repeats with one."""
    mean: float | None
    """The mean of all scores, each repeat counted; None without a score."""

    def is_mean(self, value: float | None) -> bool:
        """Whether a metric's value is the mean of these scores, up to rounding."""
        return (
            self.mean is not None and value is not None and math.isclose(value, self.mean, rel_tol=1e-9, abs_tol=1e-12)
        )


def sample_scores(connection: Reads, number: int, evaluator: int) -> SampleScores:
    """Read the scores of one evaluator of an evaluation, by the evaluation's number and the evaluator's index."""
    sums: dict[str, list[float]] = {}
    for sample_id, score in scores_of(connection, number, evaluator):
        sums.setdefault(sample_id, []).append(score)
    means = {
        sample_id: scores[0] if len(scores) == 1 else statistics.fmean(scores) for sample_id, scores in sums.items()
    }
    everything = [score for scores in sums.values() for score in scores]
    counts = {sample_id: len(scores) for sample_id, scores in sums.items()}
    return SampleScores(means, counts, statistics.fmean(everything) if everything else None)


# Evaluations that cannot be told from the best one of a metric.

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
