"""Parsing without the garbage collector: it is paused for large texts alone, and runs again in every case."""

import gc

import pytest

from crucible_worker.parsing import LARGE_BYTES, uncollected


@pytest.mark.parametrize(("size", "runs"), [(LARGE_BYTES - 1, True), (LARGE_BYTES, False)])
def test_the_collector_is_paused_for_large_texts(size: int, runs: bool):
    """A small text is not worth the change; after a large one the collector runs again."""
    with uncollected(size):
        assert gc.isenabled() is runs

    assert gc.isenabled()


def test_the_collector_runs_again_after_an_error():
    """A text that cannot be parsed leaves the collector as it was."""
    with pytest.raises(ValueError, match="no JSON"), uncollected(LARGE_BYTES):
        raise ValueError("no JSON")

    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    """The code that paused it starts it again."""
    gc.disable()
    try:
        with uncollected(LARGE_BYTES):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
