"""Tables for people: which cells are broken over lines."""

import io

import pytest

from crucible_worker.cli.tables import write_table
from tests.tables import rows

ID = "arithmetic-320-arithmetic-20261124-213337-xynm"


@rows("width", [160, 80, 60, 40], ids=["a wide terminal", "a terminal", "a narrow one", "one narrower than the id"])
def test_a_cell_that_is_copied_stays_whole(width: int, monkeypatch: pytest.MonkeyPatch):
    """An id is on one line on every terminal; the table is only wider than a terminal without room for the id."""
    monkeypatch.setenv("COLUMNS", str(width))
    stream = io.StringIO()

    write_table(stream, "evaluations: 1", ("id", "result"), [[ID, "accuracy 78.0 % (95 %: 68.9 to 85.0)"]], whole="id")

    assert ID in stream.getvalue()
    assert max(map(len, stream.getvalue().splitlines())) <= max(width, 60)


def test_columns_move_below_an_id_that_leaves_them_no_room(monkeypatch: pytest.MonkeyPatch):
    """Beside it words of results stay whole; where there is room, each column has its own place."""
    columns = ("id", "state", "created (UTC)", "model", "result")
    row = [ID, "completed", "2026-12-01 00:59", f"local:{PATH}", RESULT]
    written: dict[int, str] = {}
    for width in (80, 280):
        monkeypatch.setenv("COLUMNS", str(width))
        stream = io.StringIO()
        below = ("model", "created (UTC)")
        write_table(stream, "", columns, [row], whole="id", paths=("model",), below=below)
        written[width] = stream.getvalue()

    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in written[80].splitlines() if "│" in line]
    assert [line[0] for line in cells[:3]] == [ID, "2026-12-01 00:59", f"…{PATH[1 - len(ID) :]}"]
    assert cells[0][1] == "completed"
    assert " ".join(filter(None, (line[2] for line in cells))) == RESULT
    assert max(map(len, written[80].splitlines())) <= 80
    (line,) = (line for line in written[280].splitlines() if "│" in line)
    assert [cell.strip() for cell in line.split("│")[1:-1]] == row


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
