"""From the results of samples to the metrics of an evaluation."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator

import structlog

from crucible_bridge.errors import BridgeError
from crucible_bridge.problems import MAX_PROBLEM_BYTES, problem_of, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import EvaluatorResult, EvaluatorSpec, Limits, Metrics, Problem, SampleResult, Usage, Verdict
from crucible_worker.engine.specification import metric_key
from crucible_worker.evaluators.answering import TRUNCATED_REASONING
from crucible_worker.evaluators.base import Evaluator
from crucible_worker.journal.queries import Reads, results_of
from crucible_worker.util.faults import logged, with_id

__all__ = ["merged", "summarise", "unless_taken"]

MAX_ERROR_SHARE = 0.05
"""Share of the samples of an evaluator that may end with an error, if its limits name no bound."""

_RIGHT_AND_WRONG = frozenset({Verdict.CORRECT, Verdict.INCORRECT, Verdict.PARTIAL})
_log = structlog.get_logger(__name__)


def unless_taken(result: EvaluatorResult, ended: Iterable[EvaluatorResult]) -> EvaluatorResult:
    """The result; with a problem (EQUAL_KEYS) if it has a key of an evaluator that finished before it."""
    if result.problem is not None:
        return result
    for other in ended:
        if other.problem is None and (taken := _keys(result) & _keys(other)):
            message = f"it yields the key {min(taken)!r}, which an evaluator before it yields: give it another name"
            problem = Problem(reason=Reason.EQUAL_KEYS, message=shorten(message, MAX_PROBLEM_BYTES))
            return dataclasses.replace(result, problem=problem)
    return result


def merged(results: Iterable[EvaluatorResult]) -> Metrics:
    """The metrics of those evaluators that finished."""
    finished = [result.metrics for result in results if result.problem is None]
    return Metrics(
        {key: value for metrics in finished for key, value in metrics.values.items()},
        {key: reason for metrics in finished for key, reason in metrics.undefined.items()},
    )


def _keys(result: EvaluatorResult) -> set[str]:
    return {*result.metrics.values, *result.metrics.undefined}


@dataclasses.dataclass(slots=True)
class _Counts:
    """Counts results while they are iterated, so that no list of them is needed."""

    n: int = 0
    scored: int = 0
    errors: int = 0
    may_pass: bool = False
    first_error: Problem | None = None
    truncated: int = 0
    correct: int = 0
    right_and_wrong: bool = False
    reasons: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter[str])
    truncated_reasoning: int = 0

    def through(self, results: Iterator[SampleResult]) -> Iterator[SampleResult]:
        for result in results:
            self.n += 1
            self.scored += result.verdict.scored
            self.errors += result.verdict is Verdict.ERROR
            if result.verdict is Verdict.ERROR and self.first_error is None:
                self.first_error = result.problem
            self.truncated += result.stop_reason == "length"
            self.correct += result.verdict is Verdict.CORRECT
            self.right_and_wrong = self.right_and_wrong or result.verdict in _RIGHT_AND_WRONG
            if not result.verdict.scored:
                problem = result.problem
                self.reasons[result.verdict.name if problem is None else problem.reason] += 1
                self.may_pass = self.may_pass or (problem is not None and problem.retryable)
            self.truncated_reasoning += result.measurements.get(TRUNCATED_REASONING, 0) > 0
            yield result


def summarise(
    connection: Reads,
    number: int,
    index: int,
    spec: EvaluatorSpec,
    evaluator: Evaluator,
    *,
    refused: Problem | None,
    samples: int,
    prefix: str,
    limits: Limits,
    usage: Usage | None = None,
    unreadable: tuple[type[Exception], ...] = (),
) -> EvaluatorResult:
    """Aggregate the results of an evaluator from the journal, in the data set's order.

    Args:
        connection: reads the journal; this runs in a reader's thread.
        number: the evaluation's.
        index: the evaluator's index in the request.
        spec: its specification.
        evaluator: the evaluator.
        refused: why it could not be run; None if it was run.
        samples: samples of the data set.
        prefix: put before every key.
        limits: how many unscored samples fail an evaluator.
        usage: total of the samples.
        unreadable: what the journal raises when it cannot be read: no fault of the evaluator, so it is raised.
    """
    n = samples * evaluator.repeats
    if refused is not None:
        return EvaluatorResult(evaluator=spec, metrics=Metrics({}), n=n, n_unscored=n, problem=refused)
    counts = _Counts()
    metrics, problem = Metrics({}), None
    results = counts.through(results_of(connection, number, index))
    try:
        try:
            bare = evaluator.aggregate(result for result in results)
        finally:
            collections.deque(results, maxlen=0)  # an evaluator need not read all of them, and all are counted
        metrics = Metrics.of(
            {metric_key(prefix, spec, key): value for key, value in bare.values.items()},
            {metric_key(prefix, spec, key): reason for key, reason in bare.undefined.items()},
        )
    except unreadable:
        raise
    except BridgeError as error:
        problem = problem_of(error)
    except Exception as error:
        error_id = logged(_log, "evaluator_failed", error, evaluator=spec.label)
        message = with_id(f"{type(error).__name__} in aggregate", error_id)
        problem = Problem(reason=Reason.EVALUATOR_FAILED, message=message)
    if problem is None and counts.n != n:
        problem = Problem(reason=Reason.SAMPLES_MISSING, message=f"{counts.n} results of {n} were aggregated")
    unscored = n - counts.scored
    return EvaluatorResult(
        evaluator=spec,
        metrics=metrics,
        n=n,
        n_scored=counts.scored,
        n_unscored=unscored,
        n_errors=counts.errors,
        n_truncated=counts.truncated,
        n_correct=counts.correct if counts.right_and_wrong else None,
        unscored_by_reason=dict(counts.reasons.most_common()),
        n_truncated_reasoning=counts.truncated_reasoning,
        usage=usage,
        problem=problem or _too_many_unscored(counts, n, limits),
    )


def _too_many_unscored(counts: _Counts, n: int, limits: Limits) -> Problem | None:
    unscored = n - counts.scored
    if limits.max_unscored is not None and unscored > limits.max_unscored:
        what = f"{unscored:,} of {n:,} samples are unscored, more than the {limits.max_unscored:,} that limits allow"
    elif limits.max_unscored_share is not None and unscored > limits.max_unscored_share * n:
        share = limits.max_unscored_share
        what = f"{unscored:,} of {n:,} samples are unscored, more than the share of {share} that limits allow"
    elif limits.max_unscored is limits.max_unscored_share is None and counts.errors > MAX_ERROR_SHARE * n:
        what = (
            f"{counts.errors:,} of {n:,} samples ended with an error, more than the share of {MAX_ERROR_SHARE} that is "
            "allowed without max_unscored_share"
        )
    else:
        return None
    if (first := counts.first_error) is not None:
        what = f"{what}; the first error: {' '.join(filter(None, (first.field, first.message)))}"
    message = shorten(what, MAX_PROBLEM_BYTES)
    return Problem(reason=Reason.TOO_MANY_UNSCORED, message=message, retryable=counts.may_pass)
