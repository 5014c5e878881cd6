"""Who may see the pages: browsers that came with the token, at the address that was printed, from no other site."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterable, Sequence
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from crucible_worker.web.listening import foreign_host, foreign_site

__all__ = ["MAX_FORM_BYTES", "Access", "Guard"]

MAX_FORM_BYTES = 10_000
"""Of the form in which a token is typed."""

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_LOGIN = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Token - crucible-bridge</title>
<link rel="stylesheet" href="pages.css"></head>
<body><main id="main"><h1>This page needs a token</h1>
<p>The address that <code>crucible-worker view</code> printed opens it once. {again}</p>
<form method="post" action="login" class="toolbar">
<label for="token">Token <input type="password" id="token" name="token" autocomplete="off"></label>
<button>Open</button></form></main></body></html>
"""


class Access:
    """The tokens that open the pages, and the sessions that they opened."""

    def __init__(self, worker_token: str | None) -> None:
        """Make a token that opens one session.

        Args:
            worker_token: opens a session as often as it is given; None if the worker has none.
        """
        self.once = secrets.token_urlsafe(32)
        """Opens one session."""
        self._unused = True
        self._worker_token = worker_token
        self._sessions: set[str] = set()

    def opened(self, token: str) -> str | None:
        """A new session's secret; None if the token opens none (any more)."""
        if self._unused and _same(token, self.once):
            self._unused = False
        elif self._worker_token is None or not _same(token, self._worker_token):
            return None
        session = secrets.token_urlsafe(32)
        self._sessions.add(session)
        return session

    def knows(self, session: str) -> bool:
        """Whether this is the secret of a session."""
        return any(_same(session, one) for one in self._sessions)


class Guard:
    """Lets requests through to the pages that come from a session, or open one.

    The Host header must name the address that the server listens at: a foreign name that leads here (DNS rebinding) is
    refused. So is every request that a page of another origin makes.
    """

    def __init__(self, app: ASGIApp, access: Access, hosts: Iterable[str]) -> None:
        """Guard an application.

        Args:
            app: gets the requests that pass.
            access: the tokens and sessions.
            hosts: values of the Host header to accept: "127.0.0.1:8080".
        """
        self._app = app
        self._access = access
        self._hosts = frozenset(hosts)
        self._cookie = f"crucible-view-{secrets.token_hex(4)}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":  # the server's own start and end
            await self._app(scope, receive, send)
            return

        async def with_headers(message):
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *((key.encode(), value.encode()) for key, value in _HEADERS.items()),
                ]
            await send(message)

        answer = await self._refused(Request(scope, receive))
        await (self._app if answer is None else answer)(scope, receive, with_headers)

    async def _refused(self, request: Request) -> Response | None:
        """The answer to a request that does not reach the pages; None if it does."""
        headers = request.headers
        if foreign_host(headers.get("host", ""), self._hosts):
            return PlainTextResponse("This server has another name: use the address that was printed.", 421)
        # The form for the token sends no origin: its page sends no Referer.
        if foreign_site(headers.get("origin"), headers.get("sec-fetch-site", "none"), self._hosts):
            return PlainTextResponse("A page of another site must not read these pages.", 403)
        if request.url.path == "/login" and request.method == "POST":
            return self._let_in(await _typed(request))
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("Pages are read only.", 405, {"allow": "GET, HEAD"})
        if token := request.query_params.get("token", ""):
            return self._let_in(token)
        if request.url.path == "/pages.css" or self._in_session(request):
            return None
        if request.url.path == "/":
            return HTMLResponse(_LOGIN.format(again="For a further browser, start the command again."), 401)
        return PlainTextResponse("This needs a session: open the address that was printed.", 401)

    def _let_in(self, token: str) -> Response:
        session = self._access.opened(token)
        if session is None:
            return HTMLResponse(
                _LOGIN.format(again="This token opens nothing: it was used before, or is another's."), 401
            )
        # The token leaves the address, and with it the history and what is copied from there.
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self._cookie, session, httponly=True, samesite="strict", path="/")
        return answer

    def _in_session(self, request: Request) -> bool:
        # Other servers of this host share the browser's cookies; theirs need not be well formed.
        return self._access.knows(request.cookies.get(self._cookie, ""))


async def _typed(request: Request) -> str:
    """The token of a form; empty if the form has none or is too long."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM_BYTES:
            return ""
    fields: dict[str, Sequence[str]] = dict(parse_qs(body.decode("utf-8", "replace")))
    return next(iter(fields.get("token", ("",))))


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())
