"""Plain values to msgpack and back, as earlier releases packed them."""

from __future__ import annotations

import msgpack
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.journal.packing import pack, pack_text, unpack, unpack_text

LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.binary()
UNICODE = st.text(st.characters(exclude_categories=["Cs"]))


def values(texts):
    """Plain values with these texts."""
    return st.recursive(LEAVES | texts, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=20)


@given(values(UNICODE))
def test_records_are_those_of_earlier_releases(value):
    """Fingerprints are hashes of records: the bytes are those that msgpack makes, and come back as they were."""
    assert pack(value) == pack_text(value) == msgpack.packb(value)
    assert unpack(pack(value)) == unpack_text(pack(value)) == value


@given(values(st.text()))
def test_lone_surrogates_come_back(value):
    """A text of a file or a model may hold what is no Unicode."""
    assert pack_text(value) == msgpack.packb(value, unicode_errors="surrogatepass")
    assert unpack_text(pack_text(value)) == value


def test_what_cannot_be_packed_is_refused():
    """A text that is no Unicode is refused where none may be; so are bytes that are no record."""
    with pytest.raises(UnicodeEncodeError):
        pack(["\ud800"])
    for read in (unpack, unpack_text):
        with pytest.raises(msgspec.DecodeError):
            read(b"\xc1")
