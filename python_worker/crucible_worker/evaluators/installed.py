"""Evaluators of users: found by the entry points of installed distributions, and guarded.

The group of entry points is `crucible_worker.evaluators`.

An entry point names a class of evaluators, see `declared`, or an instance of what `base.EvaluatorType` describes. Its
name is the `kind` in requests. It is imported when a request names it or lists evaluators. It never replaces a built-in
evaluator.

Its code is trusted: it runs on the worker's event loop, in the worker's process, with all its rights. The guard below
says how its failures are handled.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import numbers
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import structlog

from crucible_bridge.errors import BridgeError, FailedPrecondition, InternalError, clipped
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    EvaluatorInfo,
    EvaluatorKind,
    Goal,
    Metrics,
    ModelRef,
    Problem,
    Sample,
    SampleResult,
    SamplingParams,
    ToolCall,
    TrajectoryGroup,
    Turn,
    UnparsedToolCall,
    Verdict,
)
from crucible_worker.backends.base import Model
from crucible_worker.evaluators.accuracy import MAX_SAMPLES_PER_PROMPT
from crucible_worker.evaluators.answering import unicode_calls, unicode_unparsed
from crucible_worker.evaluators.base import (
    CallerPart,
    Evaluator,
    EvaluatorType,
    HasAuxiliaryModels,
    HoldsProcesses,
    Outcome,
    SampleContext,
    caller_parts,
    likelihood_cure,
    measures_auxiliary_models,
    measures_likelihoods,
    stops_itself,
    wants_answers,
)
from crucible_worker.evaluators.declared import BaseEvaluator, DeclaredKind
from crucible_worker.grading.base import NO_OPTIONS
from crucible_worker.util.entry_points import EntryPoints, error_text
from crucible_worker.util.error_reporter import ErrorReporter, with_id
from crucible_worker.util.options import Undeclarable

__all__ = [
    "GROUP",
    "MAX_MEASUREMENTS",
    "MAX_OUTPUT_BYTES",
    "GuardedEvaluator",
    "GuardedType",
    "described",
    "find",
    "kind_of",
    "names",
]

# The guard around a user's evaluator: its failures and invalid results end one sample, or this evaluator alone.

MAX_OUTPUT_BYTES = 1 << 20
"""Bytes of an `Outcome.output` that are recorded; the rest is truncated."""
MAX_MEASUREMENTS = 1_000
"""Measurements of one sample."""

_log = structlog.get_logger(__name__)
_METHODS = ("check", "check_sample", "run", "aggregate")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GuardedType:
    """A kind of evaluator that a user has brought."""

    info: EvaluatorInfo
    """Its own description, checked."""
    kind: EvaluatorType
    """It."""

    def keys_by(self, options: Mapping[str, Any]) -> Sequence[str]:
        """The keys that one with these options can yield."""
        return tuple(self.info.keys)

    def create(
        self, options: Mapping[str, Any], sampling: SamplingParams | None, parts: object | None = None
    ) -> GuardedEvaluator:
        """Make one. A class of evaluators gets the parts of the worker that its fields name; other types get none.

        Raises:
            InvalidField: the evaluator raises it.
            FailedPrecondition: it is `unavailable`, it cannot be made, or it is no evaluator (BAD_EVALUATOR).
        """
        name = self.info.kind
        if self.info.unavailable:
            raise _bad(name, f"cannot be used here: {self.info.unavailable}")
        with _refused(name, "cannot be made"):
            made = (
                self.kind.create(options, sampling, parts)
                if isinstance(self.kind, DeclaredKind)
                else self.kind.create(options, sampling)
            )
            repeats = getattr(made, "repeats", None)
        for method in _METHODS:
            if not callable(getattr(made, method, None)):
                raise _bad(name, f"makes a {type(made).__name__}, which has no {method}")
        if not isinstance(repeats, int) or not 1 <= repeats <= MAX_SAMPLES_PER_PROMPT:
            raise _bad(name, f"has repeats {repeats!r}, not a whole number from 1 to {MAX_SAMPLES_PER_PROMPT:,}")
        guarded = GuardedEvaluator
        if isinstance(made, BaseEvaluator):
            if isinstance(made, HoldsProcesses) or stops_itself(made):
                raise _bad(name, "extends an evaluator with separate processes, such as rl_test_set or inspect")
            guarded = _GuardedWithJudges if isinstance(made, HasAuxiliaryModels) else GuardedEvaluator
        return guarded(name=name, evaluator=made, repeats=repeats, keys=tuple(self.info.keys), kinds=self.info.kinds)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GuardedEvaluator:
    """An evaluator that a user has brought, with its options."""

    name: str
    """Its kind."""
    evaluator: Evaluator
    """It."""
    repeats: int
    """How often each sample is run; read once, when it was made."""
    keys: tuple[str, ...]
    """What it announces."""
    kinds: tuple[EvaluatorKind, ...] = (EvaluatorKind.SAMPLING,)
    """Which clients of a model it can work with."""
    failures: ErrorReporter = dataclasses.field(default_factory=ErrorReporter, repr=False, compare=False)
    """What it raised, or gave in place of a result."""

    @property
    def caller_parts(self) -> Sequence[CallerPart]:
        """See `evaluators.base.caller_parts`."""
        return caller_parts(self.evaluator) if isinstance(self.evaluator, BaseEvaluator) else ()

    @property
    def wants_answers(self) -> bool:
        """See `evaluators.base.wants_answers`."""
        return wants_answers(self.evaluator) is True

    @property
    def measures_likelihoods(self) -> bool:
        """See `evaluators.base.measures_likelihoods`."""
        return measures_likelihoods(self.evaluator) is True

    @property
    def measures_auxiliary_models(self) -> bool:
        """See `evaluators.base.measures_auxiliary_models`."""
        return measures_auxiliary_models(self.evaluator) is True

    @property
    def likelihood_cure(self) -> str:
        """See `evaluators.base.likelihood_cure`."""
        return cure if isinstance(cure := likelihood_cure(self.evaluator), str) else ""

    def check(self, model: Model) -> None:
        """Let it refuse a model.

        Raises:
            BridgeError: it refuses the model; BAD_EVALUATOR if its own code fails.
        """
        with _refused(self.name, "cannot check a model"):
            self.evaluator.check(model)

    def check_sample(self, sample: Sample) -> None:
        """Let it refuse a sample; raises as `check` does."""
        with _refused(self.name, "cannot check a sample"):
            self.evaluator.check_sample(sample)

    async def run(self, sample: Sample, context: SampleContext) -> Outcome:
        """Let it query and judge one sample.

        Raises:
            BridgeError: it raises one; EVALUATOR_FAILED if its result is no outcome, or if it tries to exit.
            Exception: its code raises it.
        """
        try:
            outcome = await self.evaluator.run(sample, context)
        except SystemExit as error:
            raise self._failed(f"wanted to exit: {error_text(error)}", error) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The engine did not cancel this sample: passed on, the error would silently end a task that runs samples.
            raise self._failed("was cancelled by what it waited for", error) from error
        if not isinstance(outcome, Outcome):
            raise self._failed(f"gave a {type(outcome).__name__}, not an Outcome")
        return self._checked(outcome)

    def aggregate(self, results: Iterable[SampleResult]) -> Metrics:
        """Let it aggregate; an announced key that it leaves out is undefined.

        Raises:
            InternalError: it gives no Metrics, or keys that it does not announce (reason EVALUATOR_FAILED).
            Exception: its code raises it.
        """
        try:
            metrics = self.evaluator.aggregate(results)
        except SystemExit as error:
            raise self._failed(f"wanted to exit: {error_text(error)}", error) from error
        if not isinstance(metrics, Metrics):
            raise self._failed(f"gave a {type(metrics).__name__}, not Metrics")
        found = {*metrics.values, *metrics.undefined}
        # The check for equal keys in a request used the announced keys.
        announced = "|".join(re.sub("<.+?>", "[^/]+", re.escape(key)) for key in self.keys)
        for key in sorted(found, key=str):
            if not isinstance(key, str) or re.fullmatch(announced, key) is None:
                raise self._failed(
                    f"gave the key {clipped(str(key))}, which its keys do not declare: they are {', '.join(self.keys)}"
                )
        left_out = {key: "the evaluator gave none" for key in self.keys if "<" not in key and key not in found}
        undefined = {key: shorten(str(reason), MAX_PROBLEM_BYTES) for key, reason in metrics.undefined.items()}
        return Metrics.of({key: float(value) for key, value in metrics.values.items()}, undefined | left_out)

    def _checked(self, outcome: Outcome) -> Outcome:
        if not isinstance(outcome.verdict, Verdict):
            raise self._failed(f"gave the verdict {clipped(str(outcome.verdict))}")
        if not (_is_number(outcome.score) if outcome.verdict.scored else outcome.score is None):
            raise self._failed(f"said {outcome.verdict} with score {str(outcome.score)[:60]}")
        texts = (outcome.output, outcome.extracted, outcome.method, outcome.stop_reason)
        if not all(isinstance(text, str) for text in (*texts, outcome.reasoning, outcome.refusal)):
            raise self._failed("gave an output, extract, method, stop reason, reasoning or refusal that is no text")
        tokens = outcome.output_tokens
        if tokens is not None and (not isinstance(tokens, numbers.Integral) or tokens < 0):
            raise self._failed(f"gave {str(tokens)[:60]} output tokens")
        return Outcome(
            verdict=outcome.verdict,
            score=None if outcome.score is None else float(outcome.score),
            output=shorten(outcome.output, MAX_OUTPUT_BYTES),
            extracted=shorten(outcome.extracted, MAX_PROBLEM_BYTES),
            method=shorten(outcome.method, MAX_PROBLEM_BYTES),
            stop_reason=shorten(outcome.stop_reason, MAX_PROBLEM_BYTES),
            output_tokens=None if tokens is None else int(tokens),
            problem=self._problem(outcome),
            measurements=self._measurements(outcome),
            group=self._group(outcome),
            turns=self._turns(outcome),
            reasoning=shorten(outcome.reasoning, MAX_OUTPUT_BYTES),
            refusal=shorten(outcome.refusal, MAX_OUTPUT_BYTES),
            tool_calls=self._tool_calls(outcome),
            unparsed_tool_calls=self._unparsed_tool_calls(outcome),
        )

    def _problem(self, outcome: Outcome) -> Problem | None:
        given = outcome.problem
        if outcome.verdict.scored:
            return None
        if not isinstance(given, Problem):
            reason = Reason.ERROR if outcome.verdict is Verdict.ERROR else Reason.UNDECIDED
            return Problem(reason=reason, message=f"the evaluator {self.name} gave no reason")
        reason, message = (shorten(str(text), MAX_PROBLEM_BYTES) for text in (given.reason, given.message))
        return Problem(reason=reason, message=message, retryable=given.retryable is True)

    def _measurements(self, outcome: Outcome) -> Mapping[str, float]:
        given = outcome.measurements
        fine = isinstance(given, Mapping) and all(isinstance(key, str) and _is_number(given[key]) for key in given)
        if not fine or len(given) > MAX_MEASUREMENTS:
            raise self._failed(f"gave measurements that are not at most {MAX_MEASUREMENTS:,} numbers by name")
        return {shorten(key, MAX_PROBLEM_BYTES): float(value) for key, value in given.items()}

    def _group(self, outcome: Outcome) -> TrajectoryGroup | None:
        given = outcome.group
        if given is None:
            return None
        if not isinstance(given, TrajectoryGroup):
            raise self._failed(f"gave a {type(given).__name__}, not a TrajectoryGroup")
        try:
            return given.checked("group")
        except Exception as error:  # its fields may contain anything
            raise self._failed(f"gave rollouts that are none: {error_text(error)}", error) from error

    def _tool_calls(self, outcome: Outcome) -> tuple[ToolCall, ...]:
        calls = tuple(outcome.tool_calls)
        for call in calls:
            if not isinstance(call, ToolCall) or not all(isinstance(text, str) for text in dataclasses.astuple(call)):
                raise self._failed("gave tool calls that are no ToolCalls of texts")
        return unicode_calls(calls)

    def _unparsed_tool_calls(self, outcome: Outcome) -> tuple[UnparsedToolCall, ...]:
        calls = tuple(outcome.unparsed_tool_calls)
        for call in calls:
            whole = isinstance(call, UnparsedToolCall) and isinstance(call.text, str) and isinstance(call.error, str)
            if not whole:
                raise self._failed("gave unparsed tool calls that are no UnparsedToolCalls of texts")
        return unicode_unparsed(calls)

    def _turns(self, outcome: Outcome) -> tuple[Turn, ...]:
        turns = tuple(outcome.turns)
        for turn in turns:
            whole = isinstance(turn, Turn) and isinstance(turn.role, str) and isinstance(turn.text, str)
            if not whole or not (turn.reward is None or (_is_number(turn.reward) and math.isfinite(turn.reward))):
                raise self._failed("gave turns that are no Turns with a role, a text and a finite reward")
        return turns

    def _failed(self, message: str, error: BaseException | None = None) -> InternalError:
        what = f"the evaluator {self.name!r} {message}"
        error_id = self.failures.logged(_log, "evaluator_failed", error, what=what)
        return InternalError(with_id(what, error_id), reason=Reason.EVALUATOR_FAILED, metadata={"error_id": error_id})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _GuardedWithJudges(GuardedEvaluator):
    """A user's evaluator that extends a built-in one which queries further models."""

    @property
    def auxiliary_models(self) -> Mapping[str, ModelRef]:
        """The further models; see `HasAuxiliaryModels`."""
        return self._judged.auxiliary_models

    @property
    def needs_auxiliary_models(self) -> bool:
        """Whether it queries them about every sample."""
        return self._judged.needs_auxiliary_models

    def check_auxiliary_models(self, auxiliary_models: Mapping[str, Model]) -> None:
        """Let it refuse further models; raises as `check` does."""
        with _refused(self.name, "cannot check a judge"):
            self._judged.check_auxiliary_models(auxiliary_models)

    @property
    def _judged(self) -> HasAuxiliaryModels:
        assert isinstance(self.evaluator, HasAuxiliaryModels)  # this class is only used for such evaluators
        return self.evaluator


