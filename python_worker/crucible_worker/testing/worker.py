"""A whole worker inside a test: its own journal, a real port on loopback, scripted models."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.types import EmbeddedModel
from crucible_worker.backends.base import Model
from crucible_worker.config import Settings
from crucible_worker.grading.code.images import CodeImage
from crucible_worker.limits import WorkerLimits
from crucible_worker.server import Worker
from crucible_worker.server.parts import Build, Parts, build_with
from crucible_worker.testing.scripted import ScriptedBackend

__all__ = ["RunningWorker", "run_worker", "scripted_build"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunningWorker:
    """A worker that serves."""

    bridge: Bridge
    """A client of it."""
    address: str
    """Where it listens, for clients of one's own."""
    state_dir: Path
    """Where its journal lies."""


@contextlib.asynccontextmanager
async def run_worker(
    models: Mapping[str, Model],
    *,
    state_dir: Path | None = None,
    data_roots: Sequence[Path] = (),
    limits: WorkerLimits | None = None,
    grading_processes: int = 0,
    code_sandboxes: int = 0,
    code_images: Mapping[str, Path] | None = None,
    inspect_roots: Sequence[Path] = (),
    inspect_packages: Sequence[str] = (),
    environment_variables: Sequence[str] = (),
) -> AsyncIterator[RunningWorker]:
    """Run a worker in this event loop, and drain it when the block is left.

    Args:
        models: models by name, scripted ones as a rule; "embedded:<name>" opens them.
        state_dir: where its journal lies; a temporary directory, removed afterwards, if None. Workers that are given
            the same one share the journal, as those of one machine do.
        data_roots: JSONL data sets lie below these.
        limits: bounds, where the defaults will not do.
        grading_processes: children that grade math, 2 or more, where that is wanted: they take seconds to start.
        code_sandboxes: programs that are run at once, where any are; needs bubblewrap.
        code_images: folders of packages that programs may import, by name.
        inspect_roots: files with tasks of Inspect lie below these.
        inspect_packages: installed packages whose tasks of Inspect may be run.
        environment_variables: of this process, that environments of users get.
    """
    async with contextlib.AsyncExitStack() as running:
        if state_dir is None:
            state_dir = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="crucible-")))
        settings = Settings(
            port=0,
            state_dir=state_dir,
            data_roots=tuple(data_roots),
            limits=limits or WorkerLimits(),
            grading_processes=grading_processes,
            code_sandboxes=code_sandboxes,
            code_images=tuple(CodeImage(name=name, directory=at) for name, at in (code_images or {}).items()),
            inspect_roots=tuple(inspect_roots),
            inspect_packages=tuple(inspect_packages),
            environment_variables=tuple(environment_variables),
        ).validate()
        worker = await running.enter_async_context(Worker(settings, build=scripted_build(models)))
        bridge = await running.enter_async_context(crucible_bridge.connect(worker.address))
        yield RunningWorker(bridge=bridge, address=worker.address, state_dir=state_dir)


def scripted_build(models: Mapping[str, Model]) -> Build:
    """How a worker with scripted models is put together; `crucible_worker.server.serve` takes it too."""
    backend = ScriptedBackend(models)

    async def build(settings: Settings) -> Parts:
        return await build_with(settings, backends={EmbeddedModel: backend}, infos=lambda: (backend.info(),))

    return build
