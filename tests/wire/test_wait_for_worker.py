"""Waiting for a worker that is not there yet, or not ready."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import crucible_bridge
from crucible_bridge.errors import BridgeError, Cancelled, InvalidField, ResourceExhausted, Unavailable, Unimplemented
from crucible_bridge.status import to_status

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVING = health_pb2.HealthCheckResponse.SERVING


class Health(health_pb2_grpc.HealthServicer):
    """Answers a watch by what each call of it is to be told."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[Any] = asyncio.Queue()
        """Statuses in order; None ends the watch, a tuple breaks it with an error."""
        self.watched = asyncio.Event()
        self.left = asyncio.Event()

    async def Watch(self, request: Any, context: Any) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        self.watched.set()
        try:
            while (answer := await self.answers.get()) is not None:
                if isinstance(answer, tuple):
                    await context.abort(*answer)
                yield health_pb2.HealthCheckResponse(status=answer)
        finally:
            self.left.set()


@asynccontextmanager
async def serving(address: str, health: Health | None) -> AsyncIterator[None]:
    """A server at this address."""
    server = grpc.aio.server()
    if health is not None:
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
    server.add_insecure_port(address)
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


@pytest.fixture
def address(tmp_path: Path) -> str:
    """Where nothing listens yet."""
    return f"unix:{tmp_path}/worker.sock"


async def blocking_wait(address: str, seconds: float) -> None:
    """Wait by the blocking client, beside the event loop."""

    def wait() -> None:
        with crucible_bridge.connect_sync(address) as bridge:
            bridge.wait_for_worker(seconds)

    await asyncio.to_thread(wait)


async def asynchronous_wait(address: str, seconds: float) -> None:
    """Wait by the asynchronous client."""
    async with crucible_bridge.connect(address) as bridge:
        await bridge.wait_for_worker(seconds)


Wait = Callable[[str, float], Awaitable[None]]
both = pytest.mark.parametrize("wait", [asynchronous_wait, blocking_wait], ids=["asynchronous", "blocking"])


@both
async def test_a_worker_that_warms_up_is_waited_for(wait: Wait, address: str):
    """The wait ends when the worker says that it serves, not when it can be reached."""
    health = Health()
    health.answers.put_nowait(NOT_SERVING)
    async with serving(address, health):
        waiting = asyncio.ensure_future(wait(address, 60))
        await asyncio.wait_for(health.watched.wait(), 30)
        assert not waiting.done()
        health.answers.put_nowait(SERVING)
        await waiting


@both
async def test_a_worker_that_starts_later_is_found(wait: Wait, tmp_path: Path, address: str):
    """It is connected to again, after a connection that failed."""
    refused, health = asyncio.Event(), Health()

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        refused.set()

    async with await asyncio.start_unix_server(refuse, tmp_path / "worker.sock"):
        waiting = asyncio.ensure_future(wait(address, 60))
        await asyncio.wait_for(refused.wait(), 30)
    (tmp_path / "worker.sock").unlink(missing_ok=True)
    health.answers.put_nowait(SERVING)
    async with serving(address, health):
        await waiting


@both
async def test_an_address_without_a_worker_is_named_with_the_cause(wait: Wait, address: str):
    """When the time is over, the error tells where nobody was found, and what the last attempt met."""
    with pytest.raises(Unavailable) as caught:
        await wait(address, 0.5)

    error = caught.value
    assert (error.reason, error.retryable, error.metadata) == ("WORKER_NOT_READY", True, {"address": address})
    assert error.message.startswith(f"no worker serves at {address} after 0.5 s: ")
    assert "No such file or directory" in error.message


async def test_a_worker_that_stays_unready_is_named_with_the_cause(address: str):
    """It was reached, and did not become ready in time."""
    health = Health()
    health.answers.put_nowait(SERVING)
    async with serving(address, health), crucible_bridge.connect(address) as bridge:
        await bridge.wait_for_worker(60)
        await asyncio.wait_for(health.left.wait(), 30)
        health.answers.put_nowait(NOT_SERVING)
        with pytest.raises(Unavailable, match=r"after 1 s: it is reached, and is not ready yet \(NOT_SERVING\)"):
            await bridge.wait_for_worker(1)


async def test_a_worker_that_goes_away_is_waited_for_again(address: str):
    """One that drains ends the watch; the next one at its address is found."""
    first, second = Health(), Health()
    first.answers.put_nowait(NOT_SERVING)
    async with crucible_bridge.connect(address) as bridge:
        waiting = asyncio.ensure_future(bridge.wait_for_worker(60))
        async with serving(address, first):
            await asyncio.wait_for(first.watched.wait(), 30)
            first.answers.put_nowait(None)
        second.answers.put_nowait(SERVING)
        async with serving(address, second):
            await waiting


async def test_a_worker_that_has_no_room_is_asked_again(address: str):
    """Where the worker says for how long to wait, the same connection is used again after it."""
    health = Health()
    health.answers.put_nowait(to_status(ResourceExhausted("too many watches", retry_after=0.01)))
    health.answers.put_nowait(SERVING)
    async with serving(address, health):
        await asynchronous_wait(address, 60)


async def test_what_is_no_worker_is_not_waited_for(address: str):
    """A server without the health service will not get it: the error comes at once."""
    async with serving(address, None):
        with pytest.raises(Unimplemented):
            await asyncio.wait_for(asynchronous_wait(address, 600), 60)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "10", None])
async def test_a_time_that_is_none_is_refused(seconds: Any, address: str):
    """The error names the parameter."""
    with pytest.raises(InvalidField) as caught:
        await asynchronous_wait(address, seconds)

    assert caught.value.field == "seconds"


async def test_closing_ends_the_wait(address: str):
    """A client that is closed meanwhile waits no longer."""
    async with crucible_bridge.connect(address) as bridge:
        waiting = asyncio.ensure_future(bridge.wait_for_worker(600))
        await asyncio.sleep(0)

    with pytest.raises(BridgeError) as caught:
        await asyncio.wait_for(waiting, 60)
    assert isinstance(caught.value, Cancelled)
