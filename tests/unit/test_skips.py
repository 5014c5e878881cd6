"""The end of a run's output says once for what tests were skipped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest
from tests.tables import rows

@pytest.mark.parametrize("number", range(2))
def test_with_cc(number):
    pytest.skip("cc is missing (apt install gcc)")

@pytest.mark.skipif(True, reason="cc is missing (apt install gcc)")
def test_with_cc_too():
    pass

@pytest.mark.skipif(True, reason="the user is not root")
def test_of_root():
    pass

@rows("name", ["one", "two", "three"])
def test_of_rows(name):
    if name != "two":
        pytest.skip("cc is missing (apt install gcc)")

@rows("name", ["one", "two"])
def test_of_rows_that_are_skipped(name):
    pytest.skip("the user is not root")

@pytest.mark.xfail(reason="it is known", strict=True)
def test_of_a_defect():
    assert False

def test_that_fails():
    assert False
"""
FILE = """
import pytest
pytest.importorskip("a_module_of_no_library", reason="cc is missing (apt install gcc)")
"""


@pytest.mark.parametrize("processes", [0, pytest.param(2, marks=pytest.mark.long)])
def test_a_run_has_a_line_for_each_reason(processes: int, tmp_path: Path):
    """Most first, with the cure at its end; skipped rows have one for each test. Other processes change nothing."""
    for name, text in {"test_it.py": TESTS, "test_file.py": FILE, "test_other_file.py": FILE}.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", f"--rootdir={tmp_path}"]
    command += ["-p", "tests.conftest", "-p", "no:cacheprovider", f"--numprocesses={processes}", tmp_path]
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    outside |= {"PYTHONPATH": str(ROOT), "COLUMNS": "120"}

    run = subprocess.run(command, cwd=tmp_path, env=outside, capture_output=True, text=True, check=False)

    lines = [line for line in run.stdout.splitlines() if line.lower().startswith(("skipped", "xfail", "failed"))]
    assert lines == [
        "skipped: cc is missing: 3 tests and 2 files (apt install gcc)",
        "skipped: the user is not root: 2 tests",
        "skipped rows of test_it.py::test_of_rows: 'one', 'three': cc is missing (apt install gcc)",
        "FAILED test_it.py::test_that_fails - assert False",
        "XFAIL test_it.py::test_of_a_defect - it is known",
    ], run.stdout + run.stderr


def test_a_program_is_found_or_its_test_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Next to Python as well as on the path."""
    monkeypatch.setenv("PATH", str(tmp_path))

    assert Path(needs.program(Path(sys.executable).name)).samefile(sys.executable)
    with pytest.raises(pytest.skip.Exception) as caught:
        needs.program("kubectl")

    assert str(caught.value) == needs.MISSING["kubectl"]


def test_a_mark_gives_the_first_missing_library(monkeypatch: pytest.MonkeyPatch):
    """A test is run if nothing is missing."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name in ("ray", "peft") else name)

    assert needs.installed("torch").args == (False,)
    mark = needs.installed("torch", "ray", "peft")
    assert (mark.args, mark.kwargs) == ((True,), {"reason": needs.MISSING["ray"]})


def test_a_reason_has_one_cure_at_its_end():
    """The number of tests stands before it."""
    said = [*needs.MISSING.values(), *(getattr(needs, name) for name in needs.__all__ if name.isupper())]
    texts = [text for text in said if isinstance(text, str)]

    assert len(texts) > len(needs.MISSING)
    assert [text for text in texts if text.count(" (") != 1 or not text.endswith(")")] == []
