"""Who may see the live pages."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from crucible_worker.web.access import Access, Guard
from crucible_worker.web.listening import hosts_of


async def status(guard: Guard, **headers: str) -> tuple[int, dict[str, str]]:
    """The status and the headers of an answer."""
    sent: list[Any] = []
    query = headers.pop("query", "").encode()
    scope = {
        "type": "http", "method": "GET", "path": "/", "query_string": query,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }  # fmt: skip

    async def receive() -> Any:
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    await guard(scope, receive, send)
    return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}


@pytest.mark.parametrize("other", ['theirs={"a": "b"}', "theirs", "th[]eirs=1,2"])
async def test_cookies_of_other_servers_do_not_end_a_session(other: str):
    """Browsers send the cookies of every port of a host, and those of others may be malformed."""
    access = Access(None)
    guard = Guard(PlainTextResponse("data"), access, hosts_of(8080))

    opened, headers = await status(guard, host="127.0.0.1:8080", query=f"token={access.once}")
    cookie = headers["set-cookie"].partition(";")[0]

    assert opened == 303
    assert (await status(guard, host="127.0.0.1:8080", cookie=f"{other}; {cookie}"))[0] == 200
    assert (await status(guard, host="127.0.0.1:8080", cookie=other))[0] == 401


def test_the_port_of_http_may_be_left_out():
    """Browsers leave it out of the Host header; no other port."""
    assert "127.0.0.1" in hosts_of(80)
    assert "127.0.0.1" not in hosts_of(8080)
