"""The live server: who may see it, and what it shows while things move."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from crucible_bridge.types import EvaluatorSpec, Limits, SamplingParams
from crucible_worker.testing import RunningWorker, ScriptedModel, run_worker
from tests.pages.conftest import Visit, viewing
from tests.pages.results import STEPS, questions

Server = tuple[str, str]


class Answer(NamedTuple):
    """An answer of the server."""

    status: int
    headers: Mapping[str, str]
    body: str


def answer(server: Server, path: str, *, method: str = "GET", **headers: str) -> Answer:
    """The server's answer to a request that no browser would make."""
    parts = urllib.parse.urlsplit(server[0])
    with contextlib.closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)) as connection:
        connection.putrequest(method, path, skip_host=True)
        for name, value in {"host": parts.netloc, **headers}.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        with contextlib.closing(connection.getresponse()) as found:
            return Answer(
                found.status, {name.lower(): value for name, value in found.getheaders()}, found.read().decode()
            )


def session(server: Server) -> str:
    """The cookie of a session."""
    opened = answer(server, f"/?token={server[1]}")
    assert (opened.status, opened.headers["location"]) == (303, "/")
    cookie = opened.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    return cookie.partition(";")[0]


@pytest.mark.parametrize("path", ["/", "/pages.js", "/api/index", "/api/events", "/api/samples?id=lab-100"])
def test_nothing_is_shown_without_a_session(server: Server, path: str):
    """Whoever finds the port sees a form for the token, and no data."""
    assert answer(server, path).status == 401
    assert answer(server, f"{path}{'&' if '?' in path else '?'}token=wrong").status == 401
    assert answer(server, path, cookie="crucible-view-0=stolen").status == 401


def test_a_name_that_only_leads_here_is_refused(server: Server):
    """A page of another site whose name was pointed here (DNS rebinding) gets nothing, even with the cookie."""
    cookie = session(server)

    assert answer(server, "/api/index", cookie=cookie).status == 200
    assert answer(server, "/api/index", cookie=cookie, host="evil.example").status == 421
    assert answer(server, "/api/index", cookie=cookie, host="evil.example:80").status == 421


def test_a_page_of_another_site_is_refused(server: Server):
    """By its Origin, and by what browsers say of where a request comes from."""
    cookie = session(server)

    assert answer(server, "/api/index", cookie=cookie, origin="https://evil.example").status == 403
    assert answer(server, "/api/index", cookie=cookie, origin="null").status == 403
    assert answer(server, "/api/index", cookie=cookie, sec_fetch_site="cross-site").status == 403
    assert answer(server, "/api/index", cookie=cookie, sec_fetch_site="same-site").status == 403
    assert answer(server, "/api/index", cookie=cookie, origin=server[0].rstrip("/")).status == 200


def test_pages_are_read_only(server: Server):
    """No method changes anything."""
    cookie = session(server)

    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert answer(server, "/api/index", method=method, cookie=cookie).status == 405


