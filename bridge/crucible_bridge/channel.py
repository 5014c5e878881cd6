"""How client and worker talk: addresses, channel and server options, retries, credentials, metadata."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from crucible_bridge.buffers import keep_large_buffers
from crucible_bridge.errors import InvalidField
from crucible_bridge.idempotency import repeatable, without_side_effects
from crucible_bridge.reasons import Code

__all__ = [
    "AUTHORIZATION_KEY",
    "MAX_MESSAGE_BYTES",
    "MAX_RETRY_ATTEMPTS",
    "Address",
    "Tls",
    "authorization",
    "channel_options",
    "hide_poller_races",
    "open_channel",
    "parse_address",
    "server_options",
]

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Largest message, either way."""
AUTHORIZATION_KEY = "authorization"
"""The metadata key of the token; its value is "Bearer <token>"."""
MAX_RETRY_ATTEMPTS = 4
"""Attempts of a call that may be retried, the first included; they are spread over about a second."""

_UNCOMPRESSED = 1
# The set of the one algorithm "identity". A compressed message of 3 MB may become 2.4 GB before its size is checked.
_KEEPALIVE_MS = 60_000
_KEEPALIVE_TIMEOUT_MS = 20_000
# gRPC's defaults are one second and two minutes: a client would notice a starting worker long after it serves.
_FIRST_RECONNECT_MS = 200
_LONGEST_RECONNECT_MS = 5_000
# gRPC's default is 30 s: a client would find the successor of a lost worker that much later.
_BETWEEN_LOOKUPS_MS = 2_000
# Codes of lost connections, and of calls that meet the end of a worker.
_OF_A_LOST_WORKER = (Code.UNAVAILABLE, Code.CANCELLED)
# Targets of several addresses, none of which is a name that a certificate could have.
_NUMBERS = ("ipv4:", "ipv6:")
# Below the client's interval, so that the server never considers its pings abuse.
_MIN_PING_INTERVAL_MS = 30_000
# Where gRPC's own frames come from. Their names and lines are no use: Cython keeps one code object for each number of a
# line, so that after an error in another of gRPC's files the frame of this one may bear the name of that.
_GRPC_SOURCES = "/grpc/_cython/"


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """Where a worker listens."""

    target: str
    """In gRPC's form: "host:port", "[::1]:port" or "unix:/path"."""
    host: str = ""
    """Host without brackets; empty for a Unix socket."""
    port: int = 0
    """Port; 0 lets a server choose. It is also 0 for a Unix socket."""
    path: str = ""
    """Path of a Unix socket; empty for a host."""


@dataclasses.dataclass(frozen=True, slots=True)
class Tls:
    """Certificates of a client: paths of PEM files, or their content."""

    ca: str | Path | bytes | None = None
    """Authorities that may have signed the worker's certificate; the system's if None."""
    cert: str | Path | bytes | None = None
    """The client's certificate chain, if the worker requires one."""
    key: str | Path | bytes | None = None
    """Its private key."""
    server_name: str | None = None
    """The name in the worker's certificate, if the address has another one: a tunnel, or an IP address."""

    def credentials(self) -> grpc.ChannelCredentials:
        """The channel credentials.

        Raises:
            InvalidField: a file cannot be read, or one of certificate and key is missing.
        """
        if (self.cert is None) != (self.key is None):
            raise InvalidField("tls", "has a certificate without a key, or a key without a certificate")
        return grpc.ssl_channel_credentials(
            root_certificates=_pem(self.ca, "tls.ca"),
            private_key=_pem(self.key, "tls.key"),
            certificate_chain=_pem(self.cert, "tls.cert"),
        )


def parse_address(text: str) -> Address:
    """Read "host:port", "[ipv6]:port" or "unix:/path".

    Raises:
        InvalidField: it is none of them, or the port is not within 0 and 65,535.
    """
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        path = path.removeprefix("//") if path.startswith("///") else path
        if not path or "\0" in path:
            raise InvalidField("address", f"is {text!r}, a Unix socket needs a path")
        return Address(target=f"unix:{path}", path=path)
    host, separator, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not separator or not host or (":" in host) != bracketed or any(c in "/ \t\n[]" for c in host):
        raise InvalidField("address", f'is {text!r}, neither "host:port" nor "unix:/path"')
    if not (port.isascii() and port.isdigit() and int(port) <= 65_535):
        raise InvalidField("address", f"is {text!r}, the port must be within 0 and 65535")
    return Address(target=f"[{host}]:{port}" if bracketed else f"{host}:{port}", host=host, port=int(port))


