"""The best step of a plan, from the statistics, and the plateau when no better one comes.

    step    60    120    180    240         patience 2
    value   0.40  0.55   0.56   0.54
            best  best   tied   tied: plateau

The first step is the best. A later one takes its place if the paired difference of the samples' scores excludes
`min_delta`. Steps count in their order: a step is looked at once no earlier one is queued or running. One that comes
later still, because its evaluation was interrupted, is put into its place, and those after it are looked at again.
Steps by the rules of another version are not compared: the first one by later rules is the best so far, as the first
step of all is, and one by earlier rules does not count. So it is with steps of too few scores (`enough_scored`): such a
step does not count, and if it was the first one, the next with enough scores takes its place.

A trigger of the journal marks the plan in the transaction that ends an evaluation, whichever release's worker writes.
The samples are read afterwards, by a reader's thread. Another transaction records the steps and their events. If a
worker is killed in between, the mark is still there, and the next worker looks. If two workers look at once, one of
them finds its turn taken. So each event is written exactly once.

Not promised: a bound for false improvements over all steps. Each comparison has the confidence of the plan; of many
steps without progress, a few may be reported as better by chance.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog

from crucible_bridge.errors import BridgeError
from crucible_bridge.events import Event, EventKind
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    CompareRequest,
    Evaluation,
    EvaluationState,
    Goal,
    ScoredCount,
    format_model,
    parse_model,
)
from crucible_worker.analysis.comparison import Known, compare_in
from crucible_worker.history.run_registry import CheckpointMeasurement, measured_of_run
from crucible_worker.journal import Journal, JournalUnavailable, Transaction
from crucible_worker.journal.follows import place_of_model
from crucible_worker.journal.plans import (
    PatientPlan,
    PatientRow,
    PatientStep,
    due_plans,
    find_patient,
    is_new,
    new_steps,
    note_file,
    patient_steps,
    replace_steps,
)
from crucible_worker.journal.queries import Reads, SnapshotReads, evaluation_of, find
from crucible_worker.journal.unavailable import LogOnce
from crucible_worker.planning.best_file import Followed, write_best
from crucible_worker.reports.metric_keys import keys_of
from crucible_worker.reports.ranking import enough_scored, scored_by_key
from crucible_worker.reports.versions import order_of, versions_by_metric
from crucible_worker.util.error_reporter import logged
from crucible_worker.util.model_refs import format_original_model

__all__ = ["LOOK_SECONDS", "Patient"]

# The events of a plan with patience: a new best step, and a plateau.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Improvement:
    """How a step compares with the best one before it."""

    better: bool
    """Whether it is credibly better."""
    by: str
    """"first" (by these rules of measurement, or with enough scores), "paired" or "value".

    Empty if rules before those of the best have measured it, or if it has too few scores: then it does not count.
    """
    difference: float = 0.0
    """Of the samples' scores, by "paired" their mean; else of the two values."""
    interval: tuple[float, float] | None = None
    """Of that difference, by "paired"."""
    not_paired: str = ""
    """By "value": the reason."""


def best_event(
    plan: PatientPlan,
    best: PatientStep | None,
    point: PatientStep,
    found: Improvement,
    scored: ScoredCount | None,
) -> Event:
    """RUN_BEST.

    Args:
        plan: the plan.
        best: the best step before; None if this is the first step.
        point: the new best step.
        found: how it compares.
        scored: what its value is made of; None if that is not known.
    """
    measurements = {"value": point.value}
    if scored is not None:
        measurements |= {"n": float(scored.n), "n_scored": float(scored.n_scored)}
    metadata = {"evaluation_id": point.evaluation_id, "model": _model(point), "by": found.by}
    if best is not None:
        measurements |= {"previous_value": best.value, "difference": found.difference}
        metadata |= {"previous_step": str(best.step), "previous_evaluation_id": best.evaluation_id}
    if found.interval is not None:
        measurements |= dict(zip(("difference_ci_low", "difference_ci_high"), found.interval, strict=True))
    if found.not_paired:
        metadata["not_paired"] = str(found.not_paired)
    return _event(plan, EventKind.RUN_BEST, point.step, measurements, metadata)


