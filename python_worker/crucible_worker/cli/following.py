"""A run that is followed in this process: its request, its errors by the options of `follow`, its progress lines."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import typer

from crucible_bridge.codec.events import events_from_records
from crucible_bridge.codec.generated import follow_run_request_from_v1, follow_run_request_to_v1
from crucible_bridge.codec.plans import plan_from_record, plan_to_record
from crucible_bridge.errors import BridgeError, InvalidField, NotFound, clipped
from crucible_bridge.events import Event, EventKind
from crucible_bridge.problems import shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.suites import load_plan
from crucible_bridge.types import (
    EvaluateRequest,
    EvaluationPlan,
    EvaluationState,
    FollowPolicy,
    FollowRunRequest,
    Goal,
    ModelRef,
    Patience,
    PlannedEvaluation,
    parse_model,
)
from crucible_worker.cli.options import EXIT_BUDGET, EXIT_FAILED, EXIT_PLATEAU, FollowOptions, field_flags
from crucible_worker.cli.progress import Show, progress
from crucible_worker.cli.refusals import refusing
from crucible_worker.cli.requests import budget_of, evaluations_to_run
from crucible_worker.cli.running import until_paused
from crucible_worker.cli.tables import one_line
from crucible_worker.cli.workspace import Termination, opened
from crucible_worker.config import Settings
from crucible_worker.engine.budgets import waits_for_budget
from crucible_worker.engine.preparation import keys_of
from crucible_worker.engine.specification import metric_key
from crucible_worker.evaluations import Evaluations
from crucible_worker.evaluators.registry import EvaluatorParts
from crucible_worker.journal.follows import FollowRow
from crucible_worker.journal.plans import Plateau
from crucible_worker.planning.follow.following import Following
from crucible_worker.planning.follow.follows import Follows
from crucible_worker.planning.follow.keeping import KEEP_FOLDER, Keeper, KeepRule
from crucible_worker.planning.follow.names import unnamed_line
from crucible_worker.planning.plans import MAX_NAMED_BYTES, EvaluationPlans, patient_plan
from crucible_worker.reports.as_json import evaluation_as_json
from crucible_worker.reports.facts import state_text
from crucible_worker.reports.metric_keys import evaluator_sentences, sample_warnings
from crucible_worker.server.parts import CustomFiles
from crucible_worker.telemetry import configure_logging

__all__ = ["keep_rule", "refusing_follow", "request_of", "run"]

# What is followed and evaluated, from the options, and its errors by these.

_FLAGS = field_flags(FollowOptions)
"""Options, by the field of the request."""
_OF_FLAGS = "evaluations[0]."
"""Where a plan has what options say."""


def request_of(typed: FollowOptions, parts: EvaluatorParts | None) -> FollowRunRequest:
    """The request, within the bounds of a call.

    Args:
        typed: the options, with a run.
        parts: evaluators and graders, with those of files that options name.

    Raises:
        InvalidField: names the wrong option, the path in a file, or the field of the request.
    """
    run_id = typed.run_id or ""
    try:
        policy = FollowPolicy(typed.policy)
    except ValueError:
        known = ", ".join(policy.value for policy in FollowPolicy)
        raise InvalidField("--policy", f"is {clipped(typed.policy)}, must be one of {known}") from None
    request = FollowRunRequest(
        run_id=run_id,
        directory=str(typed.directory),
        plan=_plan(typed, run_id, parts),
        policy=policy,
        every=typed.every or 0,
        name_pattern=typed.name_pattern,
        marker=typed.marker,
        base_model=None if typed.base_model is None else _base_model(typed.base_model),
        hold_folder="" if typed.hold_folder is None else str(typed.hold_folder),
        mark=typed.mark,
    )
    return follow_run_request_from_v1(follow_run_request_to_v1(request))


@contextlib.contextmanager
def refusing_follow(settings: Settings, typed: FollowOptions) -> Iterator[None]:
    """As `refusing`, for errors of a request to follow.

    Raises:
        Refused: something is wrong, or missing; the text names the option.
    """
    by_flags = typed.suite is None and typed.plan is None
    with refusing(settings, typed.evaluator):
        try:
            yield
        except BridgeError as error:
            error.field = _place(error.field, by_flags=by_flags)
            if error.reason == Reason.OTHER_PLAN:
                error.message += "; take another --id or --run-id for other options"
            raise


def _place(field: str, *, by_flags: bool) -> str:
    """The option that gives a field, or its path in the file."""
    path = field.removeprefix("plan.")
    if path in _FLAGS:
        return _FLAGS[path]
    return path.removeprefix(_OF_FLAGS) if by_flags else path


def _plan(typed: FollowOptions, run_id: str, parts: EvaluatorParts | None) -> EvaluationPlan:
    plan = _planned_evaluations(typed, run_id, parts)
    if typed.stop_on is None:
        for flag, value in (("--patience", typed.patience), ("--min-delta", typed.min_delta)):
            if value is not None:
                raise InvalidField(flag, "is only allowed with --stop-on METRIC")
        return plan
    patience = Patience(
        metric=typed.stop_on, goal=_goal(typed), patience=typed.patience or 3, min_delta=typed.min_delta or 0.0
    )
    return dataclasses.replace(plan, patience=patience)


def keep_rule(typed: FollowOptions, request: FollowRunRequest, parts: EvaluatorParts | None) -> KeepRule | None:
    """Which checkpoints have copies; None if none has.

    Raises:
        InvalidField: names the wrong option.
    """
    if typed.keep_best is None:
        for flag, value in (("by", typed.keep_by), ("folder", typed.keep_folder), ("gib", typed.keep_gib)):
            if value is not None:
                raise InvalidField(f"--keep-{flag}", "is only allowed with --keep-best N")
        if typed.goal is not None and typed.stop_on is None:
            raise InvalidField("--goal", "is only allowed with --stop-on or --keep-best")
        return None
    plan = request.plan
    assert plan is not None
    metric = typed.keep_by or (plan.patience.metric if plan.patience is not None else _only_metric(plan, parts))
    try:
        found = patient_plan(plan, Patience(metric=metric, goal=_goal(typed), patience=1), parts)
    except InvalidField as error:
        flag = "--goal" if error.field.endswith("goal") else "--keep-by" if typed.keep_by else "--stop-on"
        raise InvalidField(flag, error.message) from None
    return KeepRule(
        folder=Path(request.directory) / KEEP_FOLDER if typed.keep_folder is None else typed.keep_folder,
        count=typed.keep_best,
        max_bytes=int((100.0 if typed.keep_gib is None else typed.keep_gib) * 1024**3),
        metric=found.patience.metric,
        goal=found.goal,
    )


def _only_metric(plan: EvaluationPlan, parts: EvaluatorParts | None) -> str:
    """The first metric of the only evaluator of a plan.

    Raises:
        InvalidField: there are several, or its first metric has no fixed key.
    """
    every = (*plan.evaluations, *plan.infrequent_evaluations)
    keys = [keys for planned in every for keys in keys_of(planned, parts=parts)]
    names = [metric_key(each.prefix, each.spec, each.keys[0]) for each in keys if each.keys]
    if len(names) != 1 or "<" in names[0]:
        listed = shorten(", ".join(dict.fromkeys(names)), MAX_NAMED_BYTES)
        raise InvalidField("--keep-by", f"is needed with --keep-best: there are {listed}")
    return names[0]


def _goal(typed: FollowOptions) -> Goal | None:
    if typed.goal is None:
        return None
    if typed.goal not in list(Goal):
        raise InvalidField("--goal", f"is {clipped(typed.goal)}, must be higher or lower")
    return Goal(typed.goal)


def _planned_evaluations(typed: FollowOptions, run_id: str, parts: EvaluatorParts | None) -> EvaluationPlan:
    plan_id = run_id if typed.plan_id is None else typed.plan_id
    evaluated = typed.replace(run_id=None, max_cost=None, max_output_tokens=None)
    bounds = {name.replace("max_", "max_run_", 1): value for name, value in budget_of(typed).items()}
    shown = os.fsencode(typed.directory.resolve()).decode(errors="backslashreplace")
    if shown != str(typed.directory.resolve()):
        raise InvalidField("DIR", f"is {shown}, a path that is not UTF-8: rename it")
    if not run_id:
        raise InvalidField("--run-id", "is needed: the directory has no name")
    if typed.plan is not None:
        for flag, _ in typed.replace(run_id=None).given():
            raise InvalidField(flag, "and --plan exclude each other: a plan's file says what is evaluated")
        try:
            return load_plan(typed.plan, plan_id=plan_id, run_id=run_id)
        except OSError as error:
            raise InvalidField("--plan", f"is {clipped(str(typed.plan))}: {error.strerror}") from error
        except InvalidField as error:
            raise InvalidField(f"--plan {typed.plan}: {error.field}", error.message) from error
    _, evaluations = evaluations_to_run(evaluated, parts)
    return EvaluationPlan(
        plan_id=plan_id,
        run_id=run_id,
        eval_every=1,
        evaluations=tuple(_planned(each.request, bounds) for each in evaluations),
    )


def _planned(request: EvaluateRequest, bounds: Mapping[str, float | int]) -> PlannedEvaluation:
    names = [field.name for field in dataclasses.fields(PlannedEvaluation)]
    request = dataclasses.replace(request, limits=dataclasses.replace(request.limits, **bounds))
    return PlannedEvaluation(**{name: getattr(request, name) for name in names})


def _base_model(text: str) -> ModelRef:
    if ":" not in text:
        message = f"is {clipped(text)}: a folder below a model root is local:PATH, a model of the hub hub:OWNER/NAME"
        raise InvalidField("--base-model", message)
    try:
        return parse_model(text)
    except InvalidField as error:
        raise InvalidField("--base-model", error.message) from None


LOOK_SECONDS = 0.2
"""Seconds between two looks at whether the run is followed, and idle."""
UNNAMED_SECONDS = 5.0
"""Seconds between two looks for models that have not the name of a checkpoint, while there is no checkpoint."""
_ENDS = (EventKind.EVALUATION_STOP, EventKind.EVALUATION_EXCEPTION)
_CHECKPOINTS = (EventKind.CHECKPOINT_FOUND, EventKind.CHECKPOINT_SKIPPED, EventKind.CHECKPOINT_RELEASED)
_RUNS = (EventKind.RUN_BEST, EventKind.RUN_PLATEAU)
_HELD_BY = {"links": "held by links", "copy": "held by a copy", "nothing": "not held"}


async def run(
    settings: Settings,
    request: FollowRunRequest,
    custom: CustomFiles | None,
    refusing: Callable[[], AbstractContextManager[None]],
    idle_seconds: float | None,
    keep: KeepRule | None,
    *,
    stops: bool,
    as_json: bool,
) -> int:
    """Follow a run until it is idle, or until no better checkpoint comes; returns the exit status.

    Args:
        settings: of the worker that runs in this process meanwhile.
        request: what to follow.
        custom: evaluators and graders of files that the command names.
        refusing: names options in errors that refuse the request.
        idle_seconds: end after so long without work; never if None.
        keep: which checkpoints have copies.
        stops: end once no better checkpoint has come for as long as the plan says.
        as_json: write a line of JSON for each evaluation that has ended, and nothing for people.

    Raises:
        Refused: the request is wrong.
        BridgeError: nothing can run here.
        CancelledError: SIGTERM arrived.
    """
    termination = Termination()
    # As of `run`: progress shows an outage.
    log_writer = configure_logging("console", "warning", left_out=() if as_json else ("model_away", "model_gone"))
    try:
        with progress(sys.stderr, quiet=as_json, lines=True) as show:
            async with opened(settings, custom, termination) as parts:
                plans = parts.evaluations.plans(plan_to_record, plan_from_record)
                lines = _FollowLines(parts.evaluations, show, as_json=as_json)
                keeper = _keeper(parts.evaluations, plans, keep, request, lines)
                follows = Follows(
                    parts.evaluations.follow_records(),
                    plans,
                    settings.model_roots,
                    parts.evaluations.background,
                    lambda row: keeper,
                )
                try:
                    after = parts.evaluations.head().sequence
                    with refusing():
                        row, _ = await follows.begin(request, by_command=True)
                    if not await asyncio.to_thread(os.path.isdir, row.directory):
                        lines.say(f"{row.directory}: waits for this directory, which does not exist yet")
                    await lines.find_paused(row)
                    async with lines.shown(row.run_id, after):
                        ending = _Ending(parts.evaluations, plans, stops=stops, idle_seconds=idle_seconds)
                        last = await _until_ended(follows, row, lines, ending)
                finally:
                    await follows.drain()
                    follows.close()
    finally:
        log_writer.close(1.0)
    for line in [] if last is None else _unfinished(last):
        lines.say(line)
    if lines.paused:
        typer.echo(
            f"crucible-worker: paused: {lines.paused} and those after it wait for a larger budget; `crucible-worker "
            f"resume {lines.paused}` with a larger --max-run-cost or --max-run-output-tokens continues, and the "
            "same command follows again",
            err=True,
        )
        return EXIT_BUDGET
    if ending.plateau is not None:
        lines.stopped(ending.plateau)
        return EXIT_PLATEAU
    return EXIT_FAILED if lines.failed or (last is not None and last.missed) else 0


def _keeper(
    evaluations: Evaluations,
    plans: EvaluationPlans,
    rule: KeepRule | None,
    request: FollowRunRequest,
    lines: _FollowLines,
) -> Keeper | None:
    if rule is None or request.plan is None:
        return None
    return Keeper(rule, request.plan.plan_id, evaluations.get, plans.content_of, lines.say)


class _Ending:
    """Whether a command has followed a run for long enough."""

    def __init__(
        self, evaluations: Evaluations, plans: EvaluationPlans, *, stops: bool, idle_seconds: float | None
    ) -> None:
        self.evaluations, self._plans = evaluations, plans
        self._stops, self._idle_seconds = stops, idle_seconds
        self.plateau: Plateau | None = None
        """The plateau by which it ends."""

    async def on_plateau(self, row: FollowRow) -> bool:
        """Whether no better checkpoint has come for as long as the plan says."""
        if self._stops:
            self.plateau = await self._plans.plateau(row.plan_id)
        return self.plateau is not None

    async def due(self, row: FollowRow, following: Following) -> bool:
        """Whether to end."""
        if await self.on_plateau(row):
            return True
        idle = following.looked and time.monotonic() - following.active
        return self._idle_seconds is not None and idle is not False and idle >= self._idle_seconds

    async def cancel_waiting(self, row: FollowRow) -> None:
        """Cancel evaluations of checkpoints that have not begun when a plateau is reached; those under way end."""
        if self.plateau is None:
            return
        for one in await self.evaluations.of_run(row.run_id):
            if one.state is EvaluationState.QUEUED and one.evaluation_id.startswith(f"{row.plan_id}-step-"):
                await self.evaluations.cancel(one.evaluation_id, "no better checkpoint has come (--stop-on)")


async def _until_ended(follows: Follows, row: FollowRow, lines: _FollowLines, ending: _Ending) -> Following | None:
    """Follow until the end, or until the run is no longer followed; returns what followed it here the last time."""
    waits, last, told = False, None, _Told(lines)
    while True:
        following = await follows.take(row)
        if following is None:
            if (error := follows.failure(row)) is not None:
                raise error
            now = await follows.find(row)
            if now is None or now.ended:
                await ending.on_plateau(row)
                return last
            if not waits:
                waits = True
                lines.say(f"{row.run_id}: another process follows it; this one takes over when that ends")
        else:
            last = following
            await told.look(following)
            if lines.paused:
                await _all_paused(ending.evaluations, row)
                return following
            if await ending.due(row, following):
                await follows.end(row.run_id)
                await ending.cancel_waiting(row)
                await _ended_or_paused(follows, row, lines, ending)
                return following
        await asyncio.sleep(LOOK_SECONDS)


async def _all_paused(evaluations: Evaluations, row: FollowRow) -> None:
    """Wait until the calls in flight of a run's evaluations have their answers."""
    for evaluation in await evaluations.of_run(row.run_id):
        if waits_for_budget(evaluation):
            await until_paused(evaluations, evaluation.evaluation_id)


