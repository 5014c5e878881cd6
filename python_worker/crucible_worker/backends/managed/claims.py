"""Which deployment has which GPU: one that is idle gives its GPUs to another one that needs one of them.

    managed:vllm/a?devices=0      and then      managed:vllm/b?devices=0,1

are two deployments. Both at once would not fit on GPU 0. GPUs that no reference names are not known here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol

__all__ = ["Claimant", "Claims", "InUse"]


class Claimant(Protocol):
    """A deployment, as others that need its GPUs see it."""

    @property
    def told(self) -> str:
        """What it is, in words."""
        ...

    @property
    def idle(self) -> bool:
        """Whether nothing uses it."""
        ...

    async def until_idle(self) -> None:
        """Wait until nothing uses it."""

    async def give_up(self) -> None:
        """End its processes; the next request starts them again."""


class InUse(Exception):
    """Raised when a GPU does not become free in time; the text says who has it."""


class Claims:
    """The GPUs of one backend, each with the deployment that has it."""

    def __init__(self) -> None:
        self._owners: dict[str, Claimant] = {}
        self._claiming = asyncio.Lock()

    async def claim(self, claimant: Claimant, devices: Sequence[str], seconds: float) -> None:
        """Have all of these GPUs, once their present owners are idle and have given them up.

        Args:
            claimant: who wants them.
            devices: each one GPU.
            seconds: how long the owners are waited for.

        Raises:
            InUse: an owner was not idle in time.
        """
        # An owner that changes its checkpoint must not wait for one that waits for it to be idle.
        if self._has(claimant, devices):
            return
        async with self._claiming:
            for device in devices:
                while (owner := self._owners.get(device, claimant)) is not claimant:
                    await self._freed(owner, device, seconds)
            self._owners.update(dict.fromkeys(devices, claimant))

    def _has(self, claimant: Claimant, devices: Sequence[str]) -> bool:
        return all(self._owners.get(device) is claimant for device in devices)

    async def _freed(self, owner: Claimant, device: str, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await owner.until_idle()
        except TimeoutError:
            raise InUse(f"device {device!r} is in use by {owner.told}") from None
        if not owner.idle:  # a request came in between
            return
        # From here on the owner itself has to claim them again.
        for each in [each for each, its in self._owners.items() if its is owner]:
            del self._owners[each]
        await owner.give_up()
