"""Plans of evaluations for the steps of a training run: registered once, then notified of each step.

A plan is in the journal, like its evaluations: any worker can be notified of a step, and queues what is due there. The
attempts read the data sets and open the model, so that training continues meanwhile. A plan may also be for every run
whose id fits a pattern.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import structlog

from crucible_bridge.errors import AlreadyExists, BridgeError, InvalidField, NotFound, ResourceExhausted
from crucible_bridge.problems import shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    EvaluateRequest,
    Evaluation,
    EvaluationPlan,
    EvaluatorResult,
    Goal,
    Metrics,
    ModelRef,
    Patience,
    PlannedEvaluation,
)
from crucible_bridge.types.bounds import EVALUATION_PLAN_PLAN_ID_MAX_BYTES
from crucible_worker.datasets.identity import with_kept_samples
from crucible_worker.engine.admission import Admission
from crucible_worker.engine.preparation import keys_of
from crucible_worker.engine.specification import (
    PlacedKeys,
    can_yield,
    metric_key,
    plan_fingerprint,
    refuse_equal_keys,
    settings_fingerprint,
    step_fingerprint,
)
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.registry import EvaluatorParts
from crucible_worker.journal import Journal, Transaction
from crucible_worker.journal.plans import (
    Overtaken,
    PatientPlan,
    PlanRow,
    Plateau,
    StepRow,
    find_plan,
    forget_from,
    forget_others,
    keep,
    plateau_of,
    record_of,
    refuse_other_model,
    step_rows,
    take,
    touch,
    watch,
)
from crucible_worker.journal.queries import EvaluationRow, Reads, evaluation_of, find
from crucible_worker.journal.records import request_from_record
from crucible_worker.planning.best_file import check_has_folder
from crucible_worker.reports.metric_keys import keys_of_result
from crucible_worker.util.fingerprints import model_part, same

__all__ = [
    "MAX_NAMED_BYTES",
    "MAX_PLANS_AT_HAND",
    "TOUCH_SECONDS",
    "DecodePlan",
    "EncodePlan",
    "EvaluationPlans",
    "PatternPlan",
    "fits",
    "patient_plan",
]

# What a plan evaluates at a step: which of its parts are due, and which evaluations run them.

CONTENT_SHOWN = 8
"""Characters of a checkpoint's content in the id of its evaluations."""
_PART_FIELDS = ("dataset", "labels", "limits", "metric_prefix", "models", "record", "sampling")


@dataclasses.dataclass(frozen=True, slots=True)
class StepEvaluation:
    """An evaluation at a step, of one or more parts of the plan."""

    evaluation_id: str
    """Its identity."""
    parts: tuple[int, ...]
    """Indices of its parts in the plan."""


def parts_of(plan: EvaluationPlan) -> tuple[PlannedEvaluation, ...]:
    """Every planned evaluation by its index: the frequent ones, then the infrequent ones."""
    return (*plan.evaluations, *plan.infrequent_evaluations)


def path_of_part(plan: EvaluationPlan, part: int) -> str:
    """Path of a part in its plan, for errors."""
    often = len(plan.evaluations)
    return f"evaluations[{part}]" if part < often else f"infrequent_evaluations[{part - often}]"


def due_parts(plan: EvaluationPlan, step: int, *, last: bool) -> tuple[int, ...]:
    """Indices of the parts that are due at a step: those with an interval that divides it; at the last step, all."""
    often, count = len(plan.evaluations), len(parts_of(plan))
    due: list[int] = []
    if last or _divides(plan.eval_every, step):
        due += range(often)
    if last or _divides(plan.infrequent_eval_every, step):
        due += range(often, count)
    return tuple(due)


