"""Reading JSON member by member gives what reading it at once gives."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.planning.follow.contents import MAX_VALUE_CHARS, JsonReader

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


@given(st.lists(values, max_size=4), st.sampled_from([None, 0, 3]))
def test_items_are_those_of_the_list(list_: list[object], indent: int | None):
    """With any spaces between them."""
    reader = JsonReader(json.dumps(list_, indent=indent))

    assert [reader.value() for _ in reader.items()] == list_
    assert reader.ended()


@given(values, st.integers(0, 4_096), st.sampled_from(["1e-5", "-1.5E+7", "-Infinity", "true", '"\\u00e9"']))
def test_a_value_is_the_same_wherever_the_text_is_parted(before: object, spaces: int, value: str):
    """Also a number, whose first digits are a number as well."""
    for text in (f"[{' ' * spaces}{value}]", json.dumps({"a": ["b" * spaces, before]})[:-1] + f',"c":{value}}}'):
        reader = JsonReader(text)
        read = [reader.value() for _ in reader.items()] if text[0] == "[" else [reader.value()]
        assert read == (json.loads(text) if text[0] == "[" else [json.loads(text)])


@pytest.mark.parametrize("digits", [*range(2_040, 2_056), 4_000])
def test_a_long_number_is_read_to_its_end(digits: int):
    """It may end at, before or after the end of a part, also in its exponent."""
    for end in ("", "e-5", "e+05", ".5", ".5e5", "e5"):
        text = "1" * digits + end
        try:
            expected = json.loads(text)
        except ValueError:  # it has more digits than Python converts
            continue
        reader = JsonReader(text)
        assert reader.value() == expected
        assert reader.ended()


def test_a_value_has_a_bound():
    """One of that length is read; a longer one is passed over, or read as a text."""
    largest, longer = (json.dumps(["a" * (MAX_VALUE_CHARS - 4 - shorter)]) for shorter in (4, 0))

    assert JsonReader(largest).value() == json.loads(largest)
    assert JsonReader(longer).value() == json.loads(longer)
    with pytest.raises(ValueError, match="begins no value of at most 262,144 characters"):
        JsonReader(longer + " ").value()
    assert JsonReader(longer[1:-1]).text() == json.loads(longer)[0]


@given(values, st.booleans())
def test_passing_over_a_value_ends_where_reading_it_does(value: object, long: bool):
    """Whatever its length."""
    text = json.dumps([value, "a" * MAX_VALUE_CHARS, value] if long else value)
    reader = JsonReader(f'{{"a": {text}, "b": 1}}')

    names = []
    for name in reader.members():
        names.append(name)
        reader.pass_over()

    assert names == ["a", "b"]
    assert reader.ended()


@pytest.mark.parametrize("value", ["[1,", "[1 2]", '{"a" 1}', "{1: 2}", "nul", '"a', "", "]"])
@pytest.mark.parametrize("long", [False, True])
def test_passing_over_what_is_no_value_is_refused(value: str, long: bool):
    """As reading it is."""
    text = '["' + "a" * MAX_VALUE_CHARS + '",' + value if long else value

    with pytest.raises(ValueError, match=r"character|Expecting|Unterminated"):
        JsonReader(text).pass_over()