def test_every_answer_carries_the_policy(server: Server):
    """Scripts of this server alone, no address in the Referer header, nothing kept by the browser."""
    cookie = session(server)

    for path in ("/", "/pages.js", "/api/index", "/api/evaluation?id=gone"):
        found = answer(server, path, cookie=cookie)
        assert found.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert found.headers["referrer-policy"] == "no-referrer"
        assert found.headers["x-content-type-options"] == "nosniff"
        assert found.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("query", "status", "named"),
    [
        ("samples", 400, "id is missing"),
        ("samples?id=gone", 404, "'gone'"),
        ("samples?id=lab-100&sort=colour", 400, "sort is 'colour'"),
        ("samples?id=lab-100&filter=changed", 400, "other is missing"),
        ("samples?id=lab-100&offset=-1", 400, "offset is '-1'"),
        ("samples?id=lab-100&limit=100000", 400, "limit is '100000'"),
        ("samples?id=lab-100&where=level", 400, "where is 'level'"),
        ("run?run=gone", 404, "'gone'"),
        ("compare?ids=lab-100", 400, "ids names 1"),
        ("sample?id=lab-100&evaluator=accuracy&sample=gone", 404, "'gone'"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(server: Server, query: str, status: int, named: str):
    """With the name of the field, for people who write addresses by hand."""
    found = answer(server, f"/api/{query}", cookie=session(server))

    assert found.status == status
    assert named in found.body


def test_the_printed_address_opens_once(results: Path, visits: Callable[..., Visit], tmp_path: Path):
    """In one browser: it leaves the address at once, the session stays, and a second browser is asked for a token."""
    with viewing("--state-dir", str(results)) as address:
        home = address.partition("?")[0]
        visit = visits(home)
        visit.page.goto(address)
        visit.shown()
        assert visit.page.url.rstrip("#/") == home.rstrip("/")
        visit.page.reload()
        visit.shown()
        assert visit.title == "Evaluations"
        second = visits(home)
        second.page.goto(address)
        assert second.title == "This page needs a token"


def test_the_workers_token_opens_the_form(server: Server, visits: Callable[..., Visit]):
    """With --token-file, whoever knows the token types it."""
    visit = visits(server[0])
    visit.page.goto(server[0])

    visit.page.fill("#token", "wrong")
    visit.page.keyboard.press("Enter")
    visit.until("document.body.innerText.includes('opens nothing')")
    visit.page.fill("#token", urllib.parse.unquote_plus(server[1]))
    visit.page.keyboard.press("Enter")
    visit.until("document.querySelector('h1')?.innerText === 'Evaluations'")


def test_a_search_shows_what_it_has_found_and_goes_on(server: Server, visits: Callable[..., Visit]):
    """Without time for all samples the page says how many were looked through, and looks again for longer."""
    visit = visits(server[0])
    visit.page.goto(f"{server[0]}?token={server[1]}")
    visit.shown()
    asked: list[str] = []
    no_time = threading.Event()
    no_time.set()

    def shorten(route: Any) -> None:
        """Searches have no time at first."""
        (within,) = urllib.parse.parse_qs(urllib.parse.urlsplit(route.request.url).query)["within"]
        asked.append(within)
        answer = route.fetch()
        data = answer.json()
        if no_time.is_set():
            data = {**data, "rows": data["rows"][:1], "matching": 1, "searched": 30}
        route.fulfill(response=answer, json=data)

    visit.page.route("**/api/samples?*", shorten)
    visit.open("evaluation/lab-500/samples?search=what+is+1")
    status = "document.querySelector('main [role=status]')?.innerText"
    visit.until(f"{status} === '1 to 1 of 1 sample, 30 of 240 searched so far.'")
    no_time.clear()
    visit.until(f"{status} === '1 to 62 of 62 samples.'")
    assert sorted(set(asked), key=int)[:2] == ["2000", "8000"]


def test_a_search_whose_reader_has_left_is_cancelled(server: Server, visits: Callable[..., Visit]):
    """The request ends with the page that sent it."""
    visit = visits(server[0])
    visit.page.goto(f"{server[0]}?token={server[1]}")
    visit.shown()
    visit.page.route("**/api/samples?*", lambda route: None)  # no answer comes
    with visit.page.expect_event("requestfailed") as failed:
        visit.page.goto(f"{server[0]}#/evaluation/lab-500/samples")
        visit.page.wait_for_selector("main[aria-busy=true]")
        visit.open("run/lab")
    assert "/api/samples?" in failed.value.url
    assert visit.title == "Run lab"


class Slow:
    """A worker in a thread, and an evaluation that does as many samples as it is allowed."""

    def __init__(self) -> None:
        self.allowed = threading.Semaphore(0)
        self.worker: Future[RunningWorker] = Future()
        self._end: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Slow:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the worker, if it has not ended."""
        if self._thread.is_alive():
            self.worker.result(60)
            self.allowed.release(1000)
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()

        model = WaitingModel(answer=lambda prompt: "7", turn=self.allowed)
        async with run_worker({"slow": model}) as worker:
            await worker.bridge.evaluation.start_evaluation(
                evaluation_id="slow",
                run_id="moving",
                step=1,
                model="embedded:slow",
                evaluators=[EvaluatorSpec(kind="accuracy", options={"grader": "numeric"})],
                dataset=questions(40),
                sampling=SamplingParams(max_tokens=8),
                limits=Limits(concurrency=1),
            )
            self.worker.set_result(worker)
            await self._end.wait()


class WaitingModel(ScriptedModel):
    """Takes a turn for each sample."""

    def __init__(self, *, turn: threading.Semaphore, **script: Any) -> None:
        super().__init__(**script)
        self._turn = turn

    async def sample(self, *arguments: Any, **options: Any) -> Any:
        await asyncio.to_thread(self._turn.acquire)
        return await super().sample(*arguments, **options)


@pytest.fixture
def slow() -> Iterator[Slow]:
    """An evaluation at work."""
    with Slow() as made:
        yield made


def test_an_evaluation_is_followed_while_it_runs(slow: Slow, visits: Callable[..., Visit]):
    """Its progress moves by itself, then its metrics appear; what the reader opened stays open."""
    with viewing("--address", slow.worker.result(60).address) as address:
        visit = visits(address.partition("?")[0])
        visit.page.goto(address)
        visit.shown()
        visit.open("run/moving")
        visit.until("document.getElementById('connection').innerText === 'live'")
        assert "Running now" in visit.text
        slow.allowed.release(10)
        visit.until("document.querySelector('progress').value >= 9")
        visit.open("evaluation/slow")
        visit.until("document.getElementById('connection').innerText === 'live'")
        visit.page.get_by_text("Numbers").first.wait_for()
        slow.allowed.release(40)
        visit.until("document.querySelector('.tiles') !== null")
        assert "accuracy" in visit.page.inner_text(".tiles")
        visit.open("evaluation/slow/samples")
        visit.until("document.getElementById('main').innerText.includes('of 40 samples')")  # it reads them once more


def test_a_worker_that_has_gone_is_said(slow: Slow, visits: Callable[..., Visit]):
    """The page says that the worker is not reached, and the server goes on."""
    with viewing("--address", slow.worker.result(60).address) as address:
        visit = visits(address.partition("?")[0])
        visit.page.goto(address)
        visit.shown()
        slow.stop()
        visit.open("run/moving")
        assert visit.title == "This page cannot be shown"


def test_runs_and_their_checkpoints_are_listed(server: Server, visits: Callable[..., Visit]):
    """The list of runs has the best value of each; the page of a run has each checkpoint, the best value marked."""
    visit = visits(server[0])
    visit.page.goto(f"{server[0]}?token={server[1]}")
    visit.shown()
    runs = visit.page.get_by_role("region", name="Runs", exact=True)
    row = runs.locator("tr", has_text="lab").first.inner_text()
    assert "100 to 500" in row
    assert "accuracy 0.8 at step 500, 0.7" in row
    runs.get_by_role("link", name="lab", exact=True).click()
    visit.until("document.querySelector('h1').textContent === 'Run lab'")
    checkpoints = visit.page.get_by_role("region", name="Checkpoints", exact=True)
    rows = checkpoints.locator("tbody tr").all_inner_texts()
    assert [text.partition("\t")[0] for text in rows] == [str(step) for step in STEPS]
    assert ["accuracy 0.8 \u25cf" in text for text in rows] == [step == 500 for step in STEPS]
    checkpoints.locator("details summary").first.click()
    visit.until("document.querySelector('td details div.folded div') !== null")
    assert "accuracy_strict" in checkpoints.locator("tbody tr").first.inner_text()
