"""Tables for people: which cells are broken over lines."""

import io

import pytest

from crucible_worker.cli.tables import write_table
from tests.tables import rows

ID = "arithmetic-320-arithmetic-20261124-213337-xynm"


@rows(
    ("width", "stays_whole"),
    [(80, True), (160, True), (60, False)],
    ids=["a terminal", "a wide one", "a narrow one"],
)
def test_a_cell_that_is_copied_stays_whole(width: int, stays_whole: bool, monkeypatch: pytest.MonkeyPatch):
    """An id is on one line if 30 columns are left to the others; on a narrower terminal it is folded, not cut."""
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO()

    write_table(stream, "evaluations: 1", ("id", "result"), [[ID, "accuracy 78.0 % (95 %: 68.9 to 85.0)"]], whole="id")

    shown = stream.getvalue()
    assert (ID in shown) is stays_whole
    ids = [line.split("│")[1].strip() for line in shown.splitlines() if line.startswith("│")]
    assert "".join(ids) == ID


PATH = "/home/someone/runs/a-very-long-name-of-a-project/with-more-words/run-7/checkpoint-000320"
RESULT = "accuracy 87.53 % (95 %: 52.91 to 97.84), 1,319 of 1,319 scored"


@rows("width", [80, 120])
def test_paths_are_shortened_before_numbers_are_broken(width: int, monkeypatch: pytest.MonkeyPatch):
    """Columns of paths show their ends, every word of the others is whole, and no line is wider than the terminal."""
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO()

    columns = ("id", "run", "step", "state", "model", "result")
    row = ["nightly-320", PATH, "320", "completed", f"local:{PATH}", RESULT]
    write_table(stream, "evaluations: 1", columns, [row], whole="id", paths=("run", "model"))

    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    shown = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    assert [shown[0][index] for index in (0, 2, 3)] == ["nightly-320", "320", "completed"]
    for index in (1, 4):
        assert shown[0][index].startswith("…")
        assert PATH.endswith(shown[0][index][1:])
    assert " ".join(line[5] for line in shown) == RESULT


def test_a_date_stays_in_one_line(monkeypatch: pytest.MonkeyPatch):
    """A cell without letters is not wrapped where texts are."""
    monkeypatch.setenv("COLUMNS", "60")
    stream = io.StringIO()
    write_table(stream, "", ("last", "best"), [["2026-11-28 22:57", RESULT]])
    assert "2026-11-28 22:57" in stream.getvalue()


def test_a_column_without_content_is_left_out():
    """Evaluations without a run do not take its place in the table."""
    stream = io.StringIO()
    write_table(stream, "", ("id", "run", "state"), [["a", "", "completed"], ["b", "", "failed"]])
    assert "state" in stream.getvalue()
    assert "run" not in stream.getvalue()
