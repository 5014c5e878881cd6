"""Groups in the results of samples, their transcripts, and the counts over them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from crucible_bridge.errors import InvalidField
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    Metrics,
    ModelInput,
    Problem,
    SampleResult,
    TokensChunk,
    Trajectory,
    TrajectoryGroup,
    Transition,
    Verdict,
)
from crucible_bridge.types import Turn as RecordedTurn
from crucible_worker.backends.metering import known_sum
from crucible_worker.evaluators.answering import TRUNCATED_REASONING
from crucible_worker.evaluators.base import Outcome
from crucible_worker.evaluators.environments.base import Nothing, Rollout, Turn
from crucible_worker.evaluators.environments.group import Failure, Group

__all__ = [
    "MAX_OUTPUT_CHARS",
    "MAX_TRANSCRIPT_BYTES",
    "counts_of",
    "described",
    "errors_of",
    "outcome_of",
    "transcript_of",
    "uncounted_turns",
    "without_uncounted",
]

# The transcript of a group of rollouts: observation, answer and reward of each turn.

MAX_TRANSCRIPT_BYTES = 8 * 1024 * 1024
"""Bytes of the texts of a group; later ones are left out, and counted."""


def transcript_of(rollouts: Sequence[Rollout]) -> tuple[tuple[RecordedTurn, ...], int]:
    """The turns of a group, and how many bytes of their texts were left out.

    An observation that repeats everything before it, like a growing conversation, is recorded without that part.
    """
    turns: list[RecordedTurn] = []
    room, left_out = MAX_TRANSCRIPT_BYTES, 0
    for index, rollout in enumerate(rollouts):
        for turn in _turns_of(rollout, index):
            # An upper bound of the bytes: examining all characters would take too long.
            size = 4 * len(turn.text) if not turn.text.isascii() else len(turn.text)
            if size > room:
                left_out += len(turn.text.encode("utf-8", "surrogatepass"))
                continue
            room -= size
            turns.append(turn)
    return tuple(turns), left_out


def _turns_of(rollout: Rollout, index: int) -> Iterator[RecordedTurn]:
    messages: list[tuple[str, str]] = []
    text = ""
    for turn in rollout.transitions:
        seen = None if turn.seen is None else _length(turn.seen)
        given = turn.ob
        if isinstance(given, str):
            yield RecordedTurn(role="user", text=_new_part(text, str(given)), tokens=seen, rollout=index)
            text = str(given) + _answer_text(turn)
        elif isinstance(given, Conversation):
            shown = [_plain(message) for message in given.messages]
            new = shown[len(messages) :] if shown[: len(messages)] == messages else shown
            for place, (role, content) in enumerate(new, 1):
                yield RecordedTurn(role=role, text=content, tokens=seen if place == len(new) else None, rollout=index)
            messages = [*shown, ("assistant", _answer_text(turn))]
        elif not isinstance(given, Nothing):
            yield RecordedTurn(role="user", text="", tokens=seen, rollout=index)
        yield RecordedTurn(
            role="assistant",
            text=turn.output,
            reward=float(turn.reward),
            tokens=turn.said.output_tokens,
            rollout=index,
            reasoning=turn.said.reasoning,
            refusal=turn.said.refusal,
            tool_calls=turn.said.tool_calls,
            unparsed_tool_calls=turn.said.unparsed_tool_calls,
        )


def _new_part(before: str, text: str) -> str:
    return text[len(before) :] if before and text.startswith(before) else text


def _answer_text(turn: Turn) -> str:
    return turn.ac.text if isinstance(turn.ac.text, str) else ""


def _plain(message: ChatMessage) -> tuple[str, str]:
    # An environment may put anything there; what is not text cannot be sent to a model either.
    role, content = message.role, message.content
    return (str(role) if isinstance(role, str) else "", str(content) if isinstance(content, str) else "")


def _length(seen: ModelInput) -> int:
    return sum(
        len(chunk.tokens) if isinstance(chunk, TokensChunk) else chunk.expected_tokens or 0 for chunk in seen.chunks
    )


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
