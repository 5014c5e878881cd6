"""Comparisons of ended evaluations of one data set, read from the journal."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from crucible_bridge.errors import InvalidField, NotFound, ResourceExhausted
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    MAX_COMPARED_EVALUATIONS,
    CompareRequest,
    Evaluation,
    EvaluationComparison,
    EvaluationState,
    GateRequest,
    GateResponse,
    Goal,
    Metrics,
    MetricSeries,
    PairedComparison,
    RankBy,
    SampleChange,
    SeriesPoint,
)
from crucible_worker.analysis.gating import gate
from crucible_worker.analysis.pairing import (
    Clusters,
    Known,
    check_comparable,
    goal_of,
    place_of,
    sample_scores,
    tied_with,
    why_not,
)
from crucible_worker.journal import Journal
from crucible_worker.journal.contents import question_of
from crucible_worker.journal.queries import (
    EvaluationRow,
    Reads,
    SnapshotReads,
    contents_by_sample,
    evaluation_of,
    find,
    list_rows,
)
from crucible_worker.journal.records import request_from_record
from crucible_worker.metrics.paired import paired_difference
from crucible_worker.metrics.significance import holm
from crucible_worker.reports.metric_keys import full_key
from crucible_worker.reports.ranking import Written, enough_scored, scored_by_key, superseded
from crucible_worker.reports.samples import row_text
from crucible_worker.reports.versions import of_latest_rules, versions_by_metric

__all__ = ["Comparisons", "Known", "compare_in"]

_Request = TypeVar("_Request", CompareRequest, GateRequest)
_Answer = TypeVar("_Answer", EvaluationComparison, GateResponse)


class Comparisons:
    """Compares evaluations, one comparison at a time: the largest take seconds, and other calls must be able to read.

    Args:
        journal: has the evaluations.
        max_samples: results of samples, of all evaluations of a comparison together.
        known: returns the declaration of a kind of evaluator; None if it is no longer known.
    """

    def __init__(self, journal: Journal, max_samples: int, known: Known) -> None:
        self._journal, self._max_samples, self._known = journal, max_samples, known
        self._turn = asyncio.Lock()

    async def compare(self, request: CompareRequest) -> EvaluationComparison:
        """Compare ended evaluations of one data set; the request's numbers have been checked.

        Raises:
            InvalidField: the baseline is not among them, or does not have the evaluator.
            NotFound: an evaluation does not exist, or the run has no completed one.
            FailedPrecondition: one has not ended (NOT_ENDED), or they are of several data sets (DIFFERENT_DATASETS).
            ResourceExhausted: there are too many of them, or of their samples (TOO_MANY_SAMPLES).
        """
        return await self._in_turn(compare_in, request)

    async def gate(self, request: GateRequest) -> GateResponse:
        """Say whether a candidate may take the place of a baseline; the policy has been checked.

        Raises:
            InvalidField: neither evaluation has a metric of a key, or no sample has the key of clusters.
            NotFound: an evaluation does not exist.
            FailedPrecondition: one has not ended (NOT_ENDED), they are of two data sets (DIFFERENT_DATASETS), or
                clusters are not known (METADATA_NOT_RECORDED).
            ResourceExhausted: they have too many samples (TOO_MANY_SAMPLES).
        """
        return await self._in_turn(gate, request)

    async def _in_turn(self, work: Callable[[Reads, _Request, int, Known], _Answer], request: _Request) -> _Answer:
        await self._turn.acquire()
        reading = asyncio.ensure_future(self._journal.read(_in_snapshot, work, request, self._max_samples, self._known))
        reading.add_done_callback(self._read)
        # A thread cannot be stopped: the turn lasts until it is done, even if the caller has disconnected.
        return await asyncio.shield(reading)

    def _read(self, reading: asyncio.Future[_Answer]) -> None:
        self._turn.release()
        if not reading.cancelled():
            reading.exception()  # the caller receives it too, unless it has disconnected


def _in_snapshot(
    connection: SnapshotReads,
    work: Callable[[SnapshotReads, _Request, int, Known], _Answer],
    request: _Request,
    max_samples: int,
    known: Known,
) -> _Answer:
    """Work in a reader's thread, on one snapshot of the journal for all reads, whatever is removed meanwhile."""
    with connection.snapshot():
        return work(connection, request, max_samples, known)


def compare_in(connection: Reads, request: CompareRequest, max_samples: int, known: Known) -> EvaluationComparison:
    """Compare evaluations within a transaction of the caller; see `Comparisons.compare`."""
    rows = _rows_of_run(connection, request) if request.run_id is not None else _rows_named(connection, request)
    evaluations = tuple(evaluation_of(row) for row in rows)
    check_comparable(evaluations, max_samples)
    numbers = {row.evaluation_id: row.number for row in rows}
    if request.rank_by is not None:
        metric = full_key(request.rank_by.metric, (key for one in evaluations for key in one.metrics.values))
        request = dataclasses.replace(request, rank_by=dataclasses.replace(request.rank_by, metric=metric))
    ranked, unranked = _ranked(evaluations, request)
    best = None if request.rank_by is None else _best(ranked, request.rank_by)
    tied, tied_by = (), ""
    if best is not None:
        tied, tied_by = tied_with(best, connection, numbers, ranked, request, known)
    return EvaluationComparison(
        evaluations=evaluations,
        comparisons=_corrected(tuple(_comparisons(connection, numbers, evaluations, request, known))),
        series=_series(evaluations),
        best_evaluation_id="" if best is None else best.evaluation_id,
        tied_evaluation_ids=tied,
        tied_by=tied_by,
        unranked_evaluation_ids=tuple(one.evaluation_id for one in unranked),
    )


