"""The table of accuracy on responses: which lines are read, and what is counted."""

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def responses(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, without other graders."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    module = importlib.import_module("_grading_responses")
    monkeypatch.setattr(module, "_OTHERS", {})
    monkeypatch.delitem(sys.modules, "_grading_responses")
    return module


def test_accuracy_and_false_positives_are_told_by_kind(responses: ModuleType, tmp_path: Path) -> None:
    """Each file is a row, and what agrees with the label counts; a target may be called gold."""
    rows = {
        "one": [{"response": "\\boxed{5}", "target": "5", "label": 1}, {"response": "6", "gold": "6", "label": 0}],
        "two": [{"response": "<answer>7</answer>", "target": "8", "label": 0}],
    }
    for name, lines in rows.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    table, figures = responses.tables(responses.load_responses(tmp_path))

    assert table.splitlines()[2:] == ["| one | 2 | 50.0 (1) |", "| two | 1 | 100.0 (0) |", "| all | 3 | 66.7 (1) |"]
    assert figures["ours"]["responses"] == 3
    assert len(responses.load_responses(tmp_path / "one.jsonl")) == 2
