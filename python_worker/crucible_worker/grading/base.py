"""What all graders share: from a response and its targets to a verdict with its reason.

Their interface; the bounds and the verdicts of graders that decide without a model or a child process; a cache.
"""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from crucible_bridge import types
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Conversation, ModelRef, Problem, Verdict
from crucible_worker.backends.base import Model

__all__ = [
    "MAX_EXTRACTED_CHARS",
    "MAX_INLINE_CHARS",
    "MAX_SMALL_CHARS",
    "MAX_TARGETS",
    "MAX_TEXT_BYTES",
    "NO_OPTIONS",
    "TOO_LONG",
    "AsksJudge",
    "Cache",
    "DirectGrader",
    "Grade",
    "Grader",
    "GraderType",
    "ReadsLabels",
    "Verdict",
    "blank_target",
    "exceeds",
    "excerpt",
    "measured",
    "noted",
    "right",
    "undecided",
    "with_labels",
    "wrong",
]

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
    version: int = 1
    """Raise it with a change that gives another verdict for the same response: numbers of two versions are not compared
    with each other. From 1."""
    make: Callable[..., Grader]
    """Makes a grader: `make(options)`. The options have passed the schema and include its defaults. A built-in
    grader names what it needs of the worker as keyword-only parameters, see `needs`.

    Raises:
        InvalidField: an option breaks a rule that the schema cannot express; the path begins at the options.
        FailedPrecondition: the worker lacks what it needs.
    """


# Graders that decide without a model or a child process: most in linear time; the others state their limit.

MAX_TEXT_BYTES = 1_000_000
"""A response, or all targets and choices together, beyond this many bytes of UTF-8 is not graded."""
MAX_SMALL_CHARS = 1_000
"""Characters of a small target: if all targets are small, a response that is too long is wrong."""
TOO_LONG = "too_long"
"""The method of that verdict."""
MAX_TARGETS = 1_000
"""Targets, at most; with more, a response is UNDECIDED, because it is searched for each of them."""
MAX_INLINE_CHARS = 20_000
"""Longer texts are judged in a thread: the event loop may be blocked for a few milliseconds at most."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DirectGrader(abc.ABC):
    """The bounds that these graders share; `judge` does the rest."""

    reads_targets: ClassVar[bool] = True
    """Whether a response without a target cannot be judged."""
    extraction: ClassVar[str] = "whole"
    """How the answer is found in a response, as items of calls have it."""

    def for_call(self) -> DirectGrader:
        """The grader of the items of one call, for one that limits them together; else itself."""
        return self

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Like `grade_now`; long texts in a thread."""
        if len(response) + sum(map(len, targets)) + sum(map(len, choices)) > MAX_INLINE_CHARS:
            return await asyncio.to_thread(self.grade_now, response, targets, choices)
        return self.grade_now(response, targets, choices)

    def grade_now(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> Grade:
        """Judge one response; UNDECIDED if a target is missing, empty or beyond a limit, whatever the response is.

        A response that is too long is wrong if all targets are small, so that length cannot prevent a score.
        """
        if self.reads_targets:
            if not targets:
                return undecided("there is no target")
            if len(targets) > MAX_TARGETS:
                return undecided(f"there are {len(targets):,} targets, at most {MAX_TARGETS:,} are read")
            if (blank := blank_target(targets)) is not None:
                return undecided("the target is empty" if len(targets) == 1 else f"target {blank} is empty")
            if exceeds((*targets, *choices)):
                return undecided(f"targets and choices are longer than {MAX_TEXT_BYTES:,} bytes")
        if exceeds((response,)):
            reason = f"the response is longer than {MAX_TEXT_BYTES:,} bytes"
            small = self.reads_targets and all(len(target) <= MAX_SMALL_CHARS for target in targets)
            return wrong("", TOO_LONG, reason) if small else undecided(reason)
        return self.judge(response, targets, choices)

    @abc.abstractmethod
    def judge(self, response: str, targets: Sequence[str], choices: Sequence[str]) -> Grade:
        """Judge a response within bounds, against at least one target, none of them empty. Never raises."""


def right(extracted: str, method: str) -> Grade:
    """A response that equals a target."""
    return Grade(verdict=Verdict.CORRECT, score=1.0, extracted=extracted, method=method)


def wrong(extracted: str, method: str, reason: str = "") -> Grade:
    """A response that equals no target."""
    return Grade(verdict=Verdict.INCORRECT, score=0.0, extracted=extracted, method=method, reason=reason)


def measured(score: float, threshold: float, extracted: str, method: str) -> Grade:
    """A response that is right to a degree: CORRECT from the threshold on, PARTIAL below it, INCORRECT at 0."""
    verdict = Verdict.CORRECT if score >= threshold else Verdict.PARTIAL if score > 0 else Verdict.INCORRECT
    return Grade(verdict=verdict, score=score, extracted=extracted, method=method)


def undecided(reason: str, *, extracted: str = "", method: str = "", code: Reason | None = None) -> Grade:
    """A response that cannot be judged, and why; `code` counts it apart from others that are UNDECIDED."""
    problem = None if code is None else Problem(reason=code, message=reason)
    return Grade(verdict=Verdict.UNDECIDED, extracted=extracted, method=method, reason=reason, problem=problem)


def blank_target(targets: Sequence[str]) -> int | None:
    """The index of the first blank target: it has only white space, control and format characters."""
    for index, target in enumerate(targets):
        if not target[:1].isalnum() and all(map(_is_blank, target)):
            return index
    return None


def exceeds(texts: Sequence[str]) -> bool:
    """Whether texts are longer, together, than `MAX_TEXT_BYTES` of UTF-8."""
    characters = sum(map(len, texts))
    if characters * 4 <= MAX_TEXT_BYTES:
        return False
    if characters > MAX_TEXT_BYTES:
        return True
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts) > MAX_TEXT_BYTES