@contextmanager
def _refused(name: str, what: str) -> Iterator[None]:
    try:
        yield
    except BridgeError:
        raise
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        raise _bad(name, f"{what}: {error_text(error)}") from error


def _bad(name: str, message: str) -> FailedPrecondition:
    return FailedPrecondition(f"the evaluator {name!r} {message}", reason=Reason.BAD_EVALUATOR)


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


GROUP = "crucible_worker.evaluators"
"""The entry point group that announces evaluators."""

_POINTS = EntryPoints(group=GROUP, what="evaluator", reason=Reason.BAD_EVALUATOR)


def names() -> Sequence[str]:
    """Kinds of the announced evaluators, sorted; loads nothing."""
    return _POINTS.names()


def described(name: str) -> EvaluatorInfo:
    """The entry of an announced evaluator in a listing; if it cannot be used, the entry says why."""
    try:
        found = find(name)
    except BridgeError as error:
        return _unusable(name, error.message)
    return _unusable(name, "is no longer announced") if found is None else found.info


def find(name: str) -> GuardedType | None:
    """Load the evaluator that is announced under a name; None if there is none.

    Raises:
        FailedPrecondition: it cannot be loaded, is no evaluator, or two distributions announce this name (reason
            BAD_EVALUATOR); it needs a library that is not installed (EXTRA_NOT_INSTALLED).
    """
    loaded = _POINTS.load(name)
    if loaded is None:
        return None
    return kind_of(name, *loaded)


