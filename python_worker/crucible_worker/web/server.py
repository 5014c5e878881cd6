"""The live pages: what a worker has, in a browser of the same machine, until the command is ended."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from crucible_bridge.errors import BridgeError, InvalidField, NotFound
from crucible_worker.reports.as_html import live_html, page_script, page_styles
from crucible_worker.web.access import Access, Guard
from crucible_worker.web.answers import Answer, PageData
from crucible_worker.web.changes import Changes
from crucible_worker.web.samples_index import SampleIndex

if TYPE_CHECKING:
    from crucible_bridge import Bridge

__all__ = ["Pages", "pages"]

LOOPBACK = "127.0.0.1"
HTTP_PORT = 80


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Live pages that are being served."""

    address: str
    """To open in a browser, with the token that opens it once."""
    ended: asyncio.Task[None]
    """Ends with the server."""


class _Server(uvicorn.Server):
    """Leaves signals to the command: uvicorn raises them again once it has ended, before anything is cleaned up."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


async def _first_end(*tasks: asyncio.Task[None]) -> None:
    """Wait until one of them ends; what it raised is raised here, and so ends the command."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server((LOOPBACK, port))
    except OSError as error:
        raise InvalidField("--port", f"is {port}, which cannot be listened on: {error.strerror or error}") from error


def hosts_of(port: int) -> Sequence[str]:
    """What browsers call this server in the Host header. They leave the port of http out."""
    named = [f"{LOOPBACK}:{port}", f"localhost:{port}"]
    return [*named, LOOPBACK, "localhost"] if port == HTTP_PORT else named


@contextlib.asynccontextmanager
async def pages(bridge: Bridge, *, port: int, worker_token: str | None, subtitle: str) -> AsyncIterator[Pages]:
    """Serve the pages of a worker on the loopback interface until the block is left.

    Args:
        bridge: the worker.
        port: to listen on; 0 takes a free one.
        worker_token: opens the pages as the token in the address does, and as often as wanted.
        subtitle: what is looked at, for the top of each page.

    Raises:
        InvalidField: the port cannot be listened on; the error names the option.
    """
    with (
        _listening(port) as listener,
        tempfile.TemporaryDirectory(prefix="crucible-view-") as folder,
    ):
        taken = listener.getsockname()[1]
        access = Access(worker_token)
        index = SampleIndex(bridge, Path(folder))
        changes = Changes(bridge)
        changes.also(index.moved)
        app = Guard(
            _application(PageData(bridge, index), changes, subtitle),
            access,
            hosts_of(taken),
        )
        server = _Server(
            uvicorn.Config(
                app,
                lifespan="off",
                log_config=None,  # the token is part of an address, and addresses are what it would log
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=1,
            )
        )
        watching = asyncio.create_task(changes.run())
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        ended = asyncio.create_task(_first_end(serving, watching))
        try:
            yield Pages(address=f"http://{LOOPBACK}:{taken}/?token={access.once}", ended=ended)
        finally:
            ended.cancel()
            watching.cancel()
            changes.end()
            server.should_exit = True
            await asyncio.gather(ended, watching, serving, return_exceptions=True)
            await index.aclose()


def _application(answers: PageData, changes: Changes, subtitle: str) -> Starlette:
    html, script, styles = live_html("Evaluations", subtitle), page_script(), page_styles()

    def fixed(content: str, media_type: str) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            return Response(content, media_type=media_type)

        return answer

    async def events(request: Request) -> Response:
        return StreamingResponse(changes.stream(), media_type="text/event-stream")

    def data(call: Answer) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                return JSONResponse(await call(request.query_params))
            except NotFound as error:
                return _error(HTTPStatus.NOT_FOUND, error)
            except InvalidField as error:
                return _error(HTTPStatus.BAD_REQUEST, error)
            except BridgeError as error:
                return _error(HTTPStatus.BAD_GATEWAY, error)

        return answer

    return Starlette(
        routes=[
            Route("/", fixed(html, "text/html")),
            Route("/pages.js", fixed(script, "text/javascript")),
            Route("/pages.css", fixed(styles, "text/css")),
            Route("/api/events", events),
            *(Route(f"/api/{name}", data(call)) for name, call in answers.by_name().items()),
        ]
    )


def _error(status: HTTPStatus, error: BridgeError) -> Response:
    return JSONResponse({"error": str(error)}, status)
