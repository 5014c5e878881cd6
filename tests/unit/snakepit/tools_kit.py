"""What the tests of tools share: a worker with a scripted model, and its tools."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from crucible_bridge.errors import BridgeError
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from crucible_worker.snakepit.results import ToolResult
from crucible_worker.snakepit.tools import ToolCall, Tools
from crucible_worker.testing import ScriptedModel
from crucible_worker.testing.worker import scripted_build
from crucible_worker.util.limits import WorkerLimits

MODEL = "arithmetic@320"
NOTHING: Mapping[str, bytes] = MappingProxyType({})


@contextlib.asynccontextmanager
async def tools_of(
    model: ScriptedModel | None = None, *, grading_processes: int = 0, **limits: Any
) -> AsyncIterator[Tools]:
    """The tools of a worker, whose model is `embedded:arithmetic@320`."""
    with tempfile.TemporaryDirectory(prefix="crucible-") as folder:
        settings = Settings(
            port=0,
            state_dir=Path(folder),
            model_roots=(Path(folder),),
            grading_processes=grading_processes,
            limits=WorkerLimits(**limits),
        ).validate()
        async with Worker(settings, build=scripted_build({MODEL: model or ScriptedModel()})) as worker:
            yield worker.tools


async def run(
    tools: Tools, name: str, binary: Mapping[str, bytes] = NOTHING, call: ToolCall | None = None, **parameters: Any
) -> ToolResult:
    """Execute a tool."""
    return await tools.execute(name, parameters, binary, call or ToolCall())


async def refused(tools: Tools, name: str, binary: Mapping[str, bytes] = NOTHING, **parameters: Any) -> BridgeError:
    """The error that a tool ends with."""
    try:
        result = await run(tools, name, binary, **parameters)
    except BridgeError as error:
        return error
    raise AssertionError(f"the tool answered {result.value}")