def evaluations_at(
    plan: EvaluationPlan, step: int, due: Sequence[int], taken: Mapping[int, str], content: str = ""
) -> tuple[StepEvaluation, ...]:
    """The evaluations of the parts that are due: the existing ones, and new ones for the other parts.

    Parts that differ only in their evaluators share one evaluation. An existing evaluation never changes: a step that
    turns out to be the last one gets further evaluations.

    Args:
        plan: the plan.
        step: the step.
        due: indices of the parts that are due, in order.
        taken: by index, the evaluation that a part has at this step.
        content: of a checkpoint that was written again at its step, part of the ids of its evaluations.
    """
    had = dict.fromkeys(taken[part] for part in due if part in taken)
    found = [StepEvaluation(name, tuple(part for part in sorted(taken) if taken[part] == name)) for name in had]
    new = _together(plan, (part for part in due if part not in taken))
    which = f"-{content[:CONTENT_SHOWN]}" if content else ""
    found += [StepEvaluation(f"{plan.plan_id}-step-{step}-{parts[0]}{which}", parts) for parts in new]
    return tuple(sorted(found, key=lambda evaluation: evaluation.parts))


def request_of(plan: EvaluationPlan, step: int, model: ModelRef, evaluation: StepEvaluation) -> EvaluateRequest:
    """The request to the engine."""
    parts = parts_of(plan)
    first = parts[evaluation.parts[0]]
    return EvaluateRequest(
        evaluation_id=evaluation.evaluation_id,
        run_id=plan.run_id,
        step=step,
        model=model,
        evaluators=tuple(spec for part in evaluation.parts for spec in parts[part].evaluators),
        dataset=first.dataset,
        sampling=first.sampling,
        limits=first.limits,
        metric_prefix=first.metric_prefix,
        labels=first.labels,
        correlation_id=plan.correlation_id,
        record=first.record,
        log_to=plan.log_to,
        models=first.models,
    )


def path_in_plan(plan: EvaluationPlan, parts: Sequence[int], field: str) -> str:
    """The path in the plan of a field of an evaluation's request; unchanged if the field is not from the plan."""
    name, _, rest = field.partition("[")
    if name == "evaluators" and rest:
        number, _, inside = rest.partition("]")
        index = int(number)
        for part in parts:
            count = len(parts_of(plan)[part].evaluators)
            if index < count:
                return f"{path_of_part(plan, part)}.evaluators[{index}]{inside}"
            index -= count
    if name.partition(".")[0] in _PART_FIELDS:
        return f"{path_of_part(plan, parts[0])}.{field}"
    return field


def _divides(interval: int, step: int) -> bool:
    return interval > 0 and step % interval == 0


def _together(plan: EvaluationPlan, due: Iterable[int]) -> list[tuple[int, ...]]:
    """Indices of parts by evaluation, each in order."""
    groups: dict[str, list[int]] = {}
    for part in due:
        groups.setdefault(settings_fingerprint(parts_of(plan)[part]), []).append(part)
    return [tuple(group) for group in groups.values()]


TOUCH_SECONDS = 3600.0
"""How stale the recorded time of a plan's last use may be; retention adds it. So most steps write nothing."""
MAX_NAMED_BYTES = 500
"""Bytes of the ids of evaluations that were not started, in the metadata of an error."""
MAX_PLANS_AT_HAND = 4
"""Decoded plans of the latest steps that are cached; one may be as large as a message."""

EncodePlan = Callable[[EvaluationPlan], bytes]
"""Encodes a plan to the bytes that the journal stores."""
DecodePlan = Callable[[bytes], EvaluationPlan]
"""Decodes it."""


_log = structlog.get_logger(__name__)


