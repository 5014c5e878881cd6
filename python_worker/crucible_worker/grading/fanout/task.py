"""What a node of the cluster does with a chunk: it grades as a worker does, in the same children and sandboxes.

The children of a Ray process are warm for its next chunk. They end with it, whatever ends it.
"""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import Sequence
from typing import cast

from crucible_bridge.errors import BridgeError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import CodeItem, Grade, GradeCodeRequest, GradeItem, MathPolicy, ScoreOptions
from crucible_worker.grading.code.images import CodeImage
from crucible_worker.grading.code.sandbox import SandboxSlots
from crucible_worker.grading.fanout.chunk import ChunkOrder, ProgramRules, order_from, refusal, reply
from crucible_worker.grading.fanout.chunk import release as release_here
from crucible_worker.grading.math.grader import MathGrader
from crucible_worker.grading.pool import MIN_CHILDREN, GradingPool
from crucible_worker.grading.scorers import score

__all__ = ["grade_chunk"]


def grade_chunk(release: str, body: bytes) -> bytes:
    """Grade a chunk in the main thread of a Ray process; a cancelled task raises KeyboardInterrupt.

    Args:
        release: the worker's, which this node's must equal.
        body: what `chunk.sent` made.

    Returns:
        What `chunk.grades_of` reads.
    """
    if release != (here := release_here()):
        message = f"a node of --fanout has crucible-bridge {here}, this worker {release}: install the same on both"
        return refusal(FailedPrecondition(message, reason=Reason.FANOUT_NODE))
    try:
        return reply(_of_this_process().grades(order_from(body)))
    except BridgeError as error:
        return refusal(error)


@functools.cache
def _of_this_process() -> _Graders:
    return _Graders()


class _Graders:
    """The graders of one Ray process, which grades one chunk at a time."""

    def __init__(self) -> None:
        # Ray cancels a task by SIGINT, which this process ignores if who started its node did: a child of a worker,
        # or a command that a script has started with "&". Cancelled chunks would then keep the node for minutes.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self._runner = asyncio.Runner()
        self._math: MathGrader | None = None
        self._places: dict[CodeImage | None, SandboxSlots] = {}

    def grades(self, order: ChunkOrder) -> Sequence[Grade]:
        """Grade a chunk, in its order.

        Raises:
            BridgeError: this node cannot.
        """
        match order.rules:
            case MathPolicy() as policy:
                return self._runner.run(self._by_math(cast("Sequence[GradeItem]", order.items), policy))
            case ScoreOptions() as options:
                return score(cast("Sequence[GradeItem]", order.items), options)
            case ProgramRules() as rules:
                return self._runner.run(self._by_tests(cast("Sequence[CodeItem]", order.items), rules))

    async def _by_math(self, items: Sequence[GradeItem], policy: MathPolicy) -> Sequence[Grade]:
        if self._math is None:
            # The task has one processor: one child works while the others wait.
            self._math = MathGrader(GradingPool(MIN_CHILDREN, at_once=1))
        return await self._math.grade_batch(items, policy)

    async def _by_tests(self, items: Sequence[CodeItem], rules: ProgramRules) -> Sequence[Grade]:
        from crucible_worker.grading.code.grader import CodeGrader  # most chunks are no programs

        if rules.image not in self._places:
            self._places[rules.image] = SandboxSlots(1, () if rules.image is None else (rules.image,))
        image = "" if rules.image is None else rules.image.name
        request = GradeCodeRequest(items=tuple(items), limits=rules.limits, image=image)
        return (await CodeGrader(self._places[rules.image]).grade_batch(request)).grades
