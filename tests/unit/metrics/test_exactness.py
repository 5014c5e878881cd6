"""Sums of many tokens, of unkind ones too, are off by 1e-12 of the mean absolute term at most."""

import itertools
import math
import tracemalloc

import numpy as np
import pytest

from crucible_bridge.types import Ragged
from crucible_worker.metrics.kl import kl_post_update, kl_sample_train
from crucible_worker.metrics.kl_penalty import incorporate_kl_penalty
from crucible_worker.metrics.nll import mean_nll

TOLERANCE = 1e-12
TOKENS = 1_000_000


def _plain(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    sampling = -rng.exponential(1.0, TOKENS)
    return sampling, sampling + rng.normal(0, 0.05, TOKENS)


def _constant(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    # 0.1 is rounded in the same direction at every step of a running sum.
    return np.full(TOKENS, -0.1), np.full(TOKENS, -0.2)


def _offset(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return -1e8 + rng.normal(0, 1, TOKENS), -1e8 + rng.normal(0, 1, TOKENS)


def _outlier(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    sampling, training = _plain(rng)
    sampling[TOKENS // 3] = -1e18
    return sampling, training


def _cancelling(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    difference = rng.normal(0, 1, TOKENS) * 10.0 ** rng.uniform(-12, 12, TOKENS)
    difference[1::2] = -difference[::2]
    return rng.permutation(difference), np.zeros(TOKENS)


DATA = {each.__name__.strip("_"): each for each in (_plain, _constant, _offset, _outlier, _cancelling)}


def _one(array: np.ndarray) -> list[np.ndarray]:
    return [array]


def _many(array: np.ndarray) -> list[np.ndarray]:
    """Sequences of 0 to 3,999 tokens, in turn."""
    lengths = np.resize([0, 3999, 1, 500, 2], array.size // 900)
    return np.split(array, np.cumsum(lengths))


def _end_to_end(array: np.ndarray) -> Ragged:
    """The same sequences as columns."""
    return Ragged(array, np.array([part.size for part in _many(array)]))


CUTS = [_one, _many, _end_to_end]


def _products(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Products, rounded, and the exact rests (Dekker, 1971)."""

    def halves(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        shifted = values * (2.0**27 + 1)
        high = shifted - (shifted - values)
        return high, values - high

    product, (a, b), (c, d) = first * second, halves(first), halves(second)
    return product, b * d - (((product - a * c) - b * c) - a * d)


@pytest.fixture(params=DATA, scope="module")
def data(request: pytest.FixtureRequest) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-probabilities of two policies and a mask of zeros and ones, each of a million tokens."""
    rng = np.random.default_rng(20)
    return *DATA[request.param](rng), (rng.random(TOKENS) < 0.7).astype(np.float64)


@pytest.mark.parametrize("cut", CUTS)
def test_kl_of_a_million_tokens(data, cut) -> None:
    """v1, v2 and entropy against exact sums of their terms."""
    sampling, training, mask = data
    kept = mask > 0
    d = (sampling - training)[kept]
    terms = {"v1": d, "v2": 0.5 * d * d, "entropy": -sampling[kept]}
    exact = {key: (math.fsum(values) / d.size, math.fsum(abs(values)) / d.size) for key, values in terms.items()}

    found = kl_sample_train(cut(sampling), cut(training), cut(mask)).metrics.values
    updated = kl_post_update(cut(sampling), cut(training), cut(mask)).metrics.values

    values = {"v1": found["optim/kl_sample_train_v1"], "v2": found["optim/kl_sample_train_v2"]}
    for key, value in {**values, "entropy": found["optim/entropy"]}.items():
        assert abs(value - exact[key][0]) <= TOLERANCE * exact[key][1]
    assert updated == {f"kl_pre_post_{key}": value for key, value in values.items()}


@pytest.mark.parametrize("cut", CUTS)
def test_nll_of_a_million_tokens(data, cut) -> None:
    """The mean against the exact quotient of sums of products."""
    logprobs, _, mask = data
    weights = mask * np.random.default_rng(4).uniform(0, 3, TOKENS)
    products, rests = _products(logprobs, weights)
    total = math.fsum(weights)
    exact = -math.fsum(itertools.chain(products, rests)) / total
    scale = math.fsum(abs(products)) / total

    result = mean_nll(cut(logprobs), cut(weights))

    assert abs(result.metrics.values["nll"] - exact) <= TOLERANCE * scale
    assert result.total_weight == pytest.approx(total, rel=TOLERANCE)


@pytest.mark.parametrize("cut", CUTS)
def test_penalty_of_a_million_tokens(data, cut) -> None:
    """The average against exact sums, and each advantage against the formula with that average."""
    logprobs, base, mask = data
    difference = (logprobs - base) * mask
    average = math.fsum(difference) / math.fsum(mask)
    scale = math.fsum(abs(difference)) / math.fsum(mask)

    result = incorporate_kl_penalty(*map(cut, (logprobs, base, mask, np.zeros(TOKENS))), coef=1.0, discount=0.0)

    assert abs(result.metrics.values["kl_policy_base"] - average) <= TOLERANCE * scale
    off = np.abs(np.concatenate([np.asarray(each) for each in result.advantages]) - mask * (average - difference))
    assert np.all(off <= TOLERANCE * (scale + np.abs(difference)))


@pytest.mark.parametrize("cut", CUTS)
def test_sums_of_each_sequence(data, cut) -> None:
    """Means of v1, v2 and entropy per sequence against exact sums, NaN where there is no token; v3 over all."""
    sampling, training, mask = data
    found = kl_sample_train(cut(sampling), cut(training), cut(mask), extended=True).per_sequence

    for index, (first, second, weight) in enumerate(zip(cut(sampling), cut(training), cut(mask))):
        kept = weight > 0
        d = (first - second)[kept]
        terms = {"kl_sample_train_v1": d, "kl_sample_train_v2": 0.5 * d * d, "entropy": -first[kept]}
        assert found["action_tokens"][index] == d.size
        for key, values in terms.items():
            value = found[f"optim/{key}"][index]
            if d.size:
                assert abs(value - math.fsum(values) / d.size) <= TOLERANCE * math.fsum(abs(values)) / d.size
            else:
                assert math.isnan(value)


def test_extended_values_take_no_object_a_sequence() -> None:
    """Of many empty sequences, some columns of numbers are kept, nothing else."""
    sequences = 200_000
    empty = Ragged(np.empty(0), np.zeros(sequences, np.int64))
    tracemalloc.start()
    try:
        result = kl_sample_train(empty, empty, empty, extended=True)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert set(result.metrics.undefined.values()) == {"no action tokens"}
    assert most < 300 * sequences


def test_weights_that_cancel_over_a_long_sequence() -> None:
    """What cancels may lie in blocks far apart."""
    weights = np.ones(100_000)
    weights[[0, -1]] = 1e16, -1e16

    result = mean_nll([np.full(100_000, -1.0)], [weights])

    assert result.total_weight == 99_998.0
    assert result.metrics.values["nll"] == 1.0


def test_many_sequences_of_one_token() -> None:
    """The number of sequences adds no error: partial sums are put together exactly."""
    values = np.full(200_000, -0.1)
    sequences, ones = list(values[:, None]), [np.ones(1)] * values.size

    assert kl_sample_train(sequences, [np.zeros(1)] * values.size, ones).metrics.values[
        "optim/kl_sample_train_v1"
    ] == pytest.approx(-0.1, rel=1e-14)
    assert mean_nll(sequences, ones).metrics.values["nll"] == pytest.approx(0.1, rel=1e-14)
