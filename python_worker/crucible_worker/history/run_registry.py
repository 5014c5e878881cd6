"""Runs and their checkpoints: which models a run left at which steps, what was measured of them, and what is best."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from crucible_bridge.errors import InvalidField, NotFound
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Checkpoint,
    CheckpointResult,
    Evaluation,
    EvaluationState,
    EvaluatorInfo,
    EvaluatorResult,
    EvaluatorSpec,
    Goal,
    GraderVersions,
    HubModel,
    ListRunsRequest,
    ListRunsResponse,
    LocalModel,
    Metrics,
    ModelRef,
    Problem,
    RunBest,
    RunInfo,
    ScoredCount,
    format_model,
    parse_model,
)
from crucible_worker.journal import Journal, Transaction
from crucible_worker.journal.packing import pack, pack_text, unpack, unpack_text
from crucible_worker.journal.queries import (
    Reads,
    SnapshotReads,
    evaluation_of,
    find_by_number,
    graders_of,
    list_rows,
    read_graders,
    rules_of,
)
from crucible_worker.reports.facts import format_dataset
from crucible_worker.reports.metric_keys import intervals_of, keys_of_result
from crucible_worker.reports.ranking import Written, enough_scored, scored_by_key, superseded
from crucible_worker.reports.versions import grader_versions, key_of, order_of, versions_by_metric
from crucible_worker.util.model_refs import as_managed, format_original_model, original_model

__all__ = [
    "DEFAULT_PAGE",
    "MAX_READ_RESULTS",
    "MAX_SENT_METRICS",
    "CheckpointMeasurement",
    "RunRegistry",
    "forget_measurement",
    "keep_measurement",
    "measured_of_run",
    "remove_old_measurements",
]

# What an evaluation measured of a checkpoint of its run, retained longer than the evaluation and its samples.
#
# The transaction that ends an evaluation of a run writes one row. Retention removes the evaluation and leaves the row;
# a deleted evaluation loses its row, too.


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
    graders: Mapping[str, GraderVersions]
    """Versions of the graders by which it judged, by evaluator."""
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
    def grader_versions(self) -> Mapping[str, Mapping[str, int]]:
        """Versions of the graders behind each of them, without those behind which there is none."""
        return versions_by_metric(self)

    @property
    def scored(self) -> Mapping[str, ScoredCount]:
        """What each of them is made of, if that is known."""
        return scored_by_key(self.results)


def keep_measurement(transaction: Transaction, number: int) -> None:
    """Write the row of an evaluation that has ended, unless it belongs to no run."""
    row = find_by_number(transaction, number)
    if row.run_id:
        measured = _measured(evaluation_of(row), number)
        record = pack_text(_to_map(measured))
        values = (number, row.run_id, row.ended_ns, record)
        transaction.execute("INSERT OR REPLACE INTO checkpoint_results VALUES (?, ?, ?, ?)", values)
        counts = pack([[result.n, result.n_scored] for result in measured.results])
        transaction.execute("INSERT OR REPLACE INTO checkpoint_counts VALUES (?, ?)", (number, counts))


def forget_measurement(transaction: Transaction, number: int) -> None:
    """Remove the row of an evaluation."""
    transaction.execute("DELETE FROM checkpoint_results WHERE number = ?", (number,))


def remove_old_measurements(transaction: Transaction, before_ns: int, chunk: int) -> int:
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
    sql = f"""SELECT number, record, {rules_of("kept")}, {graders_of("kept")},
             (SELECT record FROM checkpoint_counts AS counts WHERE counts.number = kept.number), EXISTS (
                 SELECT 1 FROM evaluations AS whole WHERE whole.number = kept.number
                 AND whole.number NOT IN (SELECT number FROM removals))
             FROM checkpoint_results AS kept WHERE run_id = ?"""
    for number, record, rules, graders, counts, retained in source.execute(sql, (run_id,)):
        known = () if counts is None else unpack(counts)
        found.append(_from_map(number, bool(retained), rules, read_graders(graders), unpack_text(record), known))
    return sorted(found, key=lambda one: one.number)


def _measured(evaluation: Evaluation, number: int) -> CheckpointMeasurement:
    request = evaluation.request
    return CheckpointMeasurement(
        number=number,
        evaluation_id=evaluation.evaluation_id,
        retained=True,
        rules_version=evaluation.rules_version,
        graders=evaluation.graders,
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
        if field.name not in ("number", "retained", "rules_version", "graders", "problem", "results")
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
    number: int,
    retained: bool,
    rules: int,
    graders: Mapping[str, GraderVersions],
    data: dict,
    counts: Sequence[Sequence[int]],
) -> CheckpointMeasurement:
    problem = data["problem"]
    return CheckpointMeasurement(
        **{
            **data,
            "number": number,
            "retained": retained,
            "rules_version": rules,
            "graders": graders,
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


DEFAULT_PAGE = 100
"""Runs or checkpoints of a page if the request does not say."""
MAX_READ_RESULTS = 5_000
"""Evaluations that a page of runs is made from: it ends with the run that reaches this number."""
MAX_SENT_METRICS = 50_000
"""Metrics and labels of a page of checkpoints: it ends with the checkpoint that reaches this number."""

_TOKEN = "is not one that this call gave"

_Key = tuple[bool, int, str]
"""Place of a checkpoint in its run: those without a step first, then by step; at one step by model."""
_Series = tuple[str, str, str, int, tuple[tuple[str, int], ...]]
"""A metric of an evaluator (key and label) on a data set (fingerprint), by the rules of a version."""


class RunRegistry:
    """Lists runs from a journal.

    Args:
        journal: has the evaluations.
        known: returns the declaration of a kind of evaluator; None if it is no longer known.
    """

    def __init__(self, journal: Journal, known: Callable[[str], EvaluatorInfo | None]) -> None:
        self._journal, self._known = journal, known

    async def list(self, request: ListRunsRequest) -> ListRunsResponse:
        """A page of runs, or of the checkpoints of one.

        Raises:
            InvalidField: the page token is not one that this call gave.
            NotFound: no evaluation of the run is known (UNKNOWN_RUN).
        """
        known = functools.cache(self._known)
        if request.run_id is None:
            return await self._journal.read(_runs, request, known)
        return await self._journal.read(_checkpoints, request, request.run_id, known)


_Known = Callable[[str], EvaluatorInfo | None]


def _runs(connection: SnapshotReads, request: ListRunsRequest, known: _Known) -> ListRunsResponse:
    size = request.page_size or DEFAULT_PAGE
    before = _number(request.page_token)
    with connection.snapshot():
        names = _newest_runs(connection, before, size + 1)
        runs: list[RunInfo] = []
        read, token = 0, ""
        for place, (run_id, _) in enumerate(names):
            if place == size or read >= MAX_READ_RESULTS:
                token = str(names[place - 1][1])
                break
            measured = measured_of_run(connection, run_id)
            read += len(measured)
            runs.append(_run(run_id, measured, known))
    return ListRunsResponse(runs=tuple(runs), next_page_token=token)


def _checkpoints(connection: SnapshotReads, request: ListRunsRequest, run_id: str, known: _Known) -> ListRunsResponse:
    after = _key_of_token(request.page_token)
    with connection.snapshot():
        measured = measured_of_run(connection, run_id)
    if not measured:
        raise NotFound(f"is {run_id!r}: no evaluation is of this run", reason=Reason.UNKNOWN_RUN, field="run_id")
    best = _best(measured, known)
    gone = _superseded(measured)
    marked: dict[str, list[str]] = collections.defaultdict(list)
    for (key, *_), (one, _, _) in best.items():
        marked[one.evaluation_id].append(key)
    page: list[Checkpoint] = []
    sent, token, last = 0, "", ""
    for key, found in sorted(_by_checkpoint(measured).items()):
        if after is not None and key <= after:
            continue
        if len(page) == (request.page_size or DEFAULT_PAGE) or sent >= MAX_SENT_METRICS:
            token = last
            break
        page.append(_checkpoint(found, marked, gone))
        sent += sum(len(one.metrics) + len(one.labels) for one in found)
        last = _token_of(key)
    runs = (_run(run_id, measured, known),)
    return ListRunsResponse(runs=runs, checkpoints=tuple(page), next_page_token=token)


def _newest_runs(source: Reads, before: int | None, limit: int) -> Sequence[tuple[str, int]]:
    """Runs with the number of their first evaluation, the newest first."""
    older, given = ("", ()) if before is None else ("HAVING MIN(number) < ?", (before,))
    sql = f"""SELECT run_id, MIN(number) AS first FROM (
                 SELECT run_id, number FROM checkpoint_results
                 UNION ALL SELECT run_id, number FROM evaluations
                 WHERE number NOT IN (SELECT number FROM removals)) AS measured
              WHERE run_id <> '' GROUP BY run_id {older} ORDER BY first DESC LIMIT ?"""
    return source.execute(sql, (*given, limit)).fetchall()


def _run(run_id: str, measured: Sequence[CheckpointMeasurement], known: _Known) -> RunInfo:
    states = collections.Counter(one.state for one in measured)
    steps = [one.step for one in measured if one.step is not None]
    ended = (EvaluationState.COMPLETED, EvaluationState.FAILED, EvaluationState.CANCELLED)
    return RunInfo(
        run_id=run_id,
        first_unix_ns=min(one.created_ns for one in measured),
        last_unix_ns=max(max(one.created_ns, one.ended_ns) for one in measured),
        first_step=min(steps, default=None),
        last_step=max(steps, default=None),
        checkpoints=len(_by_checkpoint(measured)),
        completed=states[EvaluationState.COMPLETED],
        failed=states[EvaluationState.FAILED],
        cancelled=states[EvaluationState.CANCELLED],
        unfinished=sum(count for state, count in states.items() if state not in ended),
        best=tuple(
            RunBest(
                metric=key,
                goal=goal,
                value=one.metrics[key],
                evaluation_id=one.evaluation_id,
                step=one.step,
                dataset=one.dataset,
                dataset_fingerprint=fingerprint,
                rules_version=rules,
                scored=one.scored.get(key),
                grader_versions=one.grader_versions.get(key, {}),
                interval_low=low,
                interval_high=high,
            )
            for (key, _, fingerprint, rules, _), (one, goal, _) in sorted(
                _best(measured, known).items(),
                key=lambda item: (not item[1][2], -item[0][3], -order_of(dict(item[0][4]))),
            )
            for low, high in [intervals_of(one.metrics).get(key, (None, None))]
        ),
    )


def _superseded(measured: Iterable[CheckpointMeasurement]) -> frozenset[str]:
    return superseded(
        Written(one.evaluation_id, one.step, one.model, one.model_fingerprint, one.created_ns) for one in measured
    )


def _best(
    measured: Sequence[CheckpointMeasurement], known: _Known
) -> Mapping[_Series, tuple[CheckpointMeasurement, Goal, bool]]:
    """Of each metric with a goal: the first by step with the best value, its goal, and whether it summarises scores.

    A value of too few scores is none of these; see `enough_scored`.
    """
    series: dict[_Series, list[tuple[CheckpointMeasurement, Goal, bool]]] = {}
    gone = _superseded(measured)
    current = [one for one in measured if one.evaluation_id not in gone]
    for one in sorted(current, key=lambda each: (*_key(each), each.number)):
        for result in one.results:
            info = known(result.evaluator.kind)
            infos = {} if info is None else {info.kind: info}
            keys = keys_of_result(result, one.metric_prefix, infos)
            for key, goal in keys.goals.items():
                if key not in result.metrics.values:
                    continue
                versions = key_of(grader_versions(one, result.evaluator.label))
                place = (key, keys.label, one.dataset_fingerprint, one.rules_version, versions)
                series.setdefault(place, []).append((one, goal, key in keys.headline))
    found: dict[_Series, tuple[CheckpointMeasurement, Goal, bool]] = {}
    for place, points in series.items():
        key, sign = place[0], 1 if points[0][1] is Goal.HIGHER else -1
        enough = enough_scored([one.scored.get(key) for one, _, _ in points])
        found[place] = max(itertools.compress(points, enough), key=lambda point: sign * point[0].metrics[key])
    return found


def _by_checkpoint(measured: Iterable[CheckpointMeasurement]) -> Mapping[_Key, Sequence[CheckpointMeasurement]]:
    found: dict[_Key, list[CheckpointMeasurement]] = collections.defaultdict(list)
    for one in measured:
        found[_key(one)].append(one)
    return found


def _key(one: CheckpointMeasurement) -> _Key:
    return one.step is not None, one.step or 0, format_original_model(one.model)


def _checkpoint(
    found: Sequence[CheckpointMeasurement], marked: Mapping[str, Sequence[str]], gone: frozenset[str]
) -> Checkpoint:
    model = original_model(found[0].model)
    base, adapter = _parts(model)
    return Checkpoint(
        step=found[0].step,
        model=model,
        base_model=base,
        adapter=adapter,
        model_fingerprint=next((one.model_fingerprint for one in reversed(found) if one.model_fingerprint), ""),
        labels={key: value for one in found for key, value in one.labels.items()},
        results=tuple(
            CheckpointResult(
                evaluation_id=one.evaluation_id,
                state=one.state,
                retained=one.retained,
                dataset=one.dataset,
                dataset_fingerprint=one.dataset_fingerprint,
                done=one.done,
                metrics=one.metrics,
                best=tuple(marked.get(one.evaluation_id, ())),
                created_unix_ns=one.created_ns,
                ended_unix_ns=one.ended_ns,
                problem=one.problem,
                rules_version=one.rules_version,
                superseded=one.evaluation_id in gone,
                scored=one.scored,
                graders={key: GraderVersions(versions=versions) for key, versions in one.grader_versions.items()},
            )
            for one in found
        ),
    )


def _parts(model: ModelRef) -> tuple[str, str]:
    """The base model and the adapter, if the model has an adapter."""
    managed = as_managed(model)
    if managed is not None and managed.adapter is not None:
        return format_model(dataclasses.replace(managed, adapter=None, devices=()).to_model()), managed.adapter
    if isinstance(model, LocalModel | HubModel) and model.adapter_path is not None:
        whole = dataclasses.replace(model, adapter_path=None, device=None, dtype=None)
        return format_model(whole), model.adapter_path
    return "", ""


def _number(token: str) -> int | None:
    if not token:
        return None
    if not (token.isascii() and token.isdigit() and len(token) < 19):
        raise InvalidField("page_token", _TOKEN)
    return int(token)


def _token_of(key: _Key) -> str:
    with_step, step, model = key
    return f"{step if with_step else ''} {model}"


def _key_of_token(token: str) -> _Key | None:
    if not token:
        return None
    step, space, model = token.partition(" ")
    digits = step.removeprefix("-")
    if not space or (step and not (digits.isascii() and digits.isdigit() and len(digits) < 20)):
        raise InvalidField("page_token", _TOKEN)
    return bool(step), int(step or 0), model
