"""The openai backend at the edges of HTTP: proxies with passwords, servers that stop reading, answers that are none."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import ssl
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from crucible_bridge.errors import BackendError, BridgeError, Unavailable
from crucible_bridge.types import ChatMessage, Conversation, ModelInput, OpenAIModel, SamplingParams
from crucible_worker.backends.openai import documents
from crucible_worker.backends.openai.backend import OpenAIBackend, RemoteModel
from crucible_worker.backends.openai.client import PART_BYTES, tls_context
from crucible_worker.backends.openai.connection import ServerConnection
from crucible_worker.backends.openai.servers import OpenAIServer
from tests import needs
from tests.service.openai_kit import KEY, Fault, Reply, Request, answer, key_file, refusal, remote, shout
from tests.tables import rows

needs.modules("aiohttp")

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
            if isinstance(connection, ServerConnection) and connection._client
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
    trustme = pytest.importorskip("trustme", reason=needs.MISSING["trustme"])
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


def stream(*events: object, ends: str = "\n") -> bytes:
    """Events as a server sends them: texts as they are, all else as JSON."""
    texts = [event if isinstance(event, str) else json.dumps(event) for event in events]
    return "".join(f"data: {text}{ends}{ends}" for text in texts).encode()


def delta(content: object, finish: str | None = None, **fields: object) -> dict[str, object]:
    """An event of a chat."""
    return {"choices": [{"index": 0, "delta": {"content": content}, "finish_reason": finish}], **fields}


USAGE = {"prompt_tokens": 5, "completion_tokens": 2}
CHUNKS = (delta("4"), delta("6\u2028"), delta(None, "stop"), {"choices": [], "usage": USAGE})


@rows(
    "content",
    [
        stream(*CHUNKS, "[DONE]"),
        stream(*CHUNKS),
        stream(*CHUNKS, "[DONE]", ends="\r\n"),
        stream(*CHUNKS, "[DONE]").replace(b"\n\n", b"\r\r"),
        b": ping\n\nevent: chunk\n" + stream(*CHUNKS, "[DONE]"),
        stream(*CHUNKS, "[DONE]").rstrip(b"\n"),
        json.dumps(delta("4"), indent=1).encode().replace(b"\n", b"\ndata: ").join([b"data: ", b"\n\n"])
        + stream(*CHUNKS[1:]),
    ],
    ids=["done", "no done", "crlf", "cr", "comment", "no end", "lines"],
)
async def test_a_stream_that_nobody_requested_is_read(content: bytes, monkeypatch: pytest.MonkeyPatch):
    """Its pieces are the answer, wherever it is parsed; usage and the finish reason are those of its last events."""
    asked = Conversation((ChatMessage("user", "hi"),))
    async with remote(lambda _: Reply(content, headers={"Content-Type": "text/event-stream"})) as (server, model):
        (answer,) = await model.sample_text(asked, PARAMS)
        monkeypatch.setattr(documents, "QUICK_BYTES", 0)
        (apart,) = await model.sample_text(asked, PARAMS)
    assert answer == apart
    assert (answer.text, answer.stop_reason, answer.token_count, answer.prompt_tokens) == ("46\u2028", "stop", 2, 5)
    assert server.asked[0].headers["accept"] == "application/json"


async def test_a_stream_of_a_completion_is_read():
    """Texts, token ids and log-probabilities are joined."""
    pieces = [
        {"choices": [{"index": 0, "text": text, "token_ids": [token], "logprobs": {"token_logprobs": [-token]}}]}
        for text, token in (("4", 7), ("6", 8))
    ]
    end = {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}
    async with remote(lambda _: Reply(stream(*pieces, end, "[DONE]"))) as (_, model):
        (answer,) = await model.sample_text("hi", PARAMS)
    assert (answer.text, answer.tokens, answer.logprobs, answer.stop_reason) == ("46", (7, 8), (-7.0, -8.0), "length")


@rows(
    ("content", "reason", "named"),
    [
        (stream(delta("4"), delta("6")), "BACKEND_ANSWER", "ends before the answer does"),
        (stream(delta("4"), "{nonsense"), "BACKEND_ANSWER", "one that is not JSON: {nonsense"),
        (stream([1]), "BACKEND_ANSWER", "one that is list"),
        (stream({"choices": [1]}, "[DONE]"), "BACKEND_ANSWER", "a choice that is int"),
        (stream("[DONE]"), "BACKEND_ANSWER", "exactly one choice"),
        (stream(delta("4"), {"error": {"message": "wait", "code": 429}}), "BACKEND_RATE_LIMITED", "wait"),
        (stream(delta("4"), {"object": "error", "message": "oh", "code": 500}), "BACKEND_FAILED", "oh"),
        (stream("[" * 100_000), "BACKEND_ANSWER", "not JSON"),
    ],
    ids=["broken", "nonsense", "list", "choice", "nothing", "error", "object", "deep"],
)
async def test_a_stream_that_is_no_answer_is_named(content: bytes, reason: str, named: str):
    """What a stream has in place of an answer stands in the error."""
    async with remote(lambda _: Reply(content)) as (_, model):
        error = await error_of(model.sample_text(Conversation((ChatMessage("user", "hi"),)), PARAMS))
    assert error.reason == reason
    assert named in error.message


def raw_deflate(content: bytes) -> bytes:
    """Compressed by deflate alone, as some servers do."""
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(content) + compressor.flush()


CODINGS: dict[str, tuple[str | None, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "upper": ("GZIP", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "zlib": ("deflate", zlib.compress),
    "raw": ("deflate", raw_deflate),
    "unnamed": (None, gzip.compress),
}


@rows("coding", list(CODINGS))
async def test_a_compressed_answer_that_nobody_requested_is_read(coding: str, tmp_path: Path):
    """Answers and refusals are expanded, and the key is removed from what was compressed."""
    name, compress = CODINGS[coding]
    headers = {} if name is None else {"Content-Encoding": name}

    def script(request: Request) -> Reply:
        if "bad" in request.text:
            return Reply(compress(refusal(400, f"no {KEY} here").content), 400, headers)
        return Reply(compress(answer(request, f"yes {KEY}").content), headers=headers)

    async with remote(script, key_file=key_file(tmp_path)) as (server, model):
        (said,) = await model.sample_text("hi", PARAMS)
        error = await error_of(model.sample_text("bad", PARAMS))
    assert said.text == "yes [key]"
    assert (error.reason, "no [key] here" in error.message) == ("BACKEND_REFUSED", True)
    assert server.asked[0].headers["accept-encoding"] == "identity"


@rows(
    ("content", "coding", "named"),
    [
        (gzip.compress(b" " * (8 << 20)), "gzip", "longer than"),
        (zlib.compress(b" " * (8 << 20)), "deflate", "longer than"),
        (gzip.compress(b"{}")[:-9], "gzip", "its end is missing"),
        (b"\x1f\x8bnothing", "gzip", "cannot be expanded"),
        (b"{}", "deflate", "is compressed by deflate, and"),
        (b"{}", "br", "by 'br', which was not requested"),
        (b"{}", "zstd", "by 'zstd', which was not requested"),
        (b"{}", "gzip, gzip", "by 'gzip, gzip', which was not requested"),
    ],
    ids=["bomb", "zlib bomb", "half", "nonsense", "plain", "br", "zstd", "twice"],
)
async def test_a_compressed_answer_is_expanded_up_to_its_bound(content: bytes, coding: str, named: str):
    """An answer that expands beyond what it may have, or not at all, is refused by its name."""
    async with remote(lambda _: Reply(content, headers={"Content-Encoding": coding})) as (_, model):
        error = await error_of(model.sample_text("hi", PARAMS))
    assert (error.reason, named in error.message) == ("BACKEND_ANSWER", True), error.message


@rows(
    ("body", "reason", "retryable", "named"),
    [
        ({"error": {"message": "slow", "code": 429}}, "BACKEND_RATE_LIMITED", True, "slow"),
        ({"error": {"message": "slow", "code": "rate_limit_exceeded"}}, "BACKEND_RATE_LIMITED", True, "slow"),
        ({"error": {"message": "busy", "type": "overloaded_error"}}, "BACKEND_FAILED", True, "answered 503 within"),
        ({"error": {"message": "bad", "code": "400"}}, "BACKEND_REFUSED", False, "answered 400 within"),
        (
            {"error": {"message": "bad", "type": "invalid_request_error"}, "choices": []},
            "BACKEND_REFUSED",
            False,
            "bad",
        ),
        ({"object": "error", "message": "bad", "code": 400}, "BACKEND_REFUSED", False, "bad"),
        ({"error": {"message": "pay", "code": "insufficient_quota"}}, "BACKEND_QUOTA", False, "pay"),
        ({"error": {"message": "who", "code": "invalid_api_key"}}, "BACKEND_UNAUTHENTICATED", False, "key"),
        ({"error": {"message": "no model", "code": "model_not_found"}}, "UNKNOWN_MODEL", False, "no model"),
        ({"error": {"message": "long", "code": "context_length_exceeded"}}, "PROMPT_TOO_LONG", False, "long"),
        ({"error": {"message": "odd", "code": "E17"}}, "BACKEND_ANSWER", True, "an error (E17) with status 200: odd"),
        ({"error": "plain words"}, "BACKEND_ANSWER", True, "with status 200: plain words"),
        ({"error": {"message": "odd", "code": True}}, "BACKEND_ANSWER", True, "odd"),
    ],
)
async def test_an_error_within_an_answer_is_that_error(body: dict, reason: str, retryable: bool, named: str):
    """Its code says what it is; without a known one its words stand in the error."""
    async with remote(lambda _: Reply(body)) as (_, model):
        error = await error_of(model.sample_text("hi", PARAMS))
    assert (error.reason, error.retryable) == (reason, retryable)
    assert named in error.message


async def test_an_answer_with_an_empty_error_is_an_answer():
    """Some servers have the field in every answer."""
    async with remote(lambda request: Reply({**answer(request, "yes").body, "error": None})) as (_, model):
        assert (await model.sample_text("hi", PARAMS))[0].text == "yes"


@rows(
    ("content", "said"),
    [
        (
            b"<!DOCTYPE html><html><head><style>p {}</style></head><body><p>Bad&nbsp;gateway</p></body></html>",
            "Bad gateway",
        ),
        (b"<html><script>" + b"<script" * 9_000, "no reason given"),
        (b"upstream timed out\x1b[31m\x00", "upstream timed out [31m"),
        (b'{"choices": [', '{"choices": ['),
        (b"[1, 2]", "JSON of type list, not an object: [1, 2]"),
        (b"x" * 1000, "x" * 299 + "\u2026"),
        (b"\xff\xfe", "\ufffd\ufffd"),
    ],
    ids=["page", "scripts", "control", "half", "list", "long", "bytes"],
)
async def test_what_a_server_said_in_place_of_an_answer_is_repeated(content: bytes, said: str):
    """Its first 300 characters, without tags and control characters."""
    async with remote(lambda _: Reply(content)) as (_, model):
        error = await error_of(model.sample_text("hi", PARAMS))
    assert (error.reason, said in error.message) == ("BACKEND_ANSWER", True), error.message


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
