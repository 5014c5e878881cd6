"""The openai backend at the edges of HTTP: proxies with passwords, servers that stop reading, answers that are none."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from crucible_bridge.errors import BackendError, BridgeError, Unavailable
from crucible_bridge.types import ModelInput, OpenAIModel, SamplingParams
from crucible_worker.backends.openai import documents
from crucible_worker.backends.openai.authorities import tls_context
from crucible_worker.backends.openai.backend import OpenAIBackend
from crucible_worker.backends.openai.connection import Connection
from crucible_worker.backends.openai.long_body import PART_BYTES
from crucible_worker.backends.openai.model import RemoteModel
from crucible_worker.backends.openai.servers import OpenAIServer
from tests.service.openai_kit import KEY, Fault, Reply, Request, answer, key_file, refusal, remote, shout
from tests.tables import rows

pytest.importorskip("aiohttp", reason="aiohttp is not installed: its backend is not tested")

PARAMS = SamplingParams(max_tokens=4)
CREDENTIALS = f"Basic {base64.b64encode(b'user:pass word').decode()}"


async def error_of(call) -> BridgeError:
    """The error that a call ends with."""
    with pytest.raises(BridgeError) as caught:
        await call
    return caught.value


@contextlib.asynccontextmanager
async def listening(handle, **options) -> AsyncIterator[int]:
    """A server of bytes on any free port of this machine; its connections end with it."""
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await handle(reader, writer)
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


@contextlib.asynccontextmanager
async def model_at(url: str, **settings) -> AsyncIterator[RemoteModel]:
    """A model of a server at an address."""
    backend = OpenAIBackend([OpenAIServer(name="s", base_url=url, **settings)])
    try:
        yield await backend.open(OpenAIModel("s", "m"))
    finally:
        await backend.aclose()


async def relayed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Bytes from one to the other, until there are none."""
    while part := await reader.read(65536):
        writer.write(part)
        await writer.drain()
    writer.close()


async def test_an_answer_that_is_being_read_fails_when_the_backend_closes():
    """Half an answer is there: the caller that waits for the rest gets an error and does not wait forever."""
    begun = asyncio.Event()

    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
        await writer.drain()
        begun.set()
        await asyncio.Event().wait()

    async with listening(half) as port:
        backend = OpenAIBackend([OpenAIServer(name="s", base_url=f"http://127.0.0.1:{port}/v1")])
        model = await backend.open(OpenAIModel("s", "m"))
        asked = asyncio.create_task(error_of(model.sample_text("hi", PARAMS)))
        await begun.wait()
        while not any(
            connection._client._answers
            for connection in backend._connections.values()
            if isinstance(connection, Connection) and connection._client
        ):
            await asyncio.sleep(0.001)
        await backend.aclose()

        assert (await asyncio.wait_for(asked, 60)).reason == "BACKEND_CONNECTION_LOST"


async def test_a_proxy_gets_its_credentials_and_the_server_does_not(tmp_path: Path):
    """Those of the proxy's address go to the proxy with each request; the key goes with them to the server alone."""
    async with remote() as (proxy, _):
        url = proxy.url.removesuffix("/v1").replace("//", "//user:pass%20word@")
        async with model_at("http://127.0.0.1:9/v1", proxy=url, key_file=key_file(tmp_path)) as model:
            await model.sample_text("hi", PARAMS)
    (asked,) = proxy.asked
    assert asked.headers["proxy-authorization"] == CREDENTIALS
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.path == "http://127.0.0.1:9/v1/completions"


