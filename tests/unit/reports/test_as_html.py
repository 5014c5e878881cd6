"""HTML reports: one file, whose policy names all that it runs, and whose data nothing acts on."""

import base64
import hashlib
import html.parser
import json
import re
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.reports.as_html import PAGE_SCRIPTS, page_script, page_styles, render_html
from crucible_worker.reports.plain_json import inline_json, json_bytes

HOSTILE = "</script><script>alert(1)</script><!--<script>]]>&lt;\u2028\u2029'\"`${1}{{ 7 * 7 }}"


class _Page(html.parser.HTMLParser):
    """The elements of a page: their attributes, and the text of those that hold scripts, styles and the title."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, dict[str, str | None], str]] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag in ("script", "style", "title")
        if self._inside:
            self.texts.append((tag, dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = False

    def handle_data(self, data: str) -> None:
        if self._inside:
            tag, attributes, text = self.texts[-1]
            self.texts[-1] = (tag, attributes, text + data)

    def text_of(self, tag: str, **attributes: str) -> str:
        (found,) = [text for each, given, text in self.texts if each == tag and attributes.items() <= given.items()]
        return found

    @property
    def policy(self) -> str:
        (found,) = [each["content"] for tag, each in self.elements if tag == "meta" and "http-equiv" in each]
        return found or ""


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.fixture(scope="module")
def page() -> _Page:
    """A page of hostile data."""
    return _Page(render_html(HOSTILE, HOSTILE, {"title": HOSTILE}, [inline_json([{"output": HOSTILE}]), "[]"]))


def test_data_come_out_as_they_went_in(page: _Page) -> None:
    """Each block is one element, and JSON."""
    assert json.loads(page.text_of("script", id="data")) == {"title": HOSTILE}
    assert json.loads(page.text_of("script", id="samples-0")) == [{"output": HOSTILE}]
    assert json.loads(page.text_of("script", id="samples-1")) == []
    assert page.text_of("title").startswith(HOSTILE)


def test_the_policy_names_all_that_runs(page: _Page) -> None:
    """Scripts and styles by the hashes of exactly what stands in their elements, data by their type; nothing else."""
    scripts = [(given, text) for tag, given, text in page.texts if tag == "script"]
    run = [text for given, text in scripts if given.get("type") != "application/json"]

    assert len(run) == 1
    assert f"script-src {_hash(run[0])};" in page.policy
    assert f"style-src {_hash(page.text_of('style'))};" in page.policy
    assert page.policy.startswith("default-src 'none'; ")
    assert page.policy.endswith("img-src data:; base-uri 'none'; form-action 'none'")
    assert "unsafe" not in page.policy


def test_nothing_is_loaded(page: _Page) -> None:
    """No element names anything outside of the file."""
    loading = {"src", "srcset", "data", "action", "poster", "ping", "background"}
    links = [given["href"] or "" for _, given in page.elements if "href" in given]

    assert not [given for _, given in page.elements if loading & given.keys()]
    assert all(link.startswith("#") for link in links)
    assert "link" not in {tag for tag, _ in page.elements}


def test_scripts_and_styles_can_be_inlined() -> None:
    """Nothing in them ends their elements, or has a browser read them otherwise."""
    script, styles = page_script(), page_styles()

    assert not re.search("</script|<!--|<script|\r", script, re.IGNORECASE)
    assert not re.search("</style|<!--|\r|@import|url\\((?!['\"]?data:)", styles, re.IGNORECASE)


def test_every_script_of_the_pages_is_in_the_list() -> None:
    """And every one in the list is there."""
    there = {file.name for file in (files("crucible_worker") / "web" / "pages").iterdir()}

    assert there == {f"{name}.js" for name in PAGE_SCRIPTS}


@given(
    st.recursive(
        st.text() | st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_inline_json_is_json_that_html_does_not_read(value: Any) -> None:
    """It is the same value, and has none of the characters that HTML acts on."""
    written = inline_json(value)

    assert json.loads(written) == value
    assert not set(written) & set("<>&\u2028\u2029")


@given(st.text())
def test_a_text_in_json_is_never_shorter_than_in_utf8(text: str) -> None:
    """What fits as JSON fits as it is."""
    assert json_bytes(text) == len(json.dumps(text).encode()) >= len(text.encode("utf-8", "surrogatepass"))


def test_a_long_text_is_measured_as_a_short_one() -> None:
    """In parts, of which none counts twice."""
    text = "a½\U0001f600\n" * 200_000

    assert json_bytes(text) == len(json.dumps(text))


def test_inline_json_refuses_what_is_not_plain() -> None:
    """A number that is not finite would be a page that does not open."""
    with pytest.raises(ValueError, match="JSON"):
        inline_json(float("nan"))
