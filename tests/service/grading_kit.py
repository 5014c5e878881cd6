"""What the tests of grading share: a worker with its grading processes, for all tests of a module."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
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


def processes_below(pid: int) -> set[int]:
    """Every process that descends from one and lives."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        tasks: list[Path] = []
        with contextlib.suppress(OSError):  # it has ended meanwhile
            tasks += Path(f"/proc/{waiting.pop()}/task").iterdir()
        for task in tasks:
            with contextlib.suppress(OSError):  # likewise
                children = set(map(int, (task / "children").read_text().split())) - found
                found |= children
                waiting += children
    return found


def alive(pids: set[int]) -> set[int]:
    """Those that have not ended; one that only waits for its parent to take note has."""
    return {pid for pid in pids if state(pid) not in ("", "Z")}


def state(pid: int) -> str:
    """Of a process, as the system calls it: "R" where it runs just now; empty where there is none."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
