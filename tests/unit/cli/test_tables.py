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
