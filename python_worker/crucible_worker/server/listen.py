"""Where the worker listens, and how: TCP with or without TLS, or a Unix socket that only its owner may open."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import socket
import stat
from pathlib import Path
from typing import Any

import grpc.aio

from crucible_bridge.channel import server_options
from crucible_worker.config import Settings
from crucible_worker.server.credentials import Certificate, StartError
from crucible_worker.util.limits import WorkerLimits

__all__ = ["bind", "listen_for_openai", "options"]

SOCKET_MODE = 0o600
"""Mode of a Unix socket: every user who may open it may call."""


_LARGEST = 2**31 - 1
"""The largest number that gRPC accepts."""


def options(limits: WorkerLimits) -> list[tuple[str, Any]]:
    """HTTP/2 options of the server; compression is never requested, as Gun cannot read it on streams.

    Nothing bounds the age of a connection: that would end WatchEvaluation and Subscribe, which may last for days.
    """
    merged = dict(server_options())
    merged |= {
        "grpc.max_receive_message_length": limits.max_message_bytes,
        "grpc.max_send_message_length": limits.max_message_bytes,
        "grpc.max_concurrent_streams": limits.max_calls_per_connection,
        "grpc.max_allowed_incoming_connections": limits.max_connections,
        "grpc.server_handshake_timeout_ms": _milliseconds(limits.handshake_seconds),
        "grpc.max_connection_idle_ms": _milliseconds(limits.connection_idle_seconds),
        # Elixir's clients ping as often as they are configured to, with or without an open call: by default the third
        # ping within five minutes ends the connection with all its calls (ENHANCE_YOUR_CALM).
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_ping_strikes": 0,
    }
    return list(merged.items())


def _milliseconds(seconds: float) -> int:
    return min(max(1, round(seconds * 1000)), _LARGEST)


def bind(server: grpc.aio.Server, settings: Settings, certificate: Certificate | None) -> str:
    """Bind where the settings say.

    Args:
        server: what is bound.
        settings: those of the worker.
        certificate: for TLS; none on a Unix socket.

    Returns:
        `host:port` or `unix:path`, as a client would write it.

    Raises:
        StartError: it cannot be bound.
    """
    if settings.unix_socket is not None:
        return _bind_unix(server, settings.unix_socket)
    return _bind_tcp(server, settings.host, settings.port, certificate)


def _bind_tcp(server: grpc.aio.Server, host: str, port: int, certificate: Certificate | None) -> str:
    """Bind a port, 0 for any."""
    shown = f"[{host}]" if ":" in host else host
    # gRPC reports only "failed", and also on stderr: so a socket of the system is tried first.
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with contextlib.closing(socket.socket(family, kind, protocol)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise StartError(f"cannot listen on {shown}:{port}: {_why_unbound(error)}") from error
    try:
        if certificate is None:
            bound = server.add_insecure_port(f"{shown}:{port}")
        else:
            bound = server.add_secure_port(f"{shown}:{port}", certificate.credentials())
    except RuntimeError as error:
        raise StartError(f"cannot listen on {shown}:{port}: gRPC refuses") from error
    return f"{shown}:{bound}"


def listen_for_openai(host: str, port: int) -> socket.socket:
    """Bind the port of the endpoint of OpenAI's API.

    Raises:
        StartError: it cannot be bound, or what serves it is not installed.
    """
    if importlib.util.find_spec("uvicorn") is None:
        raise StartError("--openai-listen needs uvicorn: pip install 'crucible-bridge[web]'")
    from crucible_worker.web.listening import listen  # it imports uvicorn

    try:
        return listen(host, port)
    except OSError as error:
        why = error.strerror or str(error)
        raise StartError(f"cannot listen on {host}:{port}: {why}; --openai-listen takes another port") from error


def _why_unbound(error: OSError) -> str:
    """The system's message, and which option helps."""
    why = error.strerror or str(error)
    if isinstance(error, socket.gaierror):
        return f"{why}; --host takes a name or an address of this machine"
    match error.errno:
        case errno.EADDRNOTAVAIL:
            return f"{why}: it is no address of this machine; --host 0.0.0.0 listens on all addresses"
        case errno.EADDRINUSE:
            return f"{why} by another process; --port selects another port, 0 any free one"
        case errno.EACCES:
            return f"{why}; choose a --port above 1023"
        case _:
            return why


def _bind_unix(server: grpc.aio.Server, path: Path) -> str:
    """Bind a Unix socket that only its owner may open; a stale one, on which no process listens, is replaced."""
    _clear(path)
    # The mode must be right from the first moment, so the umask sets it, not a chmod afterwards.
    before = os.umask(0o777 & ~SOCKET_MODE)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        why = "does its folder exist, and is the path below 108 bytes?"
        raise StartError(f"cannot listen on unix:{path}: {why}") from error
    finally:
        os.umask(before)
    return f"unix:{path}"


def _clear(path: Path) -> None:
    """Remove a stale socket: gRPC itself would remove any socket, also that of a running worker."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise StartError(f"cannot listen on unix:{path}: a file that is no socket exists there")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise StartError(f"cannot listen on unix:{path}: {error.strerror}") from error
    raise StartError(f"cannot listen on unix:{path}: another process listens there")