async def test_tls_goes_through_a_proxy_in_a_tunnel(tmp_path: Path):
    """The proxy sees where to, and its own credentials; prompt and key cross it encrypted."""
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    ca = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca)
    seen = bytearray()

    async with remote() as (server, _):
        plain = int(server.url.rpartition(":")[2].removesuffix("/v1"))

        async def end_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", plain)
            await asyncio.gather(relayed(reader, inner_writer), relayed(inner_reader, writer))

        async with listening(end_tls, ssl=context) as tls_port:

            async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                seen.extend(await reader.readuntil(b"\r\n\r\n"))
                inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", tls_port)
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

                async def outwards() -> None:
                    while part := await reader.read(65536):
                        seen.extend(part)
                        inner_writer.write(part)
                    inner_writer.close()

                await asyncio.gather(outwards(), relayed(inner_reader, writer))

            async with listening(tunnel) as port:
                settings = {"proxy": f"http://user:pass%20word@127.0.0.1:{port}", "key_file": key_file(tmp_path)}
                async with model_at(f"https://127.0.0.1:{tls_port}/v1", ca_file=ca, **settings) as model:
                    assert (await model.sample_text("hidden", PARAMS))[0].text == "HIDDEN"
    head = bytes(seen).partition(b"\r\n\r\n")[0].decode()
    assert head.startswith(f"CONNECT 127.0.0.1:{tls_port} HTTP/1.1\r\n")
    assert f"Proxy-Authorization: {CREDENTIALS}" in head
    assert KEY.encode() not in seen
    assert b"hidden" not in seen
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}"
    assert "proxy-authorization" not in server.asked[0].headers


@pytest.mark.parametrize(("status", "scheme"), [(407, "https"), (502, "https"), (407, "http")])
async def test_a_proxy_that_refuses(status: int, scheme: str):
    """A tunnel that does not come about is no connection; a refusal of a plain request reads as the server's own."""
    async with (
        remote(lambda _: refusal(status, "go away")) as (proxy, _),
        model_at(f"{scheme}://127.0.0.1:9/v1", proxy=proxy.url.removesuffix("/v1")) as model,
    ):
        error = await error_of(model.sample_text("hi", PARAMS))
    assert error.reason == ("BACKEND_UNREACHABLE" if scheme == "https" else "BACKEND_REFUSED")


