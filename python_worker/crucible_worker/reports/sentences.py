"""Numbers as people say them: "accuracy 33.3 % (95 %: 19.2 to 51.2), 30 of 30 scored"."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import Evaluation, EvaluatorResult, Metrics
from crucible_worker.reports.metric_keys import EvaluatorKeys, Infos, keys_of, with_strict

__all__ = ["evaluator_sentences", "event_sentence", "metric_text", "reasons_text", "unscored_warnings"]

_COUNTS = frozenset({"n", "n_scored", "n_unscored", "n_errors", "n_correct", "n_truncated_reasoning"})
"""Measurements of an evaluator's end that are not metrics."""

WARNED_SHARE = 0.02
"""Share of samples without a score above which a number is shown with a warning."""
SHARE = "fraction of 1"
"""The unit of a metric that people read in per cent, as evaluators declare it."""


def metric_text(key: str, value: float, keys: EvaluatorKeys) -> str:
    """A metric with its interval: "accuracy 33.3 % (95 %: 19.2 to 51.2)".

    Args:
        key: its full key.
        value: its value.
        keys: what is known of the keys of its evaluator.
    """
    share = keys.units.get(key) == SHARE
    bounds = keys.intervals.get(key)
    between = "" if bounds is None else f" (95 %: {_number(bounds[0], share)} to {_number(bounds[1], share)})"
    return f"{key} {_number(value, share)}{' %' if share else ''}{between}"


def evaluator_sentences(evaluation: Evaluation, infos: Infos, *, most: int | None = None) -> Sequence[str]:
    """One sentence for each evaluator that has ended: its headline metrics, and how many samples have a score.

    Args:
        evaluation: in any state.
        infos: what evaluators declare, by kind.
        most: metrics in a sentence, at most; all headline metrics if None.
    """
    sentences: list[str] = []
    for keys, result in zip(keys_of(evaluation, infos), evaluation.results, strict=True):
        values = result.metrics.values
        headline = [key for key in keys.headline if key in values][:most]
        shown = [metric_text(key, values[key], keys) for key in with_strict(headline, values)]
        if not shown:
            problem = result.problem
            why = "no metric is defined" if problem is None else f"{problem.reason}: {problem.message}"
            shown = [f"{result.evaluator.label}: {why}"]
        cut = result.n_truncated_reasoning
        ended = f", {cut:,} without an answer: truncated within the reasoning" if cut else ""
        sentences.append(f"{', '.join(shown)}, {result.n_scored:,} of {result.n:,} scored{ended}")
    return sentences


def unscored_warnings(evaluation: Evaluation) -> Sequence[str]:
    """A warning for each evaluator that has more than `WARNED_SHARE` of its samples without a score, with the reasons.

    "warning: accuracy: 50 of 100 samples have no score (48 SAMPLE_TIMEOUT, 2 UNDECIDED)"
    """
    return [
        f"warning: {result.evaluator.label}: {result.n_unscored:,} of {result.n:,} samples have no score"
        f"{reasons_text(result)}"
        for result in evaluation.results
        if result.n_unscored > WARNED_SHARE * result.n
    ]


def reasons_text(result: EvaluatorResult) -> str:
    """Why samples have no score, in brackets: " (48 SAMPLE_TIMEOUT, 2 UNDECIDED)"; empty if that is not known."""
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in result.unscored_by_reason.items())
    return f" ({reasons})" if reasons else ""


def event_sentence(evaluation: Evaluation, event: Event, infos: Infos) -> str:
    """The sentence of an evaluator that has ended, from its event; empty for other events.

    Args:
        evaluation: which may still be at work.
        event: of it.
        infos: what evaluators declare, by kind.
    """
    if event.kind not in (EventKind.EVALUATOR_COMPLETE, EventKind.EVALUATOR_EXCEPTION):
        return ""
    measured = event.measurements
    ended = [
        EvaluatorResult(
            evaluator=spec,
            metrics=Metrics({key: value for key, value in measured.items() if not _is_count(key)}),
            n=int(measured.get("n", 0)),
            n_scored=int(measured.get("n_scored", 0)),
            n_truncated_reasoning=int(measured.get("n_truncated_reasoning", 0)),
            problem=event.problem,
        )
        for spec in evaluation.request.evaluators
        if spec.label == event.evaluator
    ]
    return "".join(evaluator_sentences(dataclasses.replace(evaluation, results=tuple(ended)), infos))


def _is_count(key: str) -> bool:
    return key in _COUNTS or key.startswith("usage.")


def _number(value: float, share: bool) -> str:
    return f"{value * 100:.1f}" if share else f"{value:.4g}"
