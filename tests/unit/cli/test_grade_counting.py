"""Progress of counted work: a bar on a terminal, lines now and then without one, nothing where nothing is wanted."""

import io

import pytest

from crucible_worker.cli import progress
from crucible_worker.cli.progress import counting


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _shown(stream: io.StringIO, *steps: tuple[int, int], total: int | None = 100, quiet: bool = False) -> str:
    with counting(stream, "grading", "records", total, quiet=quiet) as show:
        for done, filled in steps:
            show(done, filled)
    return stream.getvalue()


def test_lines_come_now_and_then(monkeypatch: pytest.MonkeyPatch):
    """Not for every step, and with the share where the total is known."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)

    assert _shown(io.StringIO(), (1_000, 50)) == "grading: 1,000 records, 50%\n"
    assert _shown(io.StringIO(), (1_000, 50), total=None) == "grading: 1,000 records\n"
    monkeypatch.setattr(progress, "LINE_SECONDS", 60.0)
    assert _shown(io.StringIO(), (1_000, 50)) == ""


def test_nothing_is_written_where_nothing_is_wanted(monkeypatch: pytest.MonkeyPatch):
    """A program reads stderr, too."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)

    assert _shown(io.StringIO(), (1_000, 50), quiet=True) == ""


def test_a_terminal_has_a_bar(monkeypatch: pytest.MonkeyPatch):
    """It says what is done, how many, and how far that is."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")

    text = _shown(_Terminal(), (1_000, 50), (2_000, 100), quiet=True)

    assert "grading" in text
    assert "2,000 records" in text
    assert "100%" in text