async def test_a_proxy_that_says_nothing_is_given_up():
    """The time for a connection covers the tunnel, too."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with (
        listening(silent) as port,
        model_at("https://127.0.0.1:9/v1", proxy=f"http://127.0.0.1:{port}", stall_seconds=0.1) as model,
    ):
        error = await error_of(model.sample_text("hi", PARAMS))
    assert error.reason == "BACKEND_TIMEOUT"


async def test_a_long_prompt_arrives_whole():
    """A body of several parts has its length in its header and nothing lost."""
    prompt = "äb\ud83d\ude00" * PART_BYTES
    async with remote(lambda request: answer(request, "yes")) as (server, model):
        await model.sample_text(prompt.encode("utf-16", "surrogatepass").decode("utf-16"), PARAMS)
        await model.sample_text("x" * (3 * PART_BYTES), PARAMS)
    first, second = server.asked
    assert first.text == prompt.encode("utf-16", "surrogatepass").decode("utf-16")
    assert second.text == "x" * (3 * PART_BYTES)
    assert "transfer-encoding" not in first.headers
    assert server.connections == 1


async def test_a_server_that_stops_reading_is_given_up():
    """A prompt that the server does not take is bounded by the same time as an answer that does not come."""
    gone = asyncio.Event()

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    async with (
        listening(deaf, limit=1024) as port,
        model_at(f"http://127.0.0.1:{port}/v1", stall_seconds=0.2) as model,
    ):
        error = await error_of(asyncio.wait_for(model.sample_text("x" * 30_000_000, PARAMS), 60))
    assert (error.reason, error.retryable) == ("BACKEND_TIMEOUT", True)


@rows(
    "raw",
    [
        b"",
        b"\x00" * 100,
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 999999999999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFF\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 429 \xff\r\nRetry-After: " + b"9" * 60_000 + b"\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=[
        "nothing",
        "zeros",
        "ssh",
        "status",
        "negative",
        "huge",
        "chunk",
        "wide",
        "long",
        "many",
        "go on",
        "up",
        "later",
    ],
)
async def test_what_is_no_http_is_an_error_of_the_backend(raw: bytes):
    """Whatever bytes come back, the call ends with one of our errors."""

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        await writer.drain()

    async with listening(say) as port, model_at(f"http://127.0.0.1:{port}/v1", stall_seconds=5) as model:
        error = await error_of(model.sample_text("hi", PARAMS))
    assert isinstance(error, BackendError)
    assert error.reason.startswith("BACKEND_")


async def test_who_waits_for_a_turn_when_the_backend_closes_asks_nothing():
    """A request that has not begun at the end of the worker is refused as any later one."""
    async with remote(lambda _: Fault.STALL, max_connections=1) as (server, model):
        first = asyncio.create_task(model.sample_text("first", PARAMS))
        await asyncio.wait_for(server.stalled.wait(), 5)
        second = asyncio.create_task(model.sample_text("second", PARAMS))
        await asyncio.sleep(0)
        await model._connection.aclose()  # pyright: ignore[reportAttributeAccessIssue]
        await error_of(first)
        error = await error_of(second)
    assert isinstance(error, Unavailable)
    assert (error.reason, len(server.asked)) == ("BACKEND_CLOSED", 1)


async def test_a_refusal_is_read_in_part():
    """Of a refusal without end its beginning is repeated, and one that is compressed gives no reason."""

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"5\r\nno no\r\n" * 1000)
            await writer.drain()

    async with listening(endless) as port, model_at(f"http://127.0.0.1:{port}/v1") as model:
        error = await error_of(model.sample_text("hi", PARAMS))
    assert (error.reason, "no nono no" in error.message) == ("BACKEND_REFUSED", True)
    async with remote(lambda _: Reply(b"\x1f\x8b", 401, {"Content-Encoding": "gzip"})) as (_, model):
        assert (await error_of(model.sample_text("hi", PARAMS))).reason == "BACKEND_UNAUTHENTICATED"


def filled(size: int) -> Callable[[Request], Reply]:
    """Answers of so many bytes."""

    def script(request: Request) -> Reply:
        bare = shout(request).content
        return Reply(bare + b" " * (size - len(bare)))

    return script


def listed(count: int) -> Callable[[Request], Reply]:
    """Answers of so many lists, objects and keys."""

    def script(request: Request) -> Reply:
        reply = shout(request)
        more = count - sum(map(reply.content.count, (b"[", b"{", b":"))) - 2
        return Reply({**reply.body, "more": [[]] * more})

    return script


@pytest.mark.parametrize("max_tokens", [1, 100])
async def test_what_an_answer_may_hold_grows_with_what_was_asked(max_tokens: int, monkeypatch: pytest.MonkeyPatch):
    """Bytes, and what takes time to read, up to a bound by the tokens asked for; one more is nonsense."""
    monkeypatch.setattr(documents, "_FREE_BYTES", 1000)
    monkeypatch.setattr(documents, "_FREE_PARTS", 100)
    params = SamplingParams(max_tokens=max_tokens)
    for bound, most, script, told in (
        (documents.max_bytes(max_tokens), 1000 + 512 * max_tokens, filled, "longer than"),
        (documents.max_parts(max_tokens), 100 + 24 * max_tokens, listed, "lists, objects and keys"),
    ):
        assert bound == most
        async with remote(script(bound)) as (_, model):
            await model.sample_text("hi", params)
        async with remote(script(bound + 1)) as (_, model):
            error = await error_of(model.sample_text("hi", params))
        assert (error.reason, told in error.message) == ("BACKEND_ANSWER", True)


async def test_a_long_answer_is_read_as_a_short_one(monkeypatch: pytest.MonkeyPatch):
    """Whether a thread reads an answer, the event loop or another process, it is the same."""

    def script(request: Request) -> Reply:
        entries = [None, *({str(token): {"logprob": -token / 8}} for token in request.body["prompt"][1:])]
        return answer(request, "x", prompt_logprobs=entries)

    async with remote(script) as (_, model):
        short = await model.compute_logprobs(ModelInput.of([1, 2, 3]))
        long = await model.compute_logprobs(ModelInput.of(list(range(1, 20_001))))
        for bound in ("APART_BYTES", "QUICK_BYTES"):
            monkeypatch.setattr(documents, bound, 0)
            assert await model.compute_logprobs(ModelInput.of([1, 2, 3])) == short
    assert long == (None, *(-token / 8 for token in range(2, 20_001)))


def test_authorities_are_not_taken_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The settings say which authorities are trusted; the variable SSL_CERT_FILE does not."""
    usual = tls_context(None).cert_store_stats()
    empty = tmp_path / "none.pem"
    empty.touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(empty))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert tls_context(None).cert_store_stats() == usual
    assert tls_context(None).verify_mode is ssl.CERT_REQUIRED
    assert tls_context(None).check_hostname
