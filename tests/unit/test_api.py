"""What packages may import of the worker."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import crucible_worker.api

ROOT = Path(__file__).parents[2]
PAGES = ("backends.md", "environments.md", "evaluators.md", "logging.md", "tutorials/evaluator.md")
"""Of docs/, that say how a package is written."""


def test_each_name_is_there_and_type_checkers_know_it():
    """The names, those that type checkers import, and those of the page are the same."""
    source = Path(crucible_worker.api.__file__).read_text()
    imported = {
        alias.name: getattr(sys.modules[node.module or ""], alias.name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and node.module != "typing" and __import__(node.module or "")
        for alias in node.names
    }
    page = (ROOT / "docs" / "evaluators.md").read_text().partition("### What a package may import")[2]
    names = re.findall(r"(?<=`)[A-Za-z_]+(?=`)", page[page.index("|") :])

    assert crucible_worker.api.__all__ == sorted(imported)
    assert {name: getattr(crucible_worker.api, name) for name in imported} == imported
    assert sorted(names) == crucible_worker.api.__all__


def test_a_name_loads_what_it_is_of_alone():
    """A package with a logger loads no evaluators, and none of the large libraries."""
    program = "import sys; from crucible_worker.api import Logger; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())

    assert "crucible_worker.loggers.base" in loaded
    assert not {"crucible_worker.evaluators", "crucible_worker.backends", "sympy", "torch", "transformers"} & loaded


def test_pages_import_nothing_else():
    """Their examples are what readers copy; a class may extend a built-in evaluator."""
    examples = "".join(
        block
        for page in PAGES
        for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.S)
    )

    assert set(re.findall(r"from (crucible_worker[\w.]*) import", examples)) <= {
        "crucible_worker.api",
        "crucible_worker.evaluators.comparison",
        "crucible_worker.testing",
    }
