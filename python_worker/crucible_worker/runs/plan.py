"""What an evaluation takes to run: its evaluators, samples and model, all checked before anything starts."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from crucible_bridge.errors import BridgeError, FailedPrecondition
from crucible_bridge.problems import problem_of
from crucible_bridge.types import EvaluateRequest, EvaluatorSpec, ModelRef, Problem, Sample
from crucible_worker.backends.base import Backend, Model
from crucible_worker.evaluators import registry
from crucible_worker.evaluators.base import Evaluator
from crucible_worker.runs.datasets import MalformedSample, load
from crucible_worker.runs.specification import refuse_equal_keys

__all__ = ["Plan", "Sources", "make_evaluators", "prepare"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where models and samples come from."""

    backends: Mapping[type[ModelRef], Backend]
    """By the kind of reference that they open."""
    data_roots: Sequence[Path]
    """JSONL data sets lie below these."""
    builtins: Mapping[str, Callable[[], Sequence[Sample]]]
    """Data sets that ship with the worker."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An evaluation, ready to run."""

    evaluators: tuple[tuple[EvaluatorSpec, Evaluator], ...]
    """Specifications, each with its evaluator."""
    refused: Mapping[int, Problem]
    """By index, why an evaluator cannot work with this model: it fails, the others finish."""
    samples: Sequence[Sample | MalformedSample]
    """In order."""
    dataset_fingerprint: str
    """Content of the samples."""
    model: Model
    """The model."""

    @property
    def total(self) -> int:
        """Runs of samples, of all evaluators that can work."""
        able = (item for index, (_, item) in enumerate(self.evaluators) if index not in self.refused)
        return len(self.samples) * sum(evaluator.repeats for evaluator in able)


def make_evaluators(request: EvaluateRequest) -> tuple[tuple[EvaluatorSpec, Evaluator], ...]:
    """Make a request's evaluators.

    Raises:
        InvalidField: one is unknown, has wrong options, or would yield a key that another one yields.
    """
    made = tuple(
        (spec, registry.create(spec, index, request.sampling)) for index, spec in enumerate(request.evaluators)
    )
    keys = [(spec, tuple(registry.info(spec.kind).keys)) for spec in request.evaluators]
    refuse_equal_keys(request.metric_prefix, keys)
    return made


async def prepare(
    request: EvaluateRequest, evaluators: tuple[tuple[EvaluatorSpec, Evaluator], ...], sources: Sources
) -> Plan:
    """Load the data set and open the model.

    Raises:
        BridgeError: either cannot be had; see `runs.datasets.load` and `Backend.open`.
    """
    backend = sources.backends.get(type(request.model))
    if backend is None:
        raise FailedPrecondition(
            f"is a {type(request.model).__name__}, for which this worker has no backend",
            reason="NO_BACKEND",
            field="model",
        )
    loaded = await asyncio.to_thread(load, request.dataset, data_roots=sources.data_roots, builtins=sources.builtins)
    model = await backend.open(request.model)
    refused: dict[int, Problem] = {}
    for index, (_, evaluator) in enumerate(evaluators):
        try:
            evaluator.check(model)
        except BridgeError as error:
            refused[index] = problem_of(error)
    return Plan(
        evaluators=evaluators,
        refused=refused,
        samples=loaded.samples,
        dataset_fingerprint=loaded.fingerprint,
        model=model,
    )
