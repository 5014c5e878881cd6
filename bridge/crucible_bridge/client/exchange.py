"""One bidirectional call: frames out, one at a time; frames in, until it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
from google.protobuf.message import Message

from crucible_bridge.client.streams import cancelled_from_outside
from crucible_bridge.errors import Cancelled
from crucible_bridge.reasons import Reason
from crucible_bridge.status import from_rpc_error

__all__ = ["Exchange"]


class Exchange:
    """An open call; leaving its `async with` block ends it."""

    def __init__(self, call: Any) -> None:
        self._call = call
        # gRPC sends one message at a time, and several tasks send.
        self._turn = asyncio.Lock()

    async def write(self, message: Any) -> bool:
        """Send a message; False if the call has ended: `frames` then raises the reason."""
        try:
            async with self._turn:
                await self._call.write(message)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            return False
        except asyncio.CancelledError:
            if cancelled_from_outside():
                raise
            return False
        return True

    async def frames(self) -> AsyncIterator[Any]:
        """What the worker sends.

        Raises:
            BridgeError: the call ended with an error.
        """
        while True:
            try:
                message = await self._call.read()
            except grpc.aio.AioRpcError as error:
                raise from_rpc_error(error) from error
            except asyncio.CancelledError:
                if cancelled_from_outside():
                    raise
                raise Cancelled("the client is closed", reason=Reason.CLIENT_CLOSED) from None
            # Anything other than a message is gRPC's marker for the end.
            if not isinstance(message, Message):
                return
            yield message

    async def __aenter__(self) -> Exchange:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._call.cancel()
