"""Samples as the data of pages: a row of a table, a whole sample, its answers in several evaluations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from crucible_bridge.types import Conversation, Datum, Evaluation, SampleResult, Trajectory, Transition, Turn
from crucible_worker.reports.as_json import (
    asked_text,
    input_as_data,
    input_text,
    record_as_data,
    sample_as_data,
    shown_output,
)
from crucible_worker.reports.plain_json import plain, replace_surrogates
from crucible_worker.util.reasoning import reasoning_spans

__all__ = [
    "MAX_ROW_CHARS",
    "answers_as_data",
    "extracted_span",
    "reasoning_span",
    "row_as_data",
    "row_text",
    "searched_input",
    "searched_text",
    "whole_sample_as_data",
]

MAX_ROW_CHARS = 300
"""Of a text in a row."""

Span = tuple[int, int]


def row_as_data(n: int, result: SampleResult) -> dict[str, Any]:
    """A sample in a table.

    Args:
        n: its position among the samples of the evaluation, from 0.
        result: it.
    """
    reasoning = reasoning_span(result.output)
    said = shown_output(result) if reasoning is None else result.output[reasoning[1] :].strip()
    return {
        "n": n,
        "evaluator": replace_surrogates(result.evaluator),
        "id": replace_surrogates(result.sample_id),
        "repeat": result.repeat,
        "verdict": result.verdict.value,
        "score": plain(result.score),
        "input": row_text(asked_text(result)),
        "output": row_text(said),
        "extracted": row_text(result.extracted),
        "target": row_text(", ".join(() if result.sample is None else result.sample.targets)),
        "stop": result.stop_reason,
        "tokens": result.output_tokens,
        "seconds": _seconds(result),
        "reason": "" if result.problem is None else result.problem.reason,
    }


def whole_sample_as_data(n: int, result: SampleResult) -> dict[str, Any]:
    """A sample by itself, with its rollouts and log-probabilities as far as they are recorded.

    Args:
        n: its position among the samples of the evaluation, from 0.
        result: it.
    """
    return {
        **sample_as_data(result),
        "n": n,
        "seconds": _seconds(result),
        **_spans(result),
        **plain({"rollouts": _rollouts(result), "logprobs": _logprobs(result)}),
    }


def answers_as_data(
    evaluator: str, sample_id: str, results: Iterable[tuple[Evaluation, Sequence[SampleResult]]]
) -> dict[str, Any]:
    """What several evaluations made of one sample.

    Args:
        evaluator: the label of the evaluator.
        sample_id: the sample.
        results: by evaluation, in the order in which they are shown, its results; others than those asked for are
            ignored.
    """
    answers: list[dict[str, Any]] = []
    first: SampleResult | None = None
    for evaluation, found in results:
        for result in found:
            if (result.evaluator, result.sample_id) != (evaluator, sample_id):
                continue
            first = result if first is None or first.sample is None else first
            answers.append(
                {
                    "evaluation": evaluation.evaluation_id,
                    "step": evaluation.request.step,
                    "repeat": result.repeat,
                    "verdict": result.verdict.value,
                    "score": result.score,
                    "output": result.output,
                    "extracted": result.extracted,
                    **_spans(result),
                }
            )
    record: Mapping[str, Any] = {"input": None, "targets": None} if first is None else record_as_data(first)
    return plain({"id": sample_id, "input": record["input"], "targets": record["targets"], "answers": answers})


def searched_text(result: SampleResult) -> str:
    """What a search for a text looks through: id, input, output, extracted answer and targets."""
    record = result.sample
    asked, targets = ("", ()) if record is None else (searched_input(record.input), record.targets)
    return "\n".join((result.sample_id, asked, result.output, result.extracted, *targets))


def searched_input(asked: str | Conversation | Datum) -> str:
    """The same of what a sample asks."""
    return f"{input_as_data(asked)['tokens']:,} tokens" if isinstance(asked, Datum) else input_text(asked)


def reasoning_span(output: str) -> Span | None:
    """Where the reasoning before an answer begins and ends, in characters, tags included; None if there is none.

    Parts that only white space separates are one.
    """
    spans = reasoning_spans(output)
    if not spans:
        return None
    start, end = spans[0]
    for following, its_end in spans[1:]:
        if output[end:following].strip():
            break
        end = its_end
    return start, end


def extracted_span(output: str, extracted: str) -> Span | None:
    """Where the extracted answer stands in an output: its last place after, or between, the reasoning.

    None if it is empty, or stands nowhere as it is: graders also normalise what they extract.
    """
    if not extracted:
        return None
    end = len(output)
    for start, stop in [*reversed(reasoning_spans(output)), (0, 0)]:
        if (place := _last_place(output[stop:end], extracted)) is not None:
            return stop + place, stop + place + len(extracted)
        end = start
    return None


def _last_place(text: str, part: str) -> int | None:
    # Backwards, as `find` is linear and `rfind` is not.
    place = text[::-1].find(part[::-1])
    return None if place < 0 else len(text) - place - len(part)


def _spans(result: SampleResult) -> dict[str, Span | None]:
    return {
        "extracted_span": extracted_span(result.output, result.extracted),
        "reasoning_span": reasoning_span(result.output),
    }


def row_text(text: str) -> str:
    """A text in a row: its beginning."""
    shown = text if len(text) <= MAX_ROW_CHARS else f"{text[: MAX_ROW_CHARS - 1]}…"
    return replace_surrogates(shown)


def _seconds(result: SampleResult) -> float | None:
    return result.duration_ns / 1e9 if result.duration_ns > 0 else None


def _rollouts(result: SampleResult) -> Sequence[Mapping[str, Any]]:
    if result.group is None:
        return []
    return [_rollout(each, _said(result.turns, n)) for n, each in enumerate(result.group.trajectories)]


def _said(turns: Iterable[Turn], rollout: int) -> Iterator[str]:
    """What the model that is evaluated said in a rollout, turn by turn."""
    return (turn.text for turn in turns if (turn.rollout, turn.role, turn.model) == (rollout, "assistant", ""))


def _rollout(trajectory: Trajectory, said: Iterator[str]) -> Mapping[str, Any]:
    return {
        "reward": trajectory.total_reward,
        "final_reward": trajectory.final_reward,
        "metrics": trajectory.metrics,
        "turns": [
            {
                "observation_tokens": turn.observation_tokens,
                "action_tokens": turn.action_tokens,
                "reward": turn.reward,
                "stop": turn.stop_reason,
                "metrics": turn.metrics,
                "logprobs": list(_pairs(turn)) or None,
                "text": next(said, ""),
            }
            for turn in trajectory.transitions
        ],
    }


def _logprobs(result: SampleResult) -> list[tuple[str, float]] | None:
    """Of each token of the one rollout: its id, as its text is not recorded, and its log-probability."""
    if result.group is None or len(result.group.trajectories) != 1:
        return None
    found = [pair for turn in result.group.trajectories[0].transitions for pair in _pairs(turn)]
    return found or None


def _pairs(turn: Transition) -> Iterator[tuple[str, float]]:
    if turn.action is None or turn.action_logprobs is None:
        return
    for token, logprob in zip(turn.action, turn.action_logprobs, strict=True):
        yield str(int(token)), float(logprob)
