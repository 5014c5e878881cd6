"""Windows of what is longer than a context: which tokens each measures, and behind which."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import Datum, ModelInput
from crucible_worker.rendering.supervised import windows_of
from tests.tables import rows

BEGIN = 99


def datum_of(tokens):
    """A text that is measured as a whole, with its arrays."""
    targets, weights = np.array(tokens), np.ones(len(tokens), np.float32)
    inputs = {"target_tokens": targets, "weights": weights}
    return Datum(model_input=ModelInput.of([BEGIN, *tokens[:-1]]), loss_fn_inputs=inputs), targets, weights


def array_of(datum, key):
    """One of a datum's arrays, as a list."""
    return datum.loss_fn_inputs[key].tolist()


def rolling(tokens, size):
    """Contexts and continuations as lm-evaluation-harness cuts them, for a context of one token: written down anew."""
    first = min(size, len(tokens))
    yield [BEGIN], tokens[:first]
    done = first
    while done < len(tokens):
        count = min(len(tokens) - done, size)
        end = done + count
        yield tokens[end - size - 1 : end - count], tokens[end - count : end]
        done = end


@given(st.integers(1, 60), st.integers(1, 20))
def test_they_are_the_harness_own(count, size):
    """Context and continuation of each window are those of rolling log-likelihoods, in that order."""
    tokens = list(range(100, 100 + count))
    datum, targets, weights = datum_of(tokens)

    found = []
    for window in windows_of(count, size):
        cut = window.cut(datum, targets, weights)
        whole = [*cut.model_input.tokens().tolist(), array_of(cut, "target_tokens")[-1]]
        measured = sum(map(bool, array_of(cut, "weights")))
        found.append((whole[:-measured], whole[-measured:]))

    assert found == list(rolling(tokens, size))


@given(st.integers(1, 200), st.none() | st.integers(-1, 50))
def test_every_target_is_measured_once(count, size):
    """Whatever the size: values of the windows put together are those of the whole, and none is longer than fits."""
    places = np.arange(count)
    windows = windows_of(count, size)

    parts = [window.measured(places[window.start : window.end]) for window in windows]

    assert np.concatenate(parts).tolist() == places.tolist()
    if size is not None and size >= 1:
        assert all(window.end - window.start == min(size, count) for window in windows)


@rows("size", [None, 0, 4, 5])
def test_what_fits_is_not_cut(size):
    """Nor is anything where no size is known: the datum is the one that was given."""
    datum, targets, weights = datum_of([1, 2, 3, 4])
    (window,) = windows_of(4, size)

    assert window.cut(datum, targets, weights) is datum


def test_weights_are_kept_where_they_are_measured():
    """A cut leaves the given arrays as they are, and another window's tokens without weight."""
    datum, targets, _ = datum_of([1, 2, 3, 4, 5])
    weights = np.array([1, 2, 3, 4, 5], np.float32)

    cuts = [window.cut(datum, targets, weights) for window in windows_of(5, 3)]

    assert [array_of(cut, "weights") for cut in cuts] == [[1, 2, 3], [0, 4, 5]]
    assert [cut.model_input.tokens().tolist() for cut in cuts] == [[BEGIN, 1, 2], [2, 3, 4]]
    assert weights.tolist() == [1, 2, 3, 4, 5]
