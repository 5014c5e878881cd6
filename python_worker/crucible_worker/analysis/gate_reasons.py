"""Why a gate decides as it does, in sentences with the numbers."""

from __future__ import annotations

import dataclasses

from crucible_worker.metrics.gating import Drop, Finding

__all__ = ["Lost", "sentences", "without_numbers"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """Results that the candidate has lost: more than the policy allows."""

    count: int
    """How many."""
    of: int
    """Results with a score in the baseline."""
    what: str
    """What they are of: "samples", or "results" if samples have several."""
    allowed: float
    """The share of them that the policy allows."""
    reasons: str
    """Why the candidate's samples have no score."""
    as_wrong: Drop | None
    """The drop if they are wrong; None if the evaluator has no right and wrong."""


def without_numbers(why: str) -> tuple[str, ...]:
    """The reason of a metric that cannot be compared."""
    return (f"it cannot be compared: {why}.",)


def sentences(
    drop: Drop,
    found: Finding,
    *,
    paired: bool,
    min_n: int,
    corrected: float | None,
    confidence: float,
    tests: int,
    left_out: int,
    lost: Lost | None,
    fails: bool,
) -> tuple[str, ...]:
    """The reasons of a metric with numbers.

    Args:
        drop: the numbers.
        found: what they amount to, without the samples that the candidate has lost.
        paired: whether they are of scores of samples.
        min_n: samples that the metric needs.
        corrected: its p after Holm's correction; None if it was not tested.
        confidence: of the policy.
        tests: metrics that were tested together.
        left_out: samples with a score in one of the two evaluations alone.
        lost: results that the candidate has lost, if they are more than the policy allows.
        fails: whether the metric fails, with these as wrong too.
    """
    told = [f"{_change(drop)}, {_samples(drop)}; {drop.limit:.4g} is allowed."]
    if drop.n < min_n:
        told.append(f"{drop.n:,} samples are fewer than min_n, which is {min_n:,}.")
    elif not paired:
        told.append(
            "The values alone are compared, without an interval: the metric is not the mean of its samples' scores."
        )
    elif corrected is None:
        told.append("There is one sample, or one cluster of them, and so no interval.")
    else:
        told.append(_by_interval(drop, found, corrected, confidence, tests))
    if lost is not None:
        told.append(_of_lost(lost, fails=fails))
    elif left_out:
        told.append(f"{left_out:,} samples have a score in one of the two alone, and are left out.")
    return tuple(told)


def _of_lost(lost: Lost, *, fails: bool) -> str:
    share = f"{lost.count:,} of the {lost.of:,} {lost.what} with a score in the baseline have none in the candidate"
    allowed = f"{share}{lost.reasons}, more than max_unscored_share allows, {lost.allowed:g}."
    if lost.as_wrong is None:
        return f"{allowed} Nothing is known of them."
    counted = f"if they are wrong, the candidate is {_change(lost.as_wrong)}"
    return f"{allowed} {counted[0].upper()}{counted[1:]}{', which blocks' if fails else ''}."


def _change(drop: Drop) -> str:
    values = f"{drop.baseline:.4g} in the baseline, {drop.candidate:.4g} in the candidate"
    if drop.drop == 0:
        return f"no change ({values})"
    return f"{'worse' if drop.drop > 0 else 'better'} by {abs(drop.drop):.4g} ({values})"


def _samples(drop: Drop) -> str:
    clusters = "" if drop.clusters is None else f" in {drop.clusters:,} clusters"
    return f"over {drop.n:,} samples{clusters}"


def _at_most(drop: Drop) -> str:
    """The upper bound in words."""
    assert drop.high is not None
    return f"better by at least {-drop.high:.4g}" if drop.high < 0 else f"worse by at most {drop.high:.4g}"


def _by_interval(drop: Drop, found: Finding, corrected: float, confidence: float, tests: int) -> str:
    percent, together = (
        f"{confidence * 100:g} %",
        f" after Holm's correction for {tests:,} metrics" if tests > 1 else "",
    )
    chance = f"p {corrected:.2g}{together}"
    if found is Finding.FAIL:
        return f"The drop is larger than allowed ({chance}); at {percent} it is at least {drop.low:.4g}."
    if found is Finding.PASS and drop.drop <= 0:
        return f"At {percent} the candidate is {_at_most(drop)}."
    if found is Finding.PASS:
        return f"At {percent} the drop is at most {drop.high:.4g}."
    wanted = "" if drop.needed is None else f" About {drop.needed:,.0f} samples would tell if the drop stays as it is."
    between = f"between {drop.low:.4g} and {drop.high:.4g} at {percent}"
    return f"The samples cannot tell: the drop lies {between} ({chance}).{wanted}"
