"""The graders of `grade`: mathematics in processes, programs in sandboxes, or another grader."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from crucible_bridge.types import CodeLimits, Grade, GradeItem, MathPolicy
    from crucible_worker.grading.base import Grader
    from crucible_worker.grading.code.sandbox import SandboxSlots
    from crucible_worker.grading.pool import GradingPool

__all__ = ["Batches", "CodeBatches", "GraderBatches", "MathBatches", "batches_of"]

_RULE_FIELD = re.compile(r"policy\[\"([^\"]*)\"\]")
"""Path of a rule in the options, as errors have it."""


class Batches(Protocol):
    """Grades items, once it has been started."""

    policy_version: str
    """Fingerprint of the rules; empty if there are none."""

    async def start(self) -> None:
        """Start the processes that grade.

        Raises:
            BridgeError: it does not start.
        """
        ...

    async def grade(self, items: Sequence[Any]) -> Sequence[Grade]:
        """Grades of items, in order."""
        ...

    async def aclose(self) -> None:
        """End what was started."""
        ...


class MathBatches:
    """Answers, compared as mathematics."""

    def __init__(self, pool: GradingPool, policy: MathPolicy) -> None:
        from crucible_worker.grading.math.grader import POLICY_VERSION, MathGrader

        self.policy_version = POLICY_VERSION
        self._pool, self._policy, self._grader = pool, policy, MathGrader(pool)

    async def start(self) -> None:
        """Start the processes."""
        await self._pool.start()

    async def grade(self, items: Sequence[Any]) -> Sequence[Grade]:
        """Grades of answers."""
        return await self._grader.grade_batch(items, self._policy)

    async def aclose(self) -> None:
        """End the processes."""
        await self._pool.aclose()


class CodeBatches:
    """Programs, run against tests."""

    policy_version = ""

    def __init__(self, places: SandboxSlots, limits: CodeLimits) -> None:
        """Run them with the packages of the one image that the places have, if they have one."""
        from crucible_worker.grading.code.grader import CodeGrader

        self._places, self._limits, self._grader = places, limits, CodeGrader(places)
        self._image = next(iter(places.images), "")

    async def start(self) -> None:
        """Start one sandbox, so that an error is reported at once if none can start."""
        async with self._places.place(self._places.image(self._image, "--code-image")) as place:
            await place.prepare()

    async def grade(self, items: Sequence[Any]) -> Sequence[Grade]:
        """Grades of programs."""
        from crucible_bridge.types import GradeCodeRequest

        if not items:
            return ()
        request = GradeCodeRequest(items=tuple(items), limits=self._limits, image=self._image)
        return (await self._grader.grade_batch(request)).grades

    async def aclose(self) -> None:
        """End the sandboxes."""
        await self._places.aclose()


class GraderBatches:
    """Answers, judged by a named grader or by one in a user's own file."""

    policy_version = ""

    def __init__(self, grader: Grader) -> None:
        """Judge by it, one answer after the other."""
        self._grader = grader

    async def start(self) -> None:
        """Nothing is started."""

    async def grade(self, items: Sequence[Any]) -> Sequence[Grade]:
        """Grades of answers."""
        return [await self._graded(item) for item in items]

    async def aclose(self) -> None:
        """Nothing was started."""

    async def _graded(self, item: GradeItem) -> Grade:
        began = time.perf_counter_ns()
        grade = await self._grader.grade(item.text, item.targets)
        return dataclasses.replace(grade, duration_ns=time.perf_counter_ns() - began)


