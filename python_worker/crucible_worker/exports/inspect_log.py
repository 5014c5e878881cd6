"""An evaluation as Inspect's log has it: its header, its samples, and their summaries.

A sample of Inspect has one score for each scorer, and an epoch for each repeat. So an entry joins the results of all
evaluators for a sample and a repeat. A result without a score has the value NaN there, with the reason: that is how
Inspect marks what is unscored, and its metrics leave it out.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.types import (
    Conversation,
    Evaluation,
    EvaluationState,
    EvaluatorResult,
    Problem,
    SampleResult,
    SamplingParams,
    ServerEngine,
    TokenPrompt,
    Turn,
    Usage,
    Verdict,
    message_text,
)
from crucible_worker.exports.record_data import dataset_name, record_data, utc
from crucible_worker.reports.as_json import record_as_data
from crucible_worker.reports.facts import another_model, format_dataset, problem_text
from crucible_worker.reports.plain_json import replace_surrogates
from crucible_worker.util.model_refs import format_original_model
from crucible_worker.util.reasoning import part_thinking

__all__ = ["Counts", "header_of", "member_name", "sample_of", "start_of", "summary_of", "written"]

VERSION = 2
"""Of Inspect's format."""
SUMMARY_CHARS = 1_024
"""Characters of a text in a summary."""

_STATUS = {
    EvaluationState.COMPLETED: "success",
    EvaluationState.FAILED: "error",
    EvaluationState.CANCELLED: "cancelled",
}
_RUNNING = "started"
_STOP_REASONS = {"stop": "stop", "length": "max_tokens"}
_ROLES = ("system", "user", "assistant", "tool")
_NUL = "\0"
_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the entries of a log are."""

    samples: int = 0
    """Samples of the data set."""
    repeats: int = 1
    """The most repeats of one of them."""
    entries: int = 0
    """Entries of samples and repeats."""
    failed: int = 0
    """Those of them with nothing but errors."""


def written(data: Any) -> bytes:
    """Data as JSON, ASCII-escaped; NaN is written as Inspect writes it, and half a surrogate pair is U+FFFD."""
    text = json.dumps(data)
    if _SURROGATE.search(text):
        text = json.dumps(json.loads(replace_surrogates(json.dumps(data, ensure_ascii=False))))
    return text.encode()


def start_of(evaluation: Evaluation, version: str) -> dict[str, Any]:
    """What is known when an evaluation starts.

    Args:
        evaluation: which one.
        version: of crucible-bridge.
    """
    header = header_of(evaluation, version, Counts())
    return {key: header[key] for key in ("version", "eval", "plan")}


def header_of(evaluation: Evaluation, version: str, counts: Counts) -> dict[str, Any]:
    """Everything but the samples; arguments as in `start_of`."""
    request = evaluation.request
    model = format_original_model(request.model)
    config = _generation(request.sampling, evaluation.engine)
    failed = evaluation.state is EvaluationState.FAILED and evaluation.problem is not None
    return {
        "version": VERSION,
        "status": _STATUS.get(evaluation.state, _RUNNING),
        "eval": {
            "eval_id": evaluation.evaluation_id,
            "run_id": request.run_id or evaluation.evaluation_id,
            "created": _time(evaluation.created_unix_ns),
            "task": dataset_name(request.dataset),
            "task_id": evaluation.evaluation_id,
            "task_version": 0,
            "task_args": {},
            "dataset": {
                "name": dataset_name(request.dataset),
                "location": format_dataset(request.dataset),
                "samples": counts.samples,
                "shuffled": request.dataset.shuffle_seed is not None,
            },
            "model": model,
            "model_generate_config": config,
            "model_args": {},
            "config": {
                "epochs": counts.repeats,
                "limit": request.dataset.limit,
                "max_samples": request.limits.concurrency,
            },
            "packages": {"crucible-bridge": version},
            "scorers": [
                {"name": one.evaluator.label, "options": record_data(one.evaluator.options)}
                for one in evaluation.results
            ],
            "metadata": record_data(
                {
                    "step": request.step,
                    "labels": request.labels,
                    "metric_prefix": request.metric_prefix,
                    "models": request.models,
                    "correlation_id": request.correlation_id,
                    "dataset_fingerprint": evaluation.dataset_fingerprint,
                    "model_fingerprint": evaluation.model_fingerprint,
                    "prompt": request.dataset.prompt,
                    "rendering": evaluation.rendering,
                    "engine": evaluation.engine,
                    "another_model": another_model(evaluation.engine),
                    "attempts": evaluation.attempt,
                    "problem": evaluation.problem,
                }
            ),
        },
        "plan": {"name": "plan", "steps": [], "config": config},
        "results": {
            "total_samples": counts.entries,
            "completed_samples": counts.entries - counts.failed,
            "scores": [_score_of(result, request.metric_prefix) for result in evaluation.results],
        },
        "stats": {
            "started_at": _time(evaluation.created_unix_ns),
            "completed_at": _time(evaluation.ended_unix_ns) if evaluation.ended_unix_ns else "",
            "model_usage": _usages(model, evaluation.usage),
        },
        **({"error": _error(evaluation.problem)} if failed else {}),
    }


def sample_of(evaluation: Evaluation, results: Sequence[SampleResult]) -> dict[str, Any]:
    """The entry of a sample and a repeat, with all its results."""
    model = format_original_model(evaluation.request.model)
    # The output of a sample is that of the first evaluator that asked for one.
    main = next((result for result in results if result.output or result.turns), results[0])
    record = record_as_data(main)
    targets = record["targets"] or []
    output = _output(main, model)
    entry = {
        "id": main.sample_id,
        "epoch": main.repeat + 1,
        "input": _input(record["input"]),
        "target": targets[0] if len(targets) == 1 else targets or "",
        "messages": _messages(main, model),
        "output": output,
        "scores": {result.evaluator: _score(result, main) for result in results},
        "metadata": record_data(record["metadata"] or {}),
        "model_usage": _summed([_usages(model, result.usage) for result in results]),
        "total_time": sum(result.duration_ns for result in results) / 1e9,
    }
    if record["choices"]:
        entry["choices"] = record["choices"]
    if all(result.verdict is Verdict.ERROR for result in results):
        entry["error"] = _error(results[0].problem)
    return entry


def summary_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The summary of an entry: with shortened texts, without the output."""
    summary = {
        "id": entry["id"],
        "epoch": entry["epoch"],
        "input": _short(entry["input"]),
        "target": _short(entry["target"]),
        "metadata": _short(entry["metadata"]),
        "scores": {
            name: {
                "value": score["value"],
                "answer": _short(score["answer"]),
                **({"reason": score["reason"]} if "reason" in score else {}),
            }
            for name, score in entry["scores"].items()
        },
        "model_usage": entry["model_usage"],
        "total_time": entry["total_time"],
        "completed": True,
        "message_count": len(entry["messages"]),
    }
    if "choices" in entry:
        summary["choices"] = _short(entry["choices"])
    if "error" in entry:
        summary["error"] = entry["error"]["message"]
    return summary


