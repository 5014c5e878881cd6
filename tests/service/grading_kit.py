"""What the tests of grading share: a worker with its grading processes, for all tests of a module."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from crucible_bridge.v1 import grading_pb2 as pb
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker
from crucible_worker.util.limits import WorkerLimits

GRADING = "crucible_bridge.v1.GradingService"
CHILDREN = 2
HARD = r"\sqrt[7]{2^{x}+3^{y}}-\sqrt[5]{x^{7}+y^{11}}"
"""Takes a while to be told from something else."""


@contextlib.asynccontextmanager
async def grading_worker(**limits: Any) -> AsyncIterator[RunningWorker]:
    """A worker whose grading processes are warm."""
    async with run_worker({"m": ScriptedModel()}, grading_processes=CHILDREN, limits=WorkerLimits(**limits)) as worker:
        # A call waits for them.
        await worker.bridge.grading.grade_math([("x", "y")])
        yield worker


def math_item(answer: bytes, *targets: str, **fields: Any) -> pb.GradeItem:
    """An answer as a client in another language may send it."""
    return pb.GradeItem(answer=answer, targets=targets, **fields)
