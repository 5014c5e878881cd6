"""The evaluators of one attempt: what of each is to run, its beginning, and its end with its last sample."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set

import structlog

from crucible_bridge.errors import BridgeError
from crucible_bridge.problems import MAX_PROBLEM_BYTES, problem_of, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    EvaluateRequest,
    EvaluatorKind,
    EvaluatorResult,
    EvaluatorSpec,
    Limits,
    Metrics,
    Problem,
    SampleResult,
    Usage,
    Verdict,
)
from crucible_worker.engine.preparation import Plan
from crucible_worker.engine.recording import FinishedSample
from crucible_worker.engine.specification import metric_key
from crucible_worker.engine.usage import Spent
from crucible_worker.evaluators.answering import TRUNCATED_REASONING
from crucible_worker.evaluators.base import Evaluator, HasAuxiliaryModels, HoldsProcesses, kinds_of
from crucible_worker.events import run_events
from crucible_worker.history import lifecycle
from crucible_worker.journal import Transaction
from crucible_worker.journal.journal import FencedJournal
from crucible_worker.journal.queries import EvaluationRow, Reads, results_of
from crucible_worker.journal.records import SampleKey, evaluator_result_from_record, evaluator_result_to_record
from crucible_worker.util.error_reporter import logged, with_id
from crucible_worker.util.tasks import retrieve_error

__all__ = ["EvaluatorProgress", "begin", "end", "finals_in", "in_turn", "items_left", "recorded_spans"]

# What an attempt still has to run, in its order: evaluator by evaluator, so that each ends as early as it can.


def items_left(plan: Plan, before: Mapping[int, array[int]], to_run: Container[int]) -> Iterator[tuple[SampleKey, int]]:
    """Keys of samples without a final verdict, each with the number of its attempt.

    Args:
        plan: of the attempt.
        before: by evaluator, four numbers for each sample that was run before, in the data set's order: position,
            repeat, attempts, and 1 if its verdict is final.
        to_run: evaluators that have samples to run.
    """
    for index in in_turn(plan):
        if index in to_run:
            yield from _left_of(plan, index, before.get(index, ()))


def in_turn(plan: Plan) -> Sequence[int]:
    """Evaluators by index: those with the fewest steps per sample first; in the given order if they have as many.

    So a short evaluator does not wait for a long one.
    """
    return sorted(range(len(plan.evaluators)), key=lambda index: _steps(plan.evaluators[index][1]))


def finals_in(before: Sequence[int]) -> int:
    """How many of the samples of one evaluator that were run before have a final verdict."""
    return sum(before[3::4])


def _steps(evaluator: Evaluator) -> tuple[int, int]:
    # Evaluators that measure given text read each sample once. Others generate, then query judges, or run episodes in
    # processes.
    generates = EvaluatorKind.TRAINING not in kinds_of(evaluator)
    judged = isinstance(evaluator, HasAuxiliaryModels) and bool(evaluator.auxiliary_models)
    return generates + judged + isinstance(evaluator, HoldsProcesses), evaluator.repeats


def _left_of(plan: Plan, index: int, before: Sequence[int]) -> Iterator[tuple[SampleKey, int]]:
    rows = zip(*[iter(before)] * 4, strict=True)
    row = next(rows, None)
    for position in range(len(plan.samples)):
        for repeat in range(plan.evaluators[index][1].repeats):
            while row is not None and row[:2] < (position, repeat):
                row = next(rows, None)
            attempts, final = (0, False) if row is None or row[:2] != (position, repeat) else row[2:]
            if not final:
                yield SampleKey(position, index, repeat), attempts + 1


# Beginning and end of each evaluator: EVALUATOR_START, then its end, each once over all attempts at the evaluation.
#
# The journal records both, in the transaction of the event. An evaluator that has ended is final: a later attempt runs
# none of its samples again, and uses its result unchanged.


def recorded_spans(source: Reads, number: int) -> Mapping[int, bytes | None]:
    """The evaluators of an evaluation that have begun, by index, each with the record of its result if it has ended."""
    return dict(source.execute("SELECT evaluator, result FROM evaluator_spans WHERE number = ?", (number,)))


def begin(transaction: Transaction, row: EvaluationRow, index: int, *, label: str, total: int, active_ns: int) -> None:
    """Record that an evaluator begins, unless an earlier attempt has recorded it.

    Args:
        transaction: the transaction.
        row: the evaluation as claimed.
        index: the evaluator's index in the request.
        label: the evaluator's name, or its kind.
        total: its runs of samples.
        active_ns: time with this owner so far.
    """
    # A duration is a difference of the evaluation's active time, so this time must be written as well.
    lifecycle.keep_time(transaction, row.number, active_ns)
    (started_ns,) = transaction.execute(
        "SELECT past_active_ns + active_ns FROM evaluations WHERE number = ?", (row.number,)
    ).fetchone()
    cursor = transaction.execute(
        "INSERT OR IGNORE INTO evaluator_spans VALUES (?, ?, ?, NULL)", (row.number, index, started_ns)
    )
    if cursor.rowcount:
        lifecycle.append(transaction, row.number, (run_events.evaluator_start(row, label, total),))


def end(transaction: Transaction, row: EvaluationRow, index: int, result: EvaluatorResult, active_ns: int) -> None:
    """Record the end of an evaluator that has begun: EVALUATOR_COMPLETE, or EVALUATOR_EXCEPTION if it failed."""
    lifecycle.keep_time(transaction, row.number, active_ns)
    where = "WHERE number = ? AND evaluator = ?"
    (started_ns,) = transaction.execute(
        f"SELECT started_ns FROM evaluator_spans {where}", (row.number, index)
    ).fetchone()
    transaction.execute(
        f"UPDATE evaluator_spans SET result = ? {where}", (evaluator_result_to_record(result), row.number, index)
    )
    duration_ns = row.past_active_ns + active_ns - started_ns
    lifecycle.append(transaction, row.number, (run_events.evaluator_end(row, result, duration_ns),))


# From the results of samples to the metrics of an evaluation.

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
            "allowed without max_unscored (--max-unscored N) or max_unscored_share"
        )
    else:
        return None
    if (first := counts.first_error) is not None:
        what = f"{what}; the first error: {' '.join(filter(None, (first.field, first.message)))}"
    message = shorten(what, MAX_PROBLEM_BYTES)
    return Problem(reason=Reason.TOO_MANY_UNSCORED, message=message, retryable=counts.may_pass)


class EvaluatorProgress:
    """Which evaluators have begun, which have ended and with what; of one event loop."""

    def __init__(
        self,
        journal: FencedJournal,
        row: EvaluationRow,
        plan: Plan,
        request: EvaluateRequest,
        *,
        told: Mapping[int, bytes | None],
        before: Mapping[int, array[int]],
        active_ns: Callable[[], int],
        spent: Spent,
    ) -> None:
        """See the module.

        Args:
            journal: where everything is recorded.
            row: the evaluation as it was claimed.
            plan: of the attempt.
            request: what to run, with the limits of this attempt.
            told: the starts and ends of evaluators that earlier attempts recorded; see `spans.told_of`.
            before: what earlier attempts ran; see `queries.runs_before`.
            active_ns: returns the time with this owner so far.
            spent: usage of the committed samples.
        """
        self._journal, self._row, self._plan, self._request = journal, row, plan, request
        self._active_ns, self._spent = active_ns, spent
        self.begun = set(told)
        """Evaluators whose EVALUATOR_START is committed, by index."""
        self._beginning: dict[int, asyncio.Future[None]] = {}
        self._results = {
            index: dataclasses.replace(
                evaluator_result_from_record(plan.evaluators[index][0], record), usage=spent.of(index)
            )
            for index, record in told.items()
            if record is not None
        }
        self._left: dict[int, int] = {}
        self._all_written: dict[int, asyncio.Event] = {}
        for index in range(len(plan.evaluators)):
            if index not in self._results:
                able = index not in plan.refused
                self._left[index] = self._total(index) - finals_in(before.get(index, ())) if able else 0
                self._all_written[index] = asyncio.Event()
                if not self._left[index]:
                    self._all_written[index].set()
        self._summarising = asyncio.Lock()

    @property
    def unfinished(self) -> Sequence[int]:
        """Evaluators that have not ended, by index."""
        return [index for index in self._left if index not in self._results]

    @property
    def to_run(self) -> Set[int]:
        """The unfinished evaluators that have samples to run."""
        return {index for index, left in self._left.items() if left}

    async def begin(self, index: int) -> None:
        """Commit EVALUATOR_START before the first sample is run, unless it is committed.

        Raises:
            JournalUnavailable: it cannot be written.
        """
        if index in self.begun:
            return
        if index not in self._beginning:
            row, label, total = self._row, self._plan.evaluators[index][0].label, self._total(index)
            active_ns = self._active_ns()
            self._beginning[index] = self._journal.submit(
                lambda transaction: begin(transaction, row, index, label=label, total=total, active_ns=active_ns)
            )
            self._beginning[index].add_done_callback(retrieve_error)
        # Several samples wait for it: the cancellation of one must not affect the others.
        await asyncio.shield(self._beginning[index])
        self.begun.add(index)

    def written(self, kept: Sequence[FinishedSample]) -> None:
        """Take note that these results are committed."""
        for one in kept:
            index = one.place.evaluator
            self._left[index] -= 1
            if not self._left[index]:
                self._all_written[index].set()

    async def end(self, index: int) -> None:
        """Wait for the last sample of an evaluator, aggregate its samples, and record its end.

        Raises:
            JournalUnavailable: the journal cannot be read, or not written.
        """
        await self._all_written[index].wait()
        await self.begin(index)  # it had nothing to run
        # One at a time: several that end together must not occupy all of the journal's readers.
        async with self._summarising:
            result = await self._journal.read(
                summarise,
                self._row.number,
                index,
                *self._plan.evaluators[index],
                refused=self._plan.refused.get(index),
                samples=len(self._plan.samples),
                prefix=self._request.metric_prefix,
                limits=self._request.limits,
                usage=self._spent.of(index),
                unreadable=self._journal.errors,
            )
            result = unless_taken(result, self._results.values())
            row, active_ns = self._row, self._active_ns()
            await self._journal.submit(lambda transaction: end(transaction, row, index, result, active_ns))
            self._results[index] = result

    def outcome(self) -> tuple[Metrics, list[EvaluatorResult]]:
        """The metrics of those that finished, and every evaluator's result, once all have ended."""
        results = [self._results[index] for index in range(len(self._plan.evaluators))]
        return merged(results), results

    def _total(self, index: int) -> int:
        return len(self._plan.samples) * self._plan.evaluators[index][1].repeats
