"""Mean negative log-likelihood: what it is, and what it is when it is nothing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField
from crucible_worker.metrics.nll import combine, mean_nll, nll_parts
from tests.tables import rows

token = st.tuples(st.floats(-50, 0, width=32), st.floats(0, 4, width=32))
batches = st.lists(st.lists(token, min_size=1, max_size=20), min_size=1, max_size=5)


def _arrays(batch):
    logprobs = [np.array([row[0] for row in datum], np.float32) for datum in batch]
    weights = [np.array([row[1] for row in datum], np.float32) for datum in batch]
    return logprobs, weights


def test_one_mean_over_all_tokens() -> None:
    """Tokens count by their weight, over all data: it is no mean of means."""
    result = mean_nll([np.array([-1.0]), np.array([-2.0, -3.0, -9.0])], [np.array([2.0]), np.array([1.0, 1.0, 0.0])])

    assert result.metrics.values == {"nll": (2 * 1 + 2 + 3) / 4, "perplexity": math.exp(7 / 4)}
    assert result.metrics.undefined == {}
    assert result.total_weight == 4.0


@pytest.mark.parametrize("value", [math.nan, -math.inf, math.inf])
def test_tokens_without_weight_spoil_nothing(value: float) -> None:
    """A token of weight 0 has no part in the sum, whatever its value."""
    result = mean_nll([np.array([-1.5, value])], [np.array([1, 0])])

    assert result.metrics.values == {"nll": 1.5, "perplexity": math.exp(1.5)}


def test_a_perplexity_beyond_float64_leaves_the_mean_alone() -> None:
    """A mean may be too large for its exponential."""
    metrics = mean_nll([np.array([-1000.0])], [np.ones(1)]).metrics

    assert metrics.values == {"nll": 1000.0}
    assert metrics.undefined == {"perplexity": "exp(1000) is beyond float64"}


@rows(
    ("logprobs", "weights", "reason"),
    [
        ([-1.0, -2.0], [0.0, 0.0], "no token has weight"),
        ([-1.0, -2.0], [1.0, -1.0], "the weights sum to 0"),
        ([-1.0, -math.inf], [1.0, 1.0], "1 of 2 log-probabilities is -inf"),
        ([-1.0, math.inf], [1.0, 1.0], "1 of 2 log-probabilities is +inf"),
        ([math.nan] * 3 + [-1.0] * 1021, [1.0] * 1024, "3 of 1,024 log-probabilities are NaN"),
        ([-1.0, -2.0], [1.0, math.nan], "1 of 2 weights is not finite"),
        ([-1e308, -1e308], [1.0, 1.0], "the sum is beyond float64"),
        ([-1e308, -1e308], [10.0, 10.0], "the sum is beyond float64"),
    ],
)
def test_without_a_finite_mean_there_is_a_reason(logprobs: list[float], weights: list[float], reason: str) -> None:
    """A mean that is nothing is undefined and says why, never zero and never NaN."""
    metrics = mean_nll([np.array(logprobs)], [np.array(weights)]).metrics

    assert metrics.values == {}
    assert metrics.undefined == {"nll": reason, "perplexity": reason}


def test_counts_are_those_of_all_data() -> None:
    """The reason counts every weighted token, not those of one datum."""
    result = mean_nll([np.array([-math.inf, -1.0]), np.array([-1.0, -1.0])], [np.array([1, 1]), np.array([1, 0])])

    assert result.metrics.undefined["nll"] == "1 of 3 log-probabilities is -inf"


def test_weights_that_nearly_cancel_keep_their_digits() -> None:
    """A sum of weights of both signs is exact, as the mean is divided by it."""
    weights = np.array([1.0, 1e16, 1.0, -1e16])

    result = mean_nll([np.full(4, -1.0)], [weights])

    assert result.total_weight == 2.0
    assert result.metrics.values["nll"] == 1.0


@rows("share", [0.0, 0.1, 0.4, 0.5, 1.0])
def test_weights_of_both_signs_are_exact_enough(share: float) -> None:
    """However many are negative, whichever way sums them: 1e-12 of the mean absolute term."""
    rng = np.random.default_rng(5)
    logprobs = rng.normal(-2, 1, 50_000)
    weights = np.where(rng.random(50_000) < share, -1.0, 1.0) * rng.random(50_000)

    result = mean_nll([logprobs], [weights])

    exact = -math.fsum(logprobs * weights) / math.fsum(weights)
    scale = math.fsum(np.abs(logprobs * weights)) / abs(math.fsum(weights))
    assert abs(result.metrics.values["nll"] - exact) <= 1e-12 * scale
    assert result.total_weight == pytest.approx(math.fsum(weights), rel=1e-12)


def test_no_data_is_an_error() -> None:
    """A mean over no data is a wrong question."""
    with pytest.raises(InvalidField, match="logprobs is empty"):
        mean_nll([], [])


def test_shapes_that_differ_name_the_field() -> None:
    """The error points at the tensor that is wrong."""
    with pytest.raises(InvalidField, match=r"weights\[1\] has shape \(3,\), logprobs \(2,\)"):
        mean_nll([np.zeros(2), np.zeros(2)], [np.zeros(2), np.zeros(3)])
    with pytest.raises(InvalidField, match="weights has 1 tensors for 2 data"):
        mean_nll([np.zeros(2), np.zeros(2)], [np.zeros(2)])


@given(batches)
def test_agrees_with_rational_arithmetic(batch) -> None:
    """The mean equals its formula, computed without any rounding."""
    from fractions import Fraction

    tokens = [(Fraction(float(lp)), Fraction(float(w))) for datum in batch for lp, w in datum]
    weight = sum(w for _, w in tokens)

    values = mean_nll(*_arrays(batch)).metrics.values

    if weight:
        exact = float(-sum(lp * w for lp, w in tokens) / weight)
        assert values["nll"] == pytest.approx(exact, rel=1e-14, abs=1e-300)
    else:
        assert values == {}


@given(batches, st.randoms(use_true_random=False))
def test_parts_do_not_depend_on_their_order(batch, random) -> None:
    """Parts put together in any order give the same bits."""
    parts = [nll_parts(logprobs, weights) for logprobs, weights in zip(*_arrays(batch))]
    shuffled = list(parts)
    random.shuffle(shuffled)

    assert combine(shuffled) == combine(parts)


@given(batches)
def test_both_ways_give_one_mean(batch) -> None:
    """A whole batch at once and parts put together agree, and are undefined for one reason."""
    whole, joined = mean_nll(*_arrays(batch)).metrics, combine(nll_parts(*each) for each in zip(*_arrays(batch)))

    if joined.undefined:
        assert whole.undefined == {**joined.undefined, "perplexity": joined.undefined["nll"]}
    else:
        assert whole.values["nll"] == pytest.approx(joined.values["nll"], rel=1e-12)
