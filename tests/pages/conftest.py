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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

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
        pytest.skip("THE PAGES ARE NOT TESTED: there is no Chromium here (apt install chromium)")
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
        # A browser says so itself of an answer with a status of an error.
        if message.type in ("error", "warning") and "status of 4" not in message.text:
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
        """Wait until something holds in the page."""
        self.page.wait_for_function(expression, arg=argument)

    def fine(self) -> None:
        """No foreign text has run, nothing failed, nothing was asked of another host."""
        assert self.problems == []
        assert self.page.evaluate("window.pwned") is None


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state directory with the results of `tests.pages.results`."""
    folder = tmp_path_factory.mktemp("results")
    asyncio.run(make_results(folder))
    return folder


def run_command(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `crucible-worker` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "crucible_worker", *words], check=True, capture_output=True, text=True, timeout=120
    )


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
    """A folder with the reports of the run, of the hostile evaluation and of the rollouts."""
    folder = tmp_path_factory.mktemp("reports")
    for name, what in ((RUN, ("--run", RUN)), (HOSTILE, (HOSTILE,)), ("rollouts", ("rollouts",))):
        run_command("report", *what, "--format", "html", "--state-dir", str(results), "--output", f"{folder}/{name}.html")
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
