"""Reading JSON member by member gives what reading it at once gives."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.follow.json_reader import JsonReader

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), values), st.sampled_from([None, 0, 3]), st.booleans())
def test_members_are_those_of_the_object(object_: dict[str, object], indent: int | None, ascii_: bool):
    """With any spaces between them."""
    reader = JsonReader(json.dumps(object_, indent=indent, ensure_ascii=ascii_))

    read = {name: reader.value() for name in reader.members()}

    assert read == object_
    assert reader.ended()


@given(st.dictionaries(st.text(max_size=5), st.dictionaries(st.text(max_size=5), values, max_size=3)))
def test_objects_within_can_be_read_so_too(object_: dict[str, dict[str, object]]):
    """A value is read whole, or member by member."""
    reader = JsonReader(json.dumps(object_))

    read = {name: {inner: reader.value() for inner in reader.members()} for name in reader.members()}

    assert read == object_


def _read(text: str) -> object:
    reader = JsonReader(text)
    object_ = {name: reader.value() for name in reader.members()}
    return object_ if reader.ended() else None


def _parsed(text: str) -> object:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


@given(st.text('{}[]",:01ae \n\\', max_size=20))
def test_text_is_read_or_refused_as_by_the_parser(text: str):
    """Nothing but ValueError is raised."""
    try:
        read = _read(text)
    except ValueError:
        read = None

    assert read == _parsed(text)


def test_text_that_is_nested_too_deeply_is_refused():
    """As by the parser."""
    with pytest.raises(RecursionError):
        _read('{"a": ' + "[" * 100_000)
