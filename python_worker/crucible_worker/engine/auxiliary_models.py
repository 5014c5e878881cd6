"""Further models that evaluators call, such as judges: how they are loaded, and what happens if one cannot be."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from crucible_bridge.errors import BridgeError, Cancelled
from crucible_bridge.problems import at_field, problem_of
from crucible_bridge.types import ModelRef, Problem
from crucible_worker.backends.base import Capability, Model
from crucible_worker.engine.bounds import SampleTimeout
from crucible_worker.engine.preparation import Plan, option_path
from crucible_worker.evaluators.base import HasAuxiliaryModels, measures_likelihoods
from crucible_worker.inference.retries import RetryingModel, RetryPolicy, gated_models, service_of
from crucible_worker.inference.transcripts import Transcript

__all__ = ["Unloaded", "auxiliary_models_of", "load_auxiliary_models", "name_of"]


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


def auxiliary_models_of(
    plan: Plan,
    index: int,
    gate: RetryPolicy,
    patience: SampleTimeout,
    transcript: Transcript | None,
    renderers: Mapping[str, str],
) -> Mapping[str, RetryingModel | Unloaded]:
    """The further models of an evaluator as one sample sees them, by name; likewise the renderers chosen for them.

    A model that is measured as the evaluated one is reads text as that one does.
    """
    models = plan.auxiliary_models.get(index)
    if not models:  # as a rule, and for every sample
        return {}
    unloaded = {name: model for name, model in models.items() if isinstance(model, Unloaded)}
    loaded = {name: model for name, model in models.items() if name not in unloaded}
    reading = plan.reading if measures_likelihoods(plan.evaluators[index][1]) else None
    gated = gated_models(loaded, gate, patience.answered, transcript, renderers, patience.seconds_left, reading)
    return {**unloaded, **gated}