def _rows_named(connection: Reads, request: CompareRequest) -> Sequence[EvaluationRow]:
    rows: list[EvaluationRow] = []
    for index, evaluation_id in enumerate(request.evaluation_ids):
        row = find(connection, evaluation_id)
        if row is None:
            raise NotFound(
                f"is {evaluation_id!r}: no evaluation has this id, or it is no longer retained",
                reason=Reason.UNKNOWN_EVALUATION,
                field=f"evaluation_ids[{index}]",
            )
        rows.append(row)
    return rows


def _rows_of_run(connection: Reads, request: CompareRequest) -> Sequence[EvaluationRow]:
    found, _ = list_rows(connection, run_id=request.run_id)
    gone = superseded(
        Written(
            row.evaluation_id, row.step, request_from_record(row.request).model, row.model_fingerprint, row.created_ns
        )
        for row in found
    )
    wanted = request.dataset_fingerprint
    rows = [
        row
        for row in reversed(found)
        if row.state is EvaluationState.COMPLETED
        and row.evaluation_id not in gone
        and (not wanted or row.dataset_fingerprint == wanted)
    ]
    if not rows:
        data_set = " on this data set" if wanted and found else ""
        raise NotFound(f"has no completed evaluation{data_set}", reason=Reason.UNKNOWN_RUN, field="run_id")
    if len(rows) > MAX_COMPARED_EVALUATIONS:
        raise ResourceExhausted(
            f"run_id has {len(rows):,} completed evaluations, at most {MAX_COMPARED_EVALUATIONS} are compared",
            reason=Reason.TOO_MANY_SAMPLES,
        )
    return sorted(rows, key=lambda row: (row.step is not None, row.step or 0))


def _baselines(evaluations: Sequence[Evaluation], request: CompareRequest) -> Sequence[tuple[Evaluation, int]]:
    """Each compared evaluator once, with its baseline evaluation and its index in that."""
    by_id = {evaluation.evaluation_id: evaluation for evaluation in evaluations}
    if request.baseline_id and request.baseline_id not in by_id:
        raise InvalidField("baseline_id", f"is {request.baseline_id!r}, which is not among the evaluations compared")
    found: dict[tuple[str, str], tuple[Evaluation, int]] = {}
    # The parts of a plan that are not due together are separate evaluations: not every one has every evaluator.
    # One that failed before its data set was read is a baseline only if there is no other.
    read_first = sorted(evaluations, key=lambda evaluation: not evaluation.dataset_fingerprint)
    for evaluation in [by_id[request.baseline_id]] if request.baseline_id else read_first:
        for index, spec in enumerate(evaluation.request.evaluators):
            found.setdefault((spec.label, spec.kind), (evaluation, index))
    wanted = [place for (label, _), place in found.items() if request.evaluator in (None, label)]
    if not wanted:
        known = ", ".join(dict.fromkeys(label for label, _ in found))
        raise InvalidField("evaluator", f"is {request.evaluator!r}, there are: {known}")
    return wanted


def _comparisons(
    connection: Reads,
    numbers: Mapping[str, int],
    evaluations: Sequence[Evaluation],
    request: CompareRequest,
    known: Known,
) -> Iterator[PairedComparison]:
    for baseline, index in _baselines(evaluations, request):
        spec = baseline.request.evaluators[index]
        others = [
            (other, place)
            for other in evaluations
            if other is not baseline and (place := place_of(other, spec)) is not None
        ]
        if not others:
            continue
        number = numbers[baseline.evaluation_id]
        scores = sample_scores(connection, number, index).by_sample
        clusters = Clusters(request.cluster_by, "cluster_by")
        clusters.read(connection, number, index, baseline.dataset_fingerprint)
        pairs: list[PairedComparison] = []
        for other, place in others:
            problem = why_not(baseline, index, other, place, known, across_rules=request.across_rules)
            pair = PairedComparison(
                baseline_id=baseline.evaluation_id,
                evaluation_id=other.evaluation_id,
                evaluator=spec.label,
                problem=problem,
            )
            if problem is None:
                theirs = sample_scores(connection, numbers[other.evaluation_id], place).by_sample
                pair = _paired(pair, scores, theirs, goal_of(spec, known), request, clusters)
            pairs.append(pair)
        yield from _with_inputs(pairs, connection, number, index, baseline.dataset_fingerprint)


