"""Subscribers that are connected, never read, and vanish."""

from __future__ import annotations

import asyncio
import socket
import struct

from tests.robustness.evidence import request
from tests.robustness.harness import until, workshop

UNREAD = 20
"""Connections with a subscription each."""
SAMPLES = 2_000
"""Whose events are more than sockets and windows take."""

_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _header(name: bytes, value: bytes) -> bytes:
    """A header as HPACK has it without any table."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def unread_subscription(address: str) -> socket.socket:
    """A connection with a subscription from which nothing is ever read."""
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    headers = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": b"/crucible_bridge.v1.TelemetryService/Subscribe",
        b":authority": b"worker",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
    }
    connection.sendall(
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, 1, b"".join(_header(name, value) for name, value in headers.items()))
        + _frame(_DATA, _END_STREAM, 1, b"\0\0\0\0\0")
    )
    return connection


async def test_subscribers_that_vanish_while_they_are_sent_something_are_no_errors(tmp_path):
    """Their streams end, their places are free again, and the log has no traceback."""
    async with workshop(tmp_path, {"m": {}}) as shop:
        worker = await shop.start()
        await worker.bridge.evaluation.evaluate(request("e", concurrency=64, samples=SAMPLES))
        connections = [await asyncio.to_thread(unread_subscription, worker.address) for _ in range(UNREAD)]

        async def count() -> int:
            return (await worker.bridge.worker.get_info()).calls

        async def all_open() -> bool:
            return await count() == UNREAD

        async def none_open() -> bool:
            return await count() == 0

        await until(all_open)
        assert await worker.is_serving()
        for connection in connections:
            connection.close()
        await until(none_open)
    log = worker.log_file.read_text()
    assert "Traceback" not in log
    assert '"level": "error"' not in log
