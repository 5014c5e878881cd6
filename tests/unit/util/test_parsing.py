"""Large JSON: the garbage collector is paused while it is read, and other threads run while it is written."""

import gc
import json
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.util import parsing
from crucible_worker.util.parsing import LARGE_BYTES, parts_of, uncollected, written

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=30,
)


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


@given(JSON)
def test_what_is_written_in_steps_is_what_json_writes(value: object):
    """The text is the same, wherever the steps end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "_RUN", 3)
        assert written(value, LARGE_BYTES) == json.dumps(value, ensure_ascii=False)


def test_other_threads_run_while_much_is_written():
    """A million numbers far down in lists are written in many steps."""
    value: list[object] = list(range(1_000_000))
    for _ in range(500):
        value = [value]
    turns, done, before = 0, threading.Event(), sys.getswitchinterval()

    def take_turns() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            time.sleep(0)

    other = threading.Thread(target=take_turns)
    sys.setswitchinterval(1e-4)
    try:
        other.start()
        turns = 0
        text = written(value, LARGE_BYTES)
        seen = turns
    finally:
        done.set()
        other.join()
        sys.setswitchinterval(before)
    assert text.startswith("[" * 501 + "0, 1, 2")
    assert seen >= 10


def test_parts_are_lists_objects_and_texts() -> None:
    """However the text is spaced; escaped quotes begin no text."""
    for text, count in ((b'{"a" : [1, 2], "b":"c"}', 5), (b'["\\"x\\"", {}]', 3), (b"[1, 2.5]", 1)):
        assert parts_of(text) == count
