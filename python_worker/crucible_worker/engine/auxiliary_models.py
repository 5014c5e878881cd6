"""Further models that evaluators call, what stays with the caller, and whether the models keep their weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from crucible_bridge.errors import BridgeError, Cancelled, FailedPrecondition, InvalidField, clipped
from crucible_bridge.problems import at_field, problem_of
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    AnsweredEnvironment,
    AnsweredGrade,
    EnvironmentQuestion,
    EpisodeAction,
    EvaluatorSpec,
    GradeQuestion,
    ModelRef,
    OpenEpisode,
    Problem,
    Sample,
)
from crucible_worker.backends.base import Capability, Model
from crucible_worker.backends.orchestrator import Caller, chosen
from crucible_worker.engine.preparation import Plan, option_path
from crucible_worker.evaluators.base import (
    CallerPart,
    Evaluator,
    HasAuxiliaryModels,
    PartKind,
    caller_parts,
)
from crucible_worker.grading.caller import CALLER
from crucible_worker.inference.retries import RetryPolicy, service_of

__all__ = [
    "GatedCaller",
    "Unloaded",
    "confirm_weights",
    "full_fingerprint",
    "load_auxiliary_models",
    "name_of",
    "record_weights",
    "refuse_without_caller",
    "unused_parts",
]

# Graders and environments that stay with the caller: whether it has them, and how samples ask them.


def refuse_without_caller(evaluators: Sequence[tuple[EvaluatorSpec, Evaluator]], caller: Caller | None) -> None:
    """Refuse evaluators that name what the caller does not hold.

    Raises:
        FailedPrecondition: there is no caller to ask (reason NEEDS_CALLER); names the option.
        InvalidField: it has none of this name (reason UNKNOWN_GRADER, UNKNOWN_ENVIRONMENT); likewise.
    """
    for index, (_, evaluator) in enumerate(evaluators):
        for part in caller_parts(evaluator):
            path = option_path(index, part.option)
            if caller is None:
                raise FailedPrecondition(
                    f"is {clipped(part.text)}, which stays with the caller: request it by "
                    "EvaluationService.EvaluateWithOrchestratorModel, and stay connected",
                    reason=Reason.NEEDS_CALLER,
                    field=path,
                )
            _refuse_unheld(part, caller, path)


def unused_parts(evaluators: Sequence[tuple[EvaluatorSpec, Evaluator]], caller: Caller) -> list[tuple[PartKind, str]]:
    """The parts of a caller that no evaluator names: its graders, then its environments."""
    named = [
        (part.kind, chosen(part.name, _held(part.kind, caller))) for _, one in evaluators for part in caller_parts(one)
    ]
    return [(kind, name) for kind in PartKind for name in _held(kind, caller) if (kind, name) not in named]


def _refuse_unheld(part: CallerPart, caller: Caller, path: str) -> None:
    held = _held(part.kind, caller)
    if chosen(part.name, held) is not None:
        return
    what = f"{part.kind}s"
    if not held:
        why = f"and start.{what} is empty: name there what the caller has"
    else:
        listed = ", ".join(f"{CALLER}:{name}" for name in held)
        why = f"and the caller has: {listed}"
    reason = Reason.UNKNOWN_GRADER if part.kind is PartKind.GRADER else Reason.UNKNOWN_ENVIRONMENT
    raise InvalidField(path, f"is {clipped(part.text)}, {why}", reason=reason)


def _held(kind: PartKind, caller: Caller) -> Sequence[str]:
    return caller.graders if kind is PartKind.GRADER else caller.environments


class GatedCaller:
    """A caller as one sample sees it: its answers count as progress, and questions for grades are retried.

    A question to an environment is not: an environment may have acted on it. Its rollout fails, and is repeated from
    its beginning as far as the evaluator's strategy allows.
    """

    __slots__ = ("_answered", "_caller", "_gate", "_repeat", "evaluator")

    def __init__(
        self, caller: Caller, gate: RetryPolicy, answered: Callable[[], None], *, evaluator: str, repeat: int
    ) -> None:
        """Of a caller.

        Args:
            caller: the caller.
            gate: each question passes it.
            answered: called after each answer.
            evaluator: name of the evaluator.
            repeat: number of the sample's run.
        """
        self.evaluator = evaluator
        self._caller, self._gate, self._answered, self._repeat = caller, gate, answered, repeat

    async def grade(self, grader: str, sample: Sample, response: str) -> AnsweredGrade:
        """See `evaluators.base.SampleCaller`."""
        question = GradeQuestion(
            grader=chosen(grader, self._caller.graders) or grader,
            evaluator=self.evaluator,
            sample=sample,
            repeat=self._repeat,
            response=response,
        )
        self._gate.asking += 1
        try:
            answer = await self._gate.call(self._caller.grade, (question,))
        finally:
            self._gate.asking -= 1
        self._answered()
        return answer

    def new_episode(self) -> int:
        """See `evaluators.base.SampleCaller`."""
        return self._caller.new_episode()

    async def follow(
        self, environment: str, episode: int, question: OpenEpisode | EpisodeAction
    ) -> AnsweredEnvironment:
        """See `evaluators.base.SampleCaller`."""
        if self._gate.closed:
            raise Cancelled("the evaluation has ended")
        asked = EnvironmentQuestion(
            environment=chosen(environment, self._caller.environments) or environment,
            episode=episode,
            question=question,
        )
        self._gate.asking += 1
        try:
            answer = await self._caller.follow(asked)
        finally:
            self._gate.asking -= 1
        self._answered()
        return answer

    def close_episode(self, number: int) -> None:
        """See `evaluators.base.SampleCaller`."""
        self._caller.close_episode(number)


# Whether the models of an evaluation keep their weights while it runs: recorded at its start, confirmed at its end.
#
# Results of two sets of weights are those of neither, so the evaluation fails.


async def full_fingerprint(plan: Plan) -> str:
    """The fingerprint of the models of a plan, with digests of every byte where there are some; may take minutes."""
    return "+".join([await model.full_fingerprint() for model in plan.models])


async def record_weights(plan: Plan, gate: RetryPolicy) -> None:
    """Have each model of a plan remember its weights.

    Raises:
        BridgeError: the weights of a model cannot be found out.
    """
    for model in plan.models:
        await gate.call(model.record_weights, model=model)


async def confirm_weights(plan: Plan, gate: RetryPolicy) -> None:
    """Have each model of a plan check that its weights are those that it had.

    Raises:
        FailedPrecondition: those of a model have changed (MODEL_CHANGED).
        BridgeError: those of a model cannot be found out.
    """
    for model in plan.models:
        await gate.call(model.confirm_weights, model=model)


class Unloaded(Model):
    """Stands in for a model that could not be loaded: every use of it raises the reason."""

    calls = 0
    """None was made."""

    def __init__(self, model: Model, error: BridgeError) -> None:
        self.fingerprint = model.fingerprint
        self._error = error

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Refuse.

        Raises:
            BridgeError: why it could not be loaded.
        """
        raise self._error.with_traceback(None)

    async def load(self) -> None:
        """Refuse; raises as `capabilities` does."""
        raise self._error.with_traceback(None)


