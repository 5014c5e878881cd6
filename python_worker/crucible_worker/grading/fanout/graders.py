"""Graders of mathematics and of programs that have the cluster grade; what they give equals what local ones give."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from crucible_bridge.errors import FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import CodeGrades, CodeItem, CodeLimits, Grade, GradeCodeRequest, GradeItem, MathPolicy
from crucible_worker.grading import base
from crucible_worker.grading.code.images import CodeImage
from crucible_worker.grading.code.sandbox import HasImages, SandboxSlots
from crucible_worker.grading.fanout.chunk import ProgramRules
from crucible_worker.grading.fanout.fanout import Fanout
from crucible_worker.grading.math.grader import Labelled, MathGrader, graded_alone
from crucible_worker.grading.pool import GradingPool, no_pool

if TYPE_CHECKING:
    from crucible_worker.grading.code.grader import CodeGrader

__all__ = [
    "ClusterMath",
    "ClusterPlaces",
    "ClusterPrograms",
    "ProgramGrader",
    "check_installed",
    "math_grader_of",
    "math_on",
    "programs_on",
]

ProgramGrader: TypeAlias = "CodeGrader | ClusterPrograms"
"""Judges programs in sandboxes of this worker, or on a cluster."""


class ClusterMath:
    """Judges on a cluster whether answers equal their targets, see `MathGrader`.

    Args:
        fanout: the cluster.
        policy: what counts as equivalent unless a batch sets another.
    """

    def __init__(self, fanout: Fanout, policy: MathPolicy | None = None) -> None:
        self._fanout = fanout
        self._policy = MathPolicy() if policy is None else policy

    async def grade(self, response: str, targets: Sequence[str], choices: Sequence[str] = ()) -> base.Grade:
        """Judge one response; raises as `Fanout.grades` does."""
        return await graded_alone(self.grade_batch, response, targets, choices)

    def labelled(self, labels: Sequence[str]) -> base.Grader:
        """See `base.ReadsLabels`."""
        return Labelled(self.grade_batch, labels)

    async def grade_batch(self, items: Sequence[GradeItem], policy: MathPolicy | None = None) -> list[Grade]:
        """Judge items; raises as `Fanout.grades` does."""
        return await self._fanout.grades("math", items, self._policy if policy is None else policy)


class ClusterPlaces(HasImages):
    """The places of a cluster's nodes; each node has its own.

    Args:
        fanout: the cluster.
        images: folders of packages that programs may import, which every node has.
    """

    def __init__(self, fanout: Fanout, images: Iterable[CodeImage] = ()) -> None:
        super().__init__(images)
        self.fanout = fanout
        """The cluster."""

    async def aclose(self) -> None:
        """End what was started: the cluster, which has the sandboxes. Idempotent."""
        await self.fanout.aclose()


class ClusterPrograms:
    """Judges on a cluster whether programs pass their tests, see `CodeGrader`.

    Args:
        places: of the cluster.
    """

    def __init__(self, places: ClusterPlaces) -> None:
        self._places = places

    async def grade_batch(self, request: GradeCodeRequest) -> CodeGrades:
        """Judge programs.

        Raises:
            InvalidField: a k cannot be used, or there is no such image.
            FailedPrecondition: no sandbox starts on a node (reason NO_SANDBOX).
            BridgeError: as `Fanout.grades` does.
        """
        from crucible_worker.grading.code.grader import check_ks, counts_of, metrics_of  # 20 ms, which few need

        check_ks(request.k)
        rules = ProgramRules(limits=request.limits, image=self._places.image(request.image, "image"))
        grades = await self._places.fanout.grades("code", request.items, rules)
        problems = counts_of(request.items, grades)
        return CodeGrades(grades=tuple(grades), problems=problems, metrics=metrics_of(problems, request.k))

    async def grade(self, item: CodeItem, limits: CodeLimits, image: CodeImage | None = None) -> Grade:
        """Judge one program; raises as `grade_batch` does."""
        (grade,) = await self._places.fanout.grades("code", (item,), ProgramRules(limits=limits, image=image))
        return grade


def math_on(pool: GradingPool | Fanout, policy: MathPolicy | None = None) -> MathGrader | ClusterMath:
    """The grader of mathematics on children of this worker, or on a cluster."""
    return ClusterMath(pool, policy) if isinstance(pool, Fanout) else MathGrader(pool, policy)


def math_grader_of(options: Mapping[str, Any], *, pool: GradingPool | Fanout | None) -> MathGrader | ClusterMath:
    """A grader on the worker's pool or cluster, made from options that passed the schema of `MathOptions`.

    Raises:
        FailedPrecondition: there is no pool (reason NO_GRADING_POOL).
    """
    if pool is None:
        raise no_pool()
    return math_on(pool, MathPolicy(**options))


def programs_on(places: SandboxSlots | ClusterPlaces) -> ProgramGrader:
    """The grader of programs in sandboxes of this worker, or on a cluster."""
    if isinstance(places, ClusterPlaces):
        return ClusterPrograms(places)
    from crucible_worker.grading.code.grader import CodeGrader  # takes 20 ms, which most workers never need

    return CodeGrader(places)


def check_installed() -> None:
    """Refuse `--fanout` without Ray.

    Raises:
        FailedPrecondition: it is not installed (reason EXTRA_NOT_INSTALLED).
    """
    if importlib.util.find_spec("ray") is None:
        message = "--fanout needs Ray, which is not installed: pip install 'crucible-bridge[ray]'"
        raise FailedPrecondition(message, reason=Reason.EXTRA_NOT_INSTALLED)
