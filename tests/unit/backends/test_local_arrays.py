"""Arrays cross the channel as they are."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crucible_worker.backends.local.protocol import (
    floats_from_bytes,
    floats_to_bytes,
    tokens_from_bytes,
    tokens_to_bytes,
)


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