def plateau_event(plan: PatientPlan, best: PatientStep, point: PatientStep, since: int) -> Event:
    """RUN_PLATEAU: so many evaluations since the best step, of which `point` is the last, brought no new one."""
    measurements = {"value": best.value, "last_value": point.value, "evaluations": float(since)}
    metadata = {
        "evaluation_id": point.evaluation_id,
        "model": _model(point),
        "best_step": str(best.step),
        "best_evaluation_id": best.evaluation_id,
        "best_model": _model(best),
    }
    return _event(plan, EventKind.RUN_PLATEAU, point.step, measurements, metadata)


def _model(step: PatientStep) -> str:
    return format_original_model(parse_model(step.model))


def _event(
    plan: PatientPlan, kind: EventKind, step: int, measurements: dict[str, float], metadata: dict[str, str]
) -> Event:
    named = {"metric": plan.patience.metric, "goal": plan.goal.value, "plan_id": plan.plan_id}
    return Event(
        kind=kind,
        unix_time_ns=time.time_ns(),
        run_id=plan.run_id,
        step=step,
        measurements=measurements,
        metadata=named | metadata,
        correlation_id=plan.correlation_id,
    )


LOOK_SECONDS = 30.0
"""Seconds between two looks for plans that workers which died, or earlier releases, have left marked."""

_AT_WORK = (EvaluationState.QUEUED, EvaluationState.RUNNING)
_log = structlog.get_logger(__name__)


class Patient:
    """Looks at the plans of a journal; used in the event loop of its journal.

    Args:
        journal: has plans and evaluations.
        max_samples: results of samples that one comparison may read; with more, two values are compared.
        known: returns the declaration of a kind of evaluator.
        model_roots: folders below which the file BEST may be written; a worker without one leaves it to others.
    """

    def __init__(self, journal: Journal, max_samples: int, known: Known, model_roots: Sequence[Path]) -> None:
        self._journal, self._max_samples, self._known = journal, max_samples, known
        self._roots = tuple(model_roots)
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._told: dict[str, str] = {}
        self._outages = LogOnce(_log, "plans_not_looked_at", retry_seconds=LOOK_SECONDS)
        journal.call_on_end(lambda transaction, number: transaction.after_commit(self._look_soon))
        self._task = asyncio.create_task(self._run(), name="patience")

    async def aclose(self) -> None:
        """Stop; what is marked stays marked for the next worker."""
        self._task.cancel()
        await asyncio.wait((self._task,))

    def _look_soon(self) -> None:
        self._loop.call_soon_threadsafe(self._wake.set)

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            await self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()

    async def _look(self) -> None:
        try:
            for plan_id in await self._journal.read(due_plans):
                await self._look_at(plan_id)
            self._outages.worked()
        except JournalUnavailable as error:
            self._outages.failed(error)
        except Exception as error:  # a bug must not end the looks at later steps
            logged(_log, "plans_not_looked_at", error)

    async def _look_at(self, plan_id: str) -> None:
        found = await self._journal.read(_look, plan_id, self._max_samples, self._known)
        if found is not None and not await self._journal.submit(found.commit):
            # Another worker has recorded its look in between, and may have read less: look again.
            self._wake.set()
        if self._roots and (best := await self._journal.read(_unwritten, plan_id)) is not None:
            await self._write(best)

    async def _write(self, found: _Unwritten) -> None:
        plan, best = found.plan, found.best
        facts = {
            "run_id": plan.run_id,
            "plan_id": plan.plan_id,
            "step": best.step,
            "metric": plan.patience.metric,
            "goal": plan.goal.value,
            "value": best.value,
            "evaluation_id": best.evaluation_id,
            **({} if found.scored is None else dataclasses.asdict(found.scored)),
        }
        try:
            model = parse_model(best.model)
            confirm = functools.partial(self._confirm, plan.plan_id, best.step)
            await asyncio.to_thread(
                write_best, self._roots, model, facts, gone=True, followed=found.followed, confirm=confirm
            )
        except _Overtaken:
            return
        except (BridgeError, OSError, *self._journal.errors) as error:
            problem = str(error)
            if self._told.get(plan.plan_id) != problem:
                self._told[plan.plan_id] = problem
                _log.warning("best_file_not_written", plan_id=plan.plan_id, reason=problem, retry_seconds=LOOK_SECONDS)
            return
        self._told.pop(plan.plan_id, None)
        await self._journal.submit(lambda transaction: note_file(transaction, plan.plan_id, best.step))

    def _confirm(self, plan_id: str, step: int) -> None:
        """Make sure that a step is still the best one, and not in the file yet: this process may have been stopped.

        Raises:
            _Overtaken: it is not, or another worker has written it.
        """
        with contextlib.closing(self._journal.connect()) as journal:
            now = find_patient(journal, plan_id)
        if now is None or now.best_step != step or now.written_step == step:
            raise _Overtaken


