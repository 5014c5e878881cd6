"""Models on the worker's disk, and those that ship with it: two backends over one host process."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.types import BackendInfo, EmbeddedModel, LocalModel, ModelRef
from crucible_worker.backends.local.model import HostedModel, HostedModels
from crucible_worker.backends.local.paths import check_files, resolve
from crucible_worker.backends.local.process import HostProcess
from crucible_worker.embedded import registry

__all__ = ["LocalBackend"]

Kind = Literal["local", "embedded"]

_NEEDED = ("torch", "transformers")


class LocalBackend:
    """Hugging Face causal language models, run by torch in a child process; it opens LocalModel and EmbeddedModel refs.

    Nothing is started or imported before the first `open`. The host process ends with the worker, whatever ends it.

    Args:
        model_roots: directories below which local models may lie; without one, only embedded models open.
        device: "auto" (CUDA where there is one), "cpu" or "cuda".
    """

    def __init__(self, model_roots: Sequence[Path] = (), device: str = "auto") -> None:
        self._roots = tuple(model_roots)
        self._host = HostProcess(device)
        self._models = HostedModels(self._host)

    def info(self, kind: Kind = "local") -> BackendInfo:
        """What this backend is for local models or for embedded ones. Imports nothing."""
        missing = _missing()
        if kind == "embedded":
            return BackendInfo(name="embedded", models=registry.names(), unavailable=missing)
        no_root = "" if self._roots else "no model root; start the worker with --model-root"
        return BackendInfo(name="local", unavailable=missing or no_root)

    async def open(self, model: ModelRef) -> HostedModel:
        """Open a model, load it if its files have changed, start the host if need be.

        Raises:
            NotFound: there is no such model.
            PermissionDenied: the path leads out of the roots.
            FailedPrecondition: the extra is not installed (EXTRA_NOT_INSTALLED), or the files are refused
                (PICKLED_WEIGHTS_REFUSED, NO_SAFETENSORS, NO_MODEL_CONFIG, ADAPTER_REFUSED, MODEL_REFUSED).
            BackendError: the host failed; retryable if it died.
        """
        if missing := _missing():
            raise FailedPrecondition(missing, reason="EXTRA_NOT_INSTALLED")
        match model:
            case EmbeddedModel(name):
                directory = registry.path(name)
            case LocalModel(path):
                directory = resolve(self._roots, path)
                check_files(directory, self._roots)
            case _:
                raise InvalidField("model", f"is a {type(model).__name__}, neither local nor embedded")
        return await self._models.open(directory)

    async def aclose(self) -> None:
        """End the host, within a second. Idempotent."""
        await self._host.aclose()


def _missing() -> str:
    absent = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    return f"{' and '.join(absent)} not installed: install crucible-bridge[local]" if absent else ""
