"""What every report says of an evaluation, before it is written in a format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    BuiltinDataset,
    CheckpointResult,
    Dataset,
    Evaluation,
    EvaluationState,
    EvaluatorRendering,
    EvaluatorSpec,
    FileDataset,
    HubDataset,
    InlineDataset,
    JsonlDataset,
    Problem,
    Prompt,
    SampleResult,
    ServerEngine,
    Usage,
    format_file,
    format_hub,
    format_model,
    parse_model,
)
from crucible_worker.reports.metric_keys import STRICT
from crucible_worker.reports.versions import graders_in_words, rules_in_words
from crucible_worker.util.model_refs import format_original_model

__all__ = [
    "MAX_FAILURES",
    "NOTHING_SCORED",
    "adjustments_text",
    "another_model",
    "columns_of",
    "engine_as_data",
    "facts_of",
    "format_dataset",
    "metric_keys",
    "named_with_role",
    "nothing_scored",
    "nothing_scored_of",
    "problem_text",
    "several_places",
    "shown_failures",
    "state_text",
    "usage_as_data",
]

NOTHING_SCORED = "nothing scored"
"""What is said of a completed evaluation without a score."""

MAX_FAILURES = 10
"""Failed samples that a report shows of one evaluation."""


def facts_of(evaluation: Evaluation) -> Mapping[str, str]:
    """What it was asked to be and how it went, as pairs of a word and a text; empty texts left out."""
    request = evaluation.request
    facts = {
        "state": state_text(evaluation),
        "run": request.run_id,
        "step": "" if request.step is None else str(request.step),
        "model": format_original_model(request.model),
        **_servers_of(evaluation),
        **dict(filter(None, [several_places(evaluation)])),
        "model fingerprint": evaluation.model_fingerprint,
        "data set": format_dataset(request.dataset),
        **{f"renderer of {one.evaluator}": _format_rendering(one) for one in evaluation.rendering},
        "data set fingerprint": evaluation.dataset_fingerprint,
        # Those of a data set that was not read are not counted.
        "results": f"{evaluation.done:,} of {evaluation.total:,}" if evaluation.dataset_fingerprint else "",
        "attempts": str(evaluation.attempt),
        "rules": rules_in_words(evaluation.rules_version),
        **{f"grader of {label}": words for label, words in graders_in_words(evaluation.graders).items()},
        "concurrency": "" if evaluation.concurrency is None else f"{evaluation.concurrency:,}",
        "time at work": f"{evaluation.duration_ns / 1e9:.3f} s",
        "engine": _format_engine(evaluation.engine),
        "sampling refused": adjustments_text(evaluation.engine),
        "served model": another_model(evaluation.engine),
        "sampling": _SAMPLING.get("" if evaluation.engine is None else evaluation.engine.sampling_defaults, ""),
        "probe": _format_probe(evaluation.engine),
        **{f"label {key}": value for key, value in sorted(request.labels.items())},
    }
    return {key: value for key, value in facts.items() if value}


def _servers_of(evaluation: Evaluation) -> Mapping[str, str]:
    """Where each server was: each place with its addresses, in the order of the attempts."""
    found: dict[str, list[str]] = {}
    for server in evaluation.servers:
        found.setdefault(f"server {server.name}", []).append(", ".join(server.addresses))
    return {name: "; then ".join(places) for name, places in found.items()}


def several_places(evaluation: Evaluation) -> tuple[str, str] | None:
    """A warning if attempts found a server at other addresses than those before: its name, and words."""
    names = [server.name for server in evaluation.servers]
    if not (moved := list(dict.fromkeys(name for name in names if names.count(name) > 1))):
        return None
    counts = ", ".join(f"server {name} at {names.count(name)}" for name in moved)
    return "several addresses", f"samples may be of different models: attempts found {counts} places"


def state_text(evaluation: Evaluation) -> str:
    """Its state in words: "running, paused", "running, waits for server lab since 22:57:03 UTC"."""
    # No process waits for a server now; a larger budget is waited for all the same.
    waits = "waited" if evaluation.state is EvaluationState.INTERRUPTED and not evaluation.paused else "waits"
    waits = f"{waits} for {evaluation.waiting_for}" if evaluation.waiting_for else ""
    nothing = NOTHING_SCORED if nothing_scored(evaluation) else ""
    return ", ".join(filter(None, (evaluation.state.value, "paused" if evaluation.paused else "", waits, nothing)))


def nothing_scored(evaluation: Evaluation) -> bool:
    """Whether it completed, and no sample of any evaluator has a score: it says nothing of the model."""
    completed = evaluation.state is EvaluationState.COMPLETED and any(result.n for result in evaluation.results)
    return completed and not any(result.n_scored for result in evaluation.results)


def nothing_scored_of(result: CheckpointResult) -> bool:
    """The same of what a run keeps of it: of the metrics only those are defined that count every sample."""
    completed = result.state is EvaluationState.COMPLETED and bool(result.metrics)
    return completed and all(key.endswith(STRICT) for key in result.metrics)


def _format_engine(engine: ServerEngine | None) -> str:
    return "" if engine is None else " ".join(filter(None, (engine.name, engine.version, engine.fingerprint)))


def adjustments_text(engine: ServerEngine | None) -> str:
    """How requests differed from those that were wanted because a server refused them; empty if they did not."""
    if engine is None:
        return ""
    words = [f"{name} was not applied" for name in engine.not_applied]
    words += [
        f"{name} was sent as {other}" if other else f"{name} was applied by the worker alone"
        for name, other in sorted(engine.sent_as.items())
    ]
    return f"{', '.join(words)}: the server refuses it" if words else ""


_SAMPLING = {
    "unknown": "the server may apply its own top_p, top_k and penalties: it is not known which program it is",
    "partly_sent": "the server may apply its own top_k and penalties: it accepts no field for them",
}
"""What `ServerEngine.sampling_defaults` means, where it may have changed results."""


def another_model(engine: ServerEngine | None) -> str:
    """How the model that a server says it has differs from the one requested, in words; empty if it does not."""
    if engine is None:
        return ""
    words: list[str] = []
    if others := [name for name in engine.served_names if name != engine.requested_name]:
        words.append(f"answered as {', '.join(others)}")
    if engine.listed_names:
        words.append(f"the server lists {', '.join(engine.listed_names)}")
    return f"{'; '.join(words)}; requested was {engine.requested_name}" if words else ""


def _format_probe(engine: ServerEngine | None) -> str:
    if engine is None:
        return ""
    words = [
        "" if engine.probe_prompt_tokens is None else f"prompt of {engine.probe_prompt_tokens:,} tokens",
        engine.stop_strings and f"stop strings {engine.stop_strings}",
        engine.logprobs and f"log-probabilities {engine.logprobs}",
        problem_text(engine.probe_problem),
    ]
    return ", ".join(filter(None, words))


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
    return {
        "name": engine.name,
        "version": engine.version,
        "fingerprint": engine.fingerprint,
        "not_applied": list(engine.not_applied),
        "sent_as": dict(engine.sent_as),
        "requested_name": engine.requested_name,
        "served_names": list(engine.served_names),
        "listed_names": list(engine.listed_names),
        "another_model": another_model(engine),
        "sampling_defaults": engine.sampling_defaults,
        "probe_prompt_tokens": engine.probe_prompt_tokens,
        "stop_strings": engine.stop_strings,
        "logprobs": engine.logprobs,
        "probe_problem": problem_text(engine.probe_problem),
    }


def _format_rendering(rendering: EvaluatorRendering) -> str:
    """How models are asked: "chat_template, judge: raw"."""
    return ", ".join([rendering.renderer, *(f"{name}: {other}" for name, other in sorted(rendering.others.items()))])


def format_dataset(dataset: Dataset) -> str:
    """A data set in a few words: "builtin:arithmetic, limit 100, shuffled by seed 7"."""
    match dataset.source:
        case BuiltinDataset(name):
            words = [f"builtin:{name}"]
        case JsonlDataset() | FileDataset():
            words = [format_file(dataset.source)]
        case HubDataset():
            words = [f"hub:{format_hub(dataset.source)}"]
        case InlineDataset():
            words = ["inline"]
    words += [f"{key} = {value}" for key, value in sorted(dataset.where.items())]
    if dataset.limit is not None:
        words.append(f"limit {dataset.limit:,}")
    if dataset.shuffle_seed is not None:
        words.append(f"shuffled by seed {dataset.shuffle_seed}")
    if dataset.skip_malformed:
        words.append("malformed lines skipped")
    if dataset.special_tokens:
        words.append("special tokens read")
    if dataset.prompt is not None:
        words.append(f"prompt with {_format_prompt(dataset.prompt)}")
    return ", ".join(words)


def _format_prompt(prompt: Prompt) -> str:
    """The parts of a prompt in a few words: "system message, 5 examples of jsonl:train.jsonl"."""
    given = {
        "system message": prompt.system,
        "template": prompt.template,
        "prefix": prompt.prefix,
        "suffix": prompt.suffix,
    }
    words = [word for word, part in given.items() if part]
    if prompt.target_delimiter is not None:
        words.append(f"target delimiter {json.dumps(prompt.target_delimiter, ensure_ascii=False)}")
    if (few_shot := prompt.few_shot) is not None:
        words.append(f"{few_shot.count} examples of {few_shot.source} by seed {few_shot.seed}")
    return " and ".join(words)


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


def problem_text(problem: Problem | None) -> str:
    """What went wrong: its reason, the field and the message; empty if nothing did."""
    return "" if problem is None else f"{problem.reason}: {' '.join(filter(None, (problem.field, problem.message)))}"


def shown_failures(evaluation: Evaluation, failures: Mapping[str, Sequence[SampleResult]]) -> Sequence[SampleResult]:
    """The first failed samples of an evaluation, of those that are given."""
    return failures.get(evaluation.evaluation_id, ())[:MAX_FAILURES]


# What the further models of an evaluation are to it: a reference, with which policies are compared, or a judge.

_REFERENCE = "reference"
"""The option that names a reference, and its role."""


def named_with_role(evaluation: Evaluation, model: str) -> str:
    """A further model with its role: "openai:lab/small (judge)".

    Args:
        evaluation: that queried it.
        model: as usage names it.
    """
    role = _REFERENCE if any(_compares_with(spec, model) for spec in evaluation.request.evaluators) else "judge"
    return f"{model} ({role})"


def _compares_with(spec: EvaluatorSpec, model: str) -> bool:
    named = spec.options.get(_REFERENCE)
    try:
        return isinstance(named, str) and format_model(parse_model(named)) == model
    except InvalidField:  # an installed evaluator's option of that name, which is no model
        return False
