"""KL metrics: what they are, and what they are when they are nothing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_worker.metrics.kl import kl_post_update, kl_sample_train
from crucible_worker.metrics.sequences import BLOCK_TOKENS
from tests.tables import rows

V1, V2, ENTROPY = "optim/kl_sample_train_v1", "optim/kl_sample_train_v2", "optim/entropy"

token = st.tuples(st.floats(-50, 0), st.floats(-50, 0), st.booleans())
batches = st.lists(st.lists(token, min_size=1, max_size=20), min_size=1, max_size=6)


def _columns(batch, dtype=np.float64):
    return [[np.array([row[k] for row in datum], dtype) for datum in batch] for k in range(3)]


def test_the_formulas() -> None:
    """Means of d, of d squared by two and of minus the sampling log-probabilities, over action tokens."""
    result = kl_sample_train(
        [np.array([-1.0, -2.0]), np.array([-4.0])],
        [np.array([-1.5, -5.0]), np.array([-3.0])],
        [np.array([1, 0]), np.array([1])],
    )

    assert result.metrics.values == {V1: (0.5 - 1) / 2, V2: 0.5 * (0.25 + 1) / 2, ENTROPY: 2.5}
    assert result.metrics.undefined == {}
    assert result.action_tokens == 2
    assert result.per_sequence == {}


def test_after_an_update_the_formulas_have_other_names() -> None:
    """The same means between a policy before and after an update."""
    result = kl_post_update([np.array([-1.0, -2.0])], [np.array([-1.5, -1.0])], [np.array([1, 1])])

    assert result.metrics.values == {"kl_pre_post_v1": (0.5 - 1) / 2, "kl_pre_post_v2": 0.5 * (0.25 + 1) / 2}
    assert result.action_tokens == 2


@rows("mask", [0, -1, -0.5, math.nan])
@rows("value", [math.nan, math.inf, -math.inf])
def test_only_action_tokens_count(mask: float, value: float) -> None:
    """A token whose mask is not above zero changes nothing, whatever its values."""
    masks = [np.array([1, mask, 0.5])]

    values = kl_sample_train([np.array([-1.0, value, -3.0])], [np.array([-1.5, value, -3.0])], masks).metrics.values

    assert values == {V1: 0.25, V2: 0.0625, ENTROPY: 2.0}


@pytest.mark.parametrize("masks", [[np.zeros(2)], [np.array([0, -1])], [np.array([False, False])]])
def test_without_action_tokens_every_key_is_undefined(masks: list[np.ndarray]) -> None:
    """An average over nothing is not zero: it is undefined, and says why."""
    result = kl_sample_train([np.array([-1.0, -2.0])], [np.array([-1.0, -2.0])], masks)

    assert result.metrics.values == {}
    assert result.metrics.undefined == dict.fromkeys((V1, V2, ENTROPY), "no action tokens")
    assert result.action_tokens == 0


def test_sequences_without_tokens_are_sequences_without_action_tokens() -> None:
    """An empty sequence adds nothing, and nothing but empty sequences is no action token."""
    empty = np.zeros(0)

    assert kl_sample_train([empty], [empty], [empty]).metrics.undefined[V1] == "no action tokens"
    assert kl_sample_train([empty, np.array([-1.0])], [empty, np.array([-2.0])], [empty, np.ones(1)]).action_tokens == 1


@rows(
    ("sampling", "training", "reason", "entropy"),
    [
        ([math.nan] * 3 + [-1.0] * 1021, [-1.0] * 1024, "3 of 1,024 log-probabilities are NaN (logprobs)", None),
        ([-1.0, -3.0], [-1.0, math.nan], "1 of 2 log-probabilities is NaN (training_logprobs)", 2.0),
        ([-1.0, -3.0], [-math.inf] * 2, "2 of 2 log-probabilities are -inf (training_logprobs)", 2.0),
        ([-1.0, math.inf], [-1.0, -1.0], "1 of 2 log-probabilities is +inf (logprobs)", None),
        ([-math.inf, -1.0], [-math.inf, -1.0], "1 of 2 log-probabilities is -inf (logprobs)", None),
    ],
)
def test_values_that_are_not_finite_are_told(
    sampling: list[float], training: list[float], reason: str, entropy: float | None
) -> None:
    """A key without a finite value says how many log-probabilities are what, and whose; entropy needs but one."""
    metrics = kl_sample_train([np.array(sampling)], [np.array(training)], [np.ones(len(sampling))]).metrics

    assert metrics.undefined[V1] == metrics.undefined[V2] == reason
    if entropy is None:
        assert metrics.undefined[ENTROPY] == reason
        assert metrics.values == {}
    else:
        assert metrics.values == {ENTROPY: entropy}


def test_counts_are_those_of_all_blocks() -> None:
    """The reason counts the action tokens of every sequence, those of whole blocks too."""
    long = np.full(BLOCK_TOKENS + 1, -1.0)
    bad = np.array([math.nan, -1.0, math.nan])

    metrics = kl_sample_train([long, bad], [long, bad], [np.ones(long.size), np.ones(3)]).metrics

    assert metrics.undefined[V1] == f"2 of {BLOCK_TOKENS + 4:,} log-probabilities are NaN (logprobs)"


def test_a_square_beyond_float64_leaves_the_first_order_alone() -> None:
    """Finite log-probabilities whose square is not finite make that key undefined only."""
    metrics = kl_sample_train([np.array([-1e200])], [np.array([0.0])], [np.ones(1)]).metrics

    assert metrics.values == {V1: -1e200, ENTROPY: 1e200}
    assert metrics.undefined == {V2: "the sum is beyond float64"}


def test_the_input_is_not_changed() -> None:
    """Read-only arrays are fine, as are those of any number type."""
    sampling, training, mask = np.array([-1, -2]), np.array([-2.5, -2.5], np.float16), np.array([True, True])
    for array in (sampling, training, mask):
        array.flags.writeable = False

    assert kl_sample_train([sampling], [training], [mask]).metrics.values[V1] == 1.0


@given(batches)
def test_agrees_with_exact_summation(batch) -> None:
    """Every estimator equals its formula summed exactly."""
    sampling, training, masks = _columns(batch)
    kept = [(s, t) for datum in batch for s, t, m in datum if m]

    values = kl_sample_train(sampling, training, masks).metrics.values

    if not kept:
        assert values == {}
        return
    d = [s - t for s, t in kept]
    scale = math.fsum(map(abs, d)) / len(d)
    assert values[V1] == pytest.approx(math.fsum(d) / len(d), rel=0, abs=1e-12 * scale)
    assert values[V2] == pytest.approx(math.fsum(x * x for x in d) / len(d) / 2, rel=1e-12)
    assert values[ENTROPY] == pytest.approx(-math.fsum(s for s, _ in kept) / len(kept), rel=1e-12)


@given(batches, st.randoms(use_true_random=False), st.integers(0, 6))
def test_order_and_batching_do_not_matter(batch, random, cut: int) -> None:
    """Tokens in another order, and sequences cut in two, give the same numbers."""
    shuffled = [random.sample(datum, len(datum)) for datum in random.sample(batch, len(batch))]
    split = [part for datum in batch for part in (datum[:cut], datum[cut:])]

    values = kl_sample_train(*_columns(batch)).metrics.values

    for other in (shuffled, split):
        found = kl_sample_train(*_columns(other)).metrics.values
        assert found.keys() == values.keys()
        for key, value in values.items():
            assert found[key] == pytest.approx(value, rel=1e-12, abs=1e-12)


@given(batches)
def test_masking_out_is_leaving_out(batch) -> None:
    """Masked tokens give what the batch without them gives, not a bit less or more where they are NaN."""
    without = [[row for row in datum if row[2]] for datum in batch]
    poisoned = [[row if row[2] else (math.nan, math.nan, False) for row in datum] for datum in batch]

    left_out = kl_sample_train(*_columns(without))

    for other in (batch, poisoned):
        found = kl_sample_train(*_columns(other))
        assert found.action_tokens == left_out.action_tokens
        assert found.metrics.undefined == left_out.metrics.undefined
        for key, value in left_out.metrics.values.items():
            assert found.metrics.values[key] == pytest.approx(value, rel=1e-12, abs=1e-12)
