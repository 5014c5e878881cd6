"""Lines of changed samples: the sample, and what it asks in the room that the terminal leaves."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from crucible_bridge.types import SampleChange
from crucible_worker.cli.compare import _named

LONG = "Natalia sold clips to 48 of her friends in April, and half as many in May. How many did she sell?\nSay why."
WIDE = "東京から大阪まで新幹線で何時間かかりますか、そして費用はいくらですか。教えてください。" * 3


def change(sample_id: str, asked: str = "") -> SampleChange:
    """A sample that was right before."""
    return SampleChange(sample_id=sample_id, baseline_score=1.0, score=0.0, input=asked)


@pytest.mark.parametrize("width", [80, 120])
def test_questions_stand_beside_the_numbers_of_rows(monkeypatch: pytest.MonkeyPatch, width: int):
    """Each in one line that fits, in a column of its own, also where characters are two cells wide."""
    monkeypatch.setenv("COLUMNS", str(width))
    lines = _named("worse", [change("7", LONG), change("1234", WIDE), change("15"), change("16", "Why?")], 3)

    assert [line[:15].rstrip() for line in lines[:3]] == ["  worse: 7", "         1234", "         15"]
    assert lines[0][15:60] == LONG[:45]
    assert lines[1][15:30] == WIDE[:15]
    assert lines[3:] == ["         and 1 more"]
    assert max(map(cell_len, lines)) in (width - 1, width)
    assert all(line.endswith("\u2026") for line in lines[:2]) if width == 80 else lines[1].endswith("\u2026")


def test_samples_without_questions_stand_in_one_line():
    """What is not recorded, or repeats the id, takes no room."""
    assert _named("better", [change("a"), change("b", "b"), change("c")], 2) == ["  better: a, b and 1 more"]


def test_a_question_cannot_act_on_the_terminal():
    """What a terminal would obey is replaced."""
    (line,) = _named("worse", [change("1", "a\x1b[31mb")], None)

    assert line == "  worse: 1  a\ufffd[31mb"
