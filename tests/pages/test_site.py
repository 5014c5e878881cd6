"""The site of docs/ in a browser: it needs no network, its search works, and it fits every screen."""

import functools
import http.server
import subprocess
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.site.build import SOURCES, pages_of
from tests import needs
from tests.pages.conftest import ROOT, Visit

PYTHON = ROOT / ".venv-docs" / "bin" / "python"
AXE = ROOT / "build" / "axe.min.js"
Visits = Callable[..., Visit]


def build(root: Path, output: Path) -> subprocess.CompletedProcess[str]:
    """Build a site as `make docs` does, into another folder."""
    if not PYTHON.is_file():
        pytest.skip("the environment of the documentation is missing (make docs)")
    command = [PYTHON, ROOT / "docs" / "site" / "build.py", "--root", root, "--output", output]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    output = tmp_path_factory.mktemp("site") / "built"
    built = build(ROOT, output)
    assert built.returncode == 0, built.stderr
    return output / "html"


@pytest.fixture(scope="session")
def pages(site: Path) -> list[str]:
    """The pages of the site by their places, with one of a source and one of a folder."""
    nav = tomllib.loads((ROOT / "docs" / "site" / "zensical.toml").read_text())["project"]["nav"]
    sources = [
        f"{SOURCES}/protos/crucible_bridge/v1/index.html",
        f"{SOURCES}/protos/crucible_bridge/v1/types.proto.html",
    ]
    return [*(page.replace(".md", ".html") for page in pages_of(nav)), *sources]


@pytest.fixture(params=["file", "server"])
def home(request: pytest.FixtureRequest, site: Path) -> Iterator[str]:
    """Where the site is: on the disk, or behind a server of files."""
    if request.param == "file":
        yield f"{site.as_uri()}/"
        return

    class Files(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """The tests' output has no use for them."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=site)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_the_search_leads_to_the_page(home: str, visits: Visits):
    """Typed letter by letter, from a disk as well: what only one page says is found there, without another host."""
    page = visits(home).page
    page.goto(f"{home}index.html")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("combobox", name="Search").press_sequentially("unreported_calls")
    result = page.locator("a[href*='usage.html?h=']").first
    result.wait_for()
    assert page.get_by_role("combobox", name="Search").input_value() == "unreported_calls"
    result.click()

    page.wait_for_url("**/usage.html*")
    assert page.inner_text("article h1").rstrip("¶") == "Tokens and cost"


def test_every_page_needs_no_other_host(site: Path, pages: list[str], visits: Visits):
    """Each shows its heading; no page requests another host, and none reports an error to the console."""
    visit = visits(f"{site.as_uri()}/")
    for page in pages:
        visit.page.goto(f"{visit.home}{page}")
        assert visit.page.inner_text("article h1"), page
        visit.fine()


def test_no_page_scrolls_sideways_on_a_small_screen(site: Path, pages: list[str], visits: Visits):
    """On 360 pixels tables and code scroll by themselves."""
    visit = visits(f"{site.as_uri()}/")
    visit.page.set_viewport_size({"width": 360, "height": 720})
    wide = []
    for page in pages:
        visit.page.goto(f"{visit.home}{page}")
        visit.page.evaluate("scrollTo(1000, 0)")
        if visit.page.evaluate("scrollX"):
            wide.append(page)

    assert wide == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_barrier(site: Path, visits: Visits, scheme: str):
    """axe-core finds nothing serious or critical in what pages say, in either look."""
    if not AXE.is_file():
        pytest.skip(needs.MISSING["axe-core"])
    visit = visits(f"{site.as_uri()}/", color_scheme=scheme)
    for page in ("index.html", "usage.html", "evaluators.html", "reference/types.html"):
        visit.page.goto(f"{visit.home}{page}")
        found: Any = visit.page.evaluate(
            f"{AXE.read_text('utf-8')}\n;axe.run('article', {{preload: false}}).then((found) => found.violations)"
        )
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert [(one["id"], [node["html"][:200] for node in one["nodes"]][:3]) for one in serious] == [], page


def test_the_look_follows_the_system_and_the_button(site: Path, visits: Visits):
    """Dark if the system is dark; the button takes the light look, which stays on the next page."""
    background = "getComputedStyle(document.body).backgroundColor"
    visit = visits(f"{site.as_uri()}/", color_scheme="dark")
    visit.page.goto(f"{visit.home}index.html")
    dark = visit.page.evaluate(background)
    visit.page.get_by_title("Use the light look").click()
    visit.page.wait_for_function(f"{background} !== '{dark}'")
    visit.page.goto(f"{visit.home}usage.html")

    assert visit.page.evaluate(background) == "rgb(255, 255, 255)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a](#gone)", "anchor does not exist"),
        ("[a](gone.md)", "docs/index.md links to gone.md, which does not exist"),
        ("![a](gone.png)", "docs/index.md links to gone.png, which does not exist"),
    ],
)
def test_a_broken_link_breaks_the_build(tmp_path: Path, text: str, said: str):
    """With its page and what is missing, and without a traceback."""
    (tmp_path / "docs" / "site").mkdir(parents=True)
    (tmp_path / "docs" / "index.md").write_text(f"# Start\n\n{text}\n")
    (tmp_path / "docs" / "site" / "zensical.toml").write_text(
        '[project]\nsite_name = "s"\ndocs_dir = "docs"\nsite_dir = "html"\nnav = ["index.md"]\n'
    )

    built = build(tmp_path, tmp_path / "built")
    assert built.returncode == 1
    assert said in built.stderr
    assert "index.md" in built.stderr
    assert "Traceback" not in built.stderr
