"""The live pages: what a worker has and what moves there, in a browser of this machine, until the command is ended."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from crucible_bridge.errors import BridgeError, InvalidField, NotFound
from crucible_bridge.events import Event
from crucible_worker.reports.as_html import live_html, page_script, page_styles
from crucible_worker.web.access import Access, Guard
from crucible_worker.web.answers import Answer, PageData
from crucible_worker.web.listening import LOOPBACK, QuietServer, hosts_of, listen
from crucible_worker.web.readings import SampleReadings

if TYPE_CHECKING:
    from crucible_bridge import Bridge

__all__ = ["MAX_WAITING", "Changes", "Pages", "pages"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Live pages that are being served."""

    address: str
    """To open in a browser, with the token that opens it once."""
    ended: asyncio.Task[None]
    """Ends with the server."""


async def _first_end(*tasks: asyncio.Task[None]) -> None:
    """Wait until one of them ends; what it raised is raised here, and so ends the command."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


def _listening(port: int) -> socket.socket:
    try:
        return listen(LOOPBACK, port)
    except OSError as error:
        raise InvalidField("--port", f"is {port}, which cannot be listened on: {error.strerror or error}") from error


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
    with _listening(port) as listener:
        taken = listener.getsockname()[1]
        access = Access(worker_token)
        readings = SampleReadings(bridge)
        changes = Changes(bridge)
        changes.also(readings.moved)
        app = Guard(
            _application(PageData(bridge, readings), changes, subtitle),
            access,
            hosts_of(taken),
        )
        server = QuietServer(
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
            await readings.aclose()


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
                return JSONResponse(await _unless_left(request, call(request.query_params)))
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


async def _unless_left(request: Request, answer: Awaitable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The answer; a page that leaves before it ends the work for it."""
    answering, leaving = asyncio.ensure_future(answer), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
        return await answering if answering.done() else {}  # the page has left
    finally:
        leaving.cancel()
        answering.cancel()
        await asyncio.gather(answering, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    """Return when the client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _error(status: HTTPStatus, error: BridgeError) -> Response:
    return JSONResponse({"error": str(error)}, status)


# What moves in the worker, as server-sent events: one subscription of the worker's events for all open pages.

PAUSE_SECONDS = 0.5
"""Changes of this time travel together."""
KEEP_ALIVE_SECONDS = 15.0
"""A page that hears nothing for longer would take the connection for dead."""
RETRY_SECONDS = 2.0
"""Between attempts to subscribe again at a worker that does not answer."""
MAX_WAITING = 1_000
"""Evaluations whose change a slow page has not taken yet; with more of them, one message stands for everything."""

_log = structlog.get_logger(__name__)


class Changes:
    """Tells open pages which evaluations have moved."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._pages: set[_Page] = set()
        self._ended = False
        self._hears: list[Callable[[str | None], None]] = []

    def also(self, hear: Callable[[str | None], None]) -> None:
        """Call a function with the id of each evaluation that moves; with None if each of them may have moved."""
        self._hears.append(hear)

    def end(self) -> None:
        """End every stream, so that no page is cut off in the middle of one."""
        self._ended = True
        for page in self._pages:
            page.news.set()

    async def run(self) -> None:
        """Read the worker's events until cancelled; a worker that has gone is waited for."""
        while True:
            try:
                info = await self._bridge.worker.get_info()
                async with self._bridge.telemetry.subscribe(info.last_sequence, info.log_id) as stream:
                    self._all_moved()  # events before this subscription were missed
                    async for event in stream:
                        self._moved(event)
            except BridgeError as error:
                _log.warning("worker_not_reached", problem=str(error), next_attempt_seconds=RETRY_SECONDS)
            await asyncio.sleep(RETRY_SECONDS)

    def _all_moved(self) -> None:
        for hear in self._hears:
            hear(None)
        for page in self._pages:
            page.add({"id": "", "all": True})

    def _moved(self, event: Event) -> None:
        if not event.evaluation_id:
            return
        for hear in self._hears:
            hear(event.evaluation_id)
        change = {"id": event.evaluation_id, "run": event.run_id}
        for page in self._pages:
            page.add(change)

    async def stream(self) -> AsyncIterator[str]:
        """Events for one page, as text in the format of server-sent events, until the page leaves."""
        page = _Page()
        self._pages.add(page)
        try:
            yield "retry: 2000\n\n"
            while not self._ended:
                with contextlib.suppress(TimeoutError):  # nothing moved: the comment keeps the connection alive
                    await asyncio.wait_for(page.news.wait(), KEEP_ALIVE_SECONDS)
                changes = page.take()
                if not changes:
                    yield ": nothing new\n\n"
                    continue
                for change in changes:
                    yield f"event: changed\ndata: {json.dumps(change)}\n\n"
                await asyncio.sleep(PAUSE_SECONDS)
        finally:
            self._pages.discard(page)


class _Page:
    """What one open page has not been sent yet: the last change of each evaluation."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self._waiting: dict[str, Mapping[str, object]] = {}

    def add(self, change: Mapping[str, object]) -> None:
        identity = str(change["id"])
        if len(self._waiting) < MAX_WAITING or identity in self._waiting:
            self._waiting[identity] = change
        else:
            self._waiting = {"": {"all": True}}
        self.news.set()

    def take(self) -> list[Mapping[str, object]]:
        waiting, self._waiting = list(self._waiting.values()), {}
        self.news.clear()
        return waiting
