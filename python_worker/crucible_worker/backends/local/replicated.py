"""One model on several devices: a host process for each, and calls that go to the one with the least outstanding work.

A host that dies is started again, and its model loaded, while the others answer; the call that it had goes to another.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from crucible_bridge.errors import BridgeError
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Replica
from crucible_worker.backends.balancer import Balancer, NoReplicaLeft
from crucible_worker.backends.local.checkpoint import Checkpoint
from crucible_worker.backends.local.fingerprint import CheckpointIdentity
from crucible_worker.backends.local.model import Facts, HostedModel, HostedModels

__all__ = ["ReplicatedModels", "replica_names"]

_TOKEN_BYTES = 8
"""Of a token in a call to a host."""

_log = structlog.get_logger(__name__)


def replica_names(devices: Sequence[str]) -> dict[str, str]:
    """A name for each replica, and its device: a device that is named twice has two."""
    names: dict[str, str] = {}
    seen: collections.Counter[str] = collections.Counter()
    for device in devices:
        seen[device] += 1
        names[device if seen[device] == 1 else f"{device} #{seen[device]}"] = device
    return names


class ReplicatedModels:
    """The models of some devices; takes the place of `HostedModels`.

    Args:
        replicas: of each name, the device and the models of its host.
        clock: seconds that never decrease.
    """

    def __init__(
        self, replicas: Mapping[str, tuple[str, HostedModels]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._replicas = dict(replicas)
        self._balancer = Balancer(tuple(replicas), most_requests=math.inf, clock=clock)
        self._starting: set[asyncio.Task[None]] = set()

    def states(self) -> tuple[Replica, ...]:
        """The state of each replica."""
        return self._balancer.states()

    async def open(self, checkpoint: Checkpoint) -> HostedModel:
        """As `HostedModels.open`; the model is the same on each device."""
        identity = await self._first.identify(checkpoint)
        return HostedModel(models=self, checkpoint=checkpoint, identity=identity)

    async def full_fingerprint(self, checkpoint: Checkpoint, identity: CheckpointIdentity) -> str | None:
        """As `HostedModels.full_fingerprint`."""
        return await self._first.full_fingerprint(checkpoint, identity)

    async def ensure(self, checkpoint: Checkpoint, identity: CheckpointIdentity) -> Facts:
        """Load the model on each device at once; its facts are those of any of them.

        Raises:
            BridgeError: as `HostedModels.ensure`, of the first device that cannot load it.
        """
        found = await asyncio.gather(
            *(models.ensure(_on(checkpoint, device), identity) for device, models in self._replicas.values()),
            return_exceptions=True,
        )
        for facts in found:
            if isinstance(facts, BaseException):
                raise facts
        for name in self._replicas:
            self._returned(name, works=True)
        return next(facts for facts in found if not isinstance(facts, BaseException))

    async def call(self, op: str, checkpoint: Checkpoint, identity: CheckpointIdentity, **fields: Any) -> Any:
        """Call the model on one of the devices, and on another one if the host of the first dies.

        Raises:
            BridgeError: the host's error, or that of the last host that had the call.
        """
        work = _work(fields)
        failed: dict[str, BridgeError] = {}
        while True:
            for name in self._balancer.due():
                self._start(name, checkpoint, identity)
            try:
                name = self._balancer.choose(work, avoid=failed)
            except NoReplicaLeft:
                raise failed.popitem()[1] from None
            assert name is not None, "a host has no bound on its calls"
            device, models = self._replicas[name]
            try:
                answer = await models.call(op, _on(checkpoint, device), identity, **fields)
            except BridgeError as error:
                if error.reason != Reason.HOST_DIED:
                    self._balancer.answered(name, work)
                    raise
                if self._balancer.failed(name, work, error.reason, at_once=True):
                    _log.warning("replica_ejected", device=name, reason=str(error.reason))
                if failed:  # a call that ends hosts must not end them all
                    raise
                failed[name] = error
            except BaseException:
                self._balancer.withdrawn(name, work)
                raise
            else:
                self._balancer.answered(name, work)
                return answer

    async def aclose(self) -> None:
        """Stop starting hosts. Idempotent."""
        for task in tuple(self._starting):
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)

    @property
    def _first(self) -> HostedModels:
        (_, first), *_ = self._replicas.values()
        return first

    def _start(self, name: str, checkpoint: Checkpoint, identity: CheckpointIdentity) -> None:
        task = asyncio.create_task(self._load(name, checkpoint, identity), name="start of a model's host")
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _load(self, name: str, checkpoint: Checkpoint, identity: CheckpointIdentity) -> None:
        device, models = self._replicas[name]
        works, reason = False, ""
        try:
            await models.ensure(_on(checkpoint, device), identity)
            works = True
        except BridgeError as error:
            reason = error.reason
            _log.warning("replica_not_started", device=name, reason=str(error.reason))
        finally:
            self._returned(name, works=works, reason=reason)

    def _returned(self, name: str, *, works: bool, reason: str = "") -> None:
        if self._balancer.probed(name, works=works, reason=reason):
            _log.info("replica_returned", device=name)


def _on(checkpoint: Checkpoint, device: str) -> Checkpoint:
    return dataclasses.replace(checkpoint, device=device)


def _work(fields: Mapping[str, Any]) -> float:
    """About how many tokens a call takes: those that it has, and those that it may generate."""
    given = sum(map(_bytes, fields.values())) / _TOKEN_BYTES
    return 1 + given + fields.get("max_tokens", 0) * fields.get("num_samples", 1)


def _bytes(value: Any) -> int:
    if isinstance(value, bytes):
        return len(value)
    return sum(map(_bytes, value)) if isinstance(value, list | tuple) else 0
