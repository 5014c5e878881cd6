"""A checkpoint at a managed server, as evaluations see it: a remote model that is served by its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from crucible_worker.backends.managed.deployment import Deployment
from crucible_worker.backends.managed.target import Target
from crucible_worker.backends.openai.connection import ServerConnection
from crucible_worker.backends.openai.model import RemoteModel
from crucible_worker.backends.openai.weights import refuse_change
from crucible_worker.util.fingerprints import is_full, map_digests

__all__ = ["ManagedModel"]

T = TypeVar("T")


class ModelHandle:
    """The connection to a deployment for one checkpoint: each request is sent while that is served."""

    def __init__(self, deployment: Deployment, target: Target) -> None:
        self.server = deployment.endpoint
        self.dialects = deployment.fleet.dialects
        self.owner = ""  # the settings name its program
        self._deployment = deployment
        self._target = target

    async def reach(self, model: str) -> None:
        """Have the checkpoint served; raises as `Deployment.serving`."""
        async with self._deployment.serving(self._target):
            return

    async def connections(self, *, serving: bool = True) -> Mapping[str, ServerConnection]:
        """The connections to the replicas."""
        return await self._deployment.fleet.connections(serving=serving)

    async def each(self, call: Callable[[ServerConnection], Awaitable[T]]) -> tuple[T, ...]:
        """What a call returns for each replica; see `Fleet.each`."""
        async with self._deployment.serving(self._target):
            return await self._deployment.fleet.each(call)

    async def look(self, path: str) -> tuple[bytes, str]:
        """What a replica returns at a path; see `Fleet.look`."""
        async with self._deployment.serving(self._target):
            return await self._deployment.fleet.look(path)

    async def ask(self, path: str, body: dict[str, object], model: str, *, tokens: int) -> dict[str, Any]:
        """Send a request to a replica; see `Fleet.ask`."""
        async with self._deployment.serving(self._target):
            return await self._deployment.fleet.ask(path, body, model, tokens=tokens)


class ManagedModel(RemoteModel):
    """A checkpoint at a managed server."""

    def __init__(self, deployment: Deployment, target: Target) -> None:
        self._deployment = deployment
        self._target = target
        super().__init__(ModelHandle(deployment, target), deployment.program.name_of(target.adapter_name))
        self._changes = 0

    def _identity(self, asked: str) -> str:
        """Digests of its server's program, of the checkpoint's content, and of how text is sent."""
        return self._of_content(self._target.whole.fingerprint, asked)

    def _of_content(self, content: str, asked: str) -> str:
        def digest(of_content: str) -> str:
            identity = ("managed", self._deployment.server.program, of_content, asked)
            return hashlib.sha256(json.dumps(identity).encode()).hexdigest()

        return map_digests(content, digest)

    async def full_fingerprint(self) -> str:
        """The same with a digest of every byte, if the files can still be read; this may take minutes."""
        content = self._target.whole.fingerprint
        if not is_full(content) and (full := await self._deployment.full_fingerprint(self._target)) is not None:
            content = f"{content},{full}"
        return self._of_content(content, self.renderer)

    async def record_weights(self) -> None:
        """Check that the server has the checkpoint, by its report and by the log-probabilities of a fixed prompt."""
        self._changes = await self._deployment.begin(self._target)

    async def confirm_weights(self) -> None:
        """Check the same again.

        Raises:
            FailedPrecondition: the server had something else meanwhile (MODEL_CHANGED).
            BridgeError: no replica answers.
        """
        what = await self._deployment.confirm(self._target, self._changes)
        refuse_change(self._server.name, self._target.checkpoint.directory.name, what)
