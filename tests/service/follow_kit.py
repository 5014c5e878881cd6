"""A trainer that saves checkpoints, and workers that evaluate them by a model which reads the files at every call."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import struct
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.errors import BackendError, NotFound
from crucible_bridge.events import Event, EventKind
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    BackendInfo,
    HubModel,
    LocalModel,
    ModelInput,
    ModelRef,
    Sample,
    SampledSequence,
    SamplingParams,
)
from crucible_worker.backends.base import Backend
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from crucible_worker.server.parts import Build, Parts, build_with
from crucible_worker.testing import EventRecorder, ScriptedModel, record_events
from crucible_worker.util.fingerprints import FULL
from crucible_worker.util.limits import WorkerLimits

__all__ = [
    "FOUND",
    "QUESTIONS",
    "RELEASED",
    "SKIPPED",
    "CheckpointBackend",
    "Followed",
    "checkpoint_build",
    "following",
    "save",
    "save_adapter",
    "weights",
]

FOUND, SKIPPED, RELEASED = (
    EventKind.CHECKPOINT_FOUND,
    EventKind.CHECKPOINT_SKIPPED,
    EventKind.CHECKPOINT_RELEASED,
)
QUESTIONS = tuple(Sample(id=f"q{number}", input=f"{number}", targets=("even",)) for number in range(3))
"""A model answers `even` if its step is so: accuracy is 1 or 0."""
_NUMBERS = 64
"""Of a checkpoint's weights; each of them is the step."""


def weights(step: int) -> bytes:
    """A safetensors file of one tensor, whose numbers are all the step."""
    header = json.dumps({"w": {"dtype": "F32", "shape": [_NUMBERS], "data_offsets": [0, 4 * _NUMBERS]}}).encode()
    return struct.pack("<Q", len(header)) + header + struct.pack("<f", float(step)) * _NUMBERS


def save(folder: Path, step: int, name: str = "", content: int | None = None) -> Path:
    """Save a whole checkpoint as trainers do, in a folder that gets its name at the end; its content is the step."""
    path = folder / (name or f"checkpoint-{step}")
    part = folder / f"tmp-{path.name}"
    part.mkdir(parents=True)
    (part / "config.json").write_text("{}")
    (part / "model.safetensors").write_bytes(weights(step if content is None else content))
    part.rename(path)
    return path


