"""The blocking client: the asynchronous client on an event loop in a separate thread."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crucible_bridge.channel import Tls
from crucible_bridge.client.blocking_calls import BlockingBridge
from crucible_bridge.client.bridge import connect
from crucible_bridge.client.loop_thread import LoopThread

__all__ = ["connect_sync"]


def connect_sync(
    address: str | Sequence[str],
    *,
    token: str | None = None,
    tls: Tls | str | Path | None = None,
    patience: float | None = None,
) -> BlockingBridge:
    """Connect to a worker, or to those of one pool, for code without an event loop; otherwise like `connect`.

    It can be used with or without `with`. The client ends with its block, by `close()`, or when nothing refers to it
    any more. Several threads may make calls at once.

    Args:
        address: "host:port" or "unix:/path"; for a pool several of the first kind, as a sequence or with commas, or
            "dns:///name:port" for the workers that a name has.
        token: sent with every call; the text of the worker's token file.
        tls: certificates, or the path of the authority's certificate alone; plain text if None.
        patience: seconds for which evaluations and event streams are continued when their worker is lost; if None, 60
            for a pool and 0 for one worker.

    Raises:
        InvalidField: the address, the token, the certificates or the patience cannot be used.
        Unavailable: a name in a list has no address.
    """
    thread = LoopThread()
    try:
        return BlockingBridge(thread, thread.enter(connect(address, token=token, tls=tls, patience=patience)))
    except BaseException:
        thread.close()
        raise
