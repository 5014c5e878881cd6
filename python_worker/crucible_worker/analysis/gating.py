"""Whether a candidate may take the place of a baseline: a policy's metrics, read from the journal, and a verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from crucible_bridge.errors import InvalidField, NotFound
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Evaluation,
    GatedMetric,
    GateMetric,
    GatePolicy,
    GateRequest,
    GateResponse,
    GateTier,
    GateVerdict,
    Goal,
    Metrics,
)
from crucible_worker.analysis.pairing import (
    PAIRED_SCORES,
    VALUES,
    Clusters,
    Known,
    SampleScores,
    check_comparable,
    index_of_key,
    place_of,
    sample_scores,
    why_not,
)
from crucible_worker.journal.queries import EvaluationRow, Reads, evaluation_of, find
from crucible_worker.metrics.paired import (
    MAX_SCORE,
    AllowedDrop,
    Drop,
    GateFinding,
    drop_of_values,
    finding,
    paired_drop,
)
from crucible_worker.metrics.significance import holm
from crucible_worker.reports.metric_keys import STRICT, full_key, reasons_text

__all__ = ["gate"]

# Why a gate decides as it does, in sentences with the numbers.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LostResults:
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
    found: GateFinding,
    *,
    paired: bool,
    min_n: int,
    corrected: float | None,
    confidence: float,
    tests: int,
    left_out: int,
    lost: LostResults | None,
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


def _of_lost(lost: LostResults, *, fails: bool) -> str:
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


def _by_interval(drop: Drop, found: GateFinding, corrected: float, confidence: float, tests: int) -> str:
    percent, together = (
        f"{confidence * 100:g} %",
        f" after Holm's correction for {tests:,} metrics" if tests > 1 else "",
    )
    chance = f"p {corrected:.2g}{together}"
    if found is GateFinding.FAIL:
        return f"The drop is larger than allowed ({chance}); at {percent} it is at least {drop.low:.4g}."
    if found is GateFinding.PASS and drop.drop <= 0:
        return f"At {percent} the candidate is {_at_most(drop)}."
    if found is GateFinding.PASS:
        return f"At {percent} the drop is at most {drop.high:.4g}."
    wanted = "" if drop.needed is None else f" About {drop.needed:,.0f} samples would tell if the drop stays as it is."
    between = f"between {drop.low:.4g} and {drop.high:.4g} at {percent}"
    return f"The samples cannot tell: the drop lies {between} ({chance}).{wanted}"


_MAX_SHOWN = 30  # keys that an error names


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What is read of a metric of the policy."""

    metric: GateMetric
    evaluator: str = ""
    drop: Drop | None = None
    rests_on: str = ""
    left_out: int = 0
    """Samples with a score in one of the two evaluations alone."""
    lost: LostResults | None = None
    """Results with a score in the baseline alone, if they are more than the policy allows."""
    why: str = ""
    """Why there are no numbers."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """The two evaluations."""

    connection: Reads
    baseline: Evaluation
    candidate: Evaluation
    numbers: Mapping[str, int]
    known: Known
    policy: GatePolicy
    across_rules: bool
    scores: dict[tuple[str, int], SampleScores] = dataclasses.field(default_factory=dict)
    """By evaluation and index of the evaluator: several keys may be of one."""

    def scores_of(self, evaluation: Evaluation, index: int) -> SampleScores:
        place = (evaluation.evaluation_id, index)
        if place not in self.scores:
            self.scores[place] = sample_scores(self.connection, self.numbers[evaluation.evaluation_id], index)
        return self.scores[place]


def gate(connection: Reads, request: GateRequest, max_samples: int, known: Known) -> GateResponse:
    """Decide each metric of a policy, and the candidate; runs in a reader's thread.

    Args:
        connection: to the journal.
        request: its policy has been checked.
        max_samples: results of samples, of both evaluations together.
        known: returns the declarations of evaluators.

    Raises:
        BridgeError: see `Comparisons.gate`.
    """
    if request.candidate_id == request.baseline_id:
        raise InvalidField("candidate_id", f"is {request.candidate_id!r}, the baseline: nothing can differ")
    rows = [
        _row(connection, request.baseline_id, "baseline_id"),
        _row(connection, request.candidate_id, "candidate_id"),
    ]
    baseline, candidate = (evaluation_of(row) for row in rows)
    check_comparable((baseline, candidate), max_samples)
    sides = _Sides(
        connection=connection,
        baseline=baseline,
        candidate=candidate,
        numbers={row.evaluation_id: row.number for row in rows},
        known=known,
        policy=request.policy,
        across_rules=request.across_rules,
    )
    read = [_read(sides, metric, f"policy.metrics[{index}].key") for index, metric in enumerate(request.policy.metrics)]
    decided = _decided(read, request.policy.confidence)
    reasons = [f"{each.key}: {' '.join(each.reasons)}" for each in decided if each.verdict is not GateVerdict.PASS]
    return GateResponse(verdict=_together(decided), reasons=tuple(reasons), metrics=decided)


def _row(connection: Reads, evaluation_id: str, field: str) -> EvaluationRow:
    row = find(connection, evaluation_id)
    if row is None:
        raise NotFound(
            f"is {evaluation_id!r}: no evaluation has this id, or it is no longer retained",
            reason=Reason.UNKNOWN_EVALUATION,
            field=field,
        )
    return row


def _read(sides: _Sides, metric: GateMetric, field: str) -> _Read:
    baseline, candidate = sides.baseline, sides.candidate
    known = (key for one in (baseline, candidate) for key in (*one.metrics.values, *one.metrics.undefined))
    metric = dataclasses.replace(metric, key=full_key(metric.key, known))
    places = index_of_key(baseline, metric.key), index_of_key(candidate, metric.key)
    if places == (None, None):
        _refuse_key(metric.key, (baseline, candidate), field)
    index, place = places
    for evaluation, found in ((baseline, index), (candidate, place)):
        if found is None:
            return _Read(metric=metric, why=f"{evaluation.evaluation_id!r} has no metric of this key")
    assert index is not None
    assert place is not None
    spec = baseline.request.evaluators[index]
    if place_of(candidate, spec) != place:
        return _Read(metric=metric, why="it is of another evaluator in the candidate than in the baseline")
    problem = why_not(baseline, index, candidate, place, sides.known, across_rules=sides.across_rules)
    if problem is not None:
        return _Read(metric=metric, evaluator=spec.label, why=problem.message)
    ours, theirs = sides.scores_of(baseline, index), sides.scores_of(candidate, place)
    # A strict metric counts them as wrong already.
    lost = None if metric.key.endswith(STRICT) else _lost(sides, metric, index, place)
    for evaluation, at in ((baseline, index), (candidate, place)):
        if (undefined := evaluation.results[at].metrics.undefined.get(metric.key)) is not None:
            why = f"it is not defined in {evaluation.evaluation_id!r}: {undefined}"
            return _of_lost_alone(lost, metric, spec.label) or _Read(metric=metric, evaluator=spec.label, why=why)
    return _numbers(sides, metric, index, place, ours, theirs, lost)


def _of_lost_alone(lost: LostResults | None, metric: GateMetric, label: str) -> _Read | None:
    """What is read of a metric if no sample of the candidate has a score: all of them are wrong; None without them."""
    if lost is None or lost.as_wrong is None:
        return None
    return _Read(metric=metric, evaluator=label, drop=lost.as_wrong, rests_on=PAIRED_SCORES, lost=lost)


def _lost(sides: _Sides, metric: GateMetric, index: int, place: int) -> LostResults | None:
    """The results that the candidate has lost, each repeat counted, if they are more than the policy allows."""
    baseline, candidate = sides.baseline, sides.candidate
    scores, theirs = sides.scores_of(baseline, index), sides.scores_of(candidate, place)
    ours = scores.by_sample
    left = {one: min(theirs.counts.get(one, 0), count) for one, count in scores.counts.items()}
    of = sum(scores.counts.values())
    count = of - sum(left.values())
    if count <= sides.policy.max_unscored_share * of:
        return None
    as_wrong = None
    right_and_wrong = baseline.results[index].n_correct is not None and metric.direction is not Goal.LOWER
    if right_and_wrong and scores.is_mean(baseline.results[index].metrics.values.get(metric.key)):
        before = np.array(list(ours.values()), np.float64)
        shares = [theirs.by_sample.get(one, 0.0) * left[one] / scores.counts[one] for one in ours]
        after = np.array(shares, np.float64)
        if not _why_no_drop(before, after, _allowed(metric)):
            as_wrong = _paired(sides, metric, index, list(ours), before, after)
    return LostResults(
        count=count,
        of=of,
        what="samples" if of == len(ours) else "results",
        allowed=sides.policy.max_unscored_share,
        reasons=reasons_text(candidate.results[place]),
        as_wrong=as_wrong,
    )


def _numbers(
    sides: _Sides,
    metric: GateMetric,
    index: int,
    place: int,
    ours: SampleScores,
    theirs: SampleScores,
    lost: LostResults | None,
) -> _Read:
    baseline, candidate = sides.baseline, sides.candidate
    label = baseline.request.evaluators[index].label
    of_ours, of_theirs = baseline.results[index].metrics, candidate.results[place].metrics
    values = of_ours.values[metric.key], of_theirs.values[metric.key]
    allowed = _allowed(metric)
    if not (ours.is_mean(values[0]) and theirs.is_mean(values[1])):
        if why := _why_no_drop(np.array(values[:1]), np.array(values[1:]), allowed):
            return _Read(metric=metric, evaluator=label, why=why)
        n = min(baseline.results[index].n_scored, candidate.results[place].n_scored)
        drop = drop_of_values(*values, n, allowed)
        return _Read(metric=metric, evaluator=label, drop=drop, rests_on=VALUES, lost=lost)
    matched = [sample_id for sample_id in ours.by_sample if sample_id in theirs.by_sample]
    before, after = (np.array([each.by_sample[one] for one in matched], np.float64) for each in (ours, theirs))
    if why := _why_no_drop(before, after, allowed):
        return _of_lost_alone(lost, metric, label) or _Read(metric=metric, evaluator=label, why=why)
    drop = _paired(sides, metric, index, matched, before, after)
    left_out = len(ours.by_sample) + len(theirs.by_sample) - 2 * len(matched)
    return _Read(metric=metric, evaluator=label, drop=drop, rests_on=PAIRED_SCORES, left_out=left_out, lost=lost)


def _paired(
    sides: _Sides, metric: GateMetric, index: int, samples: Sequence[str], before: np.ndarray, after: np.ndarray
) -> Drop:
    """The drop of these samples, by the scores of both sides in their order."""
    baseline = sides.baseline
    clusters = Clusters(sides.policy.cluster_by, "policy.cluster_by")
    clusters.read(sides.connection, sides.numbers[baseline.evaluation_id], index, baseline.dataset_fingerprint)
    return paired_drop(
        before, after, _allowed(metric), confidence=sides.policy.confidence, clusters=clusters.of(samples)
    )


def _why_no_drop(before: np.ndarray, after: np.ndarray, allowed: AllowedDrop) -> str:
    """Why the drop of these scores cannot be computed; empty if it can be."""
    if not before.size:
        return "no sample has a score in both evaluations"
    largest = float(max(np.abs(before).max(), np.abs(after).max()))
    if largest > MAX_SCORE:
        return f"a score is beyond {MAX_SCORE:g}"
    lost = allowed.drop if not allowed.relative else allowed.drop * largest
    return f"the drop that is allowed is beyond {MAX_SCORE:g}" if lost > MAX_SCORE else ""


def _allowed(metric: GateMetric) -> AllowedDrop:
    relative = metric.max_drop is None
    drop = metric.max_relative_drop if relative else metric.max_drop
    assert drop is not None
    return AllowedDrop(drop=drop, relative=relative, lower_is_better=metric.direction is Goal.LOWER)


def _refuse_key(key: str, evaluations: Sequence[Evaluation], field: str) -> None:
    known: dict[str, None] = {}
    for evaluation in evaluations:
        known |= dict.fromkeys((*evaluation.metrics.values, *evaluation.metrics.undefined))
    shown = ", ".join(list(known)[:_MAX_SHOWN]) or "none"
    raise InvalidField(field, f"is {key!r}, which neither evaluation has; their metrics are: {shown}")


def _decided(read: Sequence[_Read], confidence: float) -> tuple[GatedMetric, ...]:
    tested = [
        (index, each.drop.chance)
        for index, each in enumerate(read)
        if each.drop is not None and each.drop.chance is not None and each.drop.n >= each.metric.min_n
    ]
    corrected = dict(zip((index for index, _ in tested), holm([chance for _, chance in tested])))
    return tuple(_of(each, corrected.get(index), confidence, len(tested)) for index, each in enumerate(read))


def _of(each: _Read, corrected: float | None, confidence: float, tests: int) -> GatedMetric:
    tier = each.metric.tier or GateTier.BLOCK
    if each.drop is None:
        reasons = without_numbers(each.why)
        return GatedMetric(
            key=each.metric.key,
            tier=tier,
            verdict=GateVerdict.INCONCLUSIVE,
            reasons=reasons,
            evaluator=each.evaluator,
        )
    paired, min_n = each.rests_on == PAIRED_SCORES, each.metric.min_n
    of_matched = finding(each.drop, paired=paired, min_n=min_n, corrected=corrected, alpha=1 - confidence)
    found = of_matched
    if each.lost is not None and found is not GateFinding.FAIL:
        found = _with_lost(each.lost, min_n, tests, confidence)
    failed = GateVerdict.WARN if tier is GateTier.WARN else GateVerdict.BLOCK
    verdicts = {
        GateFinding.PASS: GateVerdict.PASS,
        GateFinding.FAIL: failed,
        GateFinding.OPEN: GateVerdict.INCONCLUSIVE,
    }
    return GatedMetric(
        key=each.metric.key,
        tier=tier,
        verdict=verdicts[found],
        reasons=sentences(
            each.drop,
            of_matched,
            paired=paired,
            min_n=min_n,
            corrected=corrected,
            confidence=confidence,
            tests=tests,
            left_out=each.left_out,
            lost=each.lost,
            fails=found is GateFinding.FAIL,
        ),
        evaluator=each.evaluator,
        rests_on=each.rests_on,
        n=each.drop.n,
        metrics=_metrics(each.drop, corrected),
    )


def _with_lost(lost: LostResults, min_n: int, tests: int, confidence: float) -> GateFinding:
    """What a metric amounts to of which the candidate has lost samples: it fails if it does with these as wrong."""
    if lost.as_wrong is None or lost.as_wrong.chance is None:
        return GateFinding.OPEN
    corrected = min(1.0, lost.as_wrong.chance * max(tests, 1))  # Bonferroni: Holm's order is that of other values
    found = finding(lost.as_wrong, paired=True, min_n=min_n, corrected=corrected, alpha=1 - confidence)
    return GateFinding.FAIL if found is GateFinding.FAIL else GateFinding.OPEN


def _metrics(drop: Drop, corrected: float | None) -> Metrics:
    values = {
        "baseline": drop.baseline,
        "candidate": drop.candidate,
        "drop": drop.drop,
        "max_drop": drop.limit,
        "drop_ci_low": drop.low,
        "drop_ci_high": drop.high,
        "p": drop.chance,
        "holm_p": corrected,
        "needed_n": drop.needed,
        "n_clusters": drop.clusters,
    }
    return Metrics.of({key: float(value) for key, value in values.items() if value is not None})


def _together(decided: Sequence[GatedMetric]) -> GateVerdict:
    blocking = {each.verdict for each in decided if each.tier is GateTier.BLOCK}
    for verdict in (GateVerdict.BLOCK, GateVerdict.INCONCLUSIVE):
        if verdict in blocking:
            return verdict
    warned = any(each.verdict is not GateVerdict.PASS for each in decided)
    return GateVerdict.WARN if warned else GateVerdict.PASS
