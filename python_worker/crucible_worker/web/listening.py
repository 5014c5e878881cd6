"""Where web servers of this machine listen, and whom they answer: programs, and browsers that no other site sent."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Collection, Generator, Sequence

import uvicorn

__all__ = ["LOOPBACK", "QuietServer", "foreign_host", "foreign_site", "hosts_of", "listen"]

LOOPBACK = "127.0.0.1"
HTTP_PORT = 80


class QuietServer(uvicorn.Server):
    """Leaves signals to its process: uvicorn raises them again once it has ended, before anything is cleaned up."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture none."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """Listen on a port of this machine, 0 for any.

    Raises:
        OSError: it cannot be listened on.
    """
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    # With its protocol: asyncio sets TCP_NODELAY on connections of no other, and each answer would wait 40 ms.
    listener = socket.socket(family, kind, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


def hosts_of(port: int, host: str = LOOPBACK) -> Sequence[str]:
    """What clients call a server in the Host header. They leave the port of http out."""
    shown = [f"[{host}]" if ":" in host else host, *(["localhost"] if host != "localhost" else [LOOPBACK])]
    named = [f"{one}:{port}" for one in shown]
    return [*named, *shown] if port == HTTP_PORT else named


def foreign_host(host: str, hosts: Collection[str]) -> bool:
    """Whether a request is meant for a server of another name: a foreign name may lead here (DNS rebinding)."""
    return host not in hosts


def foreign_site(origin: str | None, site: str, hosts: Collection[str]) -> bool:
    """Whether a page of another site made a request.

    Args:
        origin: the header Origin; None without one.
        site: the header Sec-Fetch-Site, "none" without one.
        hosts: what clients call the server.
    """
    if origin == "null":  # a form of a page that sends no Referer: browsers send no origin then
        return site != "same-origin"
    if origin is not None and origin.partition("://")[2] not in hosts:
        return True
    return site not in ("same-origin", "none")
