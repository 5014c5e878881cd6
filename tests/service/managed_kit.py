"""Checkpoints whose weights are a text, and workers that serve them by fake programs of vLLM and SGLang."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from crucible_bridge.types import InstalledModel, SamplingParams
from crucible_worker.backends.managed.backend import ManagedBackend
from crucible_worker.backends.managed.deployment import Deployment
from crucible_worker.backends.managed.settings import ManagedServer, ProgramName

PARAMS = SamplingParams(max_tokens=4)
PROGRAMS: tuple[ProgramName, ...] = ("vllm", "sglang")

FAKE = Path(__file__).with_name("fake_model_server.py")


def save(root: Path, name: str, text: str, **config: Any) -> Path:
    """A checkpoint below a model root; `config` is what makes another architecture of it."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "_name_or_path": name, **config}))
    (folder / "model.safetensors").write_text(text)
    return folder


def save_adapter(root: Path, name: str, text: str) -> Path:
    """An adapter below a model root."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": "base"}))
    (folder / "adapter_model.safetensors").write_text(text)
    return folder


def fake(program: ProgramName, name: str = "s", **settings: Any) -> ManagedServer:
    """A server whose program is the fake."""
    command = (sys.executable, str(FAKE), program, "{model}", "--port={port}", "--name={name}")
    given = {"adapter_arguments": ("--enable-lora",), "start_seconds": 60.0, "stall_seconds": 30.0, **settings}
    return ManagedServer(name=name, program=program, command=command, **given)


@contextlib.asynccontextmanager
async def backend_of(root: Path, server: ManagedServer) -> AsyncIterator[ManagedBackend]:
    """A backend with one server, and checkpoints below a root."""
    backend = ManagedBackend((server,), (root,), root.parent / "logs")
    try:
        yield backend
    finally:
        await backend.aclose()


def deployment_of(backend: ManagedBackend) -> Deployment:
    """The only deployment of a backend."""
    (deployment,) = backend._deployments.values()
    return deployment


async def text_of(backend: ManagedBackend, name: str, prompt: str = "p") -> str:
    """The answer of a model, which is the text of its weights."""
    model = await backend.open(InstalledModel("managed", name))
    await model.load()
    (sequence,) = await model.sample_text(prompt, PARAMS)
    return sequence.text


def members(group: int) -> list[int]:
    """Processes of a process group that are no zombies."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, IndexError):
            continue
        if entry.name.isdigit() and int(fields[2]) == group and fields[0] != "Z":
            found.append(int(entry.name))
    return found
