"""Calls that end before their answer: by a timeout, by who asked, by the client that closes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge.errors import Cancelled, DeadlineExceeded, InvalidField
from tests.tables import rows
from tests.wire.conftest import CannedWorker
from tests.wire.test_client import REQUEST


async def test_a_timeout_bounds_the_wait(worker: CannedWorker, address: str):
    """A reply that does not come ends as DeadlineExceeded."""
    worker.replies["Evaluate"] = lambda _: asyncio.Event().wait()

    async with crucible_bridge.connect(address) as bridge:
        with pytest.raises(DeadlineExceeded):
            await bridge.evaluation.evaluate(REQUEST, timeout=0.1)


@rows("seconds", [0, -1.0, float("nan"), "1"])
async def test_a_timeout_that_is_none_is_refused(worker: CannedWorker, address: str, seconds: Any):
    """It is no number above 0; gRPC would take 0 for no deadline at all."""
    async with crucible_bridge.connect(address) as bridge:
        with pytest.raises(InvalidField) as refused:
            await bridge.evaluation.evaluate(REQUEST, timeout=seconds)

    assert (refused.value.field, worker.requests) == ("timeout", [])


async def test_a_cancelled_call_is_cancelled_at_the_worker(worker: CannedWorker, address: str):
    """Cancelling the caller's task ends the call, as asyncio's CancelledError."""
    arrived, ended = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        arrived.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    worker.replies["Evaluate"] = lambda _: hang()
    async with crucible_bridge.connect(address) as bridge:
        task = asyncio.create_task(bridge.evaluation.evaluate(REQUEST))
        await arrived.wait()

        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(ended.wait(), 5)


async def test_closing_ends_open_calls(worker: CannedWorker, address: str):
    """Who still waits when the client closes gets an error of ours, and so does who calls later."""
    arrived = asyncio.Event()

    async def hang() -> None:
        arrived.set()
        await asyncio.Event().wait()

    worker.replies["Evaluate"] = lambda _: hang()
    async with crucible_bridge.connect(address) as bridge:
        task = asyncio.create_task(bridge.evaluation.evaluate(REQUEST))
        await arrived.wait()

    for call in (task, bridge.worker.get_info()):
        with pytest.raises(Cancelled) as caught:
            await call
        assert caught.value.reason == "CLIENT_CLOSED"
    with pytest.raises(Cancelled):
        bridge.telemetry.subscribe()
