"""What crosses the pipe comes out as it went in."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crucible_bridge import errors
from crucible_worker.backends.local.frames import (
    HEADER,
    error_from_map,
    error_to_map,
    floats_from_bytes,
    floats_to_bytes,
    pack,
    tokens_from_bytes,
    tokens_to_bytes,
    unpack,
)
from tests.tables import rows

KINDS = [
    kind
    for name in errors.__all__
    if isinstance(kind := getattr(errors, name), type) and issubclass(kind, errors.BridgeError)
]


@rows("kind", KINDS, ids=lambda kind: kind.__name__)
def test_errors_keep_their_class_and_fields(kind):
    """Whatever the host raises, the worker raises."""
    error = kind("prompt", "is long") if kind is errors.InvalidField else kind("is long", field="prompt")
    error.reason, error.retryable = "SOME_REASON", not error.retryable

    copy = error_from_map(unpack(pack(error_to_map(error))[HEADER.size :]))

    assert type(copy) is kind
    assert str(copy) == "prompt is long"
    assert (copy.code, copy.reason, copy.retryable) == (error.code, "SOME_REASON", error.retryable)


@given(hnp.arrays(np.float64, st.integers(0, 50)))
def test_floats_keep_every_bit(values):
    """NaN payloads, infinities and -0.0 included."""
    assert floats_from_bytes(floats_to_bytes(values)).tobytes() == values.tobytes()


@given(hnp.arrays(st.sampled_from([np.int32, np.int64]), st.integers(0, 50)))
def test_tokens_keep_their_values(tokens):
    """Token ids of either width arrive as int64."""
    copy = tokens_from_bytes(tokens_to_bytes(tokens))

    assert copy.dtype == np.int64
    assert copy.tolist() == tokens.tolist()


@given(st.dictionaries(st.text(), st.none() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary()))
def test_frames_bear_their_length(message):
    """The header is the length of the body, and the body the message."""
    frame = pack(message)

    assert HEADER.unpack(frame[: HEADER.size]) == (len(frame) - HEADER.size,)
    assert unpack(frame[HEADER.size :]) == message
