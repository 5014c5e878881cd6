"""The blocking client: the asynchronous client on an event loop in a separate thread."""

from __future__ import annotations

from pathlib import Path

from crucible_bridge.channel import Tls
from crucible_bridge.client.blocking_calls import BlockingBridge
from crucible_bridge.client.bridge import connect
from crucible_bridge.client.loop_thread import LoopThread

__all__ = ["connect_sync"]


def connect_sync(address: str, *, token: str | None = None, tls: Tls | str | Path | None = None) -> BlockingBridge:
    """Connect to a worker, for code without an event loop; otherwise like `connect`.

    It can be used with or without `with`. The client ends with its block, by `close()`, or when nothing refers to it
    any more. Several threads may make calls at once.

    Args:
        address: "host:port" or "unix:/path".
        token: sent with every call; the text of the worker's token file.
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