def _is_blank(character: str) -> bool:
    return character.isspace() or unicodedata.category(character) in ("Cc", "Cf")


MAX_EXTRACTED_CHARS = 1_000
"""Most characters of an extracted answer that are reported: in a grade, in an evaluation's samples, in a file."""


def excerpt(answer: str) -> str:
    """The extracted answer, truncated to `MAX_EXTRACTED_CHARS`; the last of them is then an ellipsis."""
    return answer if len(answer) <= MAX_EXTRACTED_CHARS else answer[: MAX_EXTRACTED_CHARS - 1] + "…"


_R = TypeVar("_R", types.Grade, types.ExtractedAnswer, types.ExtractedProgram)


def noted(found: _R, replaced: int) -> _R:
    """A result; its reason gets the number of U+FFFD that replace bytes which were not UTF-8, if there are any."""
    if not replaced:
        return found
    note = f"sequences of bytes that were not UTF-8 became U+FFFD: {replaced}"
    return dataclasses.replace(found, reason=f"{found.reason}; {note}" if found.reason else note)


# A cache for repeated questions, for example by the answers of a group.

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class Cache(Generic[_K, _V]):
    """The most recently used entries, bounded by number and by size.

    Args:
        max_entries: at most so many.
        max_size: of all together, in the unit of the sizes for `put`.
    """

    def __init__(self, *, max_entries: int, max_size: int) -> None:
        self._max_entries, self._max_size = max_entries, max_size
        self._entries: OrderedDict[_K, tuple[_V, int]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: _K) -> _V | None:
        """The entry, which is then marked as used; None if there is none."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: _K, value: _V, size: int) -> None:
        """Store an entry, and drop the least recently used ones; one that exceeds `max_size` alone is not stored."""
        if size > self._max_size:
            return
        if (before := self._entries.pop(key, None)) is not None:
            self._size -= before[1]
        self._entries[key] = (value, size)
        self._size += size
        while len(self._entries) > self._max_entries or self._size > self._max_size:
            _, (_, dropped) = self._entries.popitem(last=False)
            self._size -= dropped
