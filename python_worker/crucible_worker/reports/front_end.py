"""The front end as data: the template of a page, its styles and its script, made of the files of `web`."""

from __future__ import annotations

import importlib.resources
from importlib.resources.abc import Traversable

__all__ = ["PAGE_SCRIPTS", "page_script", "page_styles", "page_template"]

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
