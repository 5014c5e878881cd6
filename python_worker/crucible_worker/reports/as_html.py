"""Reports as one HTML file: pages, styles, script and data, with no request to anywhere."""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
from collections.abc import Mapping, Sequence
from importlib.resources.abc import Traversable
from typing import Any

from crucible_worker.reports.page_data import MOST_COMPARED
from crucible_worker.reports.plain_json import inline_json

__all__ = ["PAGE_SCRIPTS", "live_html", "page_script", "page_styles", "page_template", "render_html", "sample_block"]


def sample_block(place: int) -> str:
    """The id of the block with the samples of the evaluation at this place of the report."""
    return f"samples-{place}"


def render_html(title: str, subtitle: str, data: Mapping[str, Any], samples: Sequence[str] = ()) -> str:
    """Write a page.

    Args:
        title: of the window.
        subtitle: a line below the name of the program.
        data: plain; what the page shows, besides samples.
        samples: for each evaluation, by place, a list as `inline_json` writes it. A page parses one when it is looked
            at.

    Returns:
        HTML. Nothing in it is executed or loaded but the script and the styles that it holds: the policy in it names
        them by their hashes.
    """
    script, styles = page_script(), page_styles()
    blocks = [("data", inline_json(data)), *((sample_block(n), text) for n, text in enumerate(samples))]
    return _page(title, subtitle, blocks, policy=_policy(script, styles), styles=styles, script=script)


def live_html(title: str, subtitle: str) -> str:
    """Write a page that loads its script, its styles and its data from the server that it comes from.

    Args:
        title: of the window, until the first data are there.
        subtitle: a line below the name of the program.
    """
    return _page(
        title,
        subtitle,
        [("data", inline_json({"door": "live", "most_compared": MOST_COMPARED}))],
        policy="",
        styles="",
        script="",
    )


def _page(
    title: str, subtitle: str, blocks: Sequence[tuple[str, str]], *, policy: str, styles: str, script: str
) -> str:
    import jinja2  # 20 ms, which no worker needs to start
    from markupsafe import Markup

    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(page_template())
    return template.render(
        title=title,
        subtitle=subtitle,
        policy=policy,
        # Markup of these is safe: the first two are ours, and the blocks hold no character that HTML acts on.
        styles=Markup(styles),
        script=Markup(script),
        blocks=[(name, Markup(text)) for name, text in blocks],
    )


def _policy(script: str, styles: str) -> str:
    rules = (
        "default-src 'none'",
        f"script-src '{_hash(script)}'",
        f"style-src '{_hash(styles)}'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# The template of a page, its styles and its script, made of the files of `web`.

PAGE_SCRIPTS = (
    "elements",
    "numbers",
    "charts",
    "sources",
    "index_page",
    "run_page",
    "evaluation_page",
    "samples_page",
    "sample_page",
    "compare_page",
    "steps_page",
    "start",
)
"""The files of `web/pages`, in the order in which they are run."""


def page_template() -> str:
    """The text of a page, for Jinja2."""
    return _text(_web() / "page.html.j2")


def page_script() -> str:
    """uPlot, then the pages as one function in strict mode: they share their names with nothing else."""
    own = "\n".join(_text(_web() / "pages" / f"{name}.js") for name in PAGE_SCRIPTS)
    return f'{_text(_web() / "vendor" / "uPlot.iife.min.js")}\n(() => {{"use strict";\n{own}\n}})();\n'


def page_styles() -> str:
    """The styles of uPlot and those of the pages."""
    return f"{_text(_web() / 'vendor' / 'uPlot.min.css')}\n{_text(_web() / 'pages.css')}"


def _web() -> Traversable:
    return importlib.resources.files("crucible_worker") / "web"


def _text(file: Traversable) -> str:
    # Browsers hash what stands in an element with the ends of lines like this.
    return file.read_text("utf-8").replace("\r\n", "\n")
