"""What belongs to the core of the tests, and what a test of it may take."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import time
import pytest

@pytest.mark.core
def test_of_the_core():
    pass

@pytest.mark.core
def test_that_computes():
    ends = time.process_time() + 0.5
    while time.process_time() < ends:
        pass

@pytest.mark.pages
def test_of_a_page():
    pass

def test_of_everything():
    pass
"""
MARKING_CONFTEST = """
import pytest

@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.pages)])
def one(request):
    pass
"""
NOT_OF_THE_CORE = "import a_module_of_no_library"


def run_tests(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run them by this project's tiers."""
    (folder / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", f"--rootdir={folder}", "--verbose"]
    command += ["-p", "tests.tiers", "-p", "no:cacheprovider", *options, folder]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    outside |= {"PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    return subprocess.run(command, cwd=folder, env=outside, capture_output=True, text=True, check=False)


def passed(run: subprocess.CompletedProcess[str]) -> list[str]:
    """The tests that passed."""
    return [line.split()[0].partition("::")[2] for line in run.stdout.splitlines() if " PASSED" in line]


def test_the_core_is_what_is_marked_and_nothing_else_is_imported(tmp_path: Path):
    """Outside the folders that are of the core as a whole."""
    (tmp_path / "test_other.py").write_text(NOT_OF_THE_CORE)

    run = run_tests(tmp_path, "-m", "core")

    assert (passed(run), run.returncode) == (["test_of_the_core", "test_that_computes"], 0), run.stdout


def test_a_mark_imports_no_module_without_it(tmp_path: Path):
    """Unless the conftest.py beside it may give it."""
    (tmp_path / "test_other.py").write_text(NOT_OF_THE_CORE)
    marked = tmp_path / "marked"
    marked.mkdir()
    (marked / "conftest.py").write_text(MARKING_CONFTEST)
    (marked / "test_by_fixture.py").write_text("def test_by_fixture(one):\n    pass\n")

    run = run_tests(tmp_path, "-m", "pages and not docs")

    assert (passed(run), run.returncode) == (["test_by_fixture[1]", "test_of_a_page"], 0), run.stdout


def test_without_a_choice_what_has_its_own_command_is_left_out(tmp_path: Path):
    """A page needs a browser."""
    assert passed(run_tests(tmp_path)) == ["test_of_the_core", "test_that_computes", "test_of_everything"]


@pytest.mark.parametrize("processes", [0, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize(("options", "code"), [((), 0), (("--refuse-costly",), 1)])
def test_a_costly_test_of_the_core_is_named_or_refused(
    options: tuple[str, ...], code: int, processes: int, tmp_path: Path
):
    """By its CPU, with how much it was; other processes change nothing."""
    run = run_tests(tmp_path, "-m", "core", "--core-seconds=0.4", f"--numprocesses={processes}", *options)

    (named,) = [line.split() for line in run.stdout.splitlines() if " s  " in line]
    assert (named[2], float(named[0]) > 0.4, run.returncode) == ("test_it.py::test_that_computes", True, code)
