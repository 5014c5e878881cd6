"""What the tests of programs share: whether sandboxes work here, a grader, and who runs in them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from crucible_bridge.errors import BridgeError
from crucible_bridge.types import CodeItem, CodeLimits, CodeTest, Grade
from crucible_worker.grading.code.grader import CodeGrader
from crucible_worker.grading.code.images import CodeImage
from crucible_worker.grading.code.sandbox import Isolation, Sandbox, SandboxSlots
from tests import needs
from tests.processes import command_of, processes_below

SMALL = CodeLimits(timeout_ms=20_000, memory_mb=128)
"""Little memory, and all the time that a busy machine may take."""


async def _tried() -> str:
    if shutil.which("bwrap") is None:
        return needs.MISSING["bwrap"]
    try:
        await (await Sandbox.start(Isolation.of_this_process())).kill()
    except BridgeError as error:
        return f"no sandbox can be made ({error.message})"
    return ""


MISSING = asyncio.run(_tried())
"""Why programs cannot be run here; empty where they can."""

needs_sandbox = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@contextlib.asynccontextmanager
async def code_grader(places: int = 1, images: Sequence[CodeImage] = ()) -> AsyncIterator[CodeGrader]:
    """A grader with sandboxes of its own, gone afterwards."""
    used = SandboxSlots(places, images)
    try:
        yield CodeGrader(used)
    finally:
        await used.aclose()


async def graded(grader: CodeGrader, program: str, *tests: CodeTest, limits: CodeLimits = SMALL, **item: Any) -> Grade:
    """The grade of one program."""
    return await grader.grade(CodeItem(response=program, tests=tests, **item), limits)


def sandboxed(pid: int | None = None) -> set[int]:
    """Every process that a sandbox of ours holds, or of another process, those that hold it included."""
    below = processes_below(os.getpid() if pid is None else pid)
    return {each for each in below if b"crucible_worker.grading.code.inside" in command_of(each)}
