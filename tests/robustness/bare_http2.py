"""A gRPC call by bare HTTP/2, whose message is declared as longer than any that a worker takes."""

from __future__ import annotations

import asyncio
import struct

__all__ = ["DECLARED_BYTES", "sent_of_a_long_message"]

DECLARED_BYTES = 3_000_000_000
_BEGIN = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _GO_AWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 7, 8
_ACK = _END_STREAM = 1
_END_HEADERS = 4
_FRAME_BYTES = 16_384
_WINDOW_BYTES = 65_535
_INITIAL_WINDOW_SIZE = 4


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + struct.pack("!BBI", kind, flags, stream) + content


def _text(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


async def sent_of_a_long_message(address: str, path: str) -> int:
    """Send as much of the message as the worker's windows permit, until it ends the call; returns the bytes sent."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": address}
    fields |= {"te": "trailers", "content-type": "application/grpc"}
    # Each field as a literal without an index, by RFC 7541.
    headers = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
    writer.write(_BEGIN + _frame(_SETTINGS, 0, 0, b"") + _frame(_HEADERS, _END_HEADERS, 1, headers))
    prefix = b"\0" + struct.pack("!I", DECLARED_BYTES)
    windows, initial, sent, ended = [_WINDOW_BYTES, _WINDOW_BYTES], _WINDOW_BYTES, 0, False
    try:
        while not ended:
            while (size := min(*windows, _FRAME_BYTES, DECLARED_BYTES - sent)) > 0:
                content = (prefix if sent == 0 else b"").ljust(size, b"\0")
                writer.write(_frame(_DATA, 0, 1, content))
                await writer.drain()
                windows, sent = [window - size for window in windows], sent + size
            head = await reader.readexactly(9)
            kind, flags, stream = struct.unpack("!BBI", head[3:])
            content = await reader.readexactly(int.from_bytes(head[:3], "big"))
            if kind == _WINDOW_UPDATE:
                windows[stream] += struct.unpack("!I", content)[0]
            elif kind == _SETTINGS and not flags & _ACK:
                for name, value in struct.iter_unpack("!HI", content):
                    if name == _INITIAL_WINDOW_SIZE:
                        windows[1], initial = windows[1] + value - initial, value
                writer.write(_frame(_SETTINGS, _ACK, 0, b""))
            ended = (kind == _HEADERS and flags & _END_STREAM) or kind in (_RESET, _GO_AWAY)
    except (ConnectionError, asyncio.IncompleteReadError):
        pass  # the worker has closed the connection
    finally:
        writer.close()
    return sent