def channel_options(*, pool: bool = False) -> list[tuple[str, Any]]:
    """Options of a client's channel, to one worker or to those of a pool.

    Keepalive pings only while a call is open. Never compressed: gzip on streams breaks elixir-grpc, and tensors do not
    shrink. Workers are addressed directly, so proxies of the environment are ignored.
    """
    return [
        ("grpc.compression_enabled_algorithms_bitset", _UNCOMPRESSED),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.initial_reconnect_backoff_ms", _FIRST_RECONNECT_MS),
        ("grpc.max_reconnect_backoff_ms", _LONGEST_RECONNECT_MS),
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 1),
        ("grpc.dns_min_time_between_resolutions_ms", _BETWEEN_LOOKUPS_MS),
        ("grpc.service_config", json.dumps(_service_config(pool))),
    ]


def server_options() -> list[tuple[str, Any]]:
    """Options of a worker's server: the same message size, and keepalive that `channel_options` fits."""
    return [
        ("grpc.compression_enabled_algorithms_bitset", _UNCOMPRESSED),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.http2.min_ping_interval_without_data_ms", _MIN_PING_INTERVAL_MS),
        # Two workers on one port would share its connections at random.
        ("grpc.so_reuseport", 0),
    ]


def authorization(token: str | None) -> tuple[tuple[str, str], ...]:
    """Metadata that carries a token; empty without one.

    Raises:
        InvalidField: the token is empty, or has characters that a header cannot carry.
    """
    if token is None:
        return ()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        # Not echoed: it is a secret.
        raise InvalidField("token", "is empty, or has characters that a header cannot carry")
    return ((AUTHORIZATION_KEY, f"Bearer {token}"),)


def open_channel(address: str, tls: Tls | str | Path | None = None, *, pool: bool = False) -> grpc.aio.Channel:
    """A channel to a worker, or to those of a pool; it connects with its first call. Needs a running event loop.

    Args:
        address: in a form that `parse_address` reads; for a pool, gRPC's target of its workers.
        tls: certificates, or the path of the authority's certificate alone; plain text if None.
        pool: calls take turns over the workers that serve.

    Raises:
        InvalidField: the address or the certificates cannot be used.
    """
    target = address if pool else parse_address(address).target
    keep_large_buffers()
    hide_poller_races()
    options = channel_options(pool=pool)
    if tls is None:
        return grpc.aio.insecure_channel(target, options=options)
    certificates = tls if isinstance(tls, Tls) else Tls(ca=tls)
    if certificates.server_name is None and target.startswith(_NUMBERS):
        raise InvalidField("tls.server_name", "is needed with several addresses: the name in the workers' certificates")
    if certificates.server_name is not None:
        options.append(("grpc.ssl_target_name_override", certificates.server_name))
    return grpc.aio.secure_channel(target, certificates.credentials(), options=options)


def hide_poller_races() -> None:
    """Keep a harmless error of gRPC out of the log; call it before gRPC uses an event loop. Idempotent.

    gRPC has one poller for all event loops of a process. It writes a byte to one socket for each of its events, and
    every loop reads from there. Only one loop gets the byte, and it handles the events of all loops. Another loop that
    woke for the same byte gets BlockingIOError. No event is lost, but asyncio logs the error with a traceback. Two
    blocking clients had some 60 of them a second.
    """
    logging.getLogger("asyncio").addFilter(_is_no_poller_race)


def _is_no_poller_race(record: logging.LogRecord) -> bool:
    """Whether a record is anything but a BlockingIOError that gRPC itself raised: it reads nothing but that socket."""
    error = record.exc_info[1] if record.exc_info else None
    if not isinstance(error, BlockingIOError) or error.__traceback__ is None:
        return True
    innermost = error.__traceback__
    while innermost.tb_next is not None:
        innermost = innermost.tb_next
    return _GRPC_SOURCES not in innermost.tb_frame.f_code.co_filename


def _service_config(pool: bool) -> dict[str, Any]:
    # Calls that only read or compute are repeated when the worker is lost. With one worker, calls that may query a
    # model are not: the worker has already retried that. In a pool the worker itself may be lost, so all calls are that
    # mean the same when repeated. Calls that start an evaluation need its id for that: the client repeats them.
    retried = [path.removeprefix("/").split("/") for path in sorted(repeatable() if pool else without_side_effects())]
    # A worker that warms up or drains gets no calls: gRPC watches the health of each.
    balanced = {"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": ""}} if pool else {}
    return {
        **balanced,
        "methodConfig": [
            {
                "name": [{"service": service, "method": method} for service, method in retried],
                "retryPolicy": {
                    "maxAttempts": MAX_RETRY_ATTEMPTS,
                    "initialBackoff": "0.2s",
                    "maxBackoff": "1s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": [code.value for code in _OF_A_LOST_WORKER],
                },
            }
        ],
    }


def _pem(source: str | Path | bytes | None, field: str) -> bytes | None:
    if source is None or isinstance(source, bytes):
        return source
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise InvalidField(field, f"cannot be read: {error.strerror}") from error
