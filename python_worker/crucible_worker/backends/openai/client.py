"""Requests to one server by aiohttp. Importing that takes a while, so a thread imports this module.

A request costs the event loop 0.1 ms; httpx2 takes five times that. The client does not retry: the gate of an
evaluation does that within a budget. It follows no redirect, which might send a prompt elsewhere, and takes neither
proxies, keys nor certificates from the environment. It sends only the headers below, and the key.

No compression is requested. An answer that is compressed nevertheless is expanded here, up to the bound of its bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import ssl
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import yarl
from aiohttp.abc import AbstractResolver, AbstractStreamWriter, ResolveResult

from crucible_bridge.errors import BridgeError, clipped
from crucible_worker.backends.openai import failures
from crucible_worker.backends.openai.failures import FailedRequest, Silence
from crucible_worker.backends.openai.servers import OpenAIServer

__all__ = ["PART_BYTES", "Client", "LongBody", "tls_context"]

# Certificate authorities for servers: those of this machine, or those of a file.

_USUAL_FILES = (
    "/etc/ssl/cert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
)
"""Where distributions store them, if this Python's OpenSSL was built with another path."""


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """The TLS context for a server; reads files, imports nothing.

    Args:
        ca_file: certificates, PEM; those of this machine if None. SSL_CERT_FILE and SSL_CERT_DIR are ignored.
    """
    if ca_file is not None:
        context = ssl.create_default_context(cafile=str(ca_file))
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_usual(context)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load_usual(context: ssl.SSLContext) -> None:
    # set_default_verify_paths() would read the environment.
    paths = ssl.get_default_verify_paths()
    file = paths.openssl_cafile if os.path.isfile(paths.openssl_cafile) else None
    folder = paths.openssl_capath if os.path.isdir(paths.openssl_capath) else None
    if file is None:
        file = next(filter(os.path.isfile, _USUAL_FILES), None)
    if file is not None or folder is not None:
        context.load_verify_locations(file, folder)


# A long request, sent in parts: the library alone would wait for ever for a server that stops reading.

PART_BYTES = 64 * 1024
"""Bytes of a part, which a socket accepts at once; the server has its stall time to read each part."""


class LongBody(aiohttp.Payload):
    """A JSON body that is sent in parts.

    Args:
        content: the body.
        stall_seconds: how long a server may take to read a part.
    """

    _value: bytes

    def __init__(self, content: bytes, stall_seconds: float) -> None:
        super().__init__(content, content_type="application/json")
        self._stall_seconds = stall_seconds

    @property
    def size(self) -> int:
        """Bytes in all."""
        return len(self._value)

    @property
    def autoclose(self) -> bool:
        """True: there is nothing to close."""
        return True

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The body as text."""
        return self._value.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the body.

        Raises:
            TimeoutError: the server did not read a part in time.
        """
        whole = memoryview(self._value)
        for start in range(0, len(whole), PART_BYTES):
            async with asyncio.timeout(self._stall_seconds):
                await writer.write(whole[start : start + PART_BYTES])


_KEEP_SECONDS = 30.0
"""Seconds that an idle connection stays open: less than at most servers, so that they close few during a request."""

_MAX_HEADER_BYTES = 64 * 1024
"""Most bytes of one header of an answer."""

_MAX_REFUSAL_BYTES = 64 * 1024
"""Bytes of a refusal that are read: an error repeats little of its text."""

_MAX_LOOK_BYTES = 256 * 1024
"""Most bytes of a server's description of itself: it is read on the event loop."""

_CODINGS = frozenset({"gzip", "x-gzip", "deflate"})
"""Encodings of an answer that are read."""

_GZIP_BEGINS = b"\x1f\x8b"
"""The first bytes of what gzip has compressed, and of no JSON."""

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
"""Has zlib recognize both formats; deflate without a format of its own is tried after them."""

_MODELS = "/models"
"""The path below the base URL that describes the server; the other such paths are below the root."""

_UNREACHABLE = (
    aiohttp.ClientConnectorError,
    aiohttp.ClientSSLError,
    aiohttp.ClientConnectorCertificateError,
    aiohttp.ClientHttpProxyError,
    aiohttp.InvalidURL,
)

# Its debug lines may contain what a server sent.
logging.getLogger("aiohttp").setLevel(logging.WARNING)


