"""Reports of evaluations, for people and for programs, and the data of the pages that show them."""

from crucible_worker.reports.as_json import render_json
from crucible_worker.reports.as_markdown import render_markdown

__all__ = ["render_json", "render_markdown"]
