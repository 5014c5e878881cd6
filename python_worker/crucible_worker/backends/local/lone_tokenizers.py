"""Tokenizers that are open without a model: each in a child of a host, which is killed when it exceeds a limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crucible_bridge.errors import BridgeError
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.process import HostProcess
from crucible_worker.backends.local.tokenizer import HostedTokenizer

__all__ = ["LoneTokenizers"]


class LoneTokenizers:
    """The tokenizers of a host: opens them, and opens them again after the host died or evicted them.

    Args:
        host: the process.
        opening: its operation that opens one.
    """

    def __init__(self, host: HostProcess, opening: str) -> None:
        self._host = host
        self._opening = opening

    async def open(self, key: str, name: str, load: Mapping[str, Any]) -> HostedTokenizer:
        """Open a tokenizer, or find the one that is open.

        Args:
            key: what tells it from all others.
            name: for errors.
            load: what the child loads.

        Raises:
            FailedPrecondition: there is none, it cannot be loaded, or not within a limit.
            BackendError: the host failed; retryable if it died.
        """

        async def opened() -> Mapping[str, Any]:
            return await self._host.call(self._opening, model=key, name=name, load=load)

        async def call(op: str, **fields: Any) -> Any:
            while True:
                try:
                    return await self._host.call(op, model=key, **fields)
                except BridgeError as error:
                    if error.reason != Reason.MODEL_NOT_OPEN:
                        raise
                # Its process was killed or evicted, or the host was restarted.
                await opened()

        return HostedTokenizer(call=call, alone=True, **await opened())