class EvaluationPlans:
    """The plans of a journal. Made by `Evaluations.plans`."""

    def __init__(
        self,
        journal: Journal,
        admission: Admission,
        encode: EncodePlan,
        decode: DecodePlan,
        patterns: Sequence[PatternPlan] = (),
    ) -> None:
        self._journal, self._admission, self._patterns = journal, admission, patterns
        self._encode, self._decode = encode, decode
        self._at_hand: dict[str, EvaluationPlan] = {}
        self._decoding = asyncio.Lock()

    @property
    def _evaluators(self) -> EvaluatorParts:
        return self._admission.preparer.parts

    async def register(self, plan: EvaluationPlan) -> tuple[str, bool]:
        """Record a plan for later steps; returns its fingerprint, and whether it existed already.

        Raises:
            AlreadyExists: the id belongs to another plan (reason OTHER_PLAN).
            BridgeError: one of its evaluations could not be started with any model; nothing was recorded.
        """
        return await self._register(plan, self._admission.check)

    async def _register(
        self, plan: EvaluationPlan, check: Callable[[PlannedEvaluation], Awaitable[object]]
    ) -> tuple[str, bool]:
        plan = with_kept_samples(plan)
        identity = await asyncio.to_thread(plan_fingerprint, plan)
        if await self._journal.read(find_plan, plan.plan_id) is None:
            await self._check(plan, check)
        patient = None if plan.patience is None else patient_plan(plan, plan.patience, self._evaluators)
        record = await asyncio.to_thread(self._encode, plan)

        def recorded(transaction: Transaction) -> bool:
            existed = keep(transaction, plan.plan_id, plan.run_id, identity, record)
            if patient is not None:
                watch(transaction, patient)
            return existed

        existed = await self._journal.submit(recorded)
        # The checked plan, with the digests of its samples: its steps need not compute them again.
        self._cache(identity, self._at_hand.get(identity) or plan)
        return identity, existed

    async def notify(
        self, plan_id: str, step: int, model: ModelRef, *, last: bool, content: str = "", again: bool = True
    ) -> Sequence[tuple[Evaluation, bool]]:
        """Start what is due at a step; returns each evaluation, and whether it existed already.

        A run without a plan gets that of the first pattern that fits its id. With `content`, which tells checkpoints of
        one step apart, evaluations of another content are no longer those of the step: the model was written again.
        Without it, the files of a directory are compared with those that evaluations of the step have read.
        With `again`, those that have failed for now begin again.

        Raises:
            NotFound: there is no such plan, and no pattern fits (reason UNKNOWN_PLAN).
            AlreadyExists: evaluations of this step are of another model (reason OTHER_MODEL).
            ResourceExhausted: the queue is full; it names the evaluations that were not started, the others were.
            BridgeError: a check that needs no data refuses an evaluation; those before it were started.
        """
        new: set[str] = set()
        with self._admission.first():
            if self._patterns and await self._journal.read(find_plan, plan_id) is None:
                await self._register_by_pattern(plan_id)
            content = content or await self._content_now(plan_id, step, model)
            while True:
                try:
                    return await self._start_due(plan_id, step, model, content, last=last, new=new, again=again)
                except Overtaken:
                    # Each time the step has one more evaluation, so this ends.
                    continue

    async def _content_now(self, plan_id: str, step: int, model: ModelRef) -> str:
        """What tells a checkpoint from an earlier one of its step and directory; empty if there is none."""
        plan, rows, evaluated = await self._journal.read(_evaluated_at, plan_id, step)
        if plan is None or not rows or any(request_from_record(each.request).model != model for each in evaluated):
            return ""
        found = await self._admission.preparer.present_fingerprint(model)
        if found is None:
            return ""
        first = step_fingerprint(plan.fingerprint, step, model)
        recorded = [model_part(each.model_fingerprint) for each in evaluated if each.model_fingerprint]
        if all(row.fingerprint == first for row in rows) and not any(same(each, found) is False for each in recorded):
            return ""
        return hashlib.sha256(found.encode()).hexdigest()

    async def _register_by_pattern(self, run_id: str) -> None:
        """Register the plan of the first pattern that fits; as the run waits for the call, no data set is read yet."""
        pattern = next((pattern for pattern in self._patterns if pattern.fits(run_id)), None)
        if pattern is None:
            return
        try:
            await self._register(pattern.of(run_id), self._admission.check_without_data)
        except AlreadyExists as error:
            # A worker with other patterns was first: its plan is the run's.
            if error.reason != Reason.OTHER_PLAN:
                raise
        else:
            _log.info("plan_registered", run_id=run_id, runs=pattern.runs)

    async def is_due(self, plan_id: str, step: int) -> bool:
        """Whether something is due at a step that is not the last one.

        Raises:
            NotFound: there is no such plan (reason UNKNOWN_PLAN).
        """
        row, _, found = await self._journal.read(self._find, plan_id, step)
        return bool(due_parts(await self._decoded(row.fingerprint, found), step, last=False))

    async def content_of(self, model: ModelRef) -> str | None:
        """The fingerprint of the files of a model as they are now; None if it is no folder, or cannot be read."""
        return await self._admission.preparer.present_fingerprint(model)

    async def plateau(self, plan_id: str) -> Plateau | None:
        """The plateau on which a plan stands now; None if it stands on none, or has no patience."""
        return await self._journal.read(plateau_of, plan_id)

    async def _start_due(
        self, plan_id: str, step: int, model: ModelRef, content: str, *, last: bool, new: set[str], again: bool
    ) -> Sequence[tuple[Evaluation, bool]]:
        """Start what is due, or return what exists; ids of those that this call starts are put into `new`."""
        row, plan, evaluations = await self._due(plan_id, step, model, content, last)
        if plan.best_file:
            check_has_folder(model)
        if time.time_ns() - row.used_ns > TOUCH_SECONDS * 1e9:
            await self._journal.submit(lambda transaction: touch(transaction, plan_id, row.fingerprint))
        started: list[tuple[Evaluation, bool]] = []
        refused: list[str] = []
        full: ResourceExhausted | None = None
        # One after the other: of two calls with different models, one fails at the first evaluation.
        for evaluation in evaluations:
            try:
                found, existed = await self._start(row, plan, step, model, content, evaluation, again=again)
            except AlreadyExists as error:
                # Created meanwhile, with other parts or another model: then what is due has changed.
                if evaluation not in (await self._due(plan_id, step, model, content, last))[2]:
                    raise Overtaken from error
                raise
            except ResourceExhausted as error:
                if error.reason != Reason.QUEUE_FULL:
                    raise
                full = error
                refused.append(evaluation.evaluation_id)
            else:
                if not existed:
                    new.add(evaluation.evaluation_id)
                started.append((evaluation_of(found), evaluation.evaluation_id not in new))
        if full is not None:
            raise _not_started(full, refused, len(evaluations))
        return started

    async def _due(
        self, plan_id: str, step: int, model: ModelRef, content: str, last: bool
    ) -> tuple[PlanRow, EvaluationPlan, tuple[StepEvaluation, ...]]:
        """A plan and its evaluations at a step."""
        row, rows, found = await self._journal.read(self._find, plan_id, step)
        identity = step_fingerprint(row.fingerprint, step, model, content)
        if content:
            rows = {part: row for part, row in rows.items() if row.fingerprint == identity}
        refuse_other_model(rows, identity)
        plan = await self._decoded(row.fingerprint, found)
        taken = {part: row.evaluation_id for part, row in rows.items()}
        # In a thread, as inline samples take time; not in one of the journal's reader threads: other calls need these.
        evaluations = await asyncio.to_thread(
            lambda: evaluations_at(plan, step, due_parts(plan, step, last=last), taken, content)
        )
        return row, plan, evaluations

    def _find(
        self, connection: Reads, plan_id: str, step: int
    ) -> tuple[PlanRow, Mapping[int, StepRow], EvaluationPlan | bytes]:
        """The rows of a plan and of a step, and the plan, or its record if it is not cached."""
        row = find_plan(connection, plan_id)
        if row is None:
            raise NotFound(
                f"is {plan_id!r}: no plan has this id, or it is no longer retained",
                reason=Reason.UNKNOWN_PLAN,
                field="plan_id",
            )
        found = self._at_hand.get(row.fingerprint) or record_of(connection, plan_id)
        return row, step_rows(connection, plan_id, step), found

    async def _decoded(self, fingerprint: str, found: EvaluationPlan | bytes) -> EvaluationPlan:
        """The decoded plan, now the most recent of the cache; most steps start nothing and need only the cache."""
        if isinstance(found, bytes):
            # One at a time: calls that arrive together are usually of one plan.
            async with self._decoding:
                known = self._at_hand.get(fingerprint)
                found = known or with_kept_samples(await asyncio.to_thread(self._decode, found))
        self._cache(fingerprint, found)
        return found

    def _cache(self, fingerprint: str, plan: EvaluationPlan) -> None:
        self._at_hand.pop(fingerprint, None)
        self._at_hand[fingerprint] = plan
        while len(self._at_hand) > MAX_PLANS_AT_HAND:
            del self._at_hand[next(iter(self._at_hand))]

    async def _start(
        self,
        row: PlanRow,
        plan: EvaluationPlan,
        step: int,
        model: ModelRef,
        content: str,
        evaluation: StepEvaluation,
        *,
        again: bool,
    ) -> tuple[EvaluationRow, bool]:
        identity = step_fingerprint(row.fingerprint, step, model, content)

        def also(transaction: Transaction) -> None:
            touch(transaction, plan.plan_id, row.fingerprint)
            if content and forget_others(transaction, plan.plan_id, step, identity):
                forget_from(transaction, plan.plan_id, step)
            take(transaction, plan.plan_id, step, evaluation.parts, identity, evaluation.evaluation_id)

        try:
            return await self._admission.enqueue(request_of(plan, step, model, evaluation), also, again=again)
        except BridgeError as error:
            raise _placed(error, functools.partial(path_in_plan, plan, evaluation.parts)) from error

    async def _check(self, plan: EvaluationPlan, check: Callable[[PlannedEvaluation], Awaitable[object]]) -> None:
        """Refuse a plan with a logger that is refused, or an evaluation that could not be started with any model."""
        await self._admission.check_loggers(plan.log_to)
        for part, planned in enumerate(parts_of(plan)):
            try:
                await check(planned)
            except BridgeError as error:
                raise _placed(error, functools.partial(path_in_plan, plan, (part,))) from error
        # A training loop merges the metrics of all evaluations of a step.
        refuse_equal_keys(
            keys
            for part, planned in enumerate(parts_of(plan))
            for keys in keys_of(planned, f"{path_of_part(plan, part)}.", self._evaluators)
        )