class _Overtaken(Exception):
    """Another worker has looked at the plan meanwhile."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _LookResult:
    """What a look has found: steps to record, and events that may be new."""

    row: PatientRow
    steps: Sequence[PatientStep]
    events: Sequence[tuple[EventKind, int, Event]]
    """Each with its kind and the step that it stands for."""

    def commit(self, transaction: Transaction) -> bool:
        """Record it, unless another worker has looked meanwhile; whether it is recorded."""
        if not replace_steps(transaction, self.row, self.steps):
            return False
        for kind, step, event in self.events:
            if is_new(transaction, self.row.plan.plan_id, kind, step):
                transaction.append(0, (event,))
        return True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Unwritten:
    """The best step of a plan whose file does not have it yet."""

    plan: PatientPlan
    best: PatientStep
    scored: ScoredCount | None
    followed: Followed | None
    """Where its checkpoint is, if its run is followed."""


def _unwritten(connection: SnapshotReads, plan_id: str) -> _Unwritten | None:
    row = find_patient(connection, plan_id)
    if row is None or not row.plan.best_file or row.best_step == row.written_step:
        return None
    best = next((one for one in patient_steps(connection, plan_id) if one.step == row.best_step), None)
    if best is None:
        return None
    place = place_of_model(connection, plan_id, best.model)
    return _Unwritten(
        plan=row.plan,
        best=best,
        scored=_scored(connection, row.plan, best),
        followed=None if place is None else Followed(directory=place[0], source=place[1]),
    )


def _look(connection: SnapshotReads, plan_id: str, max_samples: int, known: Known) -> _LookResult | None:
    """Look at the steps of a plan that have ended; None if nothing is marked. Runs in a reader's thread."""
    with connection.snapshot():
        row = find_patient(connection, plan_id)
        if row is None or not row.pending:
            return None
        points = list(_ended(connection, row.plan))
        before = patient_steps(connection, plan_id)
        if points:
            first = min(point.step for point in points)
            points += [one for one in before if one.step > first]
            before = [one for one in before if one.step < first]
        compared = _Comparing(connection, row.plan, max_samples, known)
        steps, events = _walk(compared, before, sorted(points, key=lambda one: one.step))
        return _LookResult(row=row, steps=steps, events=events)


def _measured(connection: Reads, plan: PatientPlan, step: PatientStep) -> CheckpointMeasurement | None:
    of_run = measured_of_run(connection, plan.run_id)
    return next((one for one in of_run if one.evaluation_id == step.evaluation_id), None)


def _scored(connection: Reads, plan: PatientPlan, step: PatientStep) -> ScoredCount | None:
    row = find(connection, step.evaluation_id)
    if row is not None:
        return scored_by_key(evaluation_of(row).results).get(plan.patience.metric)
    measured = _measured(connection, plan, step)
    return None if measured is None else measured.scored.get(plan.patience.metric)


def _ended(connection: Reads, plan: PatientPlan) -> Iterator[PatientStep]:
    """Steps that have ended with the metric, before the first one that is still at work."""
    for planned in new_steps(connection, plan):
        if planned.state in _AT_WORK:
            return
        if planned.state is not EvaluationState.COMPLETED:
            continue
        row = find(connection, planned.evaluation_id)
        evaluation = None if row is None else evaluation_of(row)
        if evaluation is None or (value := evaluation.metrics.values.get(plan.patience.metric)) is None:
            continue
        yield PatientStep(
            step=planned.step,
            evaluation_id=planned.evaluation_id,
            model=format_model(evaluation.request.model),
            value=value,
            best_step=planned.step,
            since=0,
        )


