"""What models, data sets and judges said is text: nothing of it is run, loaded or linked."""

import urllib.parse
from collections.abc import Callable

import pytest

from tests.pages.conftest import Visit
from tests.pages.hostile import PAYLOADS
from tests.pages.results import HOSTILE

Open = Callable[..., Visit]
OTHER_HOSTS = """
[...document.querySelectorAll('[href], [src], [action], [srcset]')]
  .map((one) => one.getAttribute('href') || one.getAttribute('src') || one.getAttribute('action') || '')
  .filter((address) => !/^(#|data:|pages\\.(js|css)$)/.test(address))
"""


def inert(visit: Visit) -> None:
    """No element and no link of the page came from a text."""
    assert visit.page.evaluate(OTHER_HOSTS) == []
    assert visit.page.locator("main script, main iframe, main object, main embed, main img, main style").count() == 0


@pytest.mark.parametrize("place", ["", f"evaluation/{HOSTILE}", f"evaluation/{HOSTILE}/samples"])
def test_lists_show_hostile_texts(at: Open, place: str):
    """Of all payloads at once, in ids, inputs, targets, answers and labels."""
    visit = at(place, file=HOSTILE)

    if place.endswith("samples"):
        for n in (0, 7, 30):
            assert " ".join(PAYLOADS[n].split())[:20] in " ".join(visit.text.split())
    inert(visit)


def test_samples_show_hostile_texts(at: Open):
    """Each payload in the id, the input, the target, the metadata and the answer, and the words of the judge."""
    visit = at("", file=HOSTILE)

    for n, payload in enumerate(PAYLOADS):
        name = urllib.parse.quote(f"{n}-{payload}", safe="")
        visit.page.evaluate(
            "address => { location.hash = address; }", f"#/evaluation/{HOSTILE}/sample/comparison/{name}/0"
        )
        visit.until("start => document.querySelector('h1')?.innerText.startsWith(start)", f"Sample {n}-")
        assert visit.title.startswith(f"Sample {n}-")
        for part in visit.page.locator("main details").all():
            part.evaluate("part => { part.open = true; }")
        assert "asked of" in visit.text
        inert(visit)


def test_addresses_are_hostile_texts_too(at: Open):
    """What stands in an address is shown as text: a search, a page that does not exist."""
    visit = at("", file=HOSTILE)

    for payload in PAYLOADS[:20]:
        for address in (f"evaluation/{HOSTILE}/samples?search=", "", "run/"):
            visit.page.evaluate(
                "address => { location.hash = address; }", f"#/{address}{urllib.parse.quote(payload, safe='')}"
            )
            visit.until("document.querySelector('main:not([aria-busy]) h1') !== null")
            inert(visit)
