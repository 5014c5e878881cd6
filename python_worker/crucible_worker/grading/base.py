"""The interface of graders: from a response and its targets to a verdict with its reason."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from crucible_bridge import types
from crucible_bridge.types import Conversation, ModelRef, Verdict
from crucible_worker.backends.base import Model

__all__ = ["NO_OPTIONS", "AsksJudge", "Grade", "Grader", "GraderType", "ReadsLabels", "Verdict", "with_labels"]

NO_OPTIONS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of a grader without options."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Grade(types.Grade):
    """The result for one response; `id` and `duration_ns` belong to items of calls, and are empty in evaluations."""

    measurements: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Further finite numbers, by name, for a sample's record."""

    @classmethod
    def of(cls, grade: types.Grade) -> Grade:
        """The same grade with all its fields: an item of a call and a sample of an evaluation have the same fields."""
        return cls(**{field.name: getattr(grade, field.name) for field in dataclasses.fields(types.Grade)})


class Grader(Protocol):
    """Judges responses. A coroutine, as some graders compute in other processes."""

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Judge one response: right when it equals any of the targets."""
        ...


@runtime_checkable
class ReadsLabels(Protocol):
    """A grader that reads the choices of a sample, and the labels that the data give them."""

    def labelled(self, labels: Sequence[str]) -> Grader:
        """The grader of responses to a sample whose choices have these labels."""
        ...


def with_labels(grader: Grader, labels: Sequence[str]) -> Grader:
    """The grader for a sample whose choices have these labels, if it has any; other graders do not read them."""
    # The protocol check comes last: looking for its members takes 10 us for each sample.
    return grader.labelled(labels) if labels and isinstance(grader, ReadsLabels) else grader


@runtime_checkable
class AsksJudge(Protocol):
    """A built-in grader that queries a judge model: it names the judge, and grades once it is bound to it."""

    @property
    def judge(self) -> ModelRef:
        """The judge model; the caller of the grader opens and loads it."""
        ...

    @property
    def needs_judge(self) -> bool:
        """Whether the judge gets every answer that says something; if not, only what no other grader can decide."""
        ...

    def bound(self, judge: Model, question: str | Conversation) -> Grader:
        """The grader of responses to one question, bound to the model. Its `grade` raises the model's errors."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GraderType:
    """A grader that can be made."""

    name: str
    """Its name in the option `grader`."""
    description: str
    """One sentence."""
    options_schema: Mapping[str, Any] = dataclasses.field(default_factory=lambda: NO_OPTIONS)
    """JSON schema of its options, an object."""
    make: Callable[..., Grader]
    """Makes a grader: `make(options)`. The options have passed the schema and include its defaults. A built-in
    grader names what it needs of the worker as keyword-only parameters, see `needs`.

    Raises:
        InvalidField: an option breaks a rule that the schema cannot express; the path begins at the options.
        FailedPrecondition: the worker lacks what it needs.
    """