async def load_auxiliary_models(plan: Plan, gate: RetryPolicy) -> Plan:
    """Load the further models of a plan.

    If one cannot be loaded, an evaluator that needs it for every sample fails, and none of its samples is run. If an
    evaluator needs it for some samples only, these are ERROR and the others keep their result. Other evaluators are not
    affected.

    Raises:
        Cancelled: the evaluation has ended.
    """
    refused: dict[int, Problem] = dict(plan.refused)
    auxiliary_models: dict[int, Mapping[str, Model]] = {}
    for index, models in plan.auxiliary_models.items():
        _, evaluator = plan.evaluators[index]
        assert isinstance(evaluator, HasAuxiliaryModels)
        found: dict[str, Model] = {}
        for name, model in models.items():
            error = await _error_of_loading(model, gate, option_path(index, name))
            found[name] = model if error is None else Unloaded(model, error)
            if error is not None and evaluator.needs_auxiliary_models:
                refused.setdefault(index, problem_of(error))
        if index not in refused:
            auxiliary_models[index] = found
    return dataclasses.replace(plan, refused=refused, auxiliary_models=auxiliary_models)


def name_of(model: Model, plan: Plan, evaluated: ModelRef) -> str:
    """What a model of a plan is called, of which `evaluated` is evaluated."""
    for index, models in plan.auxiliary_models.items():
        evaluator = plan.evaluators[index][1]
        for name, other in models.items():
            if other is model and isinstance(evaluator, HasAuxiliaryModels):
                return service_of(evaluator.auxiliary_models[name])
    return service_of(evaluated)


async def _error_of_loading(model: Model, gate: RetryPolicy, path: str) -> BridgeError | None:
    try:
        await gate.call(model.load, model=model)
    except Cancelled:
        raise
    except BridgeError as error:
        return at_field(error, path, own="model")
    return None
