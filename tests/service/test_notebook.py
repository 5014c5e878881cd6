"""The notebook of the docs: it has no outputs, and each of its cells runs."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests import needs

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebooks" / "results.ipynb"


def cells_of(notebook: dict[str, Any]) -> list[str]:
    """The program of each cell that has one."""
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_has_no_outputs():
    """Nothing in it depends on the machine that wrote it."""
    notebook = json.loads(NOTEBOOK.read_text())

    assert notebook["nbformat"] == 4
    for cell in notebook["cells"]:
        assert cell["cell_type"] in ("markdown", "code")
        assert set(cell) == {"cell_type", "id", "metadata", "source"} | (
            {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        )
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Cell by cell in one namespace, as a kernel does, which shows the last expression of each."""
    pytest.importorskip("pandas", reason=needs.MISSING["pandas"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRUCIBLE_GRADING_PROCESSES", "0")
    monkeypatch.setenv("CRUCIBLE_CODE_SANDBOXES", "0")
    shown: list[Any] = []
    namespace: dict[str, Any] = {}
    for cell in cells_of(json.loads(NOTEBOOK.read_text())):
        program = ast.parse(cell)
        last = program.body.pop() if isinstance(program.body[-1], ast.Expr) else None
        exec(compile(program, "<cell>", "exec"), namespace)
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace))

    evaluations, curve, wrong, differences, charts = (each for each in shown if each is not None)
    assert list(evaluations["state"]) == ["completed"] * 3
    assert list(curve.index) == [180, 320, 600]
    assert list(curve["n_scored"]) == [100] * 3
    assert curve["value"].is_monotonic_increasing
    assert set(wrong["verdict"]) == {"incorrect"}
    assert (differences["difference_ci_low"] > 0).all()
    assert "<iframe" in charts._repr_html_()
