"""What every report says of an evaluation, before it is written in a format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.types import (
    BuiltinDataset,
    Dataset,
    Evaluation,
    HubDataset,
    InlineDataset,
    JsonlDataset,
    SampleResult,
    ServerEngine,
    Usage,
    format_hub,
    format_model,
)

__all__ = [
    "MAX_FAILURES",
    "columns_of",
    "engine_as_data",
    "facts_of",
    "format_dataset",
    "metric_keys",
    "replace_surrogates",
    "shown_failures",
    "usage_as_data",
]

MAX_FAILURES = 10
"""Failed samples that a report shows of one evaluation."""

_SURROGATES = re.compile("[\ud800-\udfff]")


def facts_of(evaluation: Evaluation) -> Mapping[str, str]:
    """What it was asked to be and how it went, as pairs of a word and a text; empty texts left out."""
    request = evaluation.request
    facts = {
        "state": evaluation.state.value,
        "run": request.run_id,
        "step": "" if request.step is None else str(request.step),
        "model": format_model(request.model),
        "model fingerprint": evaluation.model_fingerprint,
        "data set": format_dataset(request.dataset),
        "data set fingerprint": evaluation.dataset_fingerprint,
        # Those of a data set that was not read are not counted.
        "samples done": f"{evaluation.done:,} of {evaluation.total:,}" if evaluation.dataset_fingerprint else "",
        "attempts": str(evaluation.attempt),
        "time at work": f"{evaluation.duration_ns / 1e9:.3f} s",
        "engine": _format_engine(evaluation.engine),
        **{f"label {key}": value for key, value in sorted(request.labels.items())},
    }
    return {key: value for key, value in facts.items() if value}


def _format_engine(engine: ServerEngine | None) -> str:
    return "" if engine is None else " ".join(filter(None, (engine.name, engine.version, engine.fingerprint)))


def usage_as_data(usage: Usage | None) -> dict[str, Any] | None:
    """What models took, for json."""
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.prompt_tokens,
        "cached_prompt_tokens": usage.cached_prompt_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "output_tokens": usage.output_tokens,
        "calls": usage.calls,
        "unreported_calls": usage.unreported_calls,
        "cost": usage.cost,
        "judges": [{"model": judge.model, "usage": usage_as_data(judge.usage)} for judge in usage.judges],
    }


def engine_as_data(engine: ServerEngine | None) -> dict[str, Any] | None:
    """Which program served a model, for json."""
    if engine is None:
        return None
    return {"name": engine.name, "version": engine.version, "fingerprint": engine.fingerprint}


def format_dataset(dataset: Dataset) -> str:
    """A data set in a few words: "builtin:arithmetic, limit 100, shuffled by seed 7"."""
    match dataset.source:
        case BuiltinDataset(name):
            words = [f"builtin:{name}"]
        case JsonlDataset(path):
            words = [f"jsonl:{path}"]
        case HubDataset():
            words = [f"hub:{format_hub(dataset.source)}"]
        case InlineDataset():
            words = ["inline"]
    if dataset.limit is not None:
        words.append(f"limit {dataset.limit:,}")
    if dataset.shuffle_seed is not None:
        words.append(f"shuffled by seed {dataset.shuffle_seed}")
    if dataset.skip_malformed:
        words.append("malformed lines skipped")
    return ", ".join(words)


def columns_of(evaluations: Sequence[Evaluation]) -> Sequence[str]:
    """What evaluations are called beside each other: by their steps where these tell them apart, else by their ids."""
    steps = {evaluation.request.step for evaluation in evaluations}
    if None in steps or len(steps) < len(evaluations):
        return [evaluation.evaluation_id for evaluation in evaluations]
    return [f"step {evaluation.request.step}" for evaluation in evaluations]


def metric_keys(evaluations: Sequence[Evaluation]) -> Sequence[str]:
    """Every key that one of them has or has not defined, in the order in which they come up."""
    keys: dict[str, None] = {}
    for evaluation in evaluations:
        keys.update(dict.fromkeys(evaluation.metrics.values))
        keys.update(dict.fromkeys(evaluation.metrics.undefined))
    return tuple(keys)


def shown_failures(evaluation: Evaluation, failures: Mapping[str, Sequence[SampleResult]]) -> Sequence[SampleResult]:
    """The first failed samples of an evaluation, of those that are given."""
    return failures.get(evaluation.evaluation_id, ())[:MAX_FAILURES]


def replace_surrogates(text: str) -> str:
    """Text that can be written as UTF-8: half a surrogate pair becomes U+FFFD."""
    return _SURROGATES.sub("\ufffd", text)
