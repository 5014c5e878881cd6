"""Groups in the results of samples, and the counts over them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence

from crucible_bridge.errors import InvalidField
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Metrics,
    ModelInput,
    Problem,
    SampleResult,
    Trajectory,
    TrajectoryGroup,
    Transition,
    Verdict,
)
from crucible_worker.backends.metering import known_sum
from crucible_worker.evaluators.answering import TRUNCATED_REASONING
from crucible_worker.evaluators.base import Outcome
from crucible_worker.evaluators.environments.base import Rollout, Turn
from crucible_worker.evaluators.environments.group import Failure, Group
from crucible_worker.evaluators.environments.transcripts import transcript_of

__all__ = [
    "MAX_OUTPUT_CHARS",
    "counts_of",
    "described",
    "errors_of",
    "outcome_of",
    "uncounted_turns",
    "without_uncounted",
]

MAX_OUTPUT_CHARS = 100_000
"""Characters of the answer in a group's first rollout that a record shows."""

_ERRORS, _UNSEEN, _UNREPORTED = "rollout_errors/", "unseen_turns", "unreported_turns"
_TOTAL, _SKIPPED = "total", "groups_skipped"
_UNCOUNTED = {
    _UNSEEN: (("/ob_tokens_per_turn", "/total_ob_tokens"), "the model's server does not count prompt tokens"),
    _UNREPORTED: (("/ac_tokens_per_turn", "/total_ac_tokens"), "the model's server does not report generated tokens"),
}
"""By the measurement that counts such turns, the metrics that are then undefined, and why."""
_NOTHING = ModelInput(())


def outcome_of(group: Group, *, intermediates: bool, transcript: bool = False) -> Outcome:
    """The outcome of a sample: the score is the mean of its rollouts' total rewards.

    Args:
        group: its rollouts.
        intermediates: whether their tokens are recorded.
        transcript: whether their turns are assembled.
    """
    counted = {_key(kind): float(count) for kind, count in sorted(group.failures.items())}
    if group.failure is not None:
        return Outcome(verdict=group.failure.verdict, problem=_problem(group.failure), measurements=counted)
    turns = [turn for rollout in group.rollouts for turn in rollout.transitions]
    try:
        trajectories = tuple(
            Trajectory(
                transitions=tuple(_transition(turn, intermediates) for turn in rollout.transitions),
                final_reward=reward,
                metrics=metrics,
            )
            for rollout, reward, metrics in zip(group.rollouts, group.rewards, group.metrics, strict=True)
        )
        score = math.fsum(each.total_reward for each in trajectories) / len(trajectories)
    except InvalidField as error:
        return _failed(counted, Problem(reason=error.reason, message=error.message, field=error.field))
    except OverflowError:
        return _failed(counted, Problem(reason=Reason.NOT_FINITE, message="gave rewards whose sum is not finite"))
    unseen = sum(turn.seen is None for turn in turns)
    unfinished = sum(turn.unfinished for turn in turns)
    unreported = sum(turn.said.output_tokens is None for turn in turns)
    if unseen:
        counted[_UNSEEN] = float(unseen)
    if unreported:
        counted[_UNREPORTED] = float(unreported)
    if unfinished:
        counted[TRUNCATED_REASONING] = float(unfinished)
    recorded, left_out = transcript_of(group.rollouts) if transcript else ((), 0)
    return Outcome(
        verdict=Verdict.MEASURED,
        score=score,
        output=_text_of(group.rollouts[0]),
        stop_reason=_stop_reason_of(turns),
        output_tokens=known_sum(turn.said.output_tokens for turn in turns),
        measurements=counted,
        group=TrajectoryGroup(trajectories=trajectories, tags=group.tags),
        turns=recorded,
        turns_left_out=left_out,
    )


def errors_of(result: SampleResult) -> Mapping[str, int]:
    """Failed rollouts of a sample by kind; an error from the engine is a kind, too."""
    counted = {
        name.removeprefix(_ERRORS): int(count)
        for name, count in result.measurements.items()
        if name.startswith(_ERRORS)
    }
    if result.group is None and not counted:
        return {"unknown" if result.problem is None else result.problem.reason: 1}
    return counted


def counts_of(errors: Mapping[str, int], skipped: int) -> Mapping[str, float]:
    """The keys `rollout_errors/...` of failed rollouts by kind, and of samples without a group; or none."""
    if not errors and not skipped:
        return {}
    kinds = {f"{_ERRORS}{kind}": float(count) for kind, count in sorted(errors.items())}
    return {**kinds, f"{_ERRORS}{_TOTAL}": float(sum(errors.values())), f"{_ERRORS}{_SKIPPED}": float(skipped)}


def uncounted_turns(result: SampleResult) -> Mapping[str, float]:
    """Turns of a sample whose observation or answer was not counted in tokens, by measurement; or none."""
    return {name: result.measurements[name] for name in _UNCOUNTED if name in result.measurements}


def without_uncounted(metrics: Metrics, uncounted: Iterable[str]) -> Metrics:
    """Metrics whose counts of tokens are undefined where the model's server does not report them."""
    undefined = dict(metrics.undefined)
    for name in uncounted:
        ends, why = _UNCOUNTED[name]
        undefined |= {key: why for key in metrics.values if key.startswith("env/") and key.endswith(ends)}
    return Metrics({key: value for key, value in metrics.values.items() if key not in undefined}, undefined)


def described(result: SampleResult) -> str:
    """The message of a sample without rollouts, short enough for a problem."""
    why = "" if result.problem is None else f"{result.problem.reason}: {result.problem.message}"
    return shorten(f"sample {result.sample_id!r} failed: {why}", MAX_PROBLEM_BYTES)


def _key(kind: str) -> str:
    # A class may have the name of another counted key.
    return f"{_ERRORS}{shorten(kind, MAX_PROBLEM_BYTES)}{'_' * (kind in (_TOTAL, _SKIPPED))}"


def _failed(counted: Mapping[str, float], problem: Problem) -> Outcome:
    key = _key(problem.reason)
    measurements = {**counted, key: counted.get(key, 0.0) + 1.0}
    return Outcome(verdict=Verdict.ERROR, problem=problem, measurements=measurements)


def _problem(failure: Failure) -> Problem:
    return Problem(
        reason=shorten(failure.kind, MAX_PROBLEM_BYTES),
        message=shorten(failure.message, MAX_PROBLEM_BYTES),
        retryable=failure.retryable,
    )


def _transition(turn: Turn, intermediates: bool) -> Transition:
    made = Transition.of(
        _NOTHING if turn.seen is None else turn.seen,
        turn.said,
        reward=turn.reward,
        metrics=turn.metrics,
        intermediates=intermediates,
    )
    return dataclasses.replace(made, observation=None) if turn.seen is None else made


def _stop_reason_of(turns: Sequence[Turn]) -> str:
    """Why answers ended: "length" if one was truncated, else the first reason other than "stop", which may be empty."""
    reasons = [turn.said.stop_reason for turn in turns]
    return "length" if "length" in reasons else next((reason for reason in reasons if reason != "stop"), "stop")


def _text_of(rollout: Rollout) -> str:
    return "\n".join(turn.output for turn in rollout.transitions)[:MAX_OUTPUT_CHARS]
