"""The backend of managed servers: checkpoints below the model roots, each served by a server that the worker starts."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from crucible_bridge.errors import InvalidField, NotFound, clipped
from crucible_bridge.reasons import Reason
from crucible_bridge.types import BackendInfo, InstalledModel
from crucible_worker.backends.base import Backend
from crucible_worker.backends.endpoints import BackendSettings
from crucible_worker.backends.local.checkpoint import Checkpoint, Fingerprints
from crucible_worker.backends.local.paths import check_adapter, check_files, resolve
from crucible_worker.backends.managed.arbitration import Claims
from crucible_worker.backends.managed.settings import ManagedServer, servers
from crucible_worker.backends.managed.target import identify
from crucible_worker.backends.openai.backend import OpenAIBackend
from crucible_worker.backends.openai.connection import closed
from crucible_worker.util.model_refs import SCHEME, ManagedRef, read_managed_ref

if TYPE_CHECKING:
    from crucible_worker.backends.managed.deployment import Deployment, ManagedModel

__all__ = ["ManagedBackend"]


class ManagedBackend(Backend[InstalledModel]):
    """Checkpoints that vLLM or SGLang serve; it opens references of the scheme `managed`.

    Nothing is started before a model is loaded. Servers stay until the worker ends, and end with it.

    Args:
        configured: servers of the worker's settings.
        model_roots: directories of checkpoints and adapters.
        folder: of the servers' logs.
    """

    def __init__(self, configured: Sequence[ManagedServer], model_roots: Sequence[Path], folder: Path) -> None:
        self._servers = servers(tuple(configured))
        self._roots = tuple(model_roots)
        self._folder = folder
        self._fingerprints = Fingerprints()
        self._deployments: dict[tuple[str, tuple[str, ...]], Deployment] = {}
        self._claims = Claims()
        self._closed = False

    @classmethod
    def create(cls, settings: BackendSettings) -> Self:
        """Make it with the servers and the model roots; logs are below the state directory."""
        return cls(settings.endpoints_of(ManagedServer), settings.model_roots, settings.state_dir / "managed")

    def info(self) -> BackendInfo:
        """Whether it can be used. Imports nothing."""
        no_root = "" if self._roots else "no model root; start the worker with --model-root"
        return BackendInfo(name=SCHEME, unavailable=OpenAIBackend.missing() or no_root)

    async def check(self, model: InstalledModel) -> None:
        """Refuse a model that does not exist or is not safe to load; reads no weights."""
        await asyncio.to_thread(self._find, read_managed_ref(model))

    async def open(self, model: InstalledModel) -> ManagedModel:
        """Find a checkpoint and its fingerprint. No server is started.

        Raises:
            InvalidField: the reference is invalid.
            NotFound: there is no such server (UNKNOWN_SERVER) or checkpoint (MODEL_NOT_FOUND).
            PermissionDenied: a path leads out of the roots.
            FailedPrecondition: the extra is not installed (EXTRA_NOT_INSTALLED), or the files are refused.
        """
        if self._closed:
            raise closed()
        reference = read_managed_ref(model)
        server, checkpoint = await asyncio.to_thread(self._find, reference)
        target = await asyncio.to_thread(identify, checkpoint, self._fingerprints)
        deployment = self._deployment(server, reference.devices or server.devices)
        module = importlib.import_module("crucible_worker.backends.managed.deployment")
        return module.ManagedModel(deployment, target)

    async def aclose(self) -> None:
        """End every server, within a second. Idempotent."""
        self._closed = True
        await asyncio.gather(*(deployment.aclose() for deployment in self._deployments.values()))

    def _deployment(self, server: ManagedServer, devices: tuple[str, ...]) -> Deployment:
        key = (server.name, devices)
        if key not in self._deployments:
            module = importlib.import_module("crucible_worker.backends.managed.deployment")
            self._deployments[key] = module.Deployment(server, devices, self._folder, self._fingerprints, self._claims)
        return self._deployments[key]

    def _find(self, reference: ManagedRef) -> tuple[ManagedServer, Checkpoint]:
        """The server and the checkpoint that a reference names."""
        server = self._servers.get(reference.server)
        if server is None:
            raise NotFound(
                f"names the managed server {clipped(reference.server)}, which is not known here; there are "
                f"{', '.join(sorted(self._servers))}: add a table managed_servers.{reference.server[:60]} to the file "
                "of --config",
                reason=Reason.UNKNOWN_SERVER,
                field="model",
            )
        OpenAIBackend.refuse_missing()
        if not reference.path:
            raise InvalidField("model", f"names no checkpoint: write managed:{reference.server}/PATH")
        if server.devices and (unknown := [one for one in reference.devices if one not in server.devices]):
            raise InvalidField(
                "model", f"has the device {unknown[0]!r}; the server {server.name!r} has {', '.join(server.devices)}"
            )
        directory = resolve(self._roots, reference.path)
        check_files(directory, self._roots)
        adapter = None
        if reference.adapter is not None:
            adapter = resolve(self._roots, reference.adapter, "model.adapter")
            check_adapter(adapter, self._roots)
        # A server parses a path that begins with "-" as an option, and takes one that is gone for a model of the hub.
        return server, Checkpoint(
            directory=directory.absolute(), adapter=None if adapter is None else adapter.absolute()
        )
