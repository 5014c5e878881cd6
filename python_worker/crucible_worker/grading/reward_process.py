"""The process that grades for `crucible_bridge.rewards`: the graders of a worker, without the worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import structlog

from crucible_bridge import types
from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.rewards.serving import Graded, GradeItems, Item, serve
from crucible_bridge.types import GradeItem
from crucible_worker.grading import registry
from crucible_worker.grading.base import AsksJudge, Cache, DirectGrader, Grader, excerpt, noted
from crucible_worker.grading.caller import CallerGrader
from crucible_worker.grading.code.sandbox import SandboxSlots
from crucible_worker.grading.math.grader import MathGrader
from crucible_worker.grading.pool import GradingPool
from crucible_worker.grading.registry import GradingParts

__all__ = ["RewardGraders"]

MAX_GRADERS = 256
"""Graders that are kept, each with its options."""


class RewardGraders:
    """The graders of one process, by name and options.

    Args:
        processes: children for mathematics, and sandboxes for programs; about as many as there are cores if None.
    """

    def __init__(self, processes: int | None) -> None:
        self._pool, self._places = GradingPool(processes), SandboxSlots(processes)
        self._parts = GradingParts(pool=self._pool, places=self._places)
        self._made: Cache[tuple[str, str], Grader] = Cache(max_entries=MAX_GRADERS, max_size=MAX_GRADERS)

    async def aclose(self) -> None:
        """End every child."""
        await asyncio.gather(self._pool.aclose(), self._places.aclose())

    async def grade(self, name: str, options: Mapping[str, Any], items: Sequence[Item]) -> list[Graded]:
        """Grade items, in order; without any, start what the grader needs.

        Raises:
            InvalidField: there is no such grader, or an option is wrong.
            FailedPrecondition: it lacks a library or a sandbox here.
        """
        grader = self._grader(name, options)
        if not items:
            if isinstance(grader, MathGrader):
                await self._pool.start()
            return []
        read = [_utf8(response) for response, _, _ in items]
        grades = await _graded(grader, [(text, *item[1:]) for (text, _), item in zip(read, items)])
        return [_sent(noted(grade, replaced)) for grade, (_, replaced) in zip(grades, read)]

    def _grader(self, name: str, options: Mapping[str, Any]) -> Grader:
        key = name, json.dumps(options, sort_keys=True)
        made = self._made.get(key)
        if made is None:
            made = registry.create(name, options, self._parts, name_field="grader", options_field="options")
            if isinstance(made, AsksJudge | CallerGrader):
                raise InvalidField("grader", f"is {clipped(name)}, which asks a model or a caller, and here is neither")
            self._made.put(key, made, 1)
        return made


async def _graded(grader: Grader, items: Sequence[Item]) -> Sequence[types.Grade]:
    if isinstance(grader, MathGrader) and not any(choices for _, _, choices in items):
        return await grader.grade_batch(
            [GradeItem(response=response, targets=tuple(targets)) for response, targets, _ in items]
        )
    if isinstance(grader, DirectGrader):
        return [await grader.grade(*item) for item in items]
    return await asyncio.gather(*(grader.grade(*item) for item in items))


def _utf8(text: str) -> tuple[str, int]:
    """A text as it arrives at a worker, and the number of U+FFFD in it that replace bytes that were not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        valid = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        return valid, valid.count("\ufffd") - text.count("\ufffd")
    return text, 0


def _sent(grade: types.Grade) -> Graded:
    reason = grade.reason if grade.problem is None else grade.problem.message
    return grade.verdict.value, grade.score, grade.method, reason, excerpt(grade.extracted)


@contextlib.asynccontextmanager
async def _grading(settings: Mapping[str, Any]) -> AsyncIterator[GradeItems]:
    try:
        graders = RewardGraders(settings["processes"])
    except ValueError as error:
        raise InvalidField("processes", str(error)) from error
    try:
        yield graders.grade
    finally:
        await graders.aclose()


if __name__ == "__main__":
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    serve(_grading)
