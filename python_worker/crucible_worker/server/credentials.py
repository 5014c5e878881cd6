"""What the worker shows its callers, and what they show it: read again when the files change.

A certificate is used from the next handshake on, a token by the next call.
"""

from __future__ import annotations

import asyncio
import datetime
import re
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import structlog

from crucible_worker.config import EXPIRING_DAYS, Settings, SettingsError, read_tokens
from crucible_worker.rpc.authentication import TokenFile
from crucible_worker.util.files import FileState, state_of

__all__ = ["Certificate", "Credentials", "StartError", "expires_at"]

LOOK_SECONDS = 5.0
"""Seconds between two looks at the files. Handshakes and tokens that are not known look at once."""

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION = 0x30, 0xA0
_TIME_FORMATS = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
_DAY = 24 * 60 * 60.0
_log = structlog.get_logger(__name__)


class StartError(Exception):
    """Raised when the worker cannot start with its settings; the text says why and is shown to the operator."""


class Credentials:
    """The tokens and the certificate of a worker."""

    def __init__(self, settings: Settings) -> None:
        """Read them.

        Raises:
            StartError: a file cannot be used.
        """
        self.certificate: Certificate | None = None
        """For TLS; None without it."""
        self.tokens: TokenFile | None = None
        """Of callers; None if they need none."""
        if settings.unix_socket is None and settings.tls is not None:
            self.certificate = Certificate(*settings.tls)
        if settings.token_file is not None:
            try:
                self.tokens = TokenFile(settings.token_file, _tokens_of)
            except ValueError as error:
                raise StartError(str(error)) from error

    async def renew(self) -> None:
        """Look at the files from time to time; runs until it is cancelled."""
        while True:
            await asyncio.to_thread(self._look)
            await asyncio.sleep(LOOK_SECONDS)

    def _look(self) -> None:
        if self.tokens is not None:
            self.tokens.look()
        if self.certificate is not None:
            self.certificate.look()
            self.certificate.tell_expiry()


def _tokens_of(path: Path) -> Sequence[str]:
    try:
        return read_tokens(path)
    except SettingsError as error:
        raise ValueError(str(error)) from error


class Certificate:
    """A chain and its key; any thread may call it."""

    def __init__(self, chain: Path, key: Path) -> None:
        """Read them.

        Raises:
            StartError: they cannot be read, or are no certificate with its key.
        """
        self._chain, self._key = chain, key
        self._guard = threading.Lock()
        self._states = self._looked()
        self._current, self.expires = self._read()
        self._shown = self._current
        self._next_warning = 0.0

    def credentials(self) -> grpc.ServerCredentials:
        """For a server that shows, at each handshake, what the files have then."""
        return grpc.dynamic_ssl_server_credentials(self._shown, self._renewed)

    def look(self) -> None:
        """Read the files again if they have changed; what cannot be used is logged, and the one before stays."""
        with self._guard:
            self._look()

    def days_left(self) -> float:
        """Until it expires; less than 0 once it has."""
        return (self.expires - time.time()) / _DAY

    @property
    def expires_ns(self) -> int:
        """When it expires, Unix time in nanoseconds; the largest that a field can have if that is after 2262."""
        return min(int(self.expires) * 10**9, 2**63 - 1)

    def tell_expiry(self) -> None:
        """Log, once a day, that the certificate has expired, or will within `EXPIRING_DAYS`."""
        days = self.days_left()
        if days > EXPIRING_DAYS or time.monotonic() < self._next_warning:
            return
        self._next_warning = time.monotonic() + _DAY
        _log.warning("certificate_expired" if days < 0 else "certificate_expires", certificate=str(self))

    def __str__(self) -> str:
        """Its file, and when it expires: "server.crt, expires 2027-01-31 12:00 UTC"."""
        at = datetime.datetime.fromtimestamp(self.expires, datetime.UTC)
        return f"{self._chain}, {'expires' if self.days_left() > 0 else 'expired'} {at:%Y-%m-%d %H:%M} UTC"

    def _renewed(self) -> Any:
        """Called by gRPC at each handshake, in a thread of its own: another certificate, or None for the last one."""
        with self._guard:
            self._look()
            if self._current is self._shown:
                return None
            self._shown = self._current
            return self._shown

    def _look(self) -> None:
        states = self._looked()
        if states == self._states:
            return
        try:
            current, expires = self._read()
        except StartError as error:  # a renewal may be half done
            if self._looked() == states:
                self._states = states
                _log.error("certificate_refused", reason=str(error), cure="the one before is used until it has expired")
            return
        if self._looked() != states:  # written meanwhile: read at the next look
            return
        self._states, self._current, self.expires, self._next_warning = states, current, expires, 0.0
        _log.info("certificate_read", certificate=str(self))

    def _looked(self) -> tuple[FileState | None, FileState | None]:
        return state_of(self._chain), state_of(self._key)

    def _read(self) -> tuple[grpc.ServerCertificateConfiguration, float]:
        try:
            chain, key = self._chain.read_bytes(), self._key.read_bytes()
        except OSError as error:
            raise StartError(f"cannot read {error.filename}: {error.strerror}") from error
        try:
            # gRPC would take a key of another certificate, and then fail at every handshake.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self._chain, self._key, password=b"")
            expires = expires_at(chain)
        except (ssl.SSLError, ValueError, OSError) as error:
            problem = f"the certificate {self._chain} cannot be used with the key {self._key}: {error}"
            raise StartError(problem) from error
        return grpc.ssl_server_certificate_configuration([(key, chain)]), expires


def expires_at(chain: bytes) -> float:
    """When the first certificate of a chain expires, as Unix time.

    Args:
        chain: PEM.

    Raises:
        ValueError: there is no certificate.
    """
    found = _PEM.search(chain.decode("utf-8", "replace"))
    if found is None:
        raise ValueError("there is no certificate in PEM")
    der = ssl.PEM_cert_to_DER_cert(found[0])
    try:
        ((_, certificate, _),) = _elements(der, 0, len(der))  # RFC 5280: Certificate, then TBSCertificate
        _, begin, end = next(_elements(der, certificate, len(der)))
        fields = [field for field in _elements(der, begin, end) if field[0] != _VERSION]
        _, begin, end = fields[3]  # after serial number, signature and issuer: the validity
        _, (tag, begin, end) = _elements(der, begin, end)
        text = der[begin:end].decode("ascii")
        return datetime.datetime.strptime(text, _TIME_FORMATS[tag]).replace(tzinfo=datetime.UTC).timestamp()
    except (LookupError, StopIteration, UnicodeDecodeError) as error:
        raise ValueError("the certificate has no validity that can be read") from error


def _elements(der: bytes, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Tag, begin and end of the content of each element of DER between two places."""
    while begin < end:
        tag, size, begin = der[begin], der[begin + 1], begin + 2
        if size >= 0x80:
            width = size & 0x7F
            size, begin = int.from_bytes(der[begin : begin + width], "big"), begin + width
        yield tag, begin, begin + size
        begin += size
