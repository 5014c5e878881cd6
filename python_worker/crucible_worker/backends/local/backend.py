"""Models on the worker's disk, and those that ship with it: two backends over one host process."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import BackendInfo, EmbeddedModel, LocalModel, ModelRef
from crucible_worker.backends.local.checkpoint import Checkpoint
from crucible_worker.backends.local.devices import refuse_absent_cuda
from crucible_worker.backends.local.model import HostedModel, HostedModels
from crucible_worker.backends.local.paths import check_adapter, check_files, resolve
from crucible_worker.backends.local.process import HostProcess
from crucible_worker.embedded import registry
from crucible_worker.limits import WorkerLimits

__all__ = ["LocalBackend"]

Kind = Literal["local", "embedded"]

_NEEDED = ("torch", "transformers")
_NEEDED_BY_ADAPTERS = ("peft",)
_HOST = "crucible_worker.backends.local.host"
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
"""Weights and tokenizers come from disk alone."""


class LocalBackend:
    """Hugging Face causal language models, run by torch in a child process; it opens LocalModel and EmbeddedModel refs.

    Nothing is started or imported before the first `open`. The host process ends with the worker, whatever ends it.

    Args:
        model_roots: directories below which local models may lie; without one, only embedded models open.
        device: where models compute that name no device: "auto" (CUDA where there is one), "cpu", "cuda" or "cuda:N".
        limits: of the worker; the defaults if None.
    """

    def __init__(
        self, model_roots: Sequence[Path] = (), device: str = "auto", limits: WorkerLimits | None = None
    ) -> None:
        self._roots = tuple(model_roots)
        self._device = device
        self._host = HostProcess(_HOST, [f"--device={device}"], _OFFLINE, limits)
        self._models = HostedModels(self._host)

    def info(self, kind: Kind = "local") -> BackendInfo:
        """What this backend is for local models or for embedded ones. Imports nothing."""
        missing = _missing(_NEEDED, "local")
        if kind == "embedded":
            return BackendInfo(name="embedded", models=registry.names(), unavailable=missing)
        no_root = "" if self._roots else "no model root; start the worker with --model-root"
        return BackendInfo(name="local", unavailable=missing or no_root)

    async def check(self, model: ModelRef) -> None:
        """Look whether a model's files are there, and are files that can be opened; their weights are not read."""
        await asyncio.to_thread(self._find, model)

    async def open(self, model: ModelRef) -> HostedModel:
        """Open a model, load it if its files have changed, start the host if need be.

        Raises:
            NotFound: there is no such model.
            PermissionDenied: the path leads out of the roots.
            FailedPrecondition: the extra is not installed (EXTRA_NOT_INSTALLED), or the files are refused
                (PICKLED_WEIGHTS_REFUSED, NO_SAFETENSORS, NO_MODEL_CONFIG, NO_ADAPTER_CONFIG, ADAPTER_REFUSED,
                MODEL_REFUSED).
            BackendError: the host failed; retryable if it died.
        """
        return await self._models.open(self._find(model))

    async def aclose(self) -> None:
        """End the host, within a second. Idempotent."""
        await self._host.aclose()

    def _find(self, model: ModelRef) -> Checkpoint:
        if missing := _missing(_NEEDED, "local"):
            raise FailedPrecondition(missing, reason=Reason.EXTRA_NOT_INSTALLED)
        refuse_absent_cuda(getattr(model, "device", None) or self._device)
        match model:
            case EmbeddedModel(name):
                return Checkpoint(directory=registry.path(name))
            case LocalModel():
                return self._find_local(model)
            case _:
                raise InvalidField("model", f"is a {type(model).__name__}, neither local nor embedded")

    def _find_local(self, model: LocalModel) -> Checkpoint:
        directory = resolve(self._roots, model.path)
        check_files(directory, self._roots)
        adapter = None
        if model.adapter_path is not None:
            if missing := _missing(_NEEDED_BY_ADAPTERS, "lora"):
                raise FailedPrecondition(missing, reason=Reason.EXTRA_NOT_INSTALLED)
            adapter = resolve(self._roots, model.adapter_path, "model.adapter_path")
            check_adapter(adapter, self._roots)
        return Checkpoint(directory=directory, adapter=adapter, dtype=model.dtype, device=model.device)


def _missing(needed: Sequence[str], extra: str) -> str:
    absent = [name for name in needed if importlib.util.find_spec(name) is None]
    return f"{' and '.join(absent)} not installed: install crucible-bridge[{extra}]" if absent else ""
