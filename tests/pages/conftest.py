"""A browser, results to look at, and both ways to the pages: a report file and a live server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from crucible_bridge.types import ReportFormat
from crucible_worker.testing import run_worker
from tests import needs
from tests.pages.results import HOSTILE, RUN, make_results

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ROOT = Path(__file__).parents[2]
DEADLINE_MS = 60_000
"""For what a page shows; no test takes it for a promise."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test in this folder needs a browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.pages)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """The machine's own Chromium."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(needs.MISSING["chromium"])
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Containers let no sandbox be made by root; what is shown is our own.
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"] if os.getuid() == 0 else [])
        yield browser
        browser.close()


class Visit:
    """A page of a browser that must neither run foreign text, nor fail, nor ask another host."""

    def __init__(self, page: Any, home: str) -> None:
        self.page = page
        self.home = home
        self.problems: list[str] = []
        page.set_default_timeout(DEADLINE_MS)
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("console", lambda message: self._said(message))
        page.on("request", lambda request: self._asked(request.url))
        page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))

    def _said(self, message: Any) -> None:
        # The browser itself reports an answer with the status of an error; the page shows what it says.
        if message.type in ("error", "warning") and "responded with a status of" not in message.text:
            self.problems.append(f"console: {message.text}")

    def _asked(self, url: str) -> None:
        if not url.startswith((self.home.partition("#")[0].partition("?")[0], "data:", "about:")):
            self.problems.append(f"request: {url}")

    def open(self, address: str) -> None:
        """Go to a page by what follows "#" in its address, and wait until it is shown."""
        self.page.goto(f"{self.home}#/{address}")
        # The address alone may have changed: the page that was there before is taken away by hand.
        self.page.evaluate("document.getElementById('main').replaceChildren()")
        self.page.reload()
        self.shown()

    def shown(self) -> None:
        """Wait until a page is there."""
        self.page.wait_for_selector("main:not([aria-busy]) h1")

    @property
    def title(self) -> str:
        """The heading of the page."""
        return self.page.inner_text("h1")

    @property
    def text(self) -> str:
        """All that it shows."""
        return self.page.inner_text("main")

    def until(self, expression: str, argument: Any = None) -> None:
        """Wait until something holds in the page; its policy forbids what `wait_for_function` does."""
        ends = time.monotonic() + DEADLINE_MS / 1000
        while not self._holds(expression, argument):
            assert time.monotonic() < ends, f"never {expression}: {self.page.inner_text('body')[:2000]}"
            self.page.wait_for_timeout(20)

    def _holds(self, expression: str, argument: Any) -> bool:
        from playwright.sync_api import Error

        try:
            return bool(self.page.evaluate(expression, argument))
        except Error as error:
            if "Execution context was destroyed" in error.message:  # the page is on its way to another address
                return False
            raise

    def fine(self) -> None:
        """No foreign text has run, nothing failed, nothing was asked of another host."""
        assert self.problems == []
        assert self.page.evaluate("window.pwned") is None


def in_thread(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end; playwright leaves a loop in the thread of the tests."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work).result()


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state directory with the results of `tests.pages.results`."""
    folder = tmp_path_factory.mktemp("results")
    in_thread(make_results(folder))
    return folder


@contextlib.contextmanager
def viewing(*words: str) -> Iterator[str]:
    """The address that `crucible-worker view` prints, which opens the pages once; it serves until the block ends."""
    command = [sys.executable, "-m", "crucible_worker", "view", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.match(r"Open (http://127\.0\.0\.1:\d+/\?token=\S+)$", process.stdout.readline().rstrip("\n"))
            assert found is not None
            yield found[1]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


@pytest.fixture(scope="session")
def report_files(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the reports of the run, of the hostile evaluation, of the rollouts and of tool calls."""
    folder = tmp_path_factory.mktemp("reports")

    async def write() -> None:
        async with run_worker({}, state_dir=results) as worker:
            for name in (RUN, HOSTILE, "rollouts", "tools", "called"):
                run_id, ids = (RUN, ()) if name == RUN else ("", (name,))
                report = await worker.bridge.evaluation.generate_report(ids, ReportFormat.HTML, run_id=run_id)
                (folder / f"{name}.html").write_text(report, "utf-8")

    in_thread(write())
    return folder


@pytest.fixture
def visits(chromium: Any) -> Iterator[Callable[..., Visit]]:
    """Makes a visit with a browser of its own: `visits(home, color_scheme="dark")`; each must have been fine."""
    with contextlib.ExitStack() as opened:
        made: list[Visit] = []

        def visit(home: str, **options: Any) -> Visit:
            context = chromium.new_context(viewport={"width": 1200, "height": 900}, **options)
            opened.callback(context.close)
            made.append(Visit(context.new_page(), home))
            return made[-1]

        yield visit
        for one in made:
            one.fine()


@pytest.fixture(scope="session")
def server(results: Path) -> Iterator[tuple[str, str]]:
    """A live server of the results: its address, and a token that opens it as often as wanted."""
    token_file = results / "token"
    token_file.write_text("a token for tests")
    token_file.chmod(0o600)
    with viewing("--state-dir", str(results), "--token-file", str(token_file)) as address:
        yield address.partition("?")[0], "a+token+for+tests"


@pytest.fixture(params=["file", "live"])
def door(request: pytest.FixtureRequest) -> str:
    """Each of the two ways to the pages."""
    return request.param


@pytest.fixture
def at(door: str, visits: Callable[..., Visit], request: pytest.FixtureRequest) -> Callable[..., Visit]:
    """Opens a page by this way: `at("run/lab")`; of the file that has it, with `file="hostile"`."""

    def opened(address: str, *, file: str = RUN, **options: Any) -> Visit:
        if door == "file":
            visit = visits((request.getfixturevalue("report_files") / f"{file}.html").as_uri(), **options)
        else:
            home, token = request.getfixturevalue("server")
            visit = visits(home, **options)
            visit.page.goto(f"{home}?token={token}")
        visit.open(address)
        return visit

    return opened
