"""An OpenAI-compatible server that does as a script says: answers, refuses, stalls, hangs up, says nonsense."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import http
import json
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import crucible_bridge
from crucible_bridge.client import Bridge
from crucible_bridge.types import ModelPrice
from crucible_worker.backends.openai.backend import OpenAIBackend, RemoteModel
from crucible_worker.backends.openai.connection import PROBE_TEXT
from crucible_worker.backends.openai.servers import OpenAIServer
from crucible_worker.config import Settings
from crucible_worker.server import Worker
from crucible_worker.util.limits import WorkerLimits

KEY = "canary-7c2f9b1e5d"
"""A key that must turn up nowhere but in the header that carries it."""


class Fault(enum.Enum):
    """What a script returns in place of a reply."""

    STALL = enum.auto()
    """Nothing is ever answered."""
    DROP = enum.auto()
    """The connection is closed without a word."""
    CUT = enum.auto()
    """The connection is closed in the middle of the answer."""


@dataclasses.dataclass(frozen=True)
class Request:
    """A request as it arrived."""

    index: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any

    @property
    def text(self) -> str:
        """What is asked, be it a prompt or the last message of a conversation."""
        return self.body["prompt"] if "prompt" in self.body else self.body["messages"][-1]["content"]


@dataclasses.dataclass(frozen=True)
class Reply:
    """An answer to send."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


Script = Callable[[Request], Reply | Fault]


def answer(request: Request, text: str, **fields: Any) -> Reply:
    """The answer to a completion or a chat, with its token count; fields are those of the choice."""
    said = {"message": {"role": "assistant", "content": text}} if "messages" in request.body else {"text": text}
    choice = {"index": 0, "finish_reason": "stop", **said, **fields}
    prompt = request.body.get("prompt")
    usage = {"prompt_tokens": len(prompt) if isinstance(prompt, list) else 1, "completion_tokens": len(text)}
    return Reply({"choices": [choice], "usage": usage})


def shout(request: Request) -> Reply:
    """Says everything back in upper case, and lists no models."""
    return answer(request, request.text.upper()) if request.method == "POST" else Reply({"data": []})


def refusal(status: int, message: str = "no", **headers: str) -> Reply:
    """An error as servers put it."""
    return Reply({"error": {"message": message, "type": "some_error", "code": None}}, status, headers)


def continued(request: Request) -> Reply:
    """Answers the probe as a server that applies stop strings; names no model."""
    return answer(request, " 5" if "stop" in request.body else " 5, 6, 7")


class ScriptedServer:
    """The server; counts what came, and when a client hung up.

    The probe of an evaluation has a script apart, and is counted apart.
    """

    def __init__(self, script: Script = shout, probe: Script = continued) -> None:
        self.script = script
        self.probe = probe
        self.probes: list[Request] = []
        self.requests: list[Request] = []
        self.hung_up = asyncio.Event()
        """Set when a client went away before it had its answer."""
        self.stalled = asyncio.Event()
        """Set when a request has been left without an answer."""
        self.answering = asyncio.Event()
        """Cleared, it holds back every answer until it is set again."""
        self.answering.set()
        self.in_flight = 0
        self.peak = 0
        self.connections = 0
        self.url = ""

    @property
    def asked(self) -> list[Request]:
        """The requests that ask a model."""
        return [request for request in self.requests if request.method == "POST"]

    @contextlib.asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[ScriptedServer]:
        """Listen on an address of this machine, by default on any free port."""
        tasks: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            self.connections += 1
            try:
                # Cancelled at the end: Python 3.11 logs a stream's task that says so.
                with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                    while await self._one(reader, writer):
                        pass
            finally:
                tasks.discard(task)
                writer.close()

        server = await asyncio.start_server(connected, host, port)
        self.url = f"http://{host}:{server.sockets[0].getsockname()[1]}/v1"
        try:
            yield self
        finally:
            server.close()
            for task in tuple(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        content = await reader.readexactly(int(headers.get("content-length", 0)))
        body = json.loads(content) if content else None
        request = Request(len(self.requests), method, target.removeprefix("/v1"), headers, body)
        asks = method == "POST" and isinstance(body, dict) and not body.keys().isdisjoint(("messages", "prompt"))
        probes = asks and request.text == PROBE_TEXT
        (self.probes if probes else self.requests).append(request)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            reply = (self.probe if probes else self.script)(request)
            # A turn of the loop for the others, so that requests overlap as they do on a real server.
            await asyncio.sleep(0.001)
            await self.answering.wait()
        finally:
            self.in_flight -= 1
        if reply is Fault.STALL:
            self.stalled.set()
            if not await reader.read():
                self.hung_up.set()
            return False
        if reply is Fault.DROP:
            return False
        whole = _bytes_of(shout(request) if isinstance(reply, Fault) else reply)
        writer.write(whole[: len(whole) - 5] if reply is Fault.CUT else whole)
        await writer.drain()
        return reply is not Fault.CUT


def _bytes_of(reply: Reply) -> bytes:
    headers = {"Content-Type": "application/json", "Content-Length": str(len(reply.content)), **reply.headers}
    lines = [f"HTTP/1.1 {reply.status} {http.HTTPStatus(reply.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + reply.content


@contextlib.asynccontextmanager
async def remote(script: Script = shout, **settings: Any) -> AsyncIterator[tuple[ScriptedServer, RemoteModel]]:
    """A model `m` of a scripted server `s`, opened by a backend; settings are those of the server."""
    async with ScriptedServer(script).serving() as server:
        backend = OpenAIBackend([OpenAIServer(name="s", base_url=server.url, **settings)])
        try:
            yield server, await backend.open(crucible_bridge.types.OpenAIModel("s", "m"))
        finally:
            await backend.aclose()


@contextlib.asynccontextmanager
async def worker_on(
    server: ScriptedServer,
    folder: Path,
    *,
    prices: tuple[ModelPrice, ...] = (),
    limits: WorkerLimits | None = None,
    data_roots: tuple[Path, ...] = (),
    **settings: Any,
) -> AsyncIterator[Bridge]:
    """A client of a worker that knows the server as `s`, and what tokens cost; settings are those of the server."""
    known = (OpenAIServer(name="s", base_url=server.url, **settings),)
    further: dict[str, Any] = {} if limits is None else {"limits": limits}
    told = Settings(
        port=0, state_dir=folder / "state", endpoints=known, prices=prices, data_roots=data_roots, **further
    ).validate()
    async with Worker(told) as worker, crucible_bridge.connect(worker.address) as bridge:
        yield bridge


def key_file(folder: Path, key: str = KEY) -> Path:
    """A file with a key, readable by its owner alone."""
    path = folder / "key"
    path.touch(mode=0o600)
    path.write_text(f"{key}\n")
    return path