async def _ended_or_paused(follows: Follows, row: FollowRow, lines: _FollowLines, ending: _Ending) -> None:
    """Wait for the evaluations under way: until they have ended, or one is paused by its budget."""
    ended = asyncio.ensure_future(follows.ended(row))
    try:
        while not (await asyncio.wait({ended}, timeout=LOOK_SECONDS))[0]:
            if lines.paused:
                await _all_paused(ending.evaluations, row)
                return
        await ended
    finally:
        ended.cancel()


class _Told:
    """Says what a person would not expect of the directory: each once."""

    def __init__(self, lines: _FollowLines) -> None:
        self._lines = lines
        self._refused = self._unnamed = False
        self._looked: float | None = None

    async def look(self, following: Following) -> None:
        """Say it, if the directory has been looked at."""
        if not following.looked:
            return
        if (names := following.refused_before) and not self._refused:
            self._refused = True
            more, them = (f" and {len(names) - 1:,} more", "them") if len(names) > 1 else ("", "it")
            self._lines.say(f"{names[0]}{more}: skipped before, and not tried again; another --id tries {them}")
        now = time.monotonic()
        if self._unnamed or not following.found_none or (self._looked and now - self._looked < UNNAMED_SECONDS):
            return
        self._looked = now
        if names := await following.unnamed():
            self._unnamed = True
            self._lines.say(unnamed_line(names))


