"""Extended KL metrics: formulas, errors, values per sequence, and the digits of small differences."""

import math

import mpmath
import numpy as np
import pytest

from crucible_worker.metrics.kl import CLIP, kl_sample_train
from tests.tables import rows

V1, V2, V3 = (f"optim/kl_sample_train_v{order}" for order in (1, 2, 3))
ENTROPY, MAX, ESS, CLIPPED = (
    "optim/entropy",
    "optim/kl_sample_train_max_abs",
    "optim/importance_ess",
    "optim/clip_fraction",
)
KEYS = {V1, V2, V3, ENTROPY, MAX, ESS, CLIPPED, *(f"{key}_stderr" for key in (V1, V2, V3, ENTROPY))}


def _batch(seed: int = 3, scale: float = 0.3):
    rng = np.random.default_rng(seed)
    lengths = (7, 1, 12, 3)
    sampling = [-rng.exponential(1.0, length) for length in lengths]
    training = [array + rng.normal(0, scale, array.size) for array in sampling]
    masks = [np.array([1, 0] * 6 + [1] * 6)[:length] for length in lengths]
    masks[3][:] = 0
    return sampling, training, masks


def test_the_formulas() -> None:
    """Every key equals its formula, over the action tokens of all sequences."""
    sampling, training, masks = _batch()
    kept = [mask > 0 for mask in masks]
    d = np.concatenate([(s - t)[keep] for s, t, keep in zip(sampling, training, kept)])
    ratios = np.exp(-d)

    values = kl_sample_train(sampling, training, masks, extended=True).metrics.values

    assert set(values) == KEYS
    assert values[V3] == pytest.approx(np.mean(ratios - 1 + d), rel=1e-12)
    assert values[MAX] == np.abs(d).max()
    assert values[ESS] == pytest.approx(ratios.sum() ** 2 / (ratios**2).sum(), rel=1e-12)
    assert values[CLIPPED] == np.mean(np.abs(ratios - 1) > CLIP)
    assert 0 < values[CLIPPED] < 1


def test_asking_for_more_changes_nothing_else() -> None:
    """The keys of the plain answer have the same bits in the extended one."""
    plain, extended = kl_sample_train(*_batch()), kl_sample_train(*_batch(), extended=True)

    assert plain.metrics.values.items() <= extended.metrics.values.items()
    assert plain.action_tokens == extended.action_tokens


def test_standard_errors_are_clustered_by_sequence() -> None:
    """A sequence is one observation: with one token each, the error is that of a mean of independent values."""
    sampling = [np.array([-1.0]), np.array([-2.0]), np.array([-4.0])]
    training, masks = [np.zeros(1)] * 3, [np.ones(1)] * 3

    values = kl_sample_train(sampling, training, masks, extended=True).metrics.values
    doubled = kl_sample_train([np.repeat(s, 2) for s in sampling], [np.zeros(2)] * 3, [np.ones(2)] * 3, extended=True)

    expected = np.std([1, 2, 4], ddof=1) / math.sqrt(3)
    assert values[f"{V1}_stderr"] == pytest.approx(expected, rel=1e-12)
    assert values[f"{ENTROPY}_stderr"] == pytest.approx(expected, rel=1e-12)
    assert doubled.metrics.values[f"{V1}_stderr"] == pytest.approx(expected, rel=1e-12)


def test_one_sequence_has_no_standard_error() -> None:
    """An error from one observation is undefined, not zero."""
    result = kl_sample_train([np.array([-1.0, -2.0])], [np.zeros(2)], [np.ones(2)], extended=True)

    missing = {key for key in KEYS if key.endswith("_stderr")}
    assert result.metrics.undefined == dict.fromkeys(missing, "only one sequence has action tokens")


def test_per_sequence_values() -> None:
    """One value per sequence and key: the key's formula over that sequence, NaN where it has no action token."""
    sampling, training, masks = _batch()

    found = kl_sample_train(sampling, training, masks, extended=True).per_sequence

    assert set(found) == {V1, V2, V3, ENTROPY, MAX, "action_tokens"}
    assert found["action_tokens"].tolist() == [4, 1, 6, 0]
    for index in range(3):
        alone = kl_sample_train([sampling[index]], [training[index]], [masks[index]], extended=True).metrics.values
        for key in (V1, V2, V3, ENTROPY, MAX):
            assert found[key][index] == pytest.approx(alone[key], rel=1e-12)
    assert all(math.isnan(found[key][3]) for key in (V1, V2, V3, ENTROPY, MAX))
    assert all(array.dtype == np.float64 and array.shape == (4,) for array in found.values())


@rows("scale", [1e-12, 1e-8, 1e-4, 0.49, 0.51, 5.0])
def test_the_third_estimator_keeps_its_digits(scale: float) -> None:
    """Small differences have a v3 of d^2 / 2, which exp(-d) - 1 + d loses to rounding."""
    d = np.random.default_rng(5).normal(0, scale, 200)
    with mpmath.workdps(60):
        exact = float(mpmath.fsum(mpmath.expm1(-mpmath.mpf(x)) + mpmath.mpf(x) for x in d.tolist()) / d.size)

    values = kl_sample_train([d], [np.zeros(200)], [np.ones(200)], extended=True).metrics.values

    assert values[V3] == pytest.approx(exact, rel=1e-12)


def test_ratios_beyond_float64_still_have_an_effective_sample_size() -> None:
    """It does not depend on the scale of the ratios; their mean does, and is undefined."""
    sampling = [np.array([-2000.0, -2000.0]), np.array([-1.0])]

    metrics = kl_sample_train(sampling, [np.zeros(2), np.zeros(1)], [np.ones(2), np.ones(1)], extended=True).metrics

    assert metrics.values[ESS] == pytest.approx(2.0)
    assert metrics.values[CLIPPED] == 1.0
    assert metrics.undefined[V3] == metrics.undefined[f"{V3}_stderr"] == "the sum is beyond float64"


def test_without_action_tokens_every_key_is_undefined() -> None:
    """An average over nothing is undefined, the extended ones too."""
    result = kl_sample_train([np.zeros(2)], [np.zeros(2)], [np.zeros(2)], extended=True)

    assert result.metrics.values == {}
    assert result.metrics.undefined == dict.fromkeys(KEYS, "no action tokens")


def test_values_that_are_not_finite_are_told() -> None:
    """What needs both policies is undefined for one reason; entropy has a value; other sequences stand."""
    sampling = [np.array([-1.0, -2.0]), np.array([-3.0])]
    training = [np.array([-1.0, math.nan]), np.array([-2.0])]

    result = kl_sample_train(sampling, training, [np.ones(2), np.ones(1)], extended=True)

    assert set(result.metrics.values) == {ENTROPY, f"{ENTROPY}_stderr"}
    reasons = {result.metrics.undefined[key] for key in KEYS - set(result.metrics.values)}
    assert reasons == {"1 of 3 log-probabilities is NaN (training_logprobs)"}
    assert math.isnan(result.per_sequence[V1][0])
    assert result.per_sequence[V1][1] == -1.0
