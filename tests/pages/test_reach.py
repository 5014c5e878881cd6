"""Whom the pages reach: people with a keyboard, a screen reader, a printer or a small screen; and pictures of all."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import needs
from tests.pages.conftest import ROOT, Visit
from tests.pages.results import HOSTILE, RUN

Open = Callable[..., Visit]
AXE = ROOT / "build" / "axe.min.js"
PAGES = {
    "evaluations": ("", RUN),
    "run": ("run/lab", RUN),
    "evaluation": ("evaluation/lab-300", RUN),
    "samples": ("evaluation/lab-300/samples?evaluator=accuracy", RUN),
    "sample": ("evaluation/lab-300/sample/accuracy/sum-1/0", RUN),
    "rollouts": ("evaluation/rollouts/sample/rl_test_set/sum-3/0", "rollouts"),
    "compare": ("compare/lab-100,lab-300,lab-500?sample=sum-3&evaluator=accuracy", RUN),
    "hostile": (f"evaluation/{HOSTILE}/samples", HOSTILE),
}
PICTURES = os.environ.get("PICTURES")
"""Folder for screenshots; none are taken without it."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_no_serious_barrier(at: Open, name: str, scheme: str):
    """axe-core finds nothing serious or critical, in either look."""
    if not AXE.is_file():
        pytest.skip(needs.MISSING["axe-core"])
    address, file = PAGES[name]
    visit = at(address, file=file, color_scheme=scheme)
    # By the debugger, as the page's policy lets no further script in.
    found: Any = visit.page.evaluate(f"{AXE.read_text('utf-8')}\n;axe.run(document).then((found) => found.violations)")

    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]][:3]) for one in serious] == []


def test_a_keyboard_is_enough(at: Open):
    """From the first tab to a sample and back: every step is a key, and what has the focus can be seen."""
    visit = at("run/lab")
    page = visit.page

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.tagName") == "H1"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('href')") == "#/evaluation/lab-300":
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    visit.until("document.querySelector('h1')?.innerText === 'Step 300 of lab'")
    assert page.evaluate("document.activeElement.tagName") == "H1"
    page.go_back()
    visit.until("document.querySelector('h1')?.innerText === 'Run lab'")


def test_a_small_screen_has_no_page_to_push_sideways(at: Open):
    """On 360 pixels tables scroll by themselves, the page does not."""
    for address, file in list(PAGES.values())[:6]:
        visit = at(address, file=file)
        visit.page.set_viewport_size({"width": 360, "height": 720})
        visit.until("document.documentElement.scrollWidth <= 360")


def test_a_print_is_light_and_has_no_buttons(at: Open):
    """Whatever the look on the screen."""
    visit = at("run/lab", color_scheme="dark")
    visit.page.emulate_media(media="print")

    assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not visit.page.get_by_role("button", name="Compare").is_visible()


@pytest.mark.skipif(PICTURES is None, reason="PICTURES is not set (make pictures)")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_pictures(at: Open, door: str, name: str, scheme: str):
    """A screenshot of every page, for people to look at."""
    address, file = PAGES[name]
    visit = at(address, file=file, color_scheme=scheme)
    visit.page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    folder = Path(PICTURES or "")
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}-{door}-{scheme}.png"
    visit.page.screenshot(path=target, full_page=name not in ("samples", "hostile"))
    assert target.read_bytes().startswith(b"\x89PNG")
