"""Reading gives way to calls, and still gets on."""

import threading

import pytest

from crucible_worker.engine import preparation
from crucible_worker.engine.preparation import CallPriority


@pytest.fixture
def way():
    """Nobody goes first yet."""
    return CallPriority()


class Reader:
    """A thread that reads lines, and gives way at each of them."""

    def __init__(self, way: CallPriority, lines: int) -> None:
        self.read = 0
        self.begun = threading.Event()
        self._way, self._lines = way, lines
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        for _ in range(self._lines):
            self.begun.set()
            self._way.yield_to_calls()
            self.read += 1


def test_reading_stands_still_while_others_go_first(way, monkeypatch):
    """Not a line is read before the last of them is done."""
    monkeypatch.setattr(preparation, "YIELD_SECONDS", 60.0)
    reader = Reader(way, 1000)
    with way.taken():
        with way.taken():
            reader.thread.start()
            assert reader.begun.wait(10)
        assert reader.read == 0
    reader.thread.join(10)
    assert reader.read == 1000


def test_reading_goes_on_however_many_go_first(way, monkeypatch):
    """It stands still for a bounded time, then goes on for as long."""
    monkeypatch.setattr(preparation, "YIELD_SECONDS", 0.01)
    reader = Reader(way, 1000)
    with way.taken():
        reader.thread.start()
        reader.thread.join(30)
        assert reader.read == 1000


def test_who_goes_first_makes_way_again_when_it_fails(way):
    """An error in the block ends the priority as well."""
    with pytest.raises(ZeroDivisionError), way.taken():
        raise ZeroDivisionError
    way.yield_to_calls()
    assert way._nobody.is_set()
