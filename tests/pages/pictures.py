"""The pictures of the README, of a report: `python -m tests.pages.pictures build/demo/report.html docs/pictures`."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, Playwright, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@contextlib.contextmanager
def chromium(playwright: Playwright) -> Iterator[Browser]:
    """The Chromium of this machine, until the block ends."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        raise SystemExit("there is no Chromium here (apt install chromium)")
    browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"] if os.getuid() == 0 else [])
    try:
        yield browser
    finally:
        browser.close()


def photograph_run(report: Path, browser: Browser, picture: Path) -> Page:
    """Write the picture of a report's run page, with its charts; returns the page."""
    page = browser.new_page(viewport={"width": 1100, "height": 600}, color_scheme="light")
    page.goto(report.resolve().as_uri())
    page.wait_for_selector(".chart canvas")
    page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    page.screenshot(path=picture)
    return page


def main(report: Path, folder: Path) -> None:
    """Take them.

    Args:
        report: the demo's, in HTML.
        folder: where `run.png` and `sample.png` go.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, chromium(playwright) as browser:
        page = photograph_run(report, browser, folder / "run.png")
        page.get_by_role("link", name="step").last.click()
        page.get_by_role("link", name="Wrong").click()
        page.locator("table.samples tbody a").first.click()
        page.wait_for_selector("mark")
        page.screenshot(path=folder / "sample.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
