"""The process that sends what a trainer wants graded to workers, so that gRPC is not loaded where the trainer forks.

Calls take turns over the workers of a pool, and are made again while one restarts or is full. The options of a grader
are those that it has in evaluations.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from crucible_bridge.client import Bridge, Tls, connect
from crucible_bridge.client.patience import Patience
from crucible_bridge.errors import BridgeError, InvalidField, clipped
from crucible_bridge.rewards.serving import Graded, GradeItems, Item, serve
from crucible_bridge.types import (
    CodeItem,
    CodeLimits,
    Grade,
    GradeItem,
    MathPolicy,
    OutputComparison,
    ScoreOptions,
    Verdict,
)
from crucible_bridge.types.code_tests import BadTests, compared, read_tests

__all__ = ["RemoteGraders"]

T = TypeVar("T")

_CHOICES = "multiple_choice"
_NO_TARGET = Grade(verdict=Verdict.UNDECIDED, reason="there is no target")


class RemoteGraders:
    """The graders of workers.

    Args:
        bridge: their client.
        patience: seconds for which a call is made again that lost its worker, or was refused for the time being.
    """

    def __init__(self, bridge: Bridge, patience: float) -> None:
        self._grading, self._patience = bridge.grading, patience

    async def grade(self, name: str, options: Mapping[str, Any], items: Sequence[Item]) -> list[Graded]:
        """Grade items, in order; without any, only see whether the options can be sent.

        Raises:
            InvalidField: there is no such grader, or a call cannot have its options.
            BridgeError: the call failed.
        """
        graded = {"math": self._math, "code": self._code}.get(name) or functools.partial(self._score, name)
        # A call refuses an item without a target; a grader leaves it undecided.
        complete = [item for item in items if item[1] or name == "format"]
        grades = iter(await graded(dict(options), complete))
        return [_sent(next(grades) if item[1] or name == "format" else _NO_TARGET) for item in items]

    async def _math(self, left: dict[str, Any], items: Sequence[Item]) -> Sequence[Grade]:
        policy = _made(MathPolicy, left, *MathPolicy.__dataclass_fields__)
        _check_all_read("math", left)
        if any(choices for _, _, choices in items):
            raise InvalidField("choices", "are not read by math at an address: grader multiple_choice reads them")
        answers = _items(items)
        return (await self._patiently(lambda: self._grading.grade_math(answers, policy))).grades if items else ()

    async def _code(self, left: dict[str, Any], items: Sequence[Item]) -> Sequence[Grade]:
        limits, comparison = (
            _made(CodeLimits, left, *CodeLimits.__dataclass_fields__),
            _made(OutputComparison, left, *OutputComparison.__dataclass_fields__),
        )
        image, partial = left.pop("image", ""), left.pop("partial", False)
        _check_all_read("code", left)
        programs: dict[int, CodeItem] = {}
        grades: dict[int, Grade] = {}
        for index, (response, targets, _) in enumerate(items):
            try:
                prefix, tests = read_tests(targets)
                programs[index] = CodeItem(response=response, prefix=prefix, tests=compared(tests, comparison))
            except BadTests as error:
                grades[index] = Grade(verdict=Verdict.ERROR, reason=str(error))
        if programs:
            sent = tuple(programs.values())
            result = await self._patiently(lambda: self._grading.grade_code(sent, limits=limits, image=image))
            grades.update(zip(programs, result.grades))
        return [_whole(grades[index], partial) for index in range(len(items))]

    async def _score(self, name: str, options: dict[str, Any], items: Sequence[Item]) -> Sequence[Grade]:
        by_choices: dict[tuple[str, ...], list[int]] = {}
        for index, (_, _, choices) in enumerate(items):
            by_choices.setdefault(tuple(choices), []).append(index)
        if any(by_choices) and name != _CHOICES:
            raise InvalidField("choices", f"are not read by {clipped(name)}: the grader {_CHOICES} reads them")
        if not items:
            await self._scored(name, options, (("", (" ",), ()),))
        grades: dict[int, Grade] = {}
        for choices, places in by_choices.items():
            further = {"choices": choices} if choices else {}
            grades.update(zip(places, await self._scored(name, options | further, [items[index] for index in places])))
        return [grades[index] for index in range(len(items))]

    async def _scored(self, name: str, options: Mapping[str, Any], items: Sequence[Item]) -> Sequence[Grade]:
        given = ScoreOptions(grader=name, grader_options=options)
        try:
            return await self._patiently(lambda: self._grading.score(_items(items), given))
        except InvalidField as error:  # by the fields of the reward
            field = error.field.replace("options.grader_options", "options", 1).removeprefix("options.")
            raise InvalidField(field, error.message, reason=error.reason) from error

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        return await _patiently(call, self._patience)


async def _patiently(call: Callable[[], Awaitable[T]], seconds: float) -> T:
    """Make a call until it has a result, or an error that time does not change."""
    patience = Patience(seconds)
    while True:
        try:
            return await call()
        except BridgeError as error:
            if not error.retryable:
                raise
            await patience.wait(error)


def _items(items: Sequence[Item]) -> list[GradeItem]:
    return [GradeItem(response=response, targets=tuple(targets)) for response, targets, _ in items]


def _made(kind: Callable[..., T], left: dict[str, Any], *names: str) -> T:
    """A value whose fields are options, which are taken out."""
    return kind(**{name: left.pop(name) for name in names if name in left})


def _check_all_read(name: str, left: Mapping[str, Any]) -> None:
    if left:
        raise InvalidField(
            f"options[{json.dumps(min(left))}]",
            f"is no option of {clipped(name)} that a call to a worker has; grade without address, or leave it out",
        )


def _whole(grade: Grade, partial: bool) -> Grade:
    """A grade of a program; one that passes some of its tests is wrong unless it may be partly right."""
    if grade.verdict is Verdict.PARTIAL and not partial:
        return dataclasses.replace(grade, verdict=Verdict.INCORRECT, score=0.0)
    return grade


def _sent(grade: Grade) -> Graded:
    reason = grade.reason if grade.problem is None else grade.problem.message
    return grade.verdict.value, grade.score, grade.method, reason, grade.extracted


@contextlib.asynccontextmanager
async def _grading(settings: Mapping[str, Any]) -> AsyncIterator[GradeItems]:
    tls, patience = settings["tls"], settings["patience"]
    certificates = Tls(**tls) if isinstance(tls, Mapping) else tls
    async with contextlib.AsyncExitStack() as stack:

        async def connected() -> Bridge:
            client = connect(settings["address"], token=settings["token"], tls=certificates)
            return await stack.enter_async_context(client)

        yield RemoteGraders(await _patiently(connected, patience), patience).grade


if __name__ == "__main__":
    serve(_grading)
