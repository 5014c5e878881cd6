"""What an evaluation measured of a checkpoint of its run, retained longer than the evaluation and its samples.

The transaction that ends an evaluation of a run writes one row. Retention removes the evaluation and leaves the row;
a deleted evaluation loses its row, too.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

from crucible_bridge.types import (
    Evaluation,
    EvaluationState,
    EvaluatorResult,
    EvaluatorSpec,
    Metrics,
    ModelRef,
    Problem,
    ScoredCount,
    format_model,
    parse_model,
)
from crucible_worker.journal import Transaction
from crucible_worker.journal.packing import pack, pack_text, unpack, unpack_text
from crucible_worker.journal.queries import Reads, evaluation_of, find_by_number, list_rows, rules_of
from crucible_worker.reports.facts import format_dataset
from crucible_worker.reports.ranking import scored_by_key

__all__ = ["CheckpointMeasurement", "forget", "keep", "measured_of_run", "remove_old"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMeasurement:
    """What one evaluation measured, or will measure, of a checkpoint."""

    number: int
    """Of the evaluation: a later one has a higher number."""
    evaluation_id: str
    """The evaluation."""
    retained: bool
    """Whether the evaluation and its samples can still be read."""
    rules_version: int
    """Version of the rules by which it measured."""
    step: int | None
    """The training step."""
    state: EvaluationState
    """Its state."""
    model: ModelRef
    """The checkpoint."""
    model_fingerprint: str
    """Content of the checkpoint; empty until it is known."""
    labels: Mapping[str, str]
    """Those of the evaluation."""
    dataset: str
    """The data set in a few words."""
    dataset_fingerprint: str
    """SHA-256 of the samples; empty until they have been read."""
    done: int
    """Runs of samples done, of all evaluators."""
    metric_prefix: str
    """What is put before every key."""
    results: tuple[EvaluatorResult, ...]
    """The metrics of each evaluator that finished; specifications without options, metrics without undefined ones.

    Of the counts they have `n` and `n_scored`; 0 if an earlier release has written them.
    """
    created_ns: int
    """When it was accepted, Unix time in nanoseconds."""
    ended_ns: int
    """When it ended; 0 until then."""
    problem: Problem | None
    """Why it failed or was cancelled."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """Every metric with a value."""
        return {key: value for result in self.results for key, value in result.metrics.values.items()}

    @property
    def scored(self) -> Mapping[str, ScoredCount]:
        """What each of them is made of, if that is known."""
        return scored_by_key(self.results)


def keep(transaction: Transaction, number: int) -> None:
    """Write the row of an evaluation that has ended, unless it belongs to no run."""
    row = find_by_number(transaction, number)
    if row.run_id:
        measured = _measured(evaluation_of(row), number)
        record = pack_text(_to_map(measured))
        values = (number, row.run_id, row.ended_ns, record)
        transaction.execute("INSERT OR REPLACE INTO checkpoint_results VALUES (?, ?, ?, ?)", values)
        counts = pack([[result.n, result.n_scored] for result in measured.results])
        transaction.execute("INSERT OR REPLACE INTO checkpoint_counts VALUES (?, ?)", (number, counts))


def forget(transaction: Transaction, number: int) -> None:
    """Remove the row of an evaluation."""
    transaction.execute("DELETE FROM checkpoint_results WHERE number = ?", (number,))


def remove_old(transaction: Transaction, before_ns: int, chunk: int) -> int:
    """Remove rows of evaluations that ended earlier and are no longer retained; returns how many, a chunk at most."""
    return transaction.execute(
        """DELETE FROM checkpoint_results WHERE number IN (
               SELECT number FROM checkpoint_results AS old WHERE ended_ns < ?
               AND NOT EXISTS (SELECT 1 FROM evaluations WHERE evaluations.number = old.number) LIMIT ?)""",
        (before_ns, chunk),
    ).rowcount


def measured_of_run(source: Reads, run_id: str) -> list[CheckpointMeasurement]:
    """Every evaluation of a run in the order in which they were accepted, those of which only the row is left too."""
    rows, _ = list_rows(source, run_id=run_id, without_result_row=True)
    found = [_measured(evaluation_of(row), row.number) for row in rows]
    sql = f"""SELECT number, record, {rules_of("kept")},
             (SELECT record FROM checkpoint_counts AS counts WHERE counts.number = kept.number), EXISTS (
                 SELECT 1 FROM evaluations AS whole WHERE whole.number = kept.number
                 AND whole.number NOT IN (SELECT number FROM removals))
             FROM checkpoint_results AS kept WHERE run_id = ?"""
    for number, record, rules, counts, retained in source.execute(sql, (run_id,)):
        known = () if counts is None else unpack(counts)
        found.append(_from_map(number, bool(retained), rules, unpack_text(record), known))
    return sorted(found, key=lambda one: one.number)


def _measured(evaluation: Evaluation, number: int) -> CheckpointMeasurement:
    request = evaluation.request
    return CheckpointMeasurement(
        number=number,
        evaluation_id=evaluation.evaluation_id,
        retained=True,
        rules_version=evaluation.rules_version,
        step=request.step,
        state=evaluation.state,
        model=request.model,
        model_fingerprint=evaluation.model_fingerprint,
        labels=request.labels,
        dataset=format_dataset(request.dataset),
        dataset_fingerprint=evaluation.dataset_fingerprint,
        done=evaluation.done,
        metric_prefix=request.metric_prefix,
        results=tuple(_slight(result) for result in evaluation.results if result.problem is None),
        created_ns=evaluation.created_unix_ns,
        ended_ns=evaluation.ended_unix_ns,
        problem=evaluation.problem,
    )


def _slight(result: EvaluatorResult) -> EvaluatorResult:
    spec = EvaluatorSpec(kind=result.evaluator.kind, name=result.evaluator.name)
    values = Metrics.of(dict(result.metrics.values), {})
    return EvaluatorResult(evaluator=spec, metrics=values, n=result.n, n_scored=result.n_scored)


def _to_map(measured: CheckpointMeasurement) -> dict[str, object]:
    plain = {
        field.name: getattr(measured, field.name)
        for field in dataclasses.fields(measured)
        if field.name not in ("number", "retained", "rules_version", "problem", "results")
    }
    return {
        **plain,
        "state": measured.state.value,
        "model": format_model(measured.model),
        "labels": dict(measured.labels),
        "results": [
            [result.evaluator.kind, result.evaluator.name, dict(result.metrics.values)] for result in measured.results
        ],
        "problem": None
        if measured.problem is None
        else [measured.problem.reason, measured.problem.message, measured.problem.field],
    }


def _from_map(
    number: int, retained: bool, rules: int, data: dict, counts: Sequence[Sequence[int]]
) -> CheckpointMeasurement:
    problem = data["problem"]
    return CheckpointMeasurement(
        **{
            **data,
            "number": number,
            "retained": retained,
            "rules_version": rules,
            "state": EvaluationState(data["state"]),
            "model": parse_model(data["model"]),
            "results": tuple(
                EvaluatorResult(
                    evaluator=EvaluatorSpec(kind=kind, name=name),
                    metrics=Metrics.of(values, {}),
                    n=n,
                    n_scored=n_scored,
                )
                for (kind, name, values), (n, n_scored) in zip(data["results"], counts or itertools.repeat((0, 0)))
            ),
            "problem": None if problem is None else Problem(reason=problem[0], message=problem[1], field=problem[2]),
        }
    )
