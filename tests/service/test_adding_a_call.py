"""docs/adding_a_call.md is followed in a copy of the project: what it tells to do is enough."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project_copy import ROOT, copy_project

pytestmark = pytest.mark.docs

PAGE = ROOT / "docs" / "adding_a_call.md"
STEP = re.compile(
    r"^(In|The new file) `([^`]+)`(?:,\sbefore\s(`+)(.+?)\3)?:\n\n(`{3,})\w+\n(.*?)^\5$", re.DOTALL | re.MULTILINE
)


def follow(page: str, copy: Path) -> list[str]:
    """Do what a page tells to; the files that it changed or made."""
    files = []
    for kind, name, _, before, _, code in STEP.findall(page):
        path = copy / name
        if kind == "In":
            text = path.read_text()
            assert text.count(f"\n{before}") == 1, (name, before)
            path.write_text(text.replace(f"\n{before}", f"\n{code}{before}"))
        else:
            assert not path.exists(), name
            path.write_text(code)
        files.append(name)
    return files


def run(copy: Path, *command: str) -> None:
    """Run Python in the copy, on the copy's packages."""
    path = os.pathsep.join(str(copy / package) for package in ("bridge", "python_worker"))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout[-4000:]}{done.stderr[-4000:]}"


def test_the_page_is_enough(tmp_path: Path):
    """Four places and `make generate` add a call to clients, tools and overview; two pages show an example of it."""
    copy_project(tmp_path)
    files = follow(PAGE.read_text(), tmp_path)

    pages = {name for name in files if name.endswith(".md")}
    assert (len(set(files) - pages), pages) == (4, {"docs/one_line_each.md", "docs/snakepit.md"})
    python = [name for name in files if name.endswith(".py")]
    run(tmp_path, "protos/generate.py")
    run(tmp_path, "protos/generate.py", "--check")
    run(tmp_path, "-m", "ruff", "check", "--no-cache", "bridge", "python_worker", "protos", *python)
    run(tmp_path, "-m", "ruff", "format", "--check", "--no-cache", "bridge", "python_worker", *python)
    tests = [
        "tests/service/test_brier_score.py",
        "tests/unit/test_docs.py::test_every_call_is_in_the_overview_and_no_other",
        "tests/unit/snakepit/test_catalogue.py",
        "tests/unit/snakepit/test_examples.py::test_every_example_runs",
        "tests/service/test_one_line_each.py::test_every_evaluator_and_every_call_has_its_line",
        "tests/unit/bridge/test_idempotency.py",
    ]
    run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
