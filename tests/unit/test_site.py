"""The site of docs/: each page is in its navigation, and each link leads to a page of it."""

import tomllib
from pathlib import Path

import pytest

from docs.site.build import UNSEARCHED, astray, linked_page, stage
from tests.tables import rows

ROOT = Path(__file__).parents[2]
PARTS = ["Start", "Tutorials", "How-to", "Reference", "Explanation"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of two pages in the navigation, a source file, and a folder without a page."""
    (tmp_path / "docs" / "site").mkdir(parents=True)
    (tmp_path / "docs" / "design").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Start\n")
    (tmp_path / "docs" / "design" / "001-one.md").write_text("# 001\n")
    (tmp_path / "docs" / "site" / "zensical.toml").write_text(
        '[project]\nnav = ["index.md", { "Decisions" = ["design/001-one.md"] }]\n'
    )
    (tmp_path / "README.md").write_text("# Read me\n\n[start](docs/index.md) ![shown](docs/run.png)\n")
    (tmp_path / "docs" / "run.png").write_bytes(b"")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "one.py").write_text('"""Has ``` in it, and [a](b.md)."""\n')
    return tmp_path


def test_every_page_of_docs_is_in_the_navigation_once():
    """A page that nobody can reach, or that does not exist, is found without building the site."""
    assert astray(ROOT / "docs") == []


def test_the_navigation_has_its_parts():
    """The tabs are the kinds of pages, after the first page."""
    nav = tomllib.loads((ROOT / "docs" / "site" / "zensical.toml").read_text())["project"]["nav"]

    assert [name for part in nav for name in part] == PARTS


def test_a_page_outside_the_navigation_is_named(project: Path):
    """With the file to mend."""
    (project / "docs" / "new.md").write_text("# New\n")

    assert astray(project / "docs") == ["docs/new.md is not in the navigation: docs/site/zensical.toml"]


def test_a_page_of_the_navigation_that_does_not_exist_is_named(project: Path):
    """As after it was moved."""
    (project / "docs" / "index.md").unlink()

    assert astray(project / "docs") == ["the navigation names docs/index.md, which does not exist"]


def test_a_page_twice_in_the_navigation_is_named(project: Path):
    """A reader who goes on from it would land in one of two places."""
    config = project / "docs" / "site" / "zensical.toml"
    config.write_text(config.read_text().replace('["design', '["index.md", "design'))

    assert astray(project / "docs") == ["the navigation names docs/index.md 2 times"]


LINKS = {
    "a page": ("[a](design/001-one.md)", "[a](design/001-one.md)"),
    "an anchor of a page": ("[a](design/001-one.md#why)", "[a](design/001-one.md#why)"),
    "an anchor": ("[a](#why)", "[a](#why)"),
    "another host": ("[a](https://example.org/x.md)", "[a](https://example.org/x.md)"),
    "a picture": ("![a](run.png)", "![a](run.png)"),
    "a source file": ("[a](../src/one.py)", "[a](source/src/one.py.md)"),
    "a tool of docs/": ("[a](site/zensical.toml)", "[a](source/docs/site/zensical.toml.md)"),
    "a page outside of docs/": (
        "[a](../README.md) and [b](../src/one.py)",
        "[a](source/README.md) and [b](source/src/one.py.md)",
    ),
    "a folder with a page": ("[a](..)", "[a](source/README.md)"),
    "a folder without one": ("[a](../src)", "[a](source/src/index.md)"),
    "a folder of docs/": ("[a](design)", "[a](design/001-one.md)"),
    "a block of code": ("```\n[a](../src)\n```\n[a](../src)", "```\n[a](../src)\n```\n[a](source/src/index.md)"),
    "a block in a block": ("````\n```\n[a](../src)\n```\n````", "````\n```\n[a](../src)\n```\n````"),
}
GITHUB = {
    "after a line": ("Two:\n- a\n- b\n", "Two:\n\n- a\n- b\n"),
    "after a blank line": ("Two:\n\n- a\n  more\n- b\n", "Two:\n\n- a\n  more\n- b\n"),
    "in an item": ("- a\n  - b\n    more\n- c\n", "- a\n    - b\n    more\n- c\n"),
    "a paragraph of an item": ("- a\n\n  more\n", "- a\n\n    more\n"),
    "an escaped bracket": ("\\<a\\> is `\\<a\\>`\n", "&lt;a&gt; is `\\<a\\>`\n"),
    "in a block of code": ("```\na\n- b\n  - c\n```\n", "```\na\n- b\n  - c\n```\n"),
}


@rows(("text", "expected"), GITHUB.values(), ids=list(GITHUB))
def test_pages_are_those_that_github_shows(project: Path, text: str, expected: str):
    """The site's Markdown begins a list after a blank line, wants four spaces in it, and escapes no bracket."""
    page = project / "docs" / "index.md"
    page.write_text(text)

    assert linked_page(page, "index.md", project)[0] == expected


@rows(("text", "expected"), LINKS.values(), ids=list(LINKS))
def test_links_lead_into_the_site(project: Path, text: str, expected: str):
    """Files outside of docs/ have pages in the site; text in blocks of code stays as it is."""
    page = project / "docs" / "index.md"
    page.write_text(text)

    assert linked_page(page, "index.md", project)[0] == expected


def test_every_file_that_is_linked_to_gets_a_page(project: Path):
    """A folder's page lists its files, each of which has a page with its text as it is."""
    (project / "docs" / "index.md").write_text("[the sources](../src), [read me](../README.md)\n")
    output = project / "build"

    assert stage(project, output) == []
    sources = output / "docs" / "source"
    assert (sources / "src" / "index.md").read_text() == f"{UNSEARCHED}# src\n\n- [one.py](one.py.md)\n"
    code = "`" * 8
    assert (sources / "src" / "one.py.md").read_text() == (
        f'{UNSEARCHED}# src/one.py\n\n{code}python\n"""Has ``` in it, and [a](b.md)."""\n{code}\n'
    )
    assert (sources / "README.md").read_text() == "# Read me\n\n[start](../index.md) ![shown](../run.png)\n"


def test_a_link_to_no_file_is_named(project: Path):
    """A page, a picture or a source: with the page that has the link."""
    (project / "docs" / "index.md").write_text("[a](gone.md) ![b](gone.png) [c](../src/gone.py)\n")

    assert stage(project, project / "build") == [
        f"docs/index.md links to {target}, which does not exist" for target in ("gone.md", "gone.png", "../src/gone.py")
    ]
