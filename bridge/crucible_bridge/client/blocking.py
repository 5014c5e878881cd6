"""The blocking twin: the asynchronous client on an event loop in a thread of its own."""

from __future__ import annotations

from pathlib import Path

from crucible_bridge.channel import Tls
from crucible_bridge.client.blocking_calls import BlockingBridge
from crucible_bridge.client.bridge import connect
from crucible_bridge.client.loop_thread import LoopThread

__all__ = ["connect_sync"]


def connect_sync(address: str, *, token: str | None = None, tls: Tls | str | Path | None = None) -> BlockingBridge:
    """Connect to a worker, for code without an event loop; everything else is as `connect` says.

    With `with` or without: the client ends with its block, by `close()`, or when nothing refers to it any more. Its
    calls may come from several threads at once.

    Args:
        address: "host:port" or "unix:/path".
        token: sent with every call, as the worker's token file has it.
        tls: certificates, or the path of the authority's certificate alone; plain text if None.

    Raises:
        InvalidField: the address, the token or the certificates cannot be used.
    """
    thread = LoopThread()
    try:
        return BlockingBridge(thread, thread.enter(connect(address, token=token, tls=tls)))
    except BaseException:
        thread.close()
        raise
