"""Comparisons of ended evaluations of one data set, read from the journal."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from crucible_bridge.errors import FailedPrecondition, InvalidField, NotFound, ResourceExhausted
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    MAX_COMPARED_EVALUATIONS,
    CompareRequest,
    Evaluation,
    EvaluationComparison,
    EvaluationState,
    EvaluatorInfo,
    EvaluatorSpec,
    Goal,
    MetricSeries,
    PairedComparison,
    Problem,
    RankBy,
    SampleChange,
    SeriesPoint,
)
from crucible_worker.metrics.paired import paired_difference
from crucible_worker.runs.journal import Journal
from crucible_worker.runs.journal.queries import Row, evaluation_of, find, list_rows, scores_of

__all__ = ["Comparisons", "Known", "compare_in"]

_MAX_SHOWN = 5  # fingerprints that an error names


Known = Callable[[str], EvaluatorInfo | None]
"""The declaration of a kind of evaluator; None if it cannot be known."""


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
        await self._turn.acquire()
        reading = asyncio.ensure_future(self._journal.read(_compare, request, self._max_samples, self._known))
        reading.add_done_callback(self._read)
        # A thread cannot be stopped: the turn lasts until it is done, even if the caller has disconnected.
        return await asyncio.shield(reading)

    def _read(self, reading: asyncio.Future[EvaluationComparison]) -> None:
        self._turn.release()
        if not reading.cancelled():
            reading.exception()  # the caller receives it too, unless it has disconnected


def _compare(
    connection: sqlite3.Connection, request: CompareRequest, max_samples: int, known: Known
) -> EvaluationComparison:
    """Compare evaluations; runs in a reader's thread."""
    # One snapshot of the journal for all reads, whatever is removed meanwhile.
    connection.execute("BEGIN")
    try:
        return compare_in(connection, request, max_samples, known)
    finally:
        connection.execute("COMMIT")


def compare_in(
    connection: sqlite3.Connection, request: CompareRequest, max_samples: int, known: Known
) -> EvaluationComparison:
    """Compare evaluations within a transaction of the caller; see `Comparisons.compare`."""
    rows = _rows_of_run(connection, request) if request.run_id is not None else _rows_named(connection, request)
    evaluations = tuple(evaluation_of(row) for row in rows)
    _check(evaluations, max_samples)
    numbers = {row.evaluation_id: row.number for row in rows}
    comparisons = tuple(_comparisons(connection, numbers, evaluations, request, known))
    return EvaluationComparison(
        evaluations=evaluations,
        comparisons=comparisons,
        series=_series(evaluations),
        best_evaluation_id="" if request.rank_by is None else _best(evaluations, request.rank_by),
    )


def _rows_named(connection: sqlite3.Connection, request: CompareRequest) -> Sequence[Row]:
    rows: list[Row] = []
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


def _rows_of_run(connection: sqlite3.Connection, request: CompareRequest) -> Sequence[Row]:
    found, _ = list_rows(connection, run_id=request.run_id, states=(EvaluationState.COMPLETED,))
    wanted = request.dataset_fingerprint
    rows = [row for row in reversed(found) if not wanted or row.dataset_fingerprint == wanted]
    if not rows:
        data_set = " on this data set" if wanted and found else ""
        raise NotFound(f"has no completed evaluation{data_set}", reason=Reason.UNKNOWN_RUN, field="run_id")
    if len(rows) > MAX_COMPARED_EVALUATIONS:
        raise ResourceExhausted(
            f"run_id has {len(rows):,} completed evaluations, at most {MAX_COMPARED_EVALUATIONS} are compared",
            reason=Reason.TOO_MANY_SAMPLES,
        )
    return sorted(rows, key=lambda row: (row.step is not None, row.step or 0))


def _check(evaluations: Sequence[Evaluation], max_samples: int) -> None:
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
    connection: sqlite3.Connection,
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
            if other is not baseline and (place := _place(other, spec)) is not None
        ]
        scores = _scores(connection, numbers[baseline.evaluation_id], index) if others else {}
        for other, place in others:
            problem = (
                _problem(baseline, index)
                or _problem(other, place)
                or _difference(spec, other, place, known)
                or _other_judge(spec, baseline, other)
            )
            pair = PairedComparison(
                baseline_id=baseline.evaluation_id,
                evaluation_id=other.evaluation_id,
                evaluator=spec.label,
                problem=problem,
            )
            if problem is None:
                theirs = _scores(connection, numbers[other.evaluation_id], place)
                pair = _paired(pair, scores, theirs, _goal(spec, known), request)
            yield pair


def _place(evaluation: Evaluation, spec: EvaluatorSpec) -> int | None:
    labels = [(theirs.label, theirs.kind) for theirs in evaluation.request.evaluators]
    pair = (spec.label, spec.kind)
    return labels.index(pair) if pair in labels else None


def _problem(evaluation: Evaluation, index: int) -> Problem | None:
    if not evaluation.dataset_fingerprint:
        message = f"{evaluation.evaluation_id!r} ended before its data set was read"
        return Problem(reason=Reason.DATASET_NOT_READ, message=message)
    if index >= len(evaluation.results) or (problem := evaluation.results[index].problem) is None:
        return None
    message = f"it failed in {evaluation.evaluation_id!r}: {problem.reason}: {problem.message}"
    return Problem(reason=Reason.EVALUATOR_FAILED, message=message)


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
    ours, theirs = (set(evaluation.model_fingerprint.split("+")[1:]) for evaluation in (baseline, other))
    if not (ours and theirs) or ours & theirs:
        return None
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


def _goal(spec: EvaluatorSpec, known: Known) -> Goal | None:
    info = known(spec.kind)
    return None if info is None else info.score_goal


def _scores(connection: sqlite3.Connection, number: int, evaluator: int) -> dict[str, float]:
    """Mean score of every sample with one, in the data set's order."""
    sums: dict[str, list[float]] = {}
    for sample_id, score in scores_of(connection, number, evaluator):
        sums.setdefault(sample_id, []).append(score)
    return {sample_id: statistics.fmean(scores) for sample_id, scores in sums.items()}


def _paired(
    pair: PairedComparison,
    baseline: Mapping[str, float],
    other: Mapping[str, float],
    goal: Goal | None,
    request: CompareRequest,
) -> PairedComparison:
    matched = [sample_id for sample_id in baseline if sample_id in other]
    before = np.array([baseline[sample_id] for sample_id in matched], np.float64)
    after = np.array([other[sample_id] for sample_id in matched], np.float64)
    found = paired_difference(before, after, confidence=request.confidence)
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
        for key, value in evaluation.metrics.values.items():
            point = SeriesPoint(evaluation_id=evaluation.evaluation_id, step=evaluation.request.step, value=value)
            points.setdefault(key, []).append(point)
    return tuple(MetricSeries(key=key, points=tuple(found)) for key, found in points.items())


def _best(evaluations: Sequence[Evaluation], rank_by: RankBy) -> str:
    values = [
        (evaluation.metrics.values[rank_by.metric], evaluation.evaluation_id)
        for evaluation in evaluations
        if rank_by.metric in evaluation.metrics.values
    ]
    if not values:
        return ""
    sign = 1 if rank_by.goal is Goal.HIGHER else -1
    return max(values, key=lambda pair: sign * pair[0])[1]
