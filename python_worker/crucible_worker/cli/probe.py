"""Ask the worker of some settings whether it is healthy: for `health` and `doctor`.

A supervisor probes every few seconds, and most of a probe's cost is imports: so only gRPC, without our client,
numpy or protobuf. The two messages of grpc.health.v1 have one field each, and are read and written here.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from crucible_worker.config import Settings

__all__ = ["ProbeFailed", "ProbeReply", "probe", "target"]

_CHECK = "/grpc.health.v1.Health/Check"
_SERVICE_FIELD = b"\x0a"
"""Tag of HealthCheckRequest.service: field 1, with a length."""
_SERVING = b"\x08\x01"
"""HealthCheckResponse with status SERVING: field 1, 1."""
_MAX_SERVICE_BYTES = 127
"""The largest length that takes one byte."""
_NO_LISTENER = ("Connection refused", "No such file or directory")
"""Parts of gRPC's details if there is no socket, or no process listens on it."""
_ENDED = "Socket closed"
"""Parts of them if the other side closed the connection, as a TLS server does when it reads plain text."""
_HINT_TLS = "; if the worker serves with TLS: --tls-ca FILE"


class ProbeFailed(Exception):
    """No worker answers, or it has no such service; the text is for people."""


def target(settings: Settings) -> str:
    """Where to call the worker from this machine: "host:port" or "unix:path"."""
    if settings.unix_socket is not None:
        return f"unix:{settings.unix_socket}"
    host = _host(settings)
    return f"[{host}]:{settings.port}" if ":" in host else f"{host}:{settings.port}"


class ProbeReply(NamedTuple):
    """What a worker answered."""

    ready: bool
    """Whether it is ready to serve."""
    certificate_expires: float | None = None
    """When the certificate that it showed expires, as Unix time; None without TLS."""


def probe(settings: Settings, service: str, *, seconds: float, ca: Path | None) -> ProbeReply:
    """Ask the worker at the address of the settings whether it is ready to serve.

    Args:
        settings: with the address that it listens on; a token is not needed.
        service: full name of one of its services; the worker as a whole if empty.
        seconds: time limit for the answer.
        ca: the certificate to trust, whatever name it is for; plain text if None.

    Raises:
        NoAnswer: nothing answers, it is not a worker, or it has no such service.
    """
    name = service.encode()
    if len(name) > _MAX_SERVICE_BYTES:
        raise ProbeFailed(f"no service has a name of {len(name)} bytes")
    request = _SERVICE_FIELD + bytes((len(name),)) + name if name else b""
    shown = None if ca is None or settings.unix_socket is not None else _shown(settings, ca, seconds)
    with _channel(settings, ca, shown) as channel:
        check = channel.unary_unary(_CHECK, request_serializer=None, response_deserializer=None)
        try:
            ready = check(request, timeout=seconds) == _SERVING
        except grpc.RpcError as error:
            wants_tls = ca is None and settings.unix_socket is None and _ENDED in (error.details() or "")  # pyright: ignore[reportAttributeAccessIssue] - every one is a call
            raise ProbeFailed(_why(error, seconds) + (_HINT_TLS if wants_tls else "")) from None
    return ProbeReply(ready, None if shown is None else ssl.cert_time_to_seconds(shown["notAfter"]))


def _channel(settings: Settings, ca: Path | None, shown: Mapping[str, Any] | None) -> grpc.Channel:
    options: list[tuple[str, object]] = [("grpc.enable_http_proxy", 0)]
    if ca is None or shown is None:
        return grpc.insecure_channel(target(settings), options=options)
    name = _certified_name(shown)
    if name is not None:
        options.append(("grpc.ssl_target_name_override", name))
    return grpc.secure_channel(target(settings), grpc.ssl_channel_credentials(ca.read_bytes()), options=options)


def _shown(settings: Settings, ca: Path, seconds: float) -> Mapping[str, Any]:
    """The certificate that the worker shows, as `ssl.SSLSocket.getpeercert` has it."""
    try:
        return _handshake(settings, ca, seconds)
    except ConnectionRefusedError:
        raise ProbeFailed(_NOTHING_LISTENS) from None
    except OSError as error:
        if error.filename is not None:
            raise ProbeFailed(f"cannot read {error.filename}: {error.strerror}") from None
        raise ProbeFailed(f"no TLS connection to {target(settings)}: {error.strerror or error}") from None


_NOTHING_LISTENS = "nothing listens there; crucible-worker serve starts a worker"


def _why(error: grpc.RpcError, seconds: float) -> str:
    code, details = error.code(), error.details() or ""  # pyright: ignore[reportAttributeAccessIssue] - every one is a call
    if code is grpc.StatusCode.UNAVAILABLE and any(text in details for text in _NO_LISTENER):
        return _NOTHING_LISTENS
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer within {seconds:g} s"
    if code is grpc.StatusCode.NOT_FOUND:
        return "the worker has no such service"
    return f"{code.name}: {details}"


def _host(settings: Settings) -> str:
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)


def _handshake(settings: Settings, ca: Path, seconds: float) -> Mapping[str, Any]:
    """As `_shown`: the standard library reads only the certificate of a trusted peer."""
    ca.read_bytes()  # errors of the ssl library do not name the file
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = False
    # Like gRPC, trust the certificate itself, without its authority.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((_host(settings), settings.port), timeout=seconds) as connection,
        context.wrap_socket(connection) as peer,
    ):
        certificate = peer.getpeercert()
    assert certificate, "it is there, as the handshake has verified it"
    return certificate


def _certified_name(certificate: Mapping[str, Any]) -> str | None:
    """A name in the worker's certificate: seldom the address that a probe on the same machine uses."""
    names = [str(value) for kind, value in certificate.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    if not names:
        # Like gRPC: `openssl req -x509 -subj /CN=worker` makes a certificate with only this name.
        subject = (part for parts in certificate.get("subject", ()) for part in parts)
        names = [str(part[1]) for part in subject if part[0] == "commonName"]
    return names[0].replace("*", "worker", 1) if names else None
