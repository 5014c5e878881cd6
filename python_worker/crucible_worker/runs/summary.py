"""From the results of samples to the metrics of an evaluation."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator, Mapping, Sequence

import structlog

from crucible_bridge.errors import BridgeError
from crucible_bridge.problems import MAX_PROBLEM_BYTES, problem_of, shorten
from crucible_bridge.types import EvaluatorResult, EvaluatorSpec, Limits, Metrics, Problem, SampleResult, Verdict
from crucible_worker.evaluators.base import Evaluator
from crucible_worker.runs.journal.queries import results_of
from crucible_worker.runs.specification import metric_key

__all__ = ["summarise"]

_log = structlog.get_logger(__name__)


def summarise(
    connection: sqlite3.Connection,
    number: int,
    evaluators: Sequence[tuple[EvaluatorSpec, Evaluator]],
    *,
    refused: Mapping[int, Problem],
    samples: int,
    prefix: str,
    limits: Limits,
) -> tuple[Metrics, list[EvaluatorResult]]:
    """Aggregate every evaluator over what the journal holds, in the data set's order.

    Args:
        connection: reads the journal; this runs in a reader's thread.
        number: the evaluation's.
        evaluators: specifications, each with its evaluator.
        refused: by index, why an evaluator could not be run at all.
        samples: samples of the data set.
        prefix: put before every key.
        limits: how many unscored samples fail an evaluator.

    Returns:
        The metrics of those that finished, and each evaluator's result; one that yields a key of one before it fails
        (EQUAL_KEYS).
    """
    results: list[EvaluatorResult] = []
    for index, (spec, evaluator) in enumerate(evaluators):
        n = samples * evaluator.repeats
        if index in refused:
            results.append(
                EvaluatorResult(evaluator=spec, metrics=Metrics({}), n=n, n_unscored=n, problem=refused[index])
            )
        else:
            results.append(_result(connection, number, index, spec, evaluator, n, prefix, limits))
    values: dict[str, float] = {}
    undefined: dict[str, str] = {}
    for index, result in enumerate(results):
        if result.problem is not None:
            continue
        keys = result.metrics.values.keys() | result.metrics.undefined.keys()
        if taken := keys & (values.keys() | undefined.keys()):
            results[index] = dataclasses.replace(result, problem=_equal_keys(min(taken)))
            continue
        values.update(result.metrics.values)
        undefined.update(result.metrics.undefined)
    return Metrics(values, undefined), results


def _equal_keys(key: str) -> Problem:
    message = f"it yields the key {key!r}, which an evaluator before it yields: give it another name"
    return Problem(reason="EQUAL_KEYS", message=shorten(message, MAX_PROBLEM_BYTES))


@dataclasses.dataclass(slots=True)
class _Counts:
    """Counts results as they stream by, so that no list of them is kept."""

    n: int = 0
    scored: int = 0
    errors: int = 0
    truncated: int = 0

    def through(self, results: Iterator[SampleResult]) -> Iterator[SampleResult]:
        for result in results:
            self.n += 1
            self.scored += result.verdict.scored
            self.errors += result.verdict is Verdict.ERROR
            self.truncated += result.stop_reason == "length"
            yield result


def _result(
    connection: sqlite3.Connection,
    number: int,
    index: int,
    spec: EvaluatorSpec,
    evaluator: Evaluator,
    n: int,
    prefix: str,
    limits: Limits,
) -> EvaluatorResult:
    counts = _Counts()
    metrics, problem = Metrics({}), None
    try:
        bare = evaluator.aggregate(counts.through(results_of(connection, number, index)))
        metrics = Metrics.of(
            {metric_key(prefix, spec, key): value for key, value in bare.values.items()},
            {metric_key(prefix, spec, key): reason for key, reason in bare.undefined.items()},
        )
    except BridgeError as error:
        problem = problem_of(error)
    except Exception as error:
        _log.exception("evaluator_failed", evaluator=spec.label)
        problem = Problem(
            reason="EVALUATOR_FAILED", message=f"{type(error).__name__} in aggregate; see the worker's log"
        )
    if problem is None and counts.n != n:
        problem = Problem(reason="SAMPLES_MISSING", message=f"{counts.n} results of {n} were aggregated")
    unscored = n - counts.scored
    return EvaluatorResult(
        evaluator=spec,
        metrics=metrics,
        n=n,
        n_scored=counts.scored,
        n_unscored=unscored,
        n_errors=counts.errors,
        n_truncated=counts.truncated,
        problem=problem or _too_many_unscored(unscored, n, limits),
    )


def _too_many_unscored(unscored: int, n: int, limits: Limits) -> Problem | None:
    if limits.max_unscored is not None and unscored > limits.max_unscored:
        allowed = f"{limits.max_unscored:,}"
    elif limits.max_unscored_share is not None and unscored > limits.max_unscored_share * n:
        allowed = f"a share of {limits.max_unscored_share}"
    else:
        return None
    return Problem(
        reason="TOO_MANY_UNSCORED",
        message=f"{unscored:,} of {n:,} samples are unscored, more than the {allowed} that limits allow",
    )