def member_name(entry: Mapping[str, Any], position: int) -> str:
    """Where an entry is in the archive; readers cut a name at NUL, so that such an id is spelled in another way."""
    name = replace_surrogates(entry["id"])
    if _NUL in name:
        name = f"{name.replace(_NUL, chr(0xFFFD))}~{position}"
    return f"samples/{name}_epoch_{entry['epoch']}.json"


def _time(unix_ns: int) -> str:
    return utc(unix_ns).isoformat()


def _generation(params: SamplingParams | None, engine: ServerEngine | None) -> dict[str, Any]:
    """The parameters that were applied."""
    if params is None:
        return {}
    refused = () if engine is None else engine.not_applied
    config = {
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "seed": params.seed,
        "stop_seqs": list(params.stop) or None,
    }
    return {key: value for key, value in config.items() if value is not None and key not in refused}


def _score_of(result: EvaluatorResult, metric_prefix: str) -> dict[str, Any]:
    spec = result.evaluator
    prefix = metric_prefix if spec.name is None else f"{metric_prefix}{spec.name}/"
    metrics = {key.removeprefix(prefix): value for key, value in sorted(result.metrics.values.items())}
    metadata = {
        "undefined": {key.removeprefix(prefix): why for key, why in result.metrics.undefined.items()},
        "n": result.n,
        "n_errors": result.n_errors,
        "n_correct": result.n_correct,
        "unscored_by_reason": dict(result.unscored_by_reason),
        "n_truncated": result.n_truncated,
        "n_truncated_reasoning": result.n_truncated_reasoning,
        "problem": result.problem,
    }
    return {
        "name": spec.label,
        "scorer": spec.kind,
        "scored_samples": result.n_scored,
        "unscored_samples": result.n_unscored,
        "params": record_data(spec.options),
        "metrics": {key: {"name": key, "value": value} for key, value in metrics.items()},
        "metadata": record_data(metadata),
    }


