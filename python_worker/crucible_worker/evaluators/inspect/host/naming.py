"""Models that a task names: each name is one of the worker's models, or has no model at all.

A scorer such as `model_graded_qa(model="openai/gpt-5")` would query that provider itself. Here the name stands for the
model that the request gives for it; without one the task fails before its first sample, as far as Inspect shows what
its scorers name, and otherwise with the first question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from inspect_ai._util.registry import (  # pyright: ignore[reportMissingImports]
    RegistryInfo,
    registry_add,
    registry_find,
    registry_info,
)
from inspect_ai.hooks import Hooks, TaskStart, hooks  # pyright: ignore[reportMissingImports]
from inspect_ai.log import EvalSpec  # pyright: ignore[reportMissingImports]
from inspect_ai.model import ModelAPI, ModelOutput, modelapi  # pyright: ignore[reportMissingImports]

from crucible_worker.evaluators.inspect.host.line import WorkerClient
from crucible_worker.evaluators.inspect.host.provider import OWN, CannotAsk, WorkerModel

__all__ = ["name_models"]

_KEPT = (OWN, "none", "mockllm")
"""Providers that query nothing: that of the worker, and those of Inspect for tests."""


def name_models(line: WorkerClient, names: Mapping[str, str], defaults: Mapping[str, Any]) -> None:
    """From now on, a model that a task names is the worker's.

    Args:
        line: the connection to the worker.
        names: the worker's name of a model, by the task's.
        defaults: how these models are sampled if the task does not say it.
    """
    known = {registry_info(each).name for each in registry_find(lambda info: info.type == "modelapi")}
    of_names = {name.partition("/")[0] for name in names if "/" in name}
    for full in (*known, *(of_names - {_short(name) for name in known})):
        if (short := _short(full)) not in _KEPT:
            # In the place of the provider, which Inspect finds by its short name.
            registry_add(_provider(short, line, names, defaults), RegistryInfo(type="modelapi", name=full))
    _refuse_unnamed(line, names)


def _short(name: str) -> str:
    return name.rpartition("/")[2]


def _provider(short: str, line: WorkerClient, names: Mapping[str, str], defaults: Mapping[str, Any]) -> Any:
    def made(model_name: str, **given: Any) -> ModelAPI:
        name = f"{short}/{model_name}"
        if name in names:
            return WorkerModel(line, names[name], model_name, defaults)
        return _Unnamed(model_name, _unnamed(name))

    class Provider(ModelAPI):
        """Makes the model of a name; never an instance of itself."""

        def __new__(cls, model_name: str, **given: Any) -> Any:
            return made(model_name, **given)

    return modelapi(name=short)(Provider)


class _Unnamed(ModelAPI):
    """A model that a task names and the request does not: a task may have one that it never queries."""

    def __init__(self, model_name: str, why: str) -> None:
        super().__init__(model_name)
        self._why = why

    async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
        """Refuse.

        Raises:
            CannotAsk: always, with the cure.
        """
        raise CannotAsk(self._why)


def _unnamed(name: str, role: str = "") -> str:
    return (
        f"MODEL_NOT_NAMED: the task names the model {name!r}: say which model of the worker it is, by `models` of the "
        f"request or --role {role or name}=MODEL"
    )


def _refuse_unnamed(line: WorkerClient, names: Mapping[str, str]) -> None:
    @hooks(name="crucible_named_models", description="Refuses tasks that name a model which the request does not.")
    class _Refusing(Hooks):
        async def on_task_start(self, data: TaskStart) -> None:
            for name, role in _named(data.spec):
                if "/" in name and name not in names and name.partition("/")[0] not in _KEPT:
                    line.refuse(_unnamed(name, role))
                    return


def _named(spec: EvalSpec) -> Iterator[tuple[str, str]]:
    """Names of models of a task, each with its role, or without one if a scorer has it."""
    for scorer in spec.scorers or ():
        given = (scorer.options or {}).get("model")
        for name in given if isinstance(given, list) else [given]:
            if isinstance(name, str):
                yield name, ""
    for role, bound in (spec.model_roles or {}).items():
        for config in bound if isinstance(bound, list) else [bound]:
            yield config.model, role