def _with_inputs(
    pairs: Sequence[PairedComparison], connection: Reads, number: int, index: int, dataset_fingerprint: str
) -> Iterator[PairedComparison]:
    """Comparisons whose listed samples say what they ask; ids are often numbers of rows."""
    wanted = {change.sample_id for pair in pairs for change in (*pair.improvements, *pair.regressions)}
    found = contents_by_sample(connection, number, index, dataset_fingerprint, wanted)
    inputs = {sample_id: row_text(question_of(content, sample_id)) for sample_id, content in found}

    def told(changes: Sequence[SampleChange]) -> tuple[SampleChange, ...]:
        return tuple(dataclasses.replace(change, input=inputs.get(change.sample_id, "")) for change in changes)

    for pair in pairs:
        yield dataclasses.replace(pair, improvements=told(pair.improvements), regressions=told(pair.regressions))


def _corrected(pairs: Sequence[PairedComparison]) -> tuple[PairedComparison, ...]:
    """The comparisons with `holm_p`: p, corrected for all comparisons of the same evaluation."""
    families: dict[str, list[int]] = {}
    for index, pair in enumerate(pairs):
        if "p" in pair.metrics.values:
            families.setdefault(pair.evaluation_id, []).append(index)
    found = list(pairs)
    for indices in families.values():
        for index, chance in zip(indices, holm([pairs[index].metrics.values["p"] for index in indices])):
            metrics = pairs[index].metrics
            extended = Metrics({**metrics.values, "holm_p": chance}, metrics.undefined)
            found[index] = dataclasses.replace(pairs[index], metrics=extended)
    return tuple(found)


def _paired(
    pair: PairedComparison,
    baseline: Mapping[str, float],
    other: Mapping[str, float],
    goal: Goal | None,
    request: CompareRequest,
    clusters: Clusters,
) -> PairedComparison:
    matched = [sample_id for sample_id in baseline if sample_id in other]
    before = np.array([baseline[sample_id] for sample_id in matched], np.float64)
    after = np.array([other[sample_id] for sample_id in matched], np.float64)
    found = paired_difference(before, after, confidence=request.confidence, clusters=clusters.of(matched))
    gains = np.zeros_like(before) if goal is None else (after - before) * (1 if goal is Goal.HIGHER else -1)
    # Stable: samples with equal changes stay in the data set's order.
    improved = [index for index in np.argsort(-gains, kind="stable") if gains[index] > 0]
    regressed = [index for index in np.argsort(gains, kind="stable") if gains[index] < 0]

    def listed(indices: Sequence[int]) -> tuple[SampleChange, ...]:
        return tuple(
            SampleChange(sample_id=matched[index], baseline_score=float(before[index]), score=float(after[index]))
            for index in indices[: request.max_listed]
        )

    return dataclasses.replace(
        pair,
        n_matched=len(matched),
        n_baseline_only=len(baseline) - len(matched),
        n_evaluation_only=len(other) - len(matched),
        n_improved=len(improved),
        n_regressed=len(regressed),
        metrics=found.metrics,
        interval_method=found.interval_method,
        improvements=listed(improved),
        regressions=listed(regressed),
    )


def _series(evaluations: Sequence[Evaluation]) -> tuple[MetricSeries, ...]:
    points: dict[str, list[SeriesPoint]] = {}
    for evaluation in evaluations:
        scored = scored_by_key(evaluation.results)
        graders = versions_by_metric(evaluation)
        for key, value in evaluation.metrics.values.items():
            point = SeriesPoint(
                evaluation_id=evaluation.evaluation_id,
                step=evaluation.request.step,
                value=value,
                rules_version=evaluation.rules_version,
                scored=scored.get(key),
                grader_versions=graders.get(key, {}),
            )
            points.setdefault(key, []).append(point)
    return tuple(MetricSeries(key=key, points=tuple(found)) for key, found in points.items())


def _ranked(
    evaluations: Sequence[Evaluation], request: CompareRequest
) -> tuple[Sequence[Evaluation], Sequence[Evaluation]]:
    """Of the evaluations with the metric that tells the best one: those that are ranked, and the others.

    The others are those by other rules or versions of graders, and those with too few scores.
    """
    if request.rank_by is None:
        return (), ()
    metric = request.rank_by.metric
    defined = [evaluation for evaluation in evaluations if metric in evaluation.metrics.values]
    if not defined:
        return (), ()
    alike = defined
    if not request.across_rules:
        alike = of_latest_rules(defined, lambda one: versions_by_metric(one).get(metric, {}))
    counts = [scored_by_key(one.results).get(metric) for one in alike]
    enough = enough_scored(counts, request.rank_by.min_scored_share)
    ranked = list(itertools.compress(alike, enough))
    return ranked, [one for one in defined if one not in ranked]


def _best(ranked: Sequence[Evaluation], rank_by: RankBy) -> Evaluation | None:
    sign = 1 if rank_by.goal is Goal.HIGHER else -1
    return max(ranked, key=lambda evaluation: sign * evaluation.metrics.values[rank_by.metric], default=None)
