"""Messages between processes: they come out as they went in, and are refused where they are none."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge import errors
from crucible_bridge.types import Verdict
from crucible_worker.children import messages
from crucible_worker.children.frames import HEADER, TooLong
from crucible_worker.children.messages import (
    check_containers,
    decoded,
    encoded,
    error_from_map,
    error_to_map,
    may_hold_many,
    pack,
    pack_text,
    unpack,
)
from tests.tables import rows

KINDS = [
    kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and issubclass(kind, errors.BridgeError)
]
ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.binary(max_size=300)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(ANY_TEXT, inner, max_size=20),
    max_leaves=20,
)


@rows("kind", KINDS, ids=lambda kind: kind.__name__)
def test_errors_keep_their_class_and_fields(kind):
    """Whatever a child raises, its parent raises."""
    error = kind("prompt", "is long") if kind is errors.InvalidField else kind("is long", field="prompt")
    error.reason, error.retryable = "SOME_REASON", not error.retryable

    copy = error_from_map(unpack(pack(error_to_map(error))[HEADER.size :]))

    assert type(copy) is kind
    assert str(copy) == "prompt is long"
    assert (copy.code, copy.reason, copy.retryable) == (error.code, "SOME_REASON", error.retryable)


@dataclasses.dataclass(frozen=True, slots=True)
class _Found:
    """What a function returns."""

    text: str
    places: tuple[int, ...] = ()
    kind: Verdict | None = None
    data: bytes = b""


@given(
    st.builds(
        _Found, ANY_TEXT, st.lists(st.integers(0, 9)).map(tuple), st.none() | st.sampled_from(Verdict), st.binary()
    )
)
def test_values_come_out_as_their_type(value):
    """A dataclass, its enums and tuples; text that is no valid Unicode included."""
    assert decoded(encoded(value), msgspec.msgpack.Decoder(_Found)) == value


@rows("value", [{"text": 3}, {}, [], "text", {"text": "\ud800", "places": ["a"]}])
def test_values_of_another_type_are_refused(value):
    """Whatever its text holds."""
    with pytest.raises(msgspec.ValidationError):
        decoded(encoded(value), msgspec.msgpack.Decoder(_Found))


@given(st.dictionaries(ANY_TEXT, VALUES, max_size=5))
def test_messages_come_out_as_they_went_in(message):
    """Text that is no valid Unicode included."""
    framed = pack_text(message)

    assert HEADER.unpack(framed[: HEADER.size]) == (len(framed) - HEADER.size,)
    assert unpack(framed[HEADER.size :]) == message


def test_text_that_is_no_unicode_is_refused_where_it_must_be_text():
    """The error says where."""
    with pytest.raises(UnicodeEncodeError) as caught:
        pack({"text": "ab\ud800"})

    assert caught.value.start == 2


def test_values_of_classes_below_plain_ones_are_plain():
    """Numbers of numpy travel as numbers."""
    assert unpack(pack({"a": np.float64(0.5), "b": np.str_("x")})[HEADER.size :]) == {"a": 0.5, "b": "x"}
    with pytest.raises(TypeError, match="a object cannot be sent"):
        pack({"a": object()})


def test_a_message_has_a_bound():
    """Of its body."""
    size = len(pack({"a": b""})) - HEADER.size
    assert pack({"a": bytes(10)}, size + 10)
    with pytest.raises(TooLong):
        pack({"a": bytes(11)}, size + 10)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(body):
    """With ValueError, whoever counts or reads them."""
    try:
        check_containers(body)
        assert isinstance(unpack(body), dict)
    except ValueError:
        pass


@pytest.mark.parametrize("body", [b"\x91" * 100_000, b"\xc1", b"\xdd\xff\xff\xff\xff", b"\x93\x01\x02\x03"])
def test_what_is_no_map_is_no_message(body):
    """However deeply it is nested, or long it says it is."""
    with pytest.raises(ValueError, match="message"):
        unpack(body)


@given(VALUES)
def test_containers_are_counted_as_they_are(value):
    """Those in texts and arrays are none."""

    def count(part):
        inner = part if isinstance(part, list) else part.values() if isinstance(part, dict) else ()
        return isinstance(part, list | dict) + sum(map(count, inner))

    body = pack_text({"value": value})[HEADER.size :]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "MAX_CONTAINERS", count(value) + 1)
        check_containers(body)
        patch.setattr(messages, "MAX_CONTAINERS", count(value))
        assert may_hold_many(body)
        with pytest.raises(ValueError, match="lists and maps"):
            check_containers(body)


def test_every_kind_of_value_is_passed_over():
    """The count steps from value to value as the decoder does, whatever their widths."""
    values = [
        *(None, True, 0, 200, 60_000, 2**31, 2**40, -1, -100, -1_000, -(2**20), -(2**40), 0.5),
        *("x" * size for size in (1, 40, 300, 70_000)),
        *(bytes(size) for size in (1, 300, 70_000)),
        *(msgspec.msgpack.Ext(1, b"x" * size) for size in (1, 2, 4, 8, 16, 17, 300, 70_000)),
        *([0] * size for size in (1, 20, 70_000)),
        *(dict.fromkeys(range(size)) for size in (1, 20, 70_000)),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "MAX_CONTAINERS", 8)
        check_containers(msgspec.msgpack.encode({"values": values}))
        with pytest.raises(ValueError, match="lists and maps"):
            check_containers(msgspec.msgpack.encode({"values": [*values, []]}))
