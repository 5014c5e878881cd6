"""`--task`: Inspect tasks by their names, without a data file that lists them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from crucible_bridge.errors import InvalidField, NotFound, PermissionDenied
from crucible_bridge.types import Dataset, EvaluatorSpec, InlineDataset, Sample
from crucible_worker.config import Settings
from crucible_worker.evaluators.inspect.allowed import InspectAllowlist, TaskName, parse_task

__all__ = ["allowing", "check_allowed", "dataset_of", "evaluators_of", "keeps_log", "of_tasks"]

_INSPECT, _LIMIT, _KEEP_LOG = "inspect", "limit", "keep_log"


def evaluators_of(evaluators: Sequence[str], tasks: Sequence[str]) -> Sequence[str]:
    """The evaluators, as typed; for tasks the evaluator `inspect` if none is typed."""
    return evaluators or ((_INSPECT,) if tasks else ())


def dataset_of(tasks: Sequence[str]) -> Dataset:
    """A data set of tasks, each a sample whose id is the task's name as it was typed.

    Raises:
        InvalidField: one is not the name of a task, or is given twice.
    """
    for index, text in enumerate(tasks):
        _parsed(text)
        if text in tasks[:index]:
            raise InvalidField("--task", f"{text!r} is given twice")
    return Dataset(source=InlineDataset(tuple(Sample(id=text, input=text) for text in tasks)))


def of_tasks(evaluators: Sequence[EvaluatorSpec], limit: int | None) -> tuple[EvaluatorSpec, ...]:
    """The evaluators of tasks, with a limit of samples for each task.

    Raises:
        InvalidField: one is not the evaluator `inspect`, or has a limit already.
    """
    found: list[EvaluatorSpec] = []
    for index, spec in enumerate(evaluators):
        if spec.kind != _INSPECT:
            raise InvalidField(f"evaluators[{index}]", "does not run tasks: --task is for the evaluator inspect")
        if limit is not None and _LIMIT in spec.options:
            raise InvalidField(f'evaluators[{index}].options["{_LIMIT}"]', "and --samples set the same limit")
        options = spec.options if limit is None else {**spec.options, _LIMIT: limit}
        found.append(dataclasses.replace(spec, options=options))
    return tuple(found)


def keeps_log(spec: EvaluatorSpec) -> bool:
    """Whether an evaluator keeps the logs of its tasks."""
    return spec.kind == _INSPECT and spec.options.get(_KEEP_LOG) is True


def allowing(tasks: Sequence[str], settings: Settings) -> Settings:
    """Settings that allow the typed tasks, unless they name roots or packages themselves.

    A wrong name allows nothing: it is refused with the request.
    """
    names: list[TaskName] = []
    for text in tasks:
        try:
            names.append(_parsed(text))
        except InvalidField:
            continue
    if settings.inspect_roots or settings.inspect_packages or not names:
        return settings
    in_files = any(name.in_file for name in names)
    packages = dict.fromkeys(name.place for name in names if not name.in_file)
    return dataclasses.replace(
        settings, inspect_roots=(Path.cwd(),) if in_files else (), inspect_packages=tuple(packages)
    )


def check_allowed(tasks: Sequence[str], settings: Settings) -> None:
    """Refuse a task that does not exist, or may not be run, before anything runs.

    Raises:
        InvalidField: one is not the name of a task, is in no file below a root, or in a package that is not allowed.
    """
    allowed = InspectAllowlist(roots=settings.inspect_roots, packages=settings.inspect_packages)
    for text in tasks:
        try:
            allowed.locate(_parsed(text))
        except (NotFound, PermissionDenied) as error:
            roots = ", ".join(map(str, settings.inspect_roots)) or "none"
            message = f"{text!r}: {error.message}; task roots: {roots}"
            raise InvalidField("--task", message, reason=error.reason) from error


def _parsed(text: str) -> TaskName:
    try:
        return parse_task(text)
    except InvalidField as error:
        raise InvalidField("--task", error.message, reason=error.reason) from None
