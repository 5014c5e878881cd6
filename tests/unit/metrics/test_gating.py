"""Drops of metrics and their verdicts: the rule, its errors by chance, and cases of another gate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crucible_worker.metrics.paired import AllowedDrop, GateFinding, drop_of_values, finding, mcnemar_p, paired_drop
from crucible_worker.metrics.significance import holm
from tests.tables import rows

SCORES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=30, max_size=60)
BINARY = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=30, max_size=60)


def decided(
    before: Sequence[float] | np.ndarray,
    after: Sequence[float] | np.ndarray,
    allowed: AllowedDrop,
    *,
    min_n: int = 30,
    clusters: Sequence[int] | None = None,
) -> GateFinding:
    """What one metric alone amounts to, at 95 %."""
    labels = None if clusters is None else np.array(clusters, np.int64)
    drop = paired_drop(
        np.array(before, np.float64), np.array(after, np.float64), allowed, confidence=0.95, clusters=labels
    )
    return finding(drop, paired=True, min_n=min_n, corrected=drop.chance, alpha=0.05)


@rows(
    ("name", "before", "after", "allowed", "min_n", "found"),
    [
        ("within", [0.8] * 50, [0.795] * 50, AllowedDrop(drop=0.01), 10, GateFinding.PASS),
        ("beyond", [1.0] * 50, [0.95] * 50, AllowedDrop(drop=0.01), 10, GateFinding.FAIL),
        ("far beyond", [1.0] * 50, [0.9] * 50, AllowedDrop(drop=0.015), 10, GateFinding.FAIL),
        ("relative", [0.10] * 50, [0.095] * 50, AllowedDrop(drop=0.02, relative=True), 10, GateFinding.FAIL),
        ("better", [0.7] * 50, [0.9] * 50, AllowedDrop(drop=0.01), 10, GateFinding.PASS),
        ("a loss rose", [5.0] * 50, [5.5] * 50, AllowedDrop(drop=0.3, lower_is_better=True), 10, GateFinding.FAIL),
        ("a loss fell", [5.0] * 50, [4.5] * 50, AllowedDrop(drop=0.3, lower_is_better=True), 10, GateFinding.PASS),
        ("one limit", [0.8] * 50, [0.78] * 50, AllowedDrop(drop=0.01), 10, GateFinding.FAIL),
        ("another limit", [0.5] * 50, [0.48] * 50, AllowedDrop(drop=0.05), 10, GateFinding.PASS),
        ("few", [0.8] * 5, [0.7] * 5, AllowedDrop(drop=0.01), 10, GateFinding.OPEN),
        ("across", [1.0] * 50, [0.98] * 25 + [1.0] * 25, AllowedDrop(drop=0.01), 10, GateFinding.OPEN),
        ("a command's stop", [0.8] * 20, [0.7] * 20, AllowedDrop(drop=0.01), 10, GateFinding.FAIL),
        ("a command's doubt", [0.8] * 5, [0.79] * 5, AllowedDrop(drop=0.01), 10, GateFinding.OPEN),
    ],
)
def test_verdicts_are_those_of_another_gate(name, before, after, allowed, min_n, found):
    """NeMo Evaluator's own cases of PASS, BREACH and INSUFFICIENT_EVIDENCE, where its policies mean what ours do.

    It needs 10 samples. Numbers are those of its `test_gate.py` and `test_gate_cli.py`. Left out is what has another
    meaning there: a benchmark that is missing stops a candidate (here it is inconclusive), and an aggregate without an
    interval is insufficient evidence (here the values alone are compared).
    """
    assert decided(before, after, allowed, min_n=min_n) is found


def test_values_alone_are_compared_as_they_are():
    """Another gate's case of aggregates without spread: 0.80 and 0.78 with 0.01 allowed."""
    drop = drop_of_values(0.80, 0.78, 100, AllowedDrop(drop=0.01))
    assert finding(drop, paired=False, min_n=30, corrected=None, alpha=0.05) is GateFinding.FAIL
    assert finding(drop, paired=False, min_n=101, corrected=None, alpha=0.05) is GateFinding.OPEN

    just = drop_of_values(0.80, 0.79, 100, AllowedDrop(drop=0.01))
    assert just.drop > 0.01  # by rounding alone
    assert finding(just, paired=False, min_n=30, corrected=None, alpha=0.05) is GateFinding.PASS


@given(st.one_of(SCORES, BINARY), st.booleans(), st.booleans())
@settings(deadline=None)
def test_allowing_more_never_hurts(pairs, relative, lower):
    """As the limit rises, a verdict goes from FAIL over OPEN to PASS, and never back."""
    before, after = zip(*pairs)
    order = [GateFinding.FAIL, GateFinding.OPEN, GateFinding.PASS]
    limits = (0.0, 0.01, 0.1, 0.5, 1.0, 2.0)
    found = [
        order.index(decided(before, after, AllowedDrop(drop=limit, relative=relative, lower_is_better=lower)))
        for limit in limits[1:]
    ]
    assert found == sorted(found)


