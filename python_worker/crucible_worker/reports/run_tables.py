"""Runs and their checkpoints as the data of pages: plain values that any JSON can write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crucible_bridge.types import Checkpoint, CheckpointResult, RunBest, RunInfo, format_model
from crucible_worker.reports.facts import problem_text, rules_in_words
from crucible_worker.reports.plain import plain
from crucible_worker.reports.scored import scored_in_words

__all__ = ["checkpoints_as_data", "dataset_name", "first_bests", "runs_as_data"]

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


def dataset_name(run: RunInfo, result: CheckpointResult) -> str:
    """A data set in a few words.

    With the beginning of its fingerprint if the run has another one of the same words, and with the version of the
    rules if the run has several.
    """
    alike = {best.dataset_fingerprint for best in run.best if best.dataset == result.dataset}
    name = result.dataset
    if alike - {result.dataset_fingerprint}:
        name += f" ({result.dataset_fingerprint[:FINGERPRINT_SHOWN]})"
    if {best.rules_version for best in run.best} - {result.rules_version}:
        name += f", rules {rules_in_words(result.rules_version)}"
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
        "results": [_result(result, first, run) for result in checkpoint.results],
    }


def _result(result: CheckpointResult, first: Sequence[str], run: RunInfo) -> Mapping[str, Any]:
    ordered = sorted(result.metrics, key=lambda key: first.index(key) if key in first else len(first))
    return {
        "id": result.evaluation_id,
        "state": result.state.value,
        "retained": result.retained,
        "superseded": result.superseded,
        "dataset": dataset_name(run, result),
        "dataset_fingerprint": result.dataset_fingerprint,
        "metrics": [
            {
                "key": key,
                "value": result.metrics[key],
                "best": key in result.best,
                "scored": scored_in_words(result.scored.get(key)) or None,
            }
            for key in ordered
        ],
        "headline": min(BEST_SHOWN, sum(key in first for key in ordered)),
        "ended": result.ended_unix_ns / 1e9 if result.ended_unix_ns else None,
        "problem": problem_text(result.problem) or None,
    }