def _evaluated_at(
    source: Reads, plan_id: str, step: int
) -> tuple[PlanRow | None, Sequence[StepRow], Sequence[EvaluationRow]]:
    """The rows of a plan, of a step and of its evaluations."""
    rows = tuple(step_rows(source, plan_id, step).values())
    found = (find(source, name) for name in dict.fromkeys(row.evaluation_id for row in rows))
    return find_plan(source, plan_id), rows, [row for row in found if row is not None]


def patient_plan(plan: EvaluationPlan, patience: Patience, evaluators: EvaluatorParts | None) -> PatientPlan:
    """What the journal needs to look at the steps of a plan.

    Args:
        plan: the plan.
        patience: the metric, whose prefix may be missing, and its goal, which may be missing.
        evaluators: of the worker that evaluates.

    Raises:
        InvalidField: no evaluation of the plan yields the metric, or no evaluator declares its goal.
    """
    placed = [list(keys_of(planned, parts=evaluators)) for planned in parts_of(plan)]
    metric = _metric_of(placed, patience.metric)
    yielding = [[each for each in keys if can_yield(each, metric)] for keys in placed]
    declared = (_declared(each, metric, evaluators) for keys in yielding for each in keys)
    goal = patience.goal or next((found for found in declared if found is not None), None)
    if goal is None:
        raise InvalidField("patience.goal", f"is missing: no evaluator declares which values of {metric!r} are better")
    return PatientPlan(
        plan_id=plan.plan_id,
        run_id=plan.run_id,
        correlation_id=plan.correlation_id,
        patience=dataclasses.replace(patience, metric=metric, goal=goal),
        parts=tuple(part for part, keys in enumerate(yielding) if keys),
        best_file=plan.best_file,
    )


