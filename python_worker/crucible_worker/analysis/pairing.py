"""Whether an evaluator's results in two evaluations can be compared, and the scores that are compared."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from crucible_bridge.errors import FailedPrecondition, ResourceExhausted
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Evaluation, EvaluatorInfo, EvaluatorSpec, Goal, Problem
from crucible_worker.journal.queries import Reads, scores_of
from crucible_worker.reports.facts import rules_in_words
from crucible_worker.util.fingerprints import same

__all__ = [
    "Known",
    "SampleScores",
    "check_comparable",
    "goal_of",
    "index_of_key",
    "place_of",
    "sample_scores",
    "why_not",
]

_MAX_SHOWN = 5  # fingerprints that an error names

Known = Callable[[str], EvaluatorInfo | None]
"""The declaration of a kind of evaluator; None if it cannot be known."""


def check_comparable(evaluations: Sequence[Evaluation], max_samples: int) -> None:
    """Refuse evaluations that cannot be compared.

    Raises:
        FailedPrecondition: one has not ended (NOT_ENDED), or they are of several data sets (DIFFERENT_DATASETS).
        ResourceExhausted: they have more results of samples than this (TOO_MANY_SAMPLES).
    """
    for evaluation in evaluations:
        if not evaluation.state.terminal:
            message = f"{evaluation.evaluation_id!r} is {evaluation.state.value}: only what has ended is compared"
            raise FailedPrecondition(message, reason=Reason.NOT_ENDED)
    # One that failed before its data set was read has no result to compare, and its data set is unknown.
    read = [evaluation for evaluation in evaluations if evaluation.dataset_fingerprint]
    fingerprints = {evaluation.dataset_fingerprint: evaluation.evaluation_id for evaluation in read}
    if len(fingerprints) > 1:
        _refuse_data_sets(fingerprints)
    done = sum(evaluation.done for evaluation in evaluations)
    if done > max_samples:
        raise ResourceExhausted(
            f"the evaluations have {done:,} results of samples, at most {max_samples:,} are compared "
            "(limit max_compared_samples)",
            reason=Reason.TOO_MANY_SAMPLES,
        )


def _refuse_data_sets(fingerprints: Mapping[str, str]) -> NoReturn:
    shown = [f"{fingerprint} ({name!r})" for fingerprint, name in list(fingerprints.items())[:_MAX_SHOWN]]
    more = f" and {len(fingerprints) - _MAX_SHOWN} more" if len(fingerprints) > _MAX_SHOWN else ""
    raise FailedPrecondition(
        f"the evaluations are of {len(fingerprints)} data sets: {', '.join(shown)}{more}",
        reason=Reason.DIFFERENT_DATASETS,
    )


def index_of_key(evaluation: Evaluation, key: str) -> int | None:
    """The index of the evaluator whose metrics have this full key, with a value or without; None if none has."""
    for index, result in enumerate(evaluation.results):
        if key in result.metrics.values or key in result.metrics.undefined:
            return index
    return None


def place_of(evaluation: Evaluation, spec: EvaluatorSpec) -> int | None:
    """The index of the evaluator of this name and kind; None if there is none."""
    labels = [(theirs.label, theirs.kind) for theirs in evaluation.request.evaluators]
    pair = (spec.label, spec.kind)
    return labels.index(pair) if pair in labels else None


def why_not(
    baseline: Evaluation, index: int, other: Evaluation, place: int, known: Known, *, across_rules: bool = False
) -> Problem | None:
    """Why the results of an evaluator cannot be compared; None if they can.

    Args:
        baseline: one evaluation.
        index: the evaluator's index in its request.
        other: the other evaluation.
        place: likewise there.
        known: returns the declarations of evaluators.
        across_rules: whether evaluations by other rules can be compared.
    """
    spec = baseline.request.evaluators[index]
    return (
        _problem(baseline, index)
        or _problem(other, place)
        or (None if across_rules else _other_rules(baseline, other))
        or _difference(spec, other, place, known)
        or _other_judge(spec, baseline, other)
    )


def _problem(evaluation: Evaluation, index: int) -> Problem | None:
    if not evaluation.dataset_fingerprint:
        message = f"{evaluation.evaluation_id!r} ended before its data set was read"
        return Problem(reason=Reason.DATASET_NOT_READ, message=message)
    problem = evaluation.results[index].problem if index < len(evaluation.results) else None
    if problem is None or problem.reason == Reason.TOO_MANY_UNSCORED:  # the scores that there are can be compared
        return None
    message = f"it failed in {evaluation.evaluation_id!r}: {problem.reason}: {problem.message}"
    return Problem(reason=Reason.EVALUATOR_FAILED, message=message)


def _other_rules(baseline: Evaluation, other: Evaluation) -> Problem | None:
    if baseline.rules_version == other.rules_version != 0:  # of two that are 0, each may have other versions
        return None
    message = (
        f"{other.evaluation_id!r} was measured by rules {rules_in_words(other.rules_version)}, the baseline by rules "
        f"{rules_in_words(baseline.rules_version)}: measure one of them again, or set across_rules (--across-rules)"
    )
    return Problem(reason=Reason.RULES_DIFFER, message=message)


def _difference(spec: EvaluatorSpec, other: Evaluation, place: int, known: Known) -> Problem | None:
    if _options(other.request.evaluators[place], known) == _options(spec, known):
        return None
    message = f"its options in {other.evaluation_id!r} are not those in the baseline"
    return Problem(reason=Reason.EVALUATORS_DIFFER, message=message)


def _other_judge(spec: EvaluatorSpec, baseline: Evaluation, other: Evaluation) -> Problem | None:
    given = spec.options.get("grader_options")
    if not ("judge" in spec.options or (isinstance(given, Mapping) and "judge" in given)):
        return None
    # They follow the model's, see `Plan.model_fingerprint`. It does not say which judge each belongs to: if there are
    # several, one in common is enough.
    ours, theirs = (evaluation.model_fingerprint.split("+")[1:] for evaluation in (baseline, other))
    found = [same(one, another) for one in ours for another in theirs]
    if not found or True in found:
        return None
    if None in found:
        message = (
            f"whether its judge in {other.evaluation_id!r} has the weights of that in the baseline is not known: "
            "one of them was recorded by an earlier release"
        )
    else:
        message = f"its judge has other weights in {other.evaluation_id!r} than in the baseline"
    return Problem(reason=Reason.EVALUATORS_DIFFER, message=message)


def _options(spec: EvaluatorSpec, known: Known) -> Mapping[str, Any]:
    """Its options and its grader's; an option that is not given equals one that spells the default out."""
    info = known(spec.kind)
    schema = {} if info is None else info.options_schema
    options = _filled(spec.options, schema)
    grader, given = options.get("grader"), options.get("grader_options")
    if not (isinstance(grader, str) and isinstance(given, Mapping)):
        return options
    return {**options, "grader_options": _filled(given, schema.get("$defs", {}).get(grader, {}))}


