"""Reports and samples for programs: JSON, ASCII-escaped, without a bare NaN."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.types import (
    Conversation,
    Datum,
    Evaluation,
    EvaluationComparison,
    EvaluatorResult,
    Limits,
    Metrics,
    Problem,
    SamplePrompt,
    SampleResult,
    SamplingParams,
    TokenPrompt,
    ToolCall,
    Turn,
    message_text,
    tool_to_json,
)
from crucible_worker.reports.facts import (
    engine_as_data,
    format_dataset,
    shown_failures,
    usage_as_data,
)
from crucible_worker.reports.pairs import comparison_as_data, not_compared
from crucible_worker.reports.plain_json import plain
from crucible_worker.util.model_refs import format_original_model

__all__ = [
    "asked_text",
    "evaluation_as_json",
    "input_as_data",
    "input_text",
    "prompt_as_data",
    "record_as_data",
    "render_json",
    "said_as_data",
    "sample_as_data",
    "shown_output",
]


def render_json(
    evaluations: Sequence[Evaluation],
    failures: Mapping[str, Sequence[SampleResult]],
    *,
    title: str = "",
    metrics: Metrics | None = None,
    comparison: EvaluationComparison | None = None,
) -> str:
    """Write a report of one evaluation, or of several in the order given.

    Args:
        evaluations: what is reported.
        failures: by evaluation id, samples to show; the first `facts.MAX_FAILURES` of each are.
        title: of the report; left out if empty.
        metrics: results that belong to no evaluation; left out if None.
        comparison: of those that can be compared, with the first of them; None if there are no two.

    Returns:
        One object: `{"evaluations": [...]}`, of several with `comparison` and `not_compared`. A number that is not
        finite is null.
    """
    report: dict[str, Any] = {"title": title} if title else {}
    if metrics is not None:
        report |= {"metrics": dict(metrics.values), "undefined": dict(metrics.undefined)}
    report["evaluations"] = [
        {**_evaluation(one), "failures": [_sample(sample) for sample in shown_failures(one, failures)]}
        for one in evaluations
    ]
    if len(evaluations) > 1:
        report["comparison"] = None if comparison is None else comparison_as_data(comparison)
        report["not_compared"] = not_compared(evaluations, comparison)
    return json.dumps(plain(report), ensure_ascii=True, allow_nan=False, indent=2) + "\n"


def evaluation_as_json(evaluation: Evaluation) -> dict[str, Any]:
    """An evaluation as plain data, ready for any reader of JSON, as a report has it."""
    return plain(_evaluation(evaluation))


def _evaluation(evaluation: Evaluation) -> dict[str, Any]:
    request = evaluation.request
    return {
        "evaluation_id": evaluation.evaluation_id,
        "state": evaluation.state.value,
        "paused": evaluation.paused,
        "waiting_for": evaluation.waiting_for,
        "run_id": request.run_id,
        "step": request.step,
        "model": format_original_model(request.model),
        "model_fingerprint": evaluation.model_fingerprint,
        "dataset": format_dataset(request.dataset),
        "dataset_fingerprint": evaluation.dataset_fingerprint,
        "prompt": None if request.dataset.prompt is None else dataclasses.asdict(request.dataset.prompt),
        "rules_version": evaluation.rules_version,
        "servers": [{"name": one.name, "addresses": list(one.addresses)} for one in evaluation.servers],
        "graders": {label: dict(found.versions) for label, found in evaluation.graders.items()},
        "rendering": [dataclasses.asdict(one) for one in evaluation.rendering],
        "sampling": _sampling(request.sampling),
        "limits": _limits(request.limits),
        "concurrency": evaluation.concurrency,
        "metric_prefix": request.metric_prefix,
        "labels": dict(request.labels),
        "models": dict(request.models),
        "metrics": dict(evaluation.metrics.values),
        "undefined": dict(evaluation.metrics.undefined),
        "evaluators": [_result(result) for result in evaluation.results],
        "done": evaluation.done,
        "total": evaluation.total,
        "attempt": evaluation.attempt,
        "created_unix_ns": evaluation.created_unix_ns,
        "ended_unix_ns": evaluation.ended_unix_ns,
        "duration_ns": evaluation.duration_ns,
        "usage": usage_as_data(evaluation.usage),
        "engine": engine_as_data(evaluation.engine),
        "problem": _problem(evaluation.problem),
    }


def _result(result: EvaluatorResult) -> dict[str, Any]:
    return {
        "kind": result.evaluator.kind,
        "name": result.evaluator.name,
        "options": dict(result.evaluator.options),
        "metrics": dict(result.metrics.values),
        "undefined": dict(result.metrics.undefined),
        "n": result.n,
        "n_scored": result.n_scored,
        "n_unscored": result.n_unscored,
        "n_errors": result.n_errors,
        "n_correct": result.n_correct,
        "unscored_by_reason": dict(result.unscored_by_reason),
        "n_truncated": result.n_truncated,
        "n_truncated_reasoning": result.n_truncated_reasoning,
        "usage": usage_as_data(result.usage),
        "problem": _problem(result.problem),
    }


def sample_as_data(sample: SampleResult) -> dict[str, Any]:
    """A sample's result with its record as plain data, ready for any reader of JSON."""
    reason = "" if sample.problem is None else sample.problem.reason
    measured = {"measurements": sample.measurements, "output_tokens": sample.output_tokens}
    return plain({**_sample(sample), "reason": reason, **measured})