@given(BINARY)
@settings(deadline=None)
def test_a_metric_that_must_not_drop_is_tested_exactly(pairs):
    """Of scores that are 0 or 1 the p-value is McNemar's, if the candidate is worse."""
    before, after = (np.array([pair[side] for pair in pairs], np.float64) for side in (0, 1))
    drop = paired_drop(before, after, AllowedDrop(drop=0.0), confidence=0.95)
    lost, gained = int(np.sum(before > after)), int(np.sum(before < after))
    if lost > gained:
        assert drop.chance == pytest.approx(mcnemar_p(gained, lost))
    else:
        assert drop.chance == 1.0


@given(BINARY)
@settings(deadline=None)
def test_p_never_falls_when_more_is_allowed(pairs):
    """Whatever the test that an allowance has: of scores that are 0 or 1 they differ."""
    before, after = (np.array([pair[side] for pair in pairs], np.float64) for side in (0, 1))
    allowances = (0.0, 1e-6, 0.001, 0.02, 0.1, 0.5, 1.0)
    chances = [paired_drop(before, after, AllowedDrop(drop=one), confidence=0.95).chance for one in allowances]
    known = [chance for chance in chances if chance is not None]
    assert known == sorted(known)


def test_p_of_a_small_allowance_is_not_below_that_of_none():
    """100 lost and 64 gained of 600: Student's test alone gives less than McNemar's of the allowance 0."""
    before = np.array([1.0] * 100 + [0.0] * 64 + [1.0] * 436)
    after = np.array([0.0] * 100 + [1.0] * 64 + [1.0] * 436)
    exact, slight = (paired_drop(before, after, AllowedDrop(drop=one), confidence=0.95) for one in (0.0, 1e-9))
    assert exact.chance == slight.chance == pytest.approx(mcnemar_p(64, 100))


@given(st.one_of(SCORES, BINARY))
@settings(deadline=None)
def test_no_worse_is_never_stopped(pairs):
    """A candidate whose mean is no lower passes, whatever is allowed."""
    before, after = zip(*((min(pair), max(pair)) for pair in pairs))
    for allowed in (AllowedDrop(drop=0.0), AllowedDrop(drop=0.1), AllowedDrop(drop=0.0, relative=True)):
        assert decided(before, after, allowed) is GateFinding.PASS


def test_a_relative_limit_counts_the_baselines_error():
    """Its excess is drop - r x, sample by sample: its mean and error are those of that column."""
    random = np.random.default_rng(2)
    before = random.random(200) + 1
    after = before - 0.1 - random.random(200) / 10
    drop = paired_drop(before, after, AllowedDrop(drop=0.05, relative=True), confidence=0.95)

    excess = before - after - 0.05 * before
    assert drop.limit == pytest.approx(0.05 * before.mean())
    assert drop.excess_high == pytest.approx(excess.mean() + 1.971957 * excess.std(ddof=1) / math.sqrt(200), rel=1e-6)


def test_clusters_widen_the_interval():
    """Fifty copies of two texts' questions are two observations, and cannot tell; one cluster has no interval."""
    before, after = [1.0] * 100, [0.9] * 50 + [1.0] * 50
    halves = [0] * 50 + [1] * 50
    assert decided(before, after, AllowedDrop(drop=0.01)) is GateFinding.FAIL
    assert decided(before, after, AllowedDrop(drop=0.01), clusters=halves) is GateFinding.OPEN
    assert decided(before, after, AllowedDrop(drop=0.01), clusters=[0] * 100) is GateFinding.OPEN


def test_needed_samples_decide():
    """With as many samples of the same scores as an open verdict names, it is no longer open in most simulations."""
    random = np.random.default_rng(3)
    before, after = random.normal(0, 1, 60), random.normal(-0.3, 1, 60)
    drop = paired_drop(before, after, AllowedDrop(drop=0.0), confidence=0.95)
    assert finding(drop, paired=True, min_n=30, corrected=drop.chance, alpha=0.05) is GateFinding.OPEN
    assert drop.needed is not None
    told = 0
    for _ in range(200):
        rows = random.integers(60, size=int(drop.needed))
        told += decided(before[rows], after[rows], AllowedDrop(drop=0.0)) is GateFinding.FAIL
    assert 140 <= told <= 180


@pytest.mark.long
def test_chance_alone_seldom_stops():
    """Of 1,000 policies of four metrics whose candidate is as good as its baseline, at most 5 % stop it."""
    random = np.random.default_rng(7)
    stopped = 0
    for _ in range(1_000):
        difficulty = random.beta(2, 2, 100)
        right = [(random.random((2, 100)) < difficulty).astype(np.float64) for _ in range(2)]
        measured = [difficulty + random.normal(0, 0.2, (2, 100)) for _ in range(2)]
        drops = [paired_drop(one, other, AllowedDrop(drop=0.0), confidence=0.95) for one, other in (*right, *measured)]
        corrected = holm([drop.chance for drop in drops if drop.chance is not None])
        stopped += any(
            finding(drop, paired=True, min_n=30, corrected=chance, alpha=0.05) is GateFinding.FAIL
            for drop, chance in zip(drops, corrected, strict=True)
        )
    assert stopped <= 50