def _filled(options: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    known = schema.get("properties", {})
    return {**{name: option["default"] for name, option in known.items() if "default" in option}, **options}


def goal_of(spec: EvaluatorSpec, known: Known) -> Goal | None:
    """Which scores of an evaluator are better; None if that is not known."""
    info = known(spec.kind)
    return None if info is None else info.score_goal


@dataclasses.dataclass(frozen=True, slots=True)
class SampleScores:
    """The scores of an evaluator's samples."""

    by_sample: Mapping[str, float]
    """The mean score of every sample with one, in the data set's order."""
    counts: Mapping[str, int]
    """The number of scores of each of these samples: that of its repeats with one."""
    mean: float | None
    """The mean of all scores, each repeat counted; None without a score."""

    def is_mean(self, value: float | None) -> bool:
        """Whether a metric's value is the mean of these scores, up to rounding."""
        return (
            self.mean is not None and value is not None and math.isclose(value, self.mean, rel_tol=1e-9, abs_tol=1e-12)
        )


def sample_scores(connection: Reads, number: int, evaluator: int) -> SampleScores:
    """Read the scores of one evaluator of an evaluation, by the evaluation's number and the evaluator's index."""
    sums: dict[str, list[float]] = {}
    for sample_id, score in scores_of(connection, number, evaluator):
        sums.setdefault(sample_id, []).append(score)
    means = {
        sample_id: scores[0] if len(scores) == 1 else statistics.fmean(scores) for sample_id, scores in sums.items()
    }
    everything = [score for scores in sums.values() for score in scores]
    counts = {sample_id: len(scores) for sample_id, scores in sums.items()}
    return SampleScores(means, counts, statistics.fmean(everything) if everything else None)
