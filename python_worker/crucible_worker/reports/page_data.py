"""Evaluations, runs and comparisons as the data of pages: plain values that any JSON can write."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from crucible_bridge.errors import FailedPrecondition, ResourceExhausted
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    MAX_COMPARED_EVALUATIONS,
    Checkpoint,
    CheckpointResult,
    CompareRequest,
    Evaluation,
    EvaluationComparison,
    EvaluationState,
    EvaluatorResult,
    EvaluatorSpec,
    Goal,
    Metrics,
    PairedComparison,
    Problem,
    RunBest,
    RunInfo,
    SampleChange,
    ScoredCount,
    format_model,
)
from crucible_worker.reports.distributions import ResultDistributions
from crucible_worker.reports.facts import (
    facts_of,
    format_dataset,
    nothing_scored,
    nothing_scored_of,
    problem_text,
    usage_as_data,
)
from crucible_worker.reports.metric_keys import (
    EvaluatorKeys,
    Infos,
    intervals_of,
    keys_of,
    sample_warnings,
    with_strict,
    without_equal_strict,
)
from crucible_worker.reports.plain_json import plain
from crucible_worker.reports.ranking import Written, enough_scored, scored_by_key, scored_in_words, superseded
from crucible_worker.reports.versions import (
    by_in_words,
    grader_versions,
    key_of,
    other_grader,
    rules_in_words,
    version_in_words,
)
from crucible_worker.util.model_refs import format_original_model

__all__ = [
    "MOST_COMPARED",
    "checkpoints_as_data",
    "compare_as_data",
    "compared_if_possible",
    "dataset_name",
    "evaluation_as_data",
    "first_bests",
    "index_as_data",
    "interval_of_best",
    "is_tied",
    "results_as_data",
    "run_as_data",
    "runs_as_data",
    "summary_as_data",
    "tie_requests",
]


def summary_as_data(evaluation: Evaluation, infos: Infos) -> dict[str, Any]:
    """An evaluation in a list: what it was, how it stands, its metrics.

    Args:
        evaluation: in any state.
        infos: what the evaluators declare, by kind.
    """
    return plain(_summary(evaluation, keys_of(evaluation, infos)))


def _summary(evaluation: Evaluation, keys: Sequence[EvaluatorKeys]) -> dict[str, Any]:
    request = evaluation.request
    return {
        "id": evaluation.evaluation_id,
        "state": evaluation.state.value,
        "paused": evaluation.paused,
        "waiting_for": evaluation.waiting_for,
        "nothing_scored": nothing_scored(evaluation),
        "run": request.run_id,
        "step": request.step,
        "model": format_original_model(request.model),
        "dataset": format_dataset(request.dataset),
        "dataset_fingerprint": evaluation.dataset_fingerprint,
        "labels": dict(request.labels),
        "created": evaluation.created_unix_ns / 1e9,
        "ended": evaluation.ended_unix_ns / 1e9 if evaluation.ended_unix_ns else None,
        "duration": evaluation.duration_ns / 1e9,
        "done": evaluation.done,
        "total": evaluation.total,
        "metrics": dict(evaluation.metrics.values),
        "undefined": dict(evaluation.metrics.undefined),
        "intervals": {key: list(bounds) for each in keys for key, bounds in each.intervals.items()},
        "goals": {key: goal.value for each in keys for key, goal in each.goals.items()},
        "headline": [key for each in keys for key in with_strict(each.headline, evaluation.metrics.values)],
        "evaluators": [_result(result) for result in evaluation.results]
        or [_without_end(evaluator, evaluation.state) for evaluator in request.evaluators],
        "usage": usage_as_data(evaluation.usage),
        "problem": _problem(evaluation.problem),
    }


def _without_end(evaluator: EvaluatorSpec, state: EvaluationState) -> dict[str, Any]:
    counts = dict.fromkeys(("n", "n_scored", "n_unscored", "n_errors", "n_truncated", "n_truncated_reasoning"))
    why = "did not end: it has no metrics" if state.terminal else "has not ended"
    return {"label": evaluator.label, "kind": evaluator.kind, **counts, "problem": why}


def _result(result: EvaluatorResult) -> dict[str, Any]:
    return {
        "label": result.evaluator.label,
        "kind": result.evaluator.kind,
        "n": result.n,
        "n_scored": result.n_scored,
        "n_unscored": result.n_unscored,
        "n_errors": result.n_errors,
        "n_correct": result.n_correct,
        "unscored_by_reason": dict(result.unscored_by_reason),
        "n_truncated": result.n_truncated,
        "n_truncated_reasoning": result.n_truncated_reasoning,
        "problem": problem_text(result.problem) or None,
    }


def _problem(problem: Problem | None) -> dict[str, str] | None:
    return problem and {"reason": problem.reason, "message": problem.message, "field": problem.field}


def results_as_data(name: str, metrics: Metrics) -> dict[str, Any]:
    """Metrics by themselves, of which no worker has an evaluation, in the place of `evaluation_as_data`."""
    return plain(
        {
            "id": name,
            "state": EvaluationState.COMPLETED.value,
            "paused": False,
            "waiting_for": "",
            "run": "",
            "step": None,
            "model": "",
            "dataset": "",
            "dataset_fingerprint": "",
            "labels": {},
            "created": None,
            "ended": None,
            "duration": 0.0,
            "done": 0,
            "total": 0,
            "metrics": dict(metrics.values),
            "undefined": dict(metrics.undefined),
            "intervals": {},
            "goals": {},
            "evaluators": [],
            "usage": None,
            "problem": None,
            "facts": [],
            "options": {},
            "headline": list(metrics.values),
            "distributions": {},
        }
    )


def index_as_data(evaluations: Sequence[Evaluation], infos: Infos, *, more: bool = False) -> dict[str, Any]:
    """The first page: runs, and evaluations in the order given, the newest first.

    Args:
        evaluations: one page of them.
        infos: what the evaluators declare, by kind.
        more: whether older ones follow.
    """
    runs: dict[str, dict[str, Any]] = {}
    for evaluation in evaluations:
        if not (name := evaluation.request.run_id):
            continue
        run = runs.setdefault(name, {"run": name, "evaluations": 0, "running": 0, "last": 0.0})
        run["evaluations"] += 1
        run["running"] += _at_work(evaluation)
        run["last"] = max(run["last"], max(evaluation.created_unix_ns, evaluation.ended_unix_ns) / 1e9)
    newest_first = sorted(runs.values(), key=lambda run: -run["last"])
    summaries = [summary_as_data(evaluation, infos) for evaluation in evaluations]
    return {"runs": plain(newest_first), "evaluations": summaries, "more": more}


def _at_work(evaluation: Evaluation) -> bool:
    return evaluation.state in (EvaluationState.QUEUED, EvaluationState.RUNNING)


def evaluation_as_data(evaluation: Evaluation, infos: Infos, distributions: ResultDistributions) -> dict[str, Any]:
    """An evaluation by itself.

    Args:
        evaluation: in any state.
        infos: what the evaluators declare, by kind.
        distributions: has been given the results of its samples.
    """
    keys = keys_of(evaluation, infos)
    found = {
        **_summary(evaluation, keys),
        "facts": list(facts_of(evaluation).items()),
        "options": {spec.label: dict(spec.options) for spec in evaluation.request.evaluators},
        "warnings": sample_warnings(evaluation),
        "distributions": distributions.as_data(),
    }
    return plain(found)


def run_as_data(
    run_id: str, evaluations: Sequence[Evaluation], infos: Infos, comparisons: Iterable[PairedComparison] = ()
) -> dict[str, Any]:
    """A run: its metrics over its steps, with the best step of each metric that has a goal, and what is tied with it.

    Args:
        run_id: which one.
        evaluations: of this run, in any order.
        infos: what the evaluators declare, by kind.
        comparisons: the answers to `tie_requests`; without them nothing is known to be tied.
    """
    ordered = _by_step(evaluations)
    gone = _superseded(ordered)
    ties = list(comparisons)
    found = _all_series(ordered, infos)
    several = len({series.rules for series in found}) > 1
    graders = len({(series.evaluator, series.graders) for series in found}) > len({one.evaluator for one in found})
    return plain(
        {
            "run": run_id,
            "evaluations": [
                {**summary_as_data(evaluation, infos), "superseded": evaluation.evaluation_id in gone}
                for evaluation in ordered
            ],
            "series": [series.as_data(ties, name_rules=several, name_graders=graders) for series in found],
            "running": [evaluation.evaluation_id for evaluation in ordered if _at_work(evaluation)],
        }
    )


def tie_requests(evaluations: Sequence[Evaluation], infos: Infos) -> Sequence[CompareRequest]:
    """What to compare so that `run_as_data` knows which evaluations are tied with the best of a metric."""
    others: dict[tuple[str, str], dict[str, None]] = {}
    for series in _all_series(_by_step(evaluations), infos):
        if series.headline and (best := series.best) is not None:
            others.setdefault((best, series.evaluator), {}).update(dict.fromkeys(series.ids))
    requests: list[CompareRequest] = []
    for (best, evaluator), found in others.items():
        ids = [one for one in found if one != best]
        for start in range(0, len(ids), MAX_COMPARED_EVALUATIONS - 1):
            part = (best, *ids[start : start + MAX_COMPARED_EVALUATIONS - 1])
            requests.append(CompareRequest(evaluation_ids=part, baseline_id=best, evaluator=evaluator, max_listed=0))
    return requests


def _superseded(evaluations: Iterable[Evaluation]) -> frozenset[str]:
    return superseded(
        Written(one.evaluation_id, one.request.step, one.request.model, one.model_fingerprint, one.created_unix_ns)
        for one in evaluations
    )


def _by_step(evaluations: Iterable[Evaluation]) -> Sequence[Evaluation]:
    """Those without a step first; those of one step as they were accepted."""
    return sorted(
        evaluations, key=lambda one: (one.request.step is not None, one.request.step or 0, one.created_unix_ns)
    )


class _Series:
    """A metric of an evaluator over evaluations of one data set, by rules and graders of one version."""

    def __init__(
        self, key: str, evaluator: str, dataset: str, rules: int, graders: tuple[tuple[str, int], ...]
    ) -> None:
        self.key, self.evaluator, self.dataset, self.rules, self.graders = key, evaluator, dataset, rules, graders
        self.goal: Goal | None = None
        self.headline = False
        self._points: list[tuple[Evaluation, tuple[float, float] | None]] = []

    def add(self, evaluation: Evaluation, keys: EvaluatorKeys) -> None:
        self.goal = self.goal or keys.goals.get(self.key)
        self.headline = self.headline or self.key in keys.headline
        self._points.append((evaluation, keys.intervals.get(self.key)))

    @property
    def ids(self) -> Sequence[str]:
        return [evaluation.evaluation_id for evaluation, _ in self._points]

    @property
    def repeats_another(self) -> bool:
        """Whether it is a strict variant that is equal to its metric everywhere: no sample is without a score."""
        return not any(self.key in without_equal_strict(evaluation.metrics.values) for evaluation, _ in self._points)

    @property
    def best(self) -> str | None:
        """The first of those with the best value; see `enough_scored`."""
        if self.goal is None or not self._points:
            return None
        sign = 1 if self.goal is Goal.HIGHER else -1
        enough = itertools.compress(self._points, enough_scored([self._scored(one) for one, _ in self._points]))
        return max(enough, key=lambda point: sign * point[0].metrics.values[self.key])[0].evaluation_id

    def _scored(self, evaluation: Evaluation) -> ScoredCount | None:
        return scored_by_key(evaluation.results).get(self.key)

    def as_data(
        self, comparisons: Iterable[PairedComparison], *, name_rules: bool, name_graders: bool
    ) -> Mapping[str, Any]:
        best = self.best
        with_best = [
            pair
            for pair in comparisons
            if self.headline and (pair.baseline_id, pair.evaluator) == (best, self.evaluator)
        ]
        tied = {pair.evaluation_id for pair in with_best if is_tied(pair)}
        compared = {pair.evaluation_id for pair in with_best if "difference_ci_low" in pair.metrics.values}
        return {
            "key": self.key,
            "headline": self.headline,
            "evaluator": self.evaluator,
            "dataset": self.dataset,
            "rules": by_in_words(self.rules, dict(self.graders) if name_graders else {})
            if name_rules or name_graders
            else None,
            "goal": self.goal and self.goal.value,
            "points": [
                {
                    "id": evaluation.evaluation_id,
                    "step": evaluation.request.step,
                    "value": evaluation.metrics.values[self.key],
                    "low": interval and interval[0],
                    "high": interval and interval[1],
                    "scored": scored_in_words(self._scored(evaluation)) or None,
                }
                for evaluation, interval in self._points
            ],
            "best": best,
            "tied": [one for one in self.ids if one in tied],
            "compared": [one for one in self.ids if one in compared],
        }


def _all_series(evaluations: Iterable[Evaluation], infos: Infos) -> Sequence[_Series]:
    """Every metric, in the order in which they come up: those with a goal first, as they are looked at first."""
    found: dict[tuple[Any, ...], _Series] = {}
    evaluations = list(evaluations)
    gone = _superseded(evaluations)
    current = [evaluation for evaluation in evaluations if evaluation.evaluation_id not in gone]
    for evaluation, keys in _keyed(current, infos):
        for key in keys.values:
            if key not in evaluation.metrics.values:  # of an evaluator that has failed
                continue
            graders = key_of(grader_versions(evaluation, keys.label))
            place = (key, keys.label, evaluation.dataset_fingerprint, evaluation.rules_version, graders)
            found.setdefault(place, _Series(*place)).add(evaluation, keys)
    shown = [series for series in found.values() if not series.repeats_another]
    return sorted(shown, key=lambda series: (not series.headline, series.goal is None))


def _keyed(evaluations: Iterable[Evaluation], infos: Infos) -> Iterator[tuple[Evaluation, EvaluatorKeys]]:
    for evaluation in evaluations:
        for keys in keys_of(evaluation, infos):
            yield evaluation, keys


def is_tied(pair: PairedComparison) -> bool:
    """Whether the interval of a paired difference contains 0."""
    values = pair.metrics.values
    low, high = values.get("difference_ci_low"), values.get("difference_ci_high")
    return low is not None and high is not None and low <= 0 <= high


# Comparisons.

MOST_COMPARED = 10
"""Evaluations that a page sets next to each other."""

_INCOMPARABLE = (Reason.NOT_ENDED, Reason.DIFFERENT_DATASETS, Reason.TOO_MANY_SAMPLES)


async def compared_if_possible(
    compare: Callable[[CompareRequest], Awaitable[EvaluationComparison]], request: CompareRequest
) -> EvaluationComparison | None:
    """Compare evaluations; None if these cannot be compared.

    Args:
        compare: asks the worker.
        request: what to compare.

    Raises:
        BridgeError: the worker fails for another reason.
    """
    try:
        return await compare(request)
    except (FailedPrecondition, ResourceExhausted) as error:
        if error.reason not in _INCOMPARABLE:
            raise
        return None


def compare_as_data(comparisons: Sequence[EvaluationComparison], infos: Infos) -> dict[str, Any]:
    """Evaluations next to each other.

    Args:
        comparisons: answers to CompareEvaluations, of the same evaluations: with the first as the baseline, then with
            each of the others, if these are compared as well.
        infos: what the evaluators declare, by kind.
    """
    evaluations = comparisons[0].evaluations
    return {
        "evaluations": [summary_as_data(evaluation, infos) for evaluation in evaluations],
        "all_pairs": len(comparisons) == len(evaluations),
        "comparisons": [plain(_pair(pair)) for each in comparisons for pair in each.comparisons],
        "inputs": plain(_inputs(pair for each in comparisons for pair in each.comparisons)),
    }


def _pair(pair: PairedComparison) -> dict[str, Any]:
    return {
        "baseline": pair.baseline_id,
        "evaluation": pair.evaluation_id,
        "evaluator": pair.evaluator,
        "n_matched": pair.n_matched,
        "n_improved": pair.n_improved,
        "n_regressed": pair.n_regressed,
        "n_baseline_only": pair.n_baseline_only,
        "n_evaluation_only": pair.n_evaluation_only,
        "metrics": dict(pair.metrics.values),
        "method": pair.interval_method,
        "improvements": [_change(change) for change in pair.improvements],
        "regressions": [_change(change) for change in pair.regressions],
        "problem": problem_text(pair.problem) or None,
    }


def _inputs(pairs: Iterable[PairedComparison]) -> dict[str, str]:
    """What the samples of changes ask, by id: once each, whatever comparisons list them."""
    changes = (change for pair in pairs for change in (*pair.improvements, *pair.regressions))
    return {change.sample_id: change.input[:INPUT_SHOWN] for change in changes if change.input}


def _change(change: SampleChange) -> dict[str, Any]:
    return {"id": change.sample_id, "from": change.baseline_score, "to": change.score}


INPUT_SHOWN = 120
"""Characters of what a changed sample asks."""


# Runs and their checkpoints.

BEST_SHOWN = 2
"""Metrics of a run in a list of runs, and of an evaluation before the others are asked for."""
FINGERPRINT_SHOWN = 8
"""Characters that tell two data sets apart."""


def runs_as_data(runs: Iterable[RunInfo]) -> list[dict[str, Any]]:
    """Runs in a list, in the order given."""
    return plain([_run(run) for run in runs])


def checkpoints_as_data(run: RunInfo, checkpoints: Sequence[Checkpoint]) -> list[dict[str, Any]]:
    """The checkpoints of a run in the order given, each with what was measured of it.

    Args:
        run: has the metrics that come first.
        checkpoints: all of the run, or a part.
    """
    first = [best.metric for best in first_bests(run)]
    return plain([_checkpoint(checkpoint, first, run) for checkpoint in checkpoints])


def first_bests(run: RunInfo) -> Sequence[RunBest]:
    """The best value of each metric on the first of its data sets, without variants: no "accuracy_strict"."""
    shown: dict[str, RunBest] = {}
    for best in run.best:
        if not any(best.metric.startswith(f"{other}_") for other in shown):
            shown.setdefault(best.metric, best)
    return list(shown.values())


def interval_of_best(best: RunBest) -> tuple[float, float] | None:
    """Its interval; None if it has none."""
    if best.interval_low is None or best.interval_high is None:
        return None
    return best.interval_low, best.interval_high


def dataset_name(run: RunInfo, result: CheckpointResult) -> str:
    """A data set in a few words.

    With the beginning of its fingerprint if the run has another one of the same words, and with the version of the
    rules, or of a grader, if the run has several.
    """
    alike = {best.dataset_fingerprint for best in run.best if best.dataset == result.dataset}
    name = result.dataset
    if alike - {result.dataset_fingerprint}:
        name += f" ({result.dataset_fingerprint[:FINGERPRINT_SHOWN]})"
    if {best.rules_version for best in run.best} - {result.rules_version}:
        name += f", rules {rules_in_words(result.rules_version)}"
    for best in run.best:
        ours = result.graders[best.metric].versions if best.metric in result.graders else {}
        if best.metric in result.metrics and (grader := other_grader(ours, best.grader_versions)) is not None:
            return f"{name}, {version_in_words(grader, ours)}"
    return name


def _run(run: RunInfo) -> dict[str, Any]:
    return {
        "run": run.run_id,
        "evaluations": run.completed + run.failed + run.cancelled + run.unfinished,
        "running": run.unfinished,
        "failed": run.failed,
        "last": run.last_unix_ns / 1e9,
        "checkpoints": run.checkpoints,
        "steps": [run.first_step, run.last_step],
        "best": [
            {
                "key": best.metric,
                "value": best.value,
                "step": best.step,
                "id": best.evaluation_id,
                "scored": scored_in_words(best.scored) or None,
                "interval": interval_of_best(best),
            }
            for best in first_bests(run)[:BEST_SHOWN]
        ],
    }


def _checkpoint(checkpoint: Checkpoint, first: Sequence[str], run: RunInfo) -> dict[str, Any]:
    return {
        "step": checkpoint.step,
        "model": format_model(checkpoint.model),
        "base_model": checkpoint.base_model,
        "adapter": checkpoint.adapter,
        "fingerprint": checkpoint.model_fingerprint,
        "labels": dict(checkpoint.labels),
        "results": [_checkpoint_result(result, first, run) for result in checkpoint.results],
    }


def _checkpoint_result(result: CheckpointResult, first: Sequence[str], run: RunInfo) -> Mapping[str, Any]:
    intervals = intervals_of(result.metrics)
    ordered = sorted(result.metrics, key=lambda key: first.index(key) if key in first else len(first))
    return {
        "id": result.evaluation_id,
        "state": result.state.value,
        "retained": result.retained,
        "superseded": result.superseded,
        "nothing_scored": nothing_scored_of(result),
        "dataset": dataset_name(run, result),
        "dataset_fingerprint": result.dataset_fingerprint,
        "metrics": [
            {
                "key": key,
                "value": result.metrics[key],
                "best": key in result.best,
                "scored": scored_in_words(result.scored.get(key)) or None,
                "interval": intervals.get(key),
            }
            for key in ordered
        ],
        "headline": min(BEST_SHOWN, sum(key in first for key in ordered)),
        "ended": result.ended_unix_ns / 1e9 if result.ended_unix_ns else None,
        "problem": problem_text(result.problem) or None,
    }