class Client:
    """Connections to one server. The constructor reads certificates, so a thread calls it.

    Args:
        server: with one base URL.
        key: in its header; None if it needs none.
        address: of the server, in place of those of its name; requests and certificates still have the name.
    """

    def __init__(self, server: OpenAIServer, key: str | None, address: str | None = None) -> None:
        self._server = server
        self._address = address
        self._key = key
        self._base = server.urls[0].rstrip("/")
        self._urls: dict[str, yarl.URL] = {}
        self._tls: ssl.SSLContext = tls_context(server.ca_file)
        self._session: aiohttp.ClientSession | None = None
        self._answers: set[aiohttp.ClientResponse] = set()
        headers = {
            "Accept": "application/json",
            # Expanding takes time that no answer of this size is worth.
            "Accept-Encoding": "identity",
            "User-Agent": "crucible-bridge",
        }
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        self._asking = headers
        self._telling = {**headers, "Content-Type": "application/json"}

    async def send(self, path: str, body: dict[str, object] | None, model: str, max_bytes: int) -> bytes:
        """Send a request, and read the whole answer; a cancellation closes the connection.

        Args:
            path: below the base URL: "/completions".
            body: of a POST; None for a GET.
            model: its name, for errors.
            max_bytes: the longest answer that is accepted.

        Returns:
            The body of an answer with status 2xx.

        Raises:
            BridgeError: there is no such answer; see `failures`.
        """
        asked = FailedRequest(
            server=self._server.name,
            unauthenticated=self._server.unauthenticated,
            model=model,
            path=path,
            key=self._key,
        )
        try:
            async with self._request(path, body) as response, self._under_way(response):
                if not 200 <= response.status < 300:
                    words = self._without_key(await self._beginning(response))
                    raise failures.of_status(asked, response.status, response.headers, words)
                return self._without_key(await self._content(response, max_bytes))
        # Only the names of errors: their texts and fields contain the key, and perhaps a proxy's password.
        except TimeoutError as error:
            raise self._error_of_silence(asked, Silence.TIMEOUT, error) from None
        except _UNREACHABLE as error:
            raise self._error_of_silence(asked, Silence.UNREACHABLE, error) from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._error_of_silence(asked, Silence.LOST, error) from None

    async def look(self, path: str) -> tuple[bytes, str]:
        """Get a short answer, and the header that names the server's program; an answer that is not OK has no content.

        Args:
            path: below the base URL, or below it without its version: "/version".

        Raises:
            BridgeError: there is no answer, or one that is too long.
        """
        asked = FailedRequest(
            server=self._server.name, unauthenticated=self._server.unauthenticated, model="", path=path, key=self._key
        )
        base = self._base if path == _MODELS else self._base.removesuffix("/v1")
        assert self._session is not None, "reach() comes before look()"
        try:
            request = self._session.get(
                yarl.URL(f"{base}{path}"), headers=self._asking, proxy=self._server.proxy, allow_redirects=False
            )
            async with request as response, self._under_way(response):
                program = self._without_key(response.headers.get("Server", "").encode()).decode()
                if response.status != 200:
                    return b"", program
                return self._without_key(await self._content(response, _MAX_LOOK_BYTES)), program
        except TimeoutError as error:
            raise self._error_of_silence(asked, Silence.TIMEOUT, error) from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._error_of_silence(asked, Silence.LOST, error) from None

    async def aclose(self) -> None:
        """Close every connection; answers that are being read fail (the library alone would let them wait for ever)."""
        for response in tuple(self._answers):
            response.close()
        if self._session is not None:
            await self._session.close()

    @contextlib.asynccontextmanager
    async def _under_way(self, response: aiohttp.ClientResponse) -> AsyncIterator[None]:
        self._answers.add(response)
        try:
            yield
        finally:
            self._answers.discard(response)

    def _request(self, path: str, body: dict[str, object] | None) -> aiohttp.client._RequestContextManager:
        if self._session is None:
            self._session = self._open()
        url = self._urls.setdefault(path, yarl.URL(f"{self._base}{path}"))
        proxy = self._server.proxy
        if body is None:
            return self._session.get(url, headers=self._asking, proxy=proxy, allow_redirects=False)
        content = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
        data = content if len(content) <= PART_BYTES else LongBody(content, self._server.stall_seconds)
        return self._session.post(url, data=data, headers=self._telling, proxy=proxy, allow_redirects=False)

    def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            # Calls wait for their turn before this: with the pool's own bound they would wait once more.
            connector=aiohttp.TCPConnector(
                limit=0,
                ssl=self._tls,
                keepalive_timeout=_KEEP_SECONDS,
                resolver=None if self._address is None else _Address(self._address),
            ),
            timeout=aiohttp.ClientTimeout(
                total=None, connect=self._server.stall_seconds, sock_read=self._server.stall_seconds
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            max_line_size=_MAX_HEADER_BYTES,
            max_field_size=_MAX_HEADER_BYTES,
        )

    async def _content(self, response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
        """The body of an answer, expanded, up to a bound.

        Raises:
            BackendError: it is longer, or encoded in a way that is not read; the connection is closed.
        """
        coding = _coding(response)
        if coding and coding not in _CODINGS:
            raise self._refused(response, f"is compressed by {clipped(coding)}, which was not requested")
        parts: list[bytes] = []
        size = 0
        while part := await response.content.readany():
            size += len(part)
            if size > max_bytes:
                raise self._refused(response, f"is longer than {max_bytes:,} bytes")
            parts.append(part)
        content = b"".join(parts)
        if not coding and not content.startswith(_GZIP_BEGINS):
            return content
        try:
            content, complete = await asyncio.to_thread(_expanded, content, max_bytes + 1)
        except zlib.error:
            raise self._refused(response, f"is compressed by {coding or 'gzip'}, and cannot be expanded") from None
        if len(content) > max_bytes:
            raise self._refused(response, f"is compressed, and longer than {max_bytes:,} bytes")
        if not complete:
            raise self._refused(response, f"is compressed by {coding or 'gzip'}, and its end is missing")
        return content

    async def _beginning(self, response: aiohttp.ClientResponse) -> bytes:
        """The first bytes of a refusal; the connection is closed if there are more."""
        parts: list[bytes] = []
        size = 0
        while size < _MAX_REFUSAL_BYTES and (part := await response.content.readany()):
            size += len(part)
            parts.append(part)
        content = b"".join(parts)[:_MAX_REFUSAL_BYTES]
        coding = _coding(response)
        if not coding and not content.startswith(_GZIP_BEGINS):
            return content
        if coding and coding not in _CODINGS:
            return b""
        with contextlib.suppress(zlib.error):
            return _expanded(content, _MAX_REFUSAL_BYTES)[0]
        return b""

    def _refused(self, response: aiohttp.ClientResponse, what: str) -> BridgeError:
        response.close()
        return failures.garbage(self._server.name, f"it {what}")

    def _without_key(self, content: bytes) -> bytes:
        # If a server echoes the request's headers, the key must not get into a journal of answers.
        if self._key is None or len(self._key) < failures.MIN_REDACTED_CHARS:
            return content
        return content.replace(self._key.encode(), b"[key]")

    def _error_of_silence(self, asked: FailedRequest, silence: Silence, error: BaseException) -> BridgeError:
        kind = type(error).__name__
        return failures.of_connection(asked, silence, kind, stall_seconds=self._server.stall_seconds)


class _Address(AbstractResolver):
    """Resolves each name to one address."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
        result: ResolveResult = {
            "hostname": host,
            "host": self._address,
            "port": port,
            "family": family,
            "proto": 0,
            "flags": socket.AI_NUMERICHOST,
        }
        return [result]

    async def close(self) -> None:
        """It has nothing open."""


def _coding(response: aiohttp.ClientResponse) -> str:
    """How the body is encoded, in lower case; empty if it is not."""
    coding = response.headers.get("Content-Encoding", "").strip().lower()
    return "" if coding == "identity" else coding


def _expanded(content: bytes, max_bytes: int) -> tuple[bytes, bool]:
    """The first bytes of a compressed text, and whether they are all.

    Raises:
        zlib.error: it is not compressed by gzip or deflate.
    """
    try:
        return _expanded_by(zlib.decompressobj(_GZIP_OR_ZLIB), content, max_bytes)
    except zlib.error:
        return _expanded_by(zlib.decompressobj(-zlib.MAX_WBITS), content, max_bytes)


def _expanded_by(decompressor: zlib._Decompress, content: bytes, max_bytes: int) -> tuple[bytes, bool]:
    expanded = decompressor.decompress(content, max_bytes)
    return expanded, decompressor.eof
