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
from crucible_worker.server import Worker
from crucible_worker.server.parts import Build, Parts, build_with
from crucible_worker.testing.scripted import ScriptedBackend
from crucible_worker.util.limits import WorkerLimits

__all__ = ["RunningWorker", "run_worker", "scripted_build"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunningWorker:
    """A running worker."""

    bridge: Bridge
    """A client of it."""
    address: str
    """Its address, for other clients."""
    state_dir: Path
    """Where its journal lies."""
    openai_address: str = ""
    """The base URL of its endpoint of OpenAI's API; empty without one."""


@contextlib.asynccontextmanager
async def run_worker(
    models: Mapping[str, Model],
    *,
    state_dir: Path | None = None,
    data_roots: Sequence[Path] = (),
    limits: WorkerLimits | None = None,
    grading_processes: int = 0,
    code_sandboxes: int = 0,
    fanout: str | None = None,
    code_images: Mapping[str, Path] | None = None,
    inspect_roots: Sequence[Path] = (),
    inspect_packages: Sequence[str] = (),
    environment_variables: Sequence[str] = (),
    log_dir: Path | None = None,
    log_to: Sequence[str] = (),
    resume_interrupted: bool = False,
    openai: bool = False,
) -> AsyncIterator[RunningWorker]:
    """Run a worker in this event loop, and drain it when the block is left.

    Args:
        models: models by name, usually scripted ones; "embedded:<name>" opens them.
        state_dir: the folder of its journal; if None, a temporary one, which is removed afterwards. Workers with the
            same folder share the journal, like workers on one machine.
        data_roots: folders for JSONL data sets.
        limits: limits other than the defaults.
        grading_processes: children that grade math: 2 or more, or 0 for none; they take seconds to start.
        code_sandboxes: programs that may run at once, 0 for none; needs bubblewrap.
        fanout: Ray cluster that grades in place of the worker: "auto", "local" or "ray://HOST:PORT".
        code_images: folders of packages that programs may import, by name.
        inspect_roots: folders for files with tasks of Inspect.
        inspect_packages: installed packages whose tasks of Inspect may be run.
        environment_variables: variables of this process that environments of users get.
        log_dir: folder for an Inspect log of each evaluation; none is written if None.
        log_to: loggers of evaluations and experiments that name none: "jsonl:/tmp/logged".
        resume_interrupted: resume evaluations without a call for them.
        openai: serve OpenAI's API too; needs the extra `web`.
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
            fanout=fanout,
            code_images=tuple(CodeImage(name=name, directory=at) for name, at in (code_images or {}).items()),
            inspect_roots=tuple(inspect_roots),
            inspect_packages=tuple(inspect_packages),
            environment_variables=tuple(environment_variables),
            log_dir=log_dir,
            log_to=tuple(log_to),
            resume_interrupted=resume_interrupted,
            openai_listen=("127.0.0.1", 0) if openai else None,
        ).validate()
        worker = await running.enter_async_context(Worker(settings, build=scripted_build(models)))
        bridge = await running.enter_async_context(crucible_bridge.connect(worker.address))
        yield RunningWorker(
            bridge=bridge, address=worker.address, state_dir=state_dir, openai_address=worker.openai_address
        )


def scripted_build(models: Mapping[str, Model]) -> Build:
    """How to build a worker with scripted models; `crucible_worker.server.serve` accepts it too."""
    backend = ScriptedBackend(models)

    async def build(settings: Settings) -> Parts:
        return await build_with(settings, backends={EmbeddedModel: backend})

    return build
