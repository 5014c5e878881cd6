"""The contents of an Inspect log: every scorer, every metric, and the result of every sample."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from inspect_ai.log import EvalResults, EvalSample, EvalScore  # pyright: ignore[reportMissingImports]

__all__ = ["MAX_RECORDS_BYTES", "findings"]

MAX_RECORDS_BYTES = 512 * 1024
"""Bytes of the records of samples, as JSON; further ones are left out, and counted."""

_CUT = ("max_tokens", "model_length")
_MAX_SHOWN = 500  # characters of a sample's error


def findings(results: EvalResults | None, samples: Sequence[EvalSample]) -> dict[str, Any]:
    """A log, as a message.

    Args:
        results: of its scorers; None if every sample has failed.
        samples: all that were run, failed ones included.

    Returns:
        `scores`: for each scorer and reducer its metrics, null if one is not finite or no sample has a score.
        `headline`: scorer, reducer and metric that summarise the task, null if there are none. `samples`, `errored`,
        `truncated`: counts, epochs included. `records`: one for each sample, as far as there is room. `first_error`:
        of the first sample that failed.
    """
    errors = [sample.error.message for sample in samples if sample.error is not None]
    headline = None if results is None else results.headline
    records, left_out = _records(samples)
    return {
        "op": "found",
        "scores": [] if results is None else [_score(score, samples) for score in results.scores],
        "headline": None
        if headline is None
        else [_scorer(headline.scorer, headline.score), headline.reducer, headline.metric],
        "samples": len(samples),
        "errored": len(errors),
        "truncated": sum(_stop_reason(sample) in _CUT for sample in samples),
        "records": records,
        "records_left_out": left_out,
        "first_error": errors[0][:_MAX_SHOWN] if errors else "",
    }


def _score(score: EvalScore, samples: Sequence[EvalSample]) -> dict[str, Any]:
    run = [sample for sample in samples if sample.error is None]
    # Inspect counts samples whose score is not a number, but not those without a score in any epoch.
    given = {sample.id for sample in run if (sample.scores or {}).get(score.scorer) is not None}
    without = len({sample.id for sample in run} - given)
    none_scored = score.scored_samples == 0
    return {
        "scorer": _scorer(score.scorer, score.name),
        "reducer": score.reducer,
        "scored": score.scored_samples,
        "unscored": (score.unscored_samples or 0) + without,
        "metrics": {
            name: float(metric.value) if math.isfinite(metric.value) and not none_scored else None
            for name, metric in score.metrics.items()
        },
    }


def _scorer(scorer: str, score: str) -> str:
    """A scorer's name; if it gives several numbers, their names follow it, which other scorers may use too."""
    return scorer if scorer == score else f"{scorer}.{score}"


def _records(samples: Sequence[EvalSample]) -> tuple[list[dict[str, Any]], int]:
    records: list[dict[str, Any]] = []
    room = MAX_RECORDS_BYTES
    for sample in samples:
        record = {
            "id": sample.id,
            "epoch": sample.epoch,
            "scores": {name: _plain(score.value) for name, score in (sample.scores or {}).items()},
            "stop_reason": _stop_reason(sample),
            "limit": None if sample.limit is None else sample.limit.type,
            "error": None if sample.error is None else sample.error.message[:_MAX_SHOWN],
        }
        room -= len(json.dumps(record))
        if room < 0:
            break
        records.append(record)
    return records, len(samples) - len(records)


def _stop_reason(sample: EvalSample) -> str:
    return sample.output.stop_reason if sample.output.choices else ""


def _plain(value: Any) -> Any:
    """A score's value as JSON: null if it is not finite."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