def kind_of(name: str, place: str, found: Any) -> GuardedType:
    """Make the evaluator type of a loaded object.

    Args:
        name: the kind.
        place: where the object was loaded from, for errors.
        found: a class of evaluators, or an object as `base.EvaluatorType` describes it.

    Raises:
        FailedPrecondition: it is no evaluator, lacks a method, a field cannot be an option, or it has another kind
            (BAD_EVALUATOR).
    """
    if isinstance(found, type) and issubclass(found, BaseEvaluator):
        found = DeclaredKind(found)
    if isinstance(found, type):
        raise _POINTS.bad(name, f"is the class {found.__name__} at {place!r}, not an instance of it")
    try:
        info, create = getattr(found, "info", None), getattr(found, "create", None)
    except Undeclarable as error:
        raise _POINTS.bad(name, str(error)) from error
    except (Exception, SystemExit) as error:  # foreign code may raise anything
        raise _POINTS.bad(name, f"does not describe itself: {error_text(error)}") from error
    if not isinstance(info, EvaluatorInfo) or not callable(create):
        message = f"is a {type(found).__name__} at {place!r}, without an EvaluatorInfo as `info` or a `create`"
        raise _POINTS.bad(name, message)
    if isinstance(found, DeclaredKind) and (missing := sorted(found.evaluator.__abstractmethods__)):
        raise _POINTS.bad(
            name, f"is the class {found.evaluator.__name__} at {place!r}, which lacks {', '.join(missing)}"
        )
    _check(name, info)
    return GuardedType(info=info, kind=found)


def _check(name: str, info: EvaluatorInfo) -> None:
    if info.kind != name:
        raise _POINTS.bad(name, f"calls itself {info.kind!r}")
    texts = isinstance(info.description, str) and isinstance(info.unavailable, str)
    goal = info.score_goal is None or isinstance(info.score_goal, Goal)
    kinds = isinstance(info.kinds, tuple) and all(isinstance(kind, EvaluatorKind) for kind in info.kinds)
    if not (texts and goal and kinds and info.kinds):
        raise _POINTS.bad(name, "has an EvaluatorInfo whose fields are not of the types it declares, or no kinds")
    keys = info.keys
    if not isinstance(keys, Mapping) or not keys or not all(isinstance(text, str) for text in (*keys, *keys.values())):
        raise _POINTS.bad(name, "announces no keys, or some that are no text")
    _POINTS.check_options(name, info.options_schema)


def _unusable(name: str, why: str) -> EvaluatorInfo:
    return EvaluatorInfo(
        kind=name,
        kinds=(),
        description="An installed evaluator that cannot be used.",
        options_schema=NO_OPTIONS,
        keys={},
        unavailable=shorten(why, MAX_PROBLEM_BYTES),
    )
