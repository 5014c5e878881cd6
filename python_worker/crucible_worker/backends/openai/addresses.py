"""The addresses of a server's name: each one is a replica, as those of a headless Service of Kubernetes are."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

__all__ = ["RESOLVE_SECONDS", "Resolve", "addresses_of", "resolve"]

RESOLVE_SECONDS = 10.0
"""How long the resolution of a name may take."""

Resolve = Callable[[str, int], Awaitable[tuple[str, ...]]]
"""Returns the addresses of a name, for a port. OSError: there is none."""

_PORTS = {"http": 80, "https": 443}


async def resolve(host: str, port: int) -> tuple[str, ...]:
    """The addresses that the system knows of a name, in the same order each time.

    Raises:
        OSError: it knows none in time.
    """
    async with asyncio.timeout(RESOLVE_SECONDS):
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(sorted({str(address[0]) for *_, address in found}))


async def addresses_of(url: str, resolver: Resolve) -> tuple[str, ...]:
    """The addresses of a base URL's name.

    Raises:
        OSError: there is none.
    """
    parts = urlsplit(url)
    return await resolver(parts.hostname or "", parts.port or _PORTS[parts.scheme])