def _sample(sample: SampleResult) -> dict[str, Any]:
    return {
        "evaluator": sample.evaluator,
        "sample_id": sample.sample_id,
        "repeat": sample.repeat,
        "verdict": sample.verdict.value,
        "score": sample.score,
        "output": sample.output,
        "extracted": sample.extracted,
        "method": sample.method,
        "stop_reason": sample.stop_reason,
        **said_as_data(sample),
        "attempts": sample.attempts,
        "usage": usage_as_data(sample.usage),
        "problem": _problem(sample.problem),
        **record_as_data(sample),
    }


def _problem(problem: Problem | None) -> dict[str, Any] | None:
    if problem is None:
        return None
    return {
        "reason": problem.reason,
        "message": problem.message,
        "field": problem.field,
        "retryable": problem.retryable,
    }


def _sampling(params: SamplingParams | None) -> dict[str, Any] | None:
    if params is None:
        return None
    return {
        "max_tokens": params.max_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "seed": params.seed,
        "stop": list(params.stop),
    }


def _limits(limits: Limits) -> dict[str, Any]:
    return {
        "concurrency": limits.concurrency,
        "deadline_ms": limits.deadline_ms,
        "stall_timeout_ms": limits.stall_timeout_ms,
        "sample_timeout_ms": limits.sample_timeout_ms,
        "max_unscored_share": limits.max_unscored_share,
        "max_unscored": limits.max_unscored,
    }


# What is recorded of a sample: as plain data for JSON, and as text for people.


def record_as_data(result: SampleResult) -> dict[str, Any]:
    """What is recorded of a sample besides its result.

    Text is text, a conversation a list of messages, tokens `{"tokens": count}`; what is not recorded is null.
    """
    sample = result.sample
    return {
        "input": None if sample is None else input_as_data(sample.input),
        "targets": None if sample is None else list(sample.targets),
        "choices": None if sample is None else list(sample.choices),
        **({"choice_labels": list(sample.choice_labels)} if sample is not None and sample.choice_labels else {}),
        "metadata": None if sample is None else dict(sample.metadata),
        "prompt": prompt_as_data(result.prompt),
        "turns": [_turn_as_data(turn) for turn in result.turns],
        "truncated": [{"part": part.part, "bytes": part.bytes, "limit": part.limit} for part in result.truncated],
    }


def prompt_as_data(prompt: SamplePrompt | None) -> Any:
    """A prompt, likewise."""
    if isinstance(prompt, Conversation):
        return _messages(prompt)
    return {"tokens": prompt.token_count} if isinstance(prompt, TokenPrompt) else prompt


def said_as_data(said: SampleResult | Turn) -> dict[str, Any]:
    """What an answer has besides its text, as far as there is any: reasoning, refusal, calls of tools."""
    calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in said.tool_calls]
    unparsed = [{"text": call.text, "error": call.error} for call in said.unparsed_tool_calls]
    found = {
        "reasoning": said.reasoning,
        "refusal": said.refusal,
        "tool_calls": calls,
        "unparsed_tool_calls": unparsed,
    }
    return {name: value for name, value in found.items() if value}


def shown_output(result: SampleResult) -> str:
    """The output for people: without one, why there is none, as far as that is recorded."""
    if result.output.strip():
        return result.output
    if result.refusal:
        return f'(refused: "{result.refusal}")'
    if result.tool_calls or result.unparsed_tool_calls:
        called = [*map(_called, result.tool_calls), *(_UNPARSED for _ in result.unparsed_tool_calls)]
        return f"(called {', '.join(called)})"
    return f"({result.method})" if result.reasoning and result.method else result.output


_UNPARSED = "a tool in a form that cannot be parsed"


def _called(call: ToolCall) -> str:
    return f"the tool {call.name}" if call.name else _UNPARSED


def asked_text(result: SampleResult) -> str:
    """What a sample asks, in one text, for people; empty where it is not recorded."""
    return "" if result.sample is None else input_text(result.sample.input)


def input_text(asked: str | Conversation | Datum) -> str:
    """The same of an input; empty for tokens."""
    if isinstance(asked, Conversation):
        return "\n".join(f"{message.role}: {message_text(message)}" for message in asked.messages)
    return asked if isinstance(asked, str) else ""


def input_as_data(asked: str | Conversation | Datum) -> Any:
    """An input as data: a text, messages, or the number of its tokens."""
    if isinstance(asked, Conversation):
        return _messages(asked)
    if isinstance(asked, Datum):
        # An image counts as what it says it takes.
        counts = (
            getattr(chunk, "expected_tokens", None) or len(getattr(chunk, "tokens", ()))
            for chunk in asked.model_input.chunks
        )
        return {"tokens": sum(counts)}
    return asked


def _messages(conversation: Conversation) -> list[dict[str, str]]:
    said = [{"role": message.role, "content": message_text(message)} for message in conversation.messages]
    if not conversation.tools:
        return said
    listed = "\n".join(json.dumps(tool_to_json(tool), ensure_ascii=False) for tool in conversation.tools)
    return [{"role": "tools", "content": listed}, *said]


def _turn_as_data(turn: Turn) -> Mapping[str, Any]:
    return {
        "role": turn.role,
        "text": turn.text,
        "reward": turn.reward,
        "tokens": turn.tokens,
        "rollout": turn.rollout,
        "model": turn.model,
        **said_as_data(turn),
    }
