"""Results of an evaluation in the shape of crucible_datasets' `EvaluationResult`.

evaluation = await bridge.evaluation.get_evaluation("nightly")
results = [result async for result in bridge.evaluation.all_samples("nightly")]
told = evaluation_result(evaluation, results)
wrong = [item for item in told["item_results"] if not item["correct"]]
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    BuiltinDataset,
    DatasetSource,
    Evaluation,
    FileDataset,
    HubDataset,
    InlineDataset,
    JsonlDataset,
    SampleResult,
    Verdict,
    format_file,
    format_hub,
    format_model,
)

__all__ = ["evaluation_result", "source_text"]


def evaluation_result(
    evaluation: Evaluation,
    results: Iterable[SampleResult],
    *,
    evaluator: str | None = None,
    dataset_name: str | None = None,
) -> dict[str, Any]:
    """What crucible_datasets calls an evaluation's result, as plain data that JSON can write.

    `item_results` has an item for each run of a sample: `id`, `predicted` (what the grader extracted, else the output),
    `expected` (the target, a list if there are several; of a conversation without one, the assistant's last message;
    None if it is not recorded), `correct`, `score`, `metrics` and `metadata`. `accuracy` is over the items that are
    scored: an item without a verdict is not counted as wrong, has no score, and names its reason in
    `metadata["problem"]`.

    Args:
        evaluation: that has ended.
        results: of its samples.
        evaluator: whose results, by its name, or its kind if it has none; needed if the evaluation has several.
        dataset_name: that of the data set; how the request names it if None.

    Raises:
        InvalidField: it is not said which of several evaluators is meant, or there is none of that name.
    """
    label = _label(evaluation, evaluator)
    items = [_item(result) for result in results if result.evaluator == label]
    scored = [item for item in items if item["score"] is not None]
    correct = sum(item["correct"] for item in items)
    metrics = next((each.metrics for each in evaluation.results if each.evaluator.label == label), evaluation.metrics)
    ended = datetime.datetime.fromtimestamp(evaluation.ended_unix_ns / 1e9, datetime.UTC)
    return {
        "dataset_name": source_text(evaluation.request.dataset.source) if dataset_name is None else dataset_name,
        "dataset_version": evaluation.dataset_fingerprint,
        "model": format_model(evaluation.request.model),
        "total_items": len(items),
        "correct_items": correct,
        "accuracy": correct / len(scored) if scored else None,
        "metrics": dict(metrics.values),
        "item_results": items,
        "timestamp": ended.isoformat().replace("+00:00", "Z"),
        "duration_ms": evaluation.duration_ns // 1_000_000,
    }


def _label(evaluation: Evaluation, evaluator: str | None) -> str:
    labels = [spec.label for spec in evaluation.request.evaluators]
    if evaluator is None and len(labels) == 1:
        return labels[0]
    if evaluator not in labels:
        given = "is not given" if evaluator is None else f"is {evaluator!r}"
        raise InvalidField("evaluator", f"{given}, the evaluation has {', '.join(labels)}")
    assert evaluator is not None
    return evaluator


def _item(result: SampleResult) -> dict[str, Any]:
    targets = () if result.sample is None else result.sample.expected
    metadata: dict[str, Any] = dict(result.sample.metadata) if result.sample is not None else {}
    metadata |= {"verdict": result.verdict.value, "repeat": result.repeat}
    if result.problem is not None:
        metadata["problem"] = f"{result.problem.reason}: {result.problem.message}"
    return {
        "id": result.sample_id,
        "predicted": result.extracted or result.output,
        "expected": targets[0] if len(targets) == 1 else list(targets) or None,
        "correct": result.verdict is Verdict.CORRECT,
        "score": result.score,
        "metrics": dict(result.measurements),
        "metadata": metadata,
    }


def source_text(source: DatasetSource) -> str:
    """A source of samples as text: its name, its path with its options, or "inline"."""
    match source:
        case InlineDataset():
            return "inline"
        case JsonlDataset(path):
            return path
        case FileDataset():
            return format_file(source)
        case HubDataset():
            return format_hub(source)
        case BuiltinDataset(name):
            return name
