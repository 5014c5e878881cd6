"""Entries on their way to a logger's process."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.loggers.base import Entry, Hparams, LongText, MetricRow, Missed
from crucible_worker.loggers.batches import MAX_BATCH_ENTRIES, MAX_BATCH_SIZE, batches, entries_of, packed
from tests.unit.loggers.loggers_kit import rows

WHOLE = st.integers(1, 2**62)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
ENTRIES = st.lists(
    st.builds(
        MetricRow,
        sequence=WHOLE,
        unix_time_ns=WHOLE,
        values=st.dictionaries(st.text(), st.floats(allow_nan=False), max_size=3),
        step=st.none() | WHOLE,
        family=st.text(),
    )
    | st.builds(Hparams, sequence=WHOLE, unix_time_ns=WHOLE, values=st.dictionaries(st.text(), JSON, max_size=3))
    | st.builds(LongText, sequence=WHOLE, unix_time_ns=WHOLE, key=st.text(), text=st.text(), step=st.none() | WHOLE)
    | st.builds(Missed, sequence=WHOLE, unix_time_ns=WHOLE, count=WHOLE),
    max_size=8,
)


@given(ENTRIES)
def test_a_batch_is_read_as_it_was_packed(entries: list[Entry]) -> None:
    """All kinds, in their order; whole numbers of any size, and any text."""
    assert [entry for kind, body in packed(entries) for entry in entries_of(kind, body)] == entries


def test_batches_are_bounded_by_entries_and_by_size() -> None:
    """A row of many values, or a long text, is alone; nothing is lost or moved."""
    size = MAX_BATCH_SIZE // 2 + 1
    texts: list[Entry] = [LongText(sequence=1, unix_time_ns=1, key="k", text="x" * size) for _ in range(3)]
    long: list[Entry] = [LongText(sequence=1, unix_time_ns=1, key="k", text="x" * 2 * MAX_BATCH_SIZE)]
    every: Sequence[Entry] = [*rows(1, MAX_BATCH_ENTRIES + 1), *texts, *long]
    found = list(batches(every))

    assert [len(batch) for batch in found] == [MAX_BATCH_ENTRIES, 2, 1, 1, 1]
    assert [entry for batch in found for entry in batch] == every
    assert list(batches([])) == []