def _unfinished(following: Following) -> list[str]:
    if following.found_none:
        return [f"no checkpoint was found in {following.directory}"]
    return [f"{each.name}: not evaluated, it {each.reason}" for each in following.unfinished]


class _FollowLines:
    """Writes what happens to a run's checkpoints and evaluations."""

    def __init__(self, evaluations: Evaluations, show: Show, *, as_json: bool) -> None:
        self._evaluations, self._show, self._as_json = evaluations, show, as_json
        self._after = 0
        self.failed = 0
        """Evaluations that failed."""
        self._of_plan = ""
        self.paused = ""
        """The last evaluation that was paused by its budget."""

    @contextlib.asynccontextmanager
    async def shown(self, run_id: str, after: int) -> AsyncIterator[None]:
        """Write what happens after a sequence of the log, until the block ends; nothing of that is left out."""
        self._after, done = after, asyncio.Event()
        writing = asyncio.create_task(self._write(run_id, done))
        try:
            yield
        except BaseException:
            writing.cancel()
            await asyncio.wait({writing})
            raise
        done.set()
        await writing

    def say(self, line: str) -> None:
        """Write a line for people."""
        if not self._as_json:
            typer.echo(one_line(line), err=True)

    def stopped(self, plateau: Plateau) -> None:
        """Write why the command ends: no better checkpoint has come."""
        best, patience = plateau.best, plateau.plan.patience
        if self._as_json:
            facts = {
                "metric": patience.metric,
                "goal": plateau.plan.goal.value,
                "patience": patience.patience,
                "best_step": best.step,
                "best_evaluation_id": best.evaluation_id,
                "best_value": best.value,
                "last_step": plateau.last.step,
                "evaluations": plateau.last.since,
            }
            typer.echo(json.dumps({"plateau": facts}, allow_nan=False))
            return
        self.say(
            f"stopped: {patience.metric} of step {best.step} ({best.value:.6g}) was not improved in "
            f"{plateau.last.since} evaluations, up to step {plateau.last.step}"
        )

    async def _write(self, run_id: str, done: asyncio.Event) -> None:
        while True:
            last = done.is_set()
            if self._evaluations.head().sequence > self._after:
                await self._catch_up(run_id)
            if last:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await done.wait()

    async def _catch_up(self, run_id: str) -> None:
        pages = self._evaluations.subscribe(
            after_sequence=self._after,
            run_id=run_id,
            until_now=True,
            new_kinds=True,
            pack=lambda page: (list(events_from_records(page.records)), page.through_sequence),
        )
        async with contextlib.aclosing(pages) as found:
            async for events, through in found:
                for event in events:
                    await self._tell(event)
                self._after = through

    async def _tell(self, event: Event) -> None:
        if event.kind in _RUNS:
            self.say(_run_line(event))
        elif event.kind in _CHECKPOINTS:
            self.say(checkpoint_line(event))
        elif event.kind in _ENDS:
            await self._tell_end(event)
        elif event.kind is not EventKind.SAMPLE_COMPLETE:
            if event.kind is EventKind.EVALUATION_PAUSED and await self._over_budget(event.evaluation_id):
                self.paused = event.evaluation_id
            self._show(one_line(event.evaluation_id), event)

    async def find_paused(self, row: FollowRow) -> None:
        """Find an evaluation that an earlier command has left paused by its budget."""
        self._of_plan = f"{row.plan_id}-step-"
        for evaluation in await self._evaluations.of_run(row.run_id):
            if waits_for_budget(evaluation) and evaluation.evaluation_id.startswith(self._of_plan):
                self.paused = evaluation.evaluation_id
                return

    async def _over_budget(self, evaluation_id: str) -> bool:
        with contextlib.suppress(NotFound):  # it was deleted meanwhile
            evaluation = await self._evaluations.get(evaluation_id)
            return waits_for_budget(evaluation) and evaluation_id.startswith(self._of_plan)
        return False

    async def _tell_end(self, event: Event) -> None:
        try:
            evaluation = await self._evaluations.get(event.evaluation_id)
        except NotFound:  # it was deleted meanwhile
            return
        self.failed += evaluation.state is EvaluationState.FAILED
        if self._as_json:
            typer.echo(json.dumps(evaluation_as_json(evaluation), allow_nan=False))
            return
        infos = await self._evaluations.infos(spec.kind for spec in evaluation.request.evaluators)
        problem = evaluation.problem
        why = "" if problem is None else f", {problem.reason}: {problem.message}"
        typer.echo(one_line(f"{evaluation.evaluation_id}: {state_text(evaluation)}{why}"))
        for sentence in (*evaluator_sentences(evaluation, infos), *sample_warnings(evaluation)):
            typer.echo(f"  {sentence}")


def checkpoint_line(event: Event) -> str:
    name, reason = event.metadata["name"], event.metadata.get("reason", "")
    match event.kind:
        case EventKind.CHECKPOINT_FOUND:
            why = f": {reason}" if reason else ""
            lag = f"{event.measurements['lag_seconds']:.1f} s after it was written"
            return f"{name}: found, step {event.step}, {_HELD_BY[event.metadata['held']]}{why}, {lag}"
        case EventKind.CHECKPOINT_SKIPPED:
            return f"{name}: skipped: {reason}"
        case _:
            # Read after it happened: a copy that is gone by now has a line of its own, which may be before this one.
            kept = event.metadata.get("kept")
            kept = kept if kept and os.path.isdir(kept) else None
            return f"{name}: released{f': {reason}' if reason else ''}{f', kept in {kept}' if kept else ''}"


def _run_line(event: Event) -> str:
    metric, value = event.metadata["metric"], event.measurements["value"]
    if event.kind is EventKind.RUN_BEST:
        return f"best so far: step {event.step}: {metric} {value:.6g}"
    count = int(event.measurements["evaluations"])
    return f"plateau: {metric}: {count} evaluations since step {event.metadata['best_step']} ({value:.6g}), none better"
