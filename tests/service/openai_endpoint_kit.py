"""HTTP as a client without a library of OpenAI's sends it, to the endpoint of a worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from crucible_worker.config import Settings

CHAT, COMPLETIONS, MODELS = "/v1/chat/completions", "/v1/completions", "/v1/models"


def settings(folder: Path, **fields: Any) -> Settings:
    """Settings with an endpoint at a free port."""
    given = {"port": 0, "grading_processes": 0, "code_sandboxes": 0, "openai_listen": ("127.0.0.1", 0)}
    return Settings(**{**given, "state_dir": folder / "state", **fields}).validate()


class Reply(NamedTuple):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def error(self) -> Mapping[str, Any]:
        """The error of OpenAI's form."""
        return json.loads(self.body)["error"]


async def opened(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the endpoint."""
    url = urlsplit(address)
    return await asyncio.open_connection(url.hostname, url.port)


def head_of(address: str, method: str, path: str, headers: Mapping[str, str]) -> bytes:
    """The head of a request; a header of the arguments takes the place of the usual one."""
    given = {"host": urlsplit(address).netloc, "connection": "close", **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in given.items())]
    return "\r\n".join([*lines, "", ""]).encode()


async def ask(
    address: str, path: str, body: Any = None, *, method: str = "", headers: Mapping[str, str] | None = None
) -> Reply:
    """Send a request, and read the answer whole."""
    content = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    reader, writer = await opened(address)
    try:
        given = {"content-length": str(len(content)), **(headers or {})}
        writer.write(head_of(address, method or ("GET" if body is None else "POST"), path, given) + content)
        return await read_reply(reader)
    finally:
        writer.close()


async def read_reply(reader: asyncio.StreamReader) -> Reply:
    """An answer, up to the end of its connection."""
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    return Reply(int(first.split(" ")[1]), {name.lower(): value for name, value in pairs}, body)
