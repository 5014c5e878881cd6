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
    EvaluationState,
    EvaluatorInfo,
    Goal,
    HubModel,
    ListRunsRequest,
    ListRunsResponse,
    LocalModel,
    ModelRef,
    RunBest,
    RunInfo,
    format_model,
)
from crucible_worker.history.checkpoint_results import CheckpointMeasurement, measured_of_run
from crucible_worker.journal import Journal
from crucible_worker.journal.queries import Reads, SnapshotReads
from crucible_worker.reports.metric_keys import keys_of_result
from crucible_worker.reports.scored import enough_scored
from crucible_worker.reports.superseded import Written, superseded
from crucible_worker.util.model_refs import as_managed, format_own_model, own_model

__all__ = ["DEFAULT_PAGE", "MAX_READ_RESULTS", "MAX_SENT_METRICS", "RunRegistry"]

DEFAULT_PAGE = 100
"""Runs or checkpoints of a page if the request does not say."""
MAX_READ_RESULTS = 5_000
"""Evaluations that a page of runs is made from: it ends with the run that reaches this number."""
MAX_SENT_METRICS = 50_000
"""Metrics and labels of a page of checkpoints: it ends with the checkpoint that reaches this number."""

_TOKEN = "is not one that this call gave"

_Key = tuple[bool, int, str]
"""Place of a checkpoint in its run: those without a step first, then by step; at one step by model."""
_Series = tuple[str, str, str, int]
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
            )
            for (key, _, fingerprint, rules), (one, goal, _) in sorted(
                _best(measured, known).items(), key=lambda item: (not item[1][2], -item[0][3])
            )
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
                place = (key, keys.label, one.dataset_fingerprint, one.rules_version)
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
    return one.step is not None, one.step or 0, format_own_model(one.model)


def _checkpoint(
    found: Sequence[CheckpointMeasurement], marked: Mapping[str, Sequence[str]], gone: frozenset[str]
) -> Checkpoint:
    model = own_model(found[0].model)
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
