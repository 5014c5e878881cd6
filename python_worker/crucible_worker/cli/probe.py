"""The worker that some settings are for, asked whether it is well: by `health`, and by `doctor`."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import TYPE_CHECKING

from crucible_worker.config import Settings

if TYPE_CHECKING:
    from crucible_bridge import Tls

__all__ = ["serves", "target"]


def target(settings: Settings) -> str:
    """Where to call the worker from this machine: "host:port" or "unix:path"."""
    if settings.unix_socket is not None:
        return f"unix:{settings.unix_socket}"
    host = _host(settings)
    return f"[{host}]:{settings.port}" if ":" in host else f"{host}:{settings.port}"


async def serves(settings: Settings, service: str, *, seconds: float) -> bool:
    """Whether a worker answers where the settings say, and is ready to serve.

    Args:
        settings: the worker's own; a token is not needed.
        service: full name of one of its services; the worker as a whole if empty.
        seconds: for the worker to answer.

    Raises:
        BridgeError: nobody answers, it is no worker, or it has no such service.
    """
    from crucible_bridge import connect  # half a second of imports, which help and refusals do without

    tls = await asyncio.to_thread(_certificates, settings, seconds)
    async with connect(target(settings), tls=tls) as bridge:
        return await bridge.worker.health(service, timeout=seconds)


def _host(settings: Settings) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)


def _certificates(settings: Settings, seconds: float) -> Tls | None:
    """What to trust: the certificate that the worker was given and no other, under the name that it is for."""
    from crucible_bridge import Tls
    from crucible_bridge.errors import Unavailable

    if settings.tls_cert is None or settings.unix_socket is not None:
        return None
    try:
        name = _certified_name(settings, seconds)
    except OSError as error:
        raise Unavailable(f"no TLS connection to {target(settings)}: {error.strerror or error}") from error
    return Tls(ca=settings.tls_cert, server_name=name)


def _certified_name(settings: Settings, seconds: float) -> str | None:
    """A name that the worker's certificate is for: seldom the address that a probe on the same machine has.

    The standard library reads no certificate but that of a peer whom it trusts: so a handshake tells.
    """
    context = ssl.create_default_context(cafile=settings.tls_cert)
    context.check_hostname = False
    # As in gRPC, the certificate may be trusted without its authority.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((_host(settings), settings.port), timeout=seconds) as connection,
        context.wrap_socket(connection) as peer,
    ):
        certificate = peer.getpeercert() or {}
    names = [str(value) for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    return names[0].replace("*", "worker", 1) if names else None