def save_adapter(folder: Path, step: int, base: str | None) -> Path:
    """Save an adapter that names its base model."""
    path = folder / f"checkpoint-{step}"
    part = folder / f"tmp-{path.name}"
    part.mkdir(parents=True)
    named = {} if base is None else {"base_model_name_or_path": base}
    (part / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", **named}))
    (part / "adapter_model.safetensors").write_bytes(weights(step))
    part.rename(path)
    return path


def step_of(file: Path) -> int:
    """The step that a checkpoint's weights have.

    Raises:
        BackendError: the file is gone, or not whole.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise BackendError(f"weights were gone: {error}", reason=Reason.BACKEND_FAILED, retryable=False) from None
    (length,) = struct.unpack("<Q", content[:8])
    numbers = struct.unpack(f"<{_NUMBERS}f", content[8 + length :])
    if len(set(numbers)) != 1:
        raise BackendError("weights were written in part", reason=Reason.BACKEND_FAILED, retryable=False)
    return int(numbers[0])


@dataclasses.dataclass(kw_only=True)
class CheckpointModel(ScriptedModel):
    """Reads its weights at every call."""

    file: Path
    gate: asyncio.Event | None = None
    """Set it to have answers given; they are given at once if it is None."""

    @property
    def sampling(self) -> CheckpointModel:
        return self

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> Sequence[SampledSequence]:
        before = step_of(self.file)
        self.answer = lambda text: "odd" if before % 2 else "even"
        answers = await super().sample(prompt, params, num_samples)
        if self.gate is not None:
            await self.gate.wait()
        assert step_of(self.file) == before
        return answers


class CheckpointBackend(Backend):
    """Opens directories, and adapters on whatever they name."""

    def __init__(self, **fields: Any) -> None:
        """Take fields of the models."""
        self._fields = fields
        self.opened: list[ModelRef] = []
        """Every reference, in order."""

    def info(self) -> BackendInfo:
        """It has no names."""
        return BackendInfo(name="checkpoints", models=())

    async def check(self, model: ModelRef) -> None:
        """Refuse a directory that is not there."""
        self._file(model)

    async def open(self, model: ModelRef) -> CheckpointModel:
        """Open a checkpoint.

        Raises:
            NotFound: it is gone.
        """
        file = self._file(model)
        self.opened.append(model)
        fingerprint = f"{FULL}:{hashlib.sha256(file.read_bytes()).hexdigest()}"
        return CheckpointModel(file=file, fingerprint=fingerprint, **self._fields)

    def _file(self, model: ModelRef) -> Path:
        assert isinstance(model, LocalModel | HubModel)
        adapter = model.adapter_path
        if adapter is not None:
            file = Path(adapter) / "adapter_model.safetensors"
        else:
            assert isinstance(model, LocalModel)
            file = Path(model.path) / "model.safetensors"
        if not file.is_file():
            raise NotFound(f"there is no {file}", reason=Reason.MODEL_NOT_FOUND, field="model")
        return file


def checkpoint_build(backend: CheckpointBackend) -> Build:
    """How to build a worker with this backend."""

    async def build(settings: Settings) -> Parts:
        backends = {LocalModel: backend, HubModel: backend}
        return await build_with(settings, backends=backends)

    return build


@dataclasses.dataclass(frozen=True)
class Followed:
    """A worker that follows, and what it tells."""

    bridge: Bridge
    recorder: EventRecorder
    backend: CheckpointBackend
    root: Path
    """The model root."""
    state_dir: Path

    @property
    def folder(self) -> Path:
        """Where the run `run` saves."""
        return self.root / "run"

    async def follow(self, **fields: Any) -> Any:
        """Follow the run `run` by `accuracy`, unless other fields are given."""
        if "plan" not in fields:
            defaults: dict[str, Any] = {
                "evaluators": ["accuracy"],
                "dataset": QUESTIONS,
                "sampling": SamplingParams(max_tokens=8),
            }
            fields = {**defaults, **fields}
        return await self.bridge.follow("run", **fields)

    async def told(self, kind: EventKind, name: str) -> Event:
        """Wait for an event of a checkpoint."""
        return await self.recorder.wait_for(
            lambda event: event.kind is kind and event.metadata.get("name") == name, seconds=60.0
        )

    def events(self, *kinds: EventKind) -> list[tuple[EventKind, str]]:
        """Kind and checkpoint of each event of checkpoints so far."""
        wanted = kinds or (FOUND, SKIPPED, RELEASED)
        return [(event.kind, event.metadata["name"]) for event in self.recorder.events if event.kind in wanted]

    async def evaluations(self, run_id: str = "run") -> dict[int, Any]:
        """The evaluations of a run by their steps, of which each has one at most."""
        found = [each async for each in self.bridge.evaluation.all_evaluations(run_id=run_id)]
        by_step = {each.request.step: each for each in found if each.request.step is not None}
        assert len(by_step) == len(found)
        return by_step


@contextlib.asynccontextmanager
async def following(tmp_path: Path, **options: Any) -> AsyncIterator[Followed]:
    """A worker whose model root has the run's folder; options are limits, and `backend`, `roots`, `state_dir`."""
    backend = options.pop("backend", None) or CheckpointBackend()
    state_dir = options.pop("state_dir", tmp_path / "state")
    roots = options.pop("roots", (options.pop("root", tmp_path / "models"),))
    root = roots[0]
    root.mkdir(exist_ok=True)
    settings = Settings(
        port=0, state_dir=state_dir, model_roots=roots, grading_processes=0, limits=WorkerLimits(**options)
    ).validate()
    async with (
        Worker(settings, build=checkpoint_build(backend)) as worker,
        crucible_bridge.connect(worker.address) as bridge,
        record_events(bridge) as recorder,
    ):
        yield Followed(bridge, recorder, backend, root, state_dir)
