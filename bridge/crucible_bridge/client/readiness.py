"""Waiting for a worker: until it can be reached, and reports that it serves."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from crucible_bridge.client.calls import Calls
from crucible_bridge.errors import Cancelled, InvalidField, Unavailable
from crucible_bridge.reasons import Reason
from crucible_bridge.status import from_rpc_error

__all__ = ["wait_for_worker"]


_SERVING = health_pb2.HealthCheckResponse.SERVING


async def wait_for_worker(calls: Calls, seconds: float) -> None:
    """Wait until the worker serves; see `Bridge.wait_for_worker`."""
    if not isinstance(seconds, int | float) or not seconds > 0:
        raise InvalidField("seconds", f"is {seconds!r}, must be a number above 0")
    waiting = _Waiting(calls)
    try:
        async with asyncio.timeout(seconds):
            await waiting.until_serving()
    except TimeoutError as error:
        message = f"no worker serves at {calls.address} after {seconds:g} s: {waiting.cause}"
        raise Unavailable(message, reason=Reason.WORKER_NOT_READY, metadata={"address": calls.address}) from error
    except grpc.aio.UsageError as error:
        raise Cancelled("the client is closed", reason=Reason.CLIENT_CLOSED) from error


class _Waiting:
    """One wait, and its last cause."""

    def __init__(self, calls: Calls) -> None:
        self._channel = calls.channel
        self._health: Any = health_pb2_grpc.HealthStub(calls.channel)
        self.cause = "it has not been reached yet"

    async def until_serving(self) -> None:
        """Check whenever the state of the connection changes, never in between."""
        while True:
            state = self._channel.get_state(try_to_connect=True)
            pause = None
            # If connected, its health is watched; if connecting failed, a call gets the reason at once.
            if state in (grpc.ChannelConnectivity.READY, grpc.ChannelConnectivity.TRANSIENT_FAILURE):
                try:
                    if await self._serves():
                        return
                    self.cause = "it closed the watch of its health"
                except grpc.aio.AioRpcError as failure:
                    error = from_rpc_error(failure)
                    if not error.retryable:
                        raise error from failure
                    self.cause, pause = str(error), error.retry_after
            await self._changed(state, pause)

    async def _serves(self) -> bool:
        """Watch until it serves; False if it ends the watch before."""
        watch = self._health.Watch(health_pb2.HealthCheckRequest())
        try:
            async for answer in watch:
                if answer.status == _SERVING:
                    return True
                self.cause = "it is reached, and is not ready yet (NOT_SERVING)"
            return False
        finally:
            watch.cancel()

    async def _changed(self, state: grpc.ChannelConnectivity, pause: float | None) -> None:
        """Wait for another state of the connection, or for the delay that the worker gave."""
        try:
            async with asyncio.timeout(pause):
                await self._channel.wait_for_state_change(state)
        except TimeoutError:
            pass