def _score(result: SampleResult, main: SampleResult) -> dict[str, Any]:
    scored = result.verdict.scored and result.score is not None
    metadata: dict[str, Any] = {"verdict": result.verdict, "method": result.method}
    further = {
        "measurements": result.measurements,
        "problem": result.problem,
        "truncated": result.truncated,
        "refusal": result.refusal,
        "tool_calls": result.tool_calls,
        "unparsed_tool_calls": result.unparsed_tool_calls,
        "usage": result.usage,
    }
    if result is not main:
        further |= {"output": result.output, "stop_reason": result.stop_reason}
    if result is not main or any(turn.rollout or turn.model for turn in result.turns):
        further["turns"] = result.turns
    metadata |= {key: value for key, value in further.items() if value}
    score: dict[str, Any] = {
        "value": result.score if scored else math.nan,
        "answer": result.extracted or None,
        "metadata": record_data(metadata),
    }
    if result.problem is not None:
        score["explanation"] = problem_text(result.problem)
    if not scored:
        score["reason"] = result.verdict.value if result.problem is None else result.problem.reason
    return score


def _output(result: SampleResult, model: str) -> dict[str, Any]:
    if not result.output and not result.stop_reason:
        return {"model": model, "choices": []}
    message = {"role": "assistant", "content": _content(result), "source": "generate", "model": model}
    output: dict[str, Any] = {
        "model": model,
        "choices": [{"message": message, "stop_reason": _STOP_REASONS.get(result.stop_reason, "unknown")}],
        "completion": result.output,
        "time": result.duration_ns / 1e9,
    }
    if (usage := _usage(result.usage)) is not None:
        output["usage"] = usage
    return output


def _input(asked: Any) -> str | list[dict[str, Any]]:
    if isinstance(asked, list):
        return [_message(message["role"], message["content"]) for message in asked]
    return f"({asked['tokens']:,} tokens)" if isinstance(asked, dict) else asked or ""


def _messages(result: SampleResult, model: str) -> list[dict[str, Any]]:
    """The exchange with the evaluated model, of its first rollout."""
    turns = [turn for turn in result.turns if not turn.rollout and not turn.model]
    if turns:
        return [_turn(turn, model) for turn in turns]
    match result.prompt:
        case Conversation(messages):
            exchange = [_message(message.role, message_text(message)) for message in messages]
        case str() as text:
            exchange = [_message("user", text)]
        case TokenPrompt(count):
            exchange = [_message("user", f"({count:,} tokens)")]
        case None:
            exchange = []
    if result.output or result.reasoning:
        exchange.append({"role": "assistant", "content": _content(result), "source": "generate", "model": model})
    return exchange


def _content(result: SampleResult) -> str | list[dict[str, Any]]:
    """The output; after its reasoning, if the model's server returned that apart from it."""
    if not result.reasoning or result.reasoning == part_thinking(result.output)[0]:
        return result.output
    return [{"type": "reasoning", "reasoning": result.reasoning}, {"type": "text", "text": result.output}]


def _turn(turn: Turn, model: str) -> dict[str, Any]:
    message = _message(turn.role, turn.text)
    if turn.role == "assistant":
        message |= {"source": "generate", "model": model}
    return message if turn.reward is None else {**message, "metadata": {"reward": turn.reward}}


def _message(role: str, content: str) -> dict[str, Any]:
    """A message; Inspect knows four roles, and the name of another one stands beside its text."""
    if role in _ROLES:
        return {"role": role, "content": content}
    return {"role": "user", "content": content, "metadata": {"role": role}}


def _usages(model: str, usage: Usage | None) -> dict[str, Any]:
    """By model; one whose tokens are not reported is left out, as Inspect would read it as none."""
    found = {} if usage is None else {model: usage, **{one.model: one.usage for one in usage.judges}}
    return {name: counts for name, each in found.items() if (counts := _usage(each)) is not None}


def _usage(usage: Usage | None) -> dict[str, Any] | None:
    if usage is None or usage.prompt_tokens is None or usage.output_tokens is None:
        return None
    counts = {
        # Inspect's input tokens are without those of the cache.
        "input_tokens": usage.prompt_tokens - (usage.cached_prompt_tokens or 0),
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
        "input_tokens_cache_read": usage.cached_prompt_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "total_cost": usage.cost,
    }
    return {key: value for key, value in counts.items() if value is not None}


def _summed(several: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    total: dict[str, dict[str, float]] = {}
    for usages in several:
        for model, counts in usages.items():
            sums = total.setdefault(model, {})
            for key, count in counts.items():
                sums[key] = sums.get(key, 0) + count
    return total


def _error(problem: Problem | None) -> dict[str, str]:
    return {"message": problem_text(problem) or "unknown", "traceback": "", "traceback_ansi": ""}


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= SUMMARY_CHARS else f"{value[: SUMMARY_CHARS - 1]}…"
    if isinstance(value, list):
        return [_short(item) for item in value]
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return value
