"""Accuracy of next tokens: over tokens, over samples, and how sure it is."""

import math

import pytest

from crucible_worker.metrics.scores import TOKEN_ACCURACY_KEYS, TokenHits, accuracy, token_accuracy


def hits(right: int, tokens: int, *, whole: bool | None = None) -> TokenHits:
    """Of a sample, right as a whole where all of its tokens are."""
    return TokenHits(tokens=tokens, right=right, whole=right == tokens if whole is None else whole)


def test_every_token_counts_once():
    """Accuracy is over tokens, not a mean of samples' own; of samples it is told besides."""
    values = token_accuracy([hits(1, 1), hits(2, 7), hits(3, 4, whole=True)]).values

    assert values["next_token_accuracy"] == 6 / 12
    assert values["sample_accuracy"] == 2 / 3
    # (1 - 0.5)^2 + (2 - 3.5)^2 + (3 - 2)^2 = 3.5 of three samples.
    assert values["next_token_accuracy_stderr"] == pytest.approx(math.sqrt(3 / 2 * 3.5) / 12)


def test_uncertainty_is_that_of_accuracy_clustered_by_sample():
    """A token of a sample is what a repeat of one is to accuracy."""
    counts = [(1, 3), (4, 4), (0, 2), (2, 5)]
    told = accuracy([[1.0] * right + [0.0] * (tokens - right) for right, tokens in counts]).values

    found = token_accuracy([hits(*each) for each in counts]).values

    assert found["next_token_accuracy"] == pytest.approx(told["accuracy"], abs=1e-15)
    assert found["next_token_accuracy_stderr"] == pytest.approx(told["accuracy_stderr"], abs=1e-15)


def test_samples_without_tokens_have_no_part():
    """They neither count as right nor make a standard error of one sample."""
    metrics = token_accuracy([hits(0, 0), hits(1, 2)])

    assert metrics.values == {"next_token_accuracy": 0.5, "sample_accuracy": 0.0}
    assert metrics.undefined == {"next_token_accuracy_stderr": "only one sample was scored"}


@pytest.mark.parametrize(("given", "reason"), [([], "no sample was scored"), ([hits(0, 0)], "no token has weight")])
def test_nothing_is_no_zero(given, reason):
    """Without a token every key is undefined."""
    assert token_accuracy(given).undefined == dict.fromkeys(TOKEN_ACCURACY_KEYS, reason)