def batches_of(
    options: Sequence[str],
    processes: int | None,
    *,
    code: bool,
    packages: Path | None = None,
    grader: str | None = None,
) -> Batches:
    """The grader that the options describe.

    Args:
        options: NAME=VALUE, values as JSON writes them.
        processes: how many; as many as there are cores, about, if None.
        code: programs, not answers.
        packages: folder of packages that programs can import.
        grader: the grader of answers, by name or FILE.py:FUNCTION; mathematics if None.

    Raises:
        InvalidField: an option is wrong, or the number.
    """
    from crucible_bridge.errors import InvalidField
    from crucible_bridge.types import CodeLimits, MathPolicy
    from crucible_worker.declared_options import schema_of
    from crucible_worker.grading.code.images import CodeImage
    from crucible_worker.grading.code.options import limits_schema
    from crucible_worker.grading.code.sandbox import SandboxSlots
    from crucible_worker.grading.math.grader import MathOptions
    from crucible_worker.grading.options import checked_options
    from crucible_worker.grading.pool import GradingPool

    if grader not in (None, "math"):
        return _by_grader(grader, _read(options), code=code or packages is not None, processes=processes)
    if grader is not None and code:
        raise InvalidField("--grader", "is for answers, and --code grades programs; leave out one of them")
    try:
        read = _read(options)
        math, programs = schema_of(MathOptions), limits_schema()
        _check_kind(read, math=math["properties"], programs=programs["properties"], code=code)
        checked = checked_options(read, programs if code else math, "policy")
    except InvalidField as error:
        raise InvalidField(_RULE_FIELD.sub(r"--policy \1", error.field), error.message) from None
    images = () if packages is None else (CodeImage(name="packages", directory=packages),)
    if packages is not None and not packages.is_dir():
        raise InvalidField("--code-image", f"{packages} is not a folder")
    if packages is not None and not code:
        raise InvalidField("--code-image", "is for programs: --code is needed")
    try:
        if code:
            return CodeBatches(SandboxSlots(processes, images), CodeLimits(**checked))
        return MathBatches(GradingPool(processes), MathPolicy(**checked))
    except ValueError as error:
        raise InvalidField("--processes", str(error)) from None


def _by_grader(text: str, options: Mapping[str, Any], *, code: bool, processes: int | None) -> GraderBatches:
    from crucible_bridge.errors import FailedPrecondition, InvalidField
    from crucible_worker.cli.own_files import OwnFiles
    from crucible_worker.grading import registry
    from crucible_worker.grading.base import AsksJudge
    from crucible_worker.grading.caller import CallerGrader
    from crucible_worker.grading.registry import GradingParts

    if code or text == "code":
        raise InvalidField("--grader", "is for answers; --code grades programs without it")
    if processes is not None:
        raise InvalidField("--processes", f"are for mathematics and programs, and --grader is {text[:60]!r}")
    files = OwnFiles()
    name = files.grader(text)
    parts = GradingParts(own_graders=files.graders)
    try:
        made = registry.create(name, options, parts, name_field="--grader", options_field="policy")
    except InvalidField as error:
        raise InvalidField(_RULE_FIELD.sub(r"--policy \1", error.field), error.message) from None
    except FailedPrecondition as error:
        raise InvalidField("--grader", f"{name!r} cannot be used here: {error.message}") from None
    if isinstance(made, AsksJudge):
        raise InvalidField("--grader", f"{name!r} queries a model, which an evaluation has: `crucible-worker evaluate`")
    if isinstance(made, CallerGrader):
        raise InvalidField("--grader", f"{name!r} is a grader of the caller of EvaluateWithOrchestratorModel")
    return GraderBatches(made)


def _check_kind(names: Iterable[str], *, math: Container[str], programs: Container[str], code: bool) -> None:
    """Refuse a rule of mathematics if programs are graded, and a bound of programs if they are not."""
    from crucible_bridge.errors import InvalidField

    for name in names:
        if code and name in math and name not in programs:
            raise InvalidField(
                f"--policy {name}", "is a rule of math, which --code does not read; leave out one of them"
            )
        if not code and name in programs and name not in math:
            raise InvalidField(f"--policy {name}", "is a bound of programs; add --code to grade programs")


def _read(options: Sequence[str]) -> dict[str, Any]:
    from crucible_bridge.errors import InvalidField

    read: dict[str, Any] = {}
    for text in options:
        name, separator, value = text.partition("=")
        if not separator:
            raise InvalidField("--policy", f"is {text!r}, not NAME=VALUE, for instance degrees=false")
        if name in read:
            raise InvalidField(f"--policy {name}", "is given twice; only one value can count")
        try:
            read[name] = json.loads(value)
        except ValueError:
            read[name] = value  # the schema says which kind of value the rule has
    return read