def _walk(
    comparing: _Comparing, before: Sequence[PatientStep], points: Sequence[PatientStep]
) -> tuple[Sequence[PatientStep], Sequence[tuple[EventKind, int, Event]]]:
    """Go through steps in their order; returns them with the best at each, and the events that belong there."""
    plan = comparing.plan
    best = next((one for one in before if one.step == before[-1].best_step), None) if before else None
    since = before[-1].since if before else 0
    steps: list[PatientStep] = []
    events: list[tuple[EventKind, int, Event]] = []
    for point in points:
        found = comparing.improvement(best, point)
        if found.better or best is None:
            before_it = None if found.by == "first" else best
            events.append(
                (EventKind.RUN_BEST, point.step, best_event(plan, before_it, point, found, comparing.scored(point)))
            )
            best, since = point, 0
        elif found.by:
            since += 1
            if since == plan.patience.patience:
                events.append((EventKind.RUN_PLATEAU, best.step, plateau_event(plan, best, point, since)))
        steps.append(dataclasses.replace(point, best_step=best.step, since=since))
    return steps, events


class _Comparing:
    """Compares steps of a plan, by their samples' scores where the metric summarises these."""

    def __init__(self, connection: Reads, plan: PatientPlan, max_samples: int, known: Known) -> None:
        self.plan = plan
        self._connection, self._max_samples, self._known = connection, max_samples, known

    def improvement(self, best: PatientStep | None, point: PatientStep) -> Improvement:
        """Whether a step is better than the best one before it."""
        if best is None:
            return Improvement(better=True, by="first")
        ours, theirs = self._rules(best), self._rules(point)
        if ours != theirs:
            later = theirs > ours
            return Improvement(better=later, by="first" if later else "")
        enough = enough_scored([self.scored(best), self.scored(point)])
        if not all(enough):
            return Improvement(better=enough[1], by="first" if enough[1] else "")
        paired = self._paired(best, point)
        if isinstance(paired, Improvement):
            return paired
        difference = point.value - best.value
        return Improvement(
            better=self._sign * difference > self.plan.patience.min_delta,
            by="value",
            difference=difference,
            not_paired=paired,
        )

    def scored(self, step: PatientStep) -> ScoredCount | None:
        """What the value of a step is made of; None if that is not known."""
        return _scored(self._connection, self.plan, step)

    def _rules(self, step: PatientStep) -> tuple[int, int]:
        """The versions of the rules and of graders by which a step was measured; 0 if they are no longer known."""
        row = find(self._connection, step.evaluation_id)
        found = _measured(self._connection, self.plan, step) if row is None else evaluation_of(row)
        if found is None:
            return 0, 0
        return found.rules_version, order_of(versions_by_metric(found).get(self.plan.patience.metric, {}))

    @property
    def _sign(self) -> int:
        return 1 if self.plan.goal is Goal.HIGHER else -1

    def _paired(self, best: PatientStep, point: PatientStep) -> Improvement | str:
        """The improvement by the samples' scores; or the reason why they cannot be compared."""
        row = find(self._connection, point.evaluation_id)
        if row is None:
            return Reason.UNKNOWN_EVALUATION
        label = self._label(evaluation_of(row))
        if label is None:
            return Reason.NO_SCORES
        request = CompareRequest(
            evaluation_ids=(best.evaluation_id, point.evaluation_id),
            baseline_id=best.evaluation_id,
            evaluator=label,
            confidence=self.plan.patience.confidence,
            max_listed=0,
        )
        try:
            pairs = compare_in(self._connection, request, self._max_samples, self._known).comparisons
        except BridgeError as error:
            return error.reason
        pair = next(iter(pairs), None)
        if pair is None or (pair.problem is None and "difference" not in pair.metrics.values):
            return Reason.NO_SCORES
        if pair.problem is not None:
            return pair.problem.reason
        values = pair.metrics.values
        low, high = values.get("difference_ci_low"), values.get("difference_ci_high")
        if low is None or high is None:  # one sample alone
            return Improvement(better=False, by="paired", difference=values["difference"])
        least = low if self.plan.goal is Goal.HIGHER else -high
        return Improvement(
            better=least > self.plan.patience.min_delta,
            by="paired",
            difference=values["difference"],
            interval=(low, high),
        )

    def _label(self, evaluation: Evaluation) -> str | None:
        """The evaluator whose samples' scores the metric summarises, the same way up as the plan takes it."""
        patience = self.plan.patience
        kinds = {spec.kind: self._known(spec.kind) for spec in evaluation.request.evaluators}
        infos = {kind: info for kind, info in kinds.items() if info is not None}
        for keys in keys_of(evaluation, infos):
            if patience.metric in keys.headline and keys.goals.get(patience.metric) is self.plan.goal:
                return keys.label
        return None