def _metric_of(placed: Sequence[Sequence[PlacedKeys]], metric: str) -> str:
    """The full key of a metric; the prefix of an evaluation, and the name of an evaluator, may be left out.

    Raises:
        InvalidField: no evaluation yields it, or several do.
    """
    if any(can_yield(each, metric) for keys in placed for each in keys):
        return metric
    every = [each for keys in placed for each in keys]
    full = ((each, key) for each in every for key in (metric_key(each.prefix, each.spec, metric), each.prefix + metric))
    meant = dict.fromkeys(key for each, key in full if can_yield(each, key))
    if len(meant) == 1:
        return next(iter(meant))
    says = "several evaluations yield" if meant else "no evaluation yields"
    known = dict.fromkeys(metric_key(each.prefix, each.spec, key) for each in every for key in each.keys)
    listed = shorten(", ".join(meant or known), MAX_NAMED_BYTES)
    raise InvalidField("patience.metric", f"is {metric!r}, which {says}; there are {listed}")


def _declared(placed: PlacedKeys, metric: str, evaluators: EvaluatorParts | None) -> Goal | None:
    """Which values of a metric are better, as its evaluator declares it."""
    info = registry.info_if_known(placed.spec.kind, evaluators)
    if info is None:
        return None
    others = {metric_key(placed.prefix, placed.spec, key): "" for key in placed.keys}
    result = EvaluatorResult(evaluator=placed.spec, metrics=Metrics({metric: 0.0}, others), n=0, n_scored=0)
    return keys_of_result(result, placed.prefix, {placed.spec.kind: info}).goals.get(metric)


