"""What a grader is: a response and what would be right, in; a verdict with its reason, out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from crucible_bridge import types
from crucible_bridge.types import Conversation, ModelRef, Verdict
from crucible_worker.backends.base import Model

__all__ = ["NO_OPTIONS", "AsksJudge", "Grade", "Grader", "GraderType", "Verdict"]

NO_OPTIONS: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of a grader without options."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Grade(types.Grade):
    """What was found of one response; `id` and `duration_ns` are those of a call's items, and empty in evaluations."""

    measurements: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Further finite numbers, by name, for a sample's record."""

    @classmethod
    def of(cls, grade: types.Grade) -> Grade:
        """The same grade, whole: what a call answers of an item is what an evaluation keeps of a sample."""
        return cls(**{field.name: getattr(grade, field.name) for field in dataclasses.fields(types.Grade)})


class Grader(Protocol):
    """Judges responses. A coroutine, as some graders compute in other processes."""

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Judge one response: right when it equals any of the targets."""
        ...


@runtime_checkable
class AsksJudge(Protocol):
    """What a grader of the worker's own has that asks a model: it names it, and grades once it is bound to it."""

    @property
    def judge(self) -> ModelRef:
        """Who is asked; opened and loaded by whoever uses the grader."""
        ...

    @property
    def needs_judge(self) -> bool:
        """Whether it is asked about every answer that says something; else about what nobody else can decide."""
        ...

    def bound(self, judge: Model, question: str | Conversation) -> Grader:
        """The grader of responses to one question, with the model at hand. Its `grade` raises what the model does."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GraderType:
    """A grader that can be made."""

    name: str
    """What it is asked for by."""
    description: str
    """One sentence."""
    options_schema: Mapping[str, Any] = dataclasses.field(default_factory=lambda: NO_OPTIONS)
    """JSON schema of its options, an object."""
    make: Callable[..., Grader]
    """Makes one of options that passed the schema and bear its defaults: `make(options)`. One of the worker's own names
    what it needs of the worker as keyword-only parameters, see `needs`.

    Raises:
        InvalidField: what the schema cannot say is wrong; the path begins at the options.
        FailedPrecondition: the worker lacks what it needs.
    """
