"""The findings of a task as the result of a sample, and the metrics of all tasks."""

from __future__ import annotations

import collections
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Metrics, Problem, SampleResult, Verdict
from crucible_worker.evaluators.answering import TRUNCATED_REASONING
from crucible_worker.evaluators.base import Outcome
from crucible_worker.evaluators.inspect.answers import TaskResponder

__all__ = ["COUNTS", "MAX_METRICS", "not_run", "outcome_of", "task_metrics"]

COUNTS = ("samples", "errored_samples", "truncated_samples")
"""The counts of each task, by the names of their keys."""
MAX_METRICS = 1_000
"""Metrics of one task, all scorers together."""

_UNDEFINED = "undefined"
"""The suffix of a measurement that says that its metric has no value."""
_MAX_PART_BYTES = 200


def outcome_of(
    label: str,
    message: Mapping[str, Any],
    answers: TaskResponder,
    *,
    stopped: Problem | None = None,
    log: Mapping[str, str] | None = None,
) -> Outcome:
    """The result of a sample whose task has ended.

    Args:
        label: the task's name.
        message: the last message of its process.
        answers: the answers that it received.
        stopped: why it was stopped, if it was; scores up to then are kept, under an ERROR.
        log: entries about its log.
    """
    log = log or {}
    if message["op"] == "failed":
        if stopped is not None:
            return not_run(label, stopped, log)
        return not_run(label, _failed(message["message"]), log)
    measurements: dict[str, float] = {key: float(message[key.partition("_")[0]]) for key in COUNTS}
    if (count := _count(message["scores"])) > MAX_METRICS:
        text = f"the task has {count:,} metrics, at most {MAX_METRICS:,} are recorded"
        problem = Problem(reason=Reason.TOO_MANY_METRICS, message=text)
        return Outcome(verdict=Verdict.ERROR, method=label, problem=problem, measurements=measurements)
    named = _named(message["scores"])
    for key, (_, value) in named.items():
        measurements[key if value is not None else f"{key}/{_UNDEFINED}"] = 1.0 if value is None else value
    if answers.unfinished:
        measurements[TRUNCATED_REASONING] = float(answers.unfinished)
    headline = next((key for key, (place, _) in named.items() if place == message["headline"]), "")
    score = named[headline][1] if headline else None
    failure = message.get("failure", "")
    problem = stopped or (_failed(failure) if failure else _problem(message, headline, score, answers))
    output = {"samples": message["records"], "left_out": message["records_left_out"], **log}
    return Outcome(
        verdict=_verdict(problem),
        score=score if problem is None else None,
        output=json.dumps({**output, "failure": failure} if failure else output),
        extracted=headline,
        method=label,
        stop_reason=answers.stop_reason,
        output_tokens=answers.output_tokens,
        problem=problem,
        measurements=measurements,
    )


def not_run(label: str, problem: Problem, log: Mapping[str, str] | None = None) -> Outcome:
    """The result of a sample whose task did not finish, with entries about its log."""
    return Outcome(verdict=Verdict.ERROR, method=label, problem=problem, output=json.dumps(dict(log)) if log else "")


def task_metrics(results: Iterable[SampleResult]) -> Metrics:
    """Metrics of all tasks, each after the name of its task.

    If two samples are one task, the sample's id follows it, in brackets. A task that ended before it had a name has
    only the sample's id. Ids that would be equal as parts of a key are numbered.
    """
    found = [(result.method or _part(result.sample_id), result) for result in results]
    names = collections.Counter(label for label, _ in found)
    values: dict[str, float] = {}
    undefined: dict[str, str] = {}
    keys = _Keys()
    for label, result in found:
        task = keys.unused(label if names[label] == 1 else f"{label}[{_part(result.sample_id)}]")
        for name in COUNTS:
            if name not in result.measurements:
                undefined[f"{task}/{name}"] = _why_not_run(result)
        for name, value in result.measurements.items():
            if name == TRUNCATED_REASONING:
                continue  # a count of the evaluator's result, no metric
            if name.count("/") == 2:
                key = f"{task}/{name.removesuffix(f'/{_UNDEFINED}')}"
                undefined[key] = "is not finite, or no sample has such a score"
            else:
                values[f"{task}/{name}"] = value
    return Metrics.of(values, undefined)


def _count(scores: Sequence[Mapping[str, Any]]) -> int:
    """Metrics of all scorers, with the counts of samples without a score."""
    return sum(len(score["metrics"]) + bool(score["unscored"]) for score in scores)


def _named(scores: Sequence[Mapping[str, Any]]) -> dict[str, tuple[list[Any], float | None]]:
    """Every metric by its key, with its place in the log, and its value if it has one."""
    keys = _Keys()
    views = collections.Counter(score["scorer"] for score in scores)
    named: dict[str, tuple[list[Any], float | None]] = {}
    for score in scores:
        scorer = _part(score["scorer"])
        if views[score["scorer"]] > 1:
            # One scorer may occur several times: with several reducers of epochs, or with none.
            scorer = f"{scorer}[{_part(score['reducer'] or 'all')}]"
        for metric, value in score["metrics"].items():
            place = [score["scorer"], score["reducer"], metric]
            named[keys.unused(f"{scorer}/{_part(metric)}")] = (place, value)
        if score["unscored"]:
            key = keys.unused(f"{scorer}/unscored_samples")
            named[key] = ([score["scorer"], score["reducer"], None], float(score["unscored"]))
    return named


class _Keys:
    """Unique keys; one that is taken gets a number after it, the first free one."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def unused(self, key: str) -> str:
        """The key, or a free one made from it."""
        free = key
        if key in self._taken:
            number = self._next.get(key, 2)
            while (free := f"{key}#{number}") in self._taken:
                number += 1
            self._next[key] = number + 1
        self._taken.add(free)
        return free


def _part(text: str) -> str:
    """A name as a part of a key, without slashes, which would split it."""
    return shorten(text.replace("/", "."), _MAX_PART_BYTES) or "unnamed"


def _problem(message: Mapping[str, Any], headline: str, score: float | None, answers: TaskResponder) -> Problem | None:
    if message["errored"] and message["errored"] >= message["samples"]:
        text = f"every sample of the task failed, the first with: {message['first_error']}"
        first = answers.first_problem
        return Problem(
            reason=Reason.INSPECT_SAMPLES_FAILED if first is None else first.reason,
            message=shorten(text, MAX_PROBLEM_BYTES),
            retryable=first is not None and first.retryable,
        )
    if score is not None:
        return None
    text = f"{headline} has no finite value" if headline else "the task has no scorer"
    return Problem(reason=Reason.UNDECIDED, message=text)


def _failed(message: str) -> Problem:
    return Problem(reason=Reason.INSPECT_FAILED, message=shorten(message, MAX_PROBLEM_BYTES))


def _verdict(problem: Problem | None) -> Verdict:
    if problem is None:
        return Verdict.MEASURED
    return Verdict.UNDECIDED if problem.reason == Reason.UNDECIDED else Verdict.ERROR


def _why_not_run(result: SampleResult) -> str:
    if result.problem is None:
        return "the task did not finish"
    return f"the task did not finish: {result.problem.reason}"