def _placed(error: BridgeError, place: Callable[[str], str]) -> BridgeError:
    """The same error, with the path of its field in the plan."""
    field = place(error.field)
    if field == error.field:
        return error
    if isinstance(error, InvalidField):
        return InvalidField(field, error.message, reason=error.reason)
    return type(error)(
        error.message,
        reason=error.reason,
        code=error.code,
        field=field,
        retryable=error.retryable,
        retry_after=error.retry_after,
        metadata=error.metadata,
    )


def _not_started(full: ResourceExhausted, refused: Sequence[str], count: int) -> ResourceExhausted:
    named: list[str] = []
    for evaluation_id in refused:
        if len(",".join((*named, evaluation_id)).encode()) > MAX_NAMED_BYTES:
            break
        named.append(evaluation_id)
    names = ", ".join(named) + (f" and {len(refused) - len(named)} more" if len(named) < len(refused) else "")
    return ResourceExhausted(
        f"{full.message}: {len(refused)} of this step's {count} evaluations were not started, {names}",
        reason=full.reason,
        retry_after=full.retry_after,
        metadata={"not_started": ",".join(named)},
    )


# Plans for runs that are not known yet, by patterns of run ids: "lab-*" fits "lab-7" and "lab-".
#
# A "*" stands for any text, an empty one included; every other character stands for itself.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PatternPlan:
    """A plan for every run whose id fits a pattern."""

    runs: str
    """The pattern."""
    plan: EvaluationPlan
    """The plan; its plan_id and run_id are replaced by the run's id."""

    def fits(self, run_id: str) -> bool:
        """Whether this is the plan of a run; its id must be able to be the id of a plan."""
        return len(run_id.encode()) <= EVALUATION_PLAN_PLAN_ID_MAX_BYTES and fits(self.runs, run_id)

    def of(self, run_id: str) -> EvaluationPlan:
        """The plan of a run."""
        return dataclasses.replace(self.plan, plan_id=run_id, run_id=run_id)


def fits(pattern: str, text: str) -> bool:
    """Whether a text fits a pattern; each part between two stars is searched for once, from left to right."""
    first, *others = pattern.split("*")
    if not others:
        return text == pattern
    *middle, last = others
    start, end = len(first), len(text) - len(last)
    if end < start or not (text.startswith(first) and text.endswith(last)):
        return False
    for part in middle:
        found = text.find(part, start, end)
        if found < 0:
            return False
        start = found + len(part)
    return True
