"""What the worker and a process of environments say to each other: frames.

The worker's are pickled: values of its own, to a process that it has started. The process runs foreign code, so what it
says is msgpack, which holds nothing but data, and is looked at before it is believed.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.errors import BridgeError
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    ImageAssetChunk,
    ImageChunk,
    ModelInput,
    Problem,
    TokensChunk,
    Trajectory,
    TrajectoryGroup,
    Transition,
    Turn,
    Verdict,
)
from crucible_worker.children.frames import frame
from crucible_worker.children.messages import error_from_map, pack_text
from crucible_worker.evaluators.base import Outcome
from crucible_worker.evaluators.environments.episode import Shown
from crucible_worker.evaluators.environments.group import Course

__all__ = [
    "MAX_FRAME_BYTES",
    "course_from_map",
    "course_to_map",
    "error_from_foreign_map",
    "order",
    "outcome_from_map",
    "outcome_to_map",
    "pack",
    "received",
    "shown_from_map",
    "shown_to_map",
    "stops_from",
    "stops_of",
]

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""Of what a process may say at once: an observation, or what came of a group."""

_DTYPES = ("<i4", "<i8")


def order(message: Mapping[str, Any]) -> bytes:
    """A frame of the worker."""
    return frame(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def received(body: bytes) -> dict[str, Any]:
    """The body of a frame of the worker, in a process that it has started."""
    return pickle.loads(body)


def pack(message: Mapping[str, Any]) -> bytes:
    """A frame of a process; text may hold what is no valid Unicode.

    Raises:
        TooLong: it would be longer than `MAX_FRAME_BYTES`.
    """
    return pack_text(message, MAX_FRAME_BYTES)


def shown_to_map(shown: Shown) -> dict[str, Any]:
    """An observation.

    Raises:
        TypeError: a message is no text, or an input has a chunk that is none.
    """
    if isinstance(shown, str):
        return {"text": str(shown)}
    if isinstance(shown, ModelInput):
        return {"chunks": [_chunk_to_list(chunk) for chunk in shown.chunks]}
    messages = [[message.role, message.content] for message in shown.messages]
    return {"messages": [[_text(role), _text(content)] for role, content in messages]}


def shown_from_map(fields: Mapping[str, Any]) -> Shown:
    """The observation that `shown_to_map` was given; raises ValueError, TypeError or LookupError where it is none."""
    if "text" in fields:
        return _text(fields["text"])
    if "chunks" in fields:
        return ModelInput(tuple(_chunk_from_list(*chunk) for chunk in fields["chunks"]))
    return Conversation(tuple(ChatMessage(_text(role), _text(content)) for role, content in fields["messages"]))


def course_to_map(course: Course) -> dict[str, Any]:
    """How far a group has come."""
    return {
        "size": course.size,
        "alive": list(course.alive),
        "todo": list(course.todo),
        "round": course.round_,
        "retries": course.retries,
        "failures": dict(course.failures),
    }


def course_from_map(fields: Mapping[str, Any]) -> Course:
    """What `course_to_map` was given; raises ValueError, TypeError or LookupError where it is none."""
    return Course(
        size=_whole(fields["size"]),
        alive=tuple(map(_whole, fields["alive"])),
        todo=tuple(map(_whole, fields["todo"])),
        round_=_whole(fields["round"]),
        retries=_whole(fields["retries"]),
        failures={_text(kind): _whole(count) for kind, count in fields["failures"].items()},
    )


def outcome_to_map(outcome: Outcome) -> dict[str, Any]:
    """What became of a sample."""
    problem = outcome.problem
    return {
        "verdict": outcome.verdict.value,
        "score": outcome.score,
        "output": outcome.output,
        "stop_reason": outcome.stop_reason,
        "output_tokens": outcome.output_tokens,
        "problem": None
        if problem is None
        else [problem.reason, problem.message, problem.field, bool(problem.retryable)],
        "measurements": dict(outcome.measurements),
        "group": None if outcome.group is None else _group_to_map(outcome.group),
        "turns": [[turn.role, turn.text, turn.reward, turn.tokens, turn.rollout] for turn in outcome.turns],
        "turns_left_out": outcome.turns_left_out,
    }


def outcome_from_map(fields: Mapping[str, Any]) -> Outcome:
    """What `outcome_to_map` was given; raises ValueError, TypeError or LookupError where it is none."""
    problem = None
    if fields["problem"] is not None:
        reason, message, field, retryable = fields["problem"]
        problem = Problem(reason=_text(reason), message=_text(message), field=_text(field), retryable=bool(retryable))
    verdict, score = Verdict(fields["verdict"]), fields["score"]
    if verdict.scored is (score is None) or verdict.scored is (fields["group"] is None):
        raise ValueError("a verdict without what it needs")
    return Outcome(
        verdict=verdict,
        score=None if score is None else _number(score),
        output=_text(fields["output"]),
        stop_reason=_text(fields["stop_reason"]),
        output_tokens=_whole(fields["output_tokens"]),
        problem=problem,
        measurements=_numbers(fields["measurements"]),
        group=None if fields["group"] is None else _group_from_map(fields["group"]),
        turns=tuple(_turn_from_list(*turn) for turn in fields["turns"]),
        turns_left_out=_whole(fields["turns_left_out"]),
    )


def error_from_foreign_map(fields: Mapping[str, Any]) -> BridgeError:
    """The error that a process has packed as the worker does; raises TypeError or LookupError where it is none."""
    texts = {name: _text(fields[name]) for name in ("kind", "message", "field", "reason")}
    return error_from_map({**texts, "retryable": bool(fields["retryable"])})


def _group_to_map(group: TrajectoryGroup) -> dict[str, Any]:
    trajectories = [
        [each.final_reward, dict(each.metrics), [_transition_to_list(turn) for turn in each.transitions]]
        for each in group.trajectories
    ]
    return {"tags": list(group.tags), "trajectories": trajectories}


def _group_from_map(fields: Mapping[str, Any]) -> TrajectoryGroup:
    trajectories = tuple(
        Trajectory(
            transitions=tuple(_transition_from_list(*turn) for turn in turns),
            final_reward=_number(reward),
            metrics=_numbers(metrics),
        )
        for reward, metrics, turns in fields["trajectories"]
    )
    return TrajectoryGroup(trajectories=trajectories, tags=tuple(map(_text, fields["tags"])))


def _turn_from_list(role: Any, text: Any, reward: Any, tokens: Any, rollout: Any) -> Turn:
    return Turn(
        role=_text(role),
        text=_text(text),
        reward=None if reward is None else _number(reward),
        tokens=None if tokens is None else _whole(tokens),
        rollout=_whole(rollout),
    )


def _transition_to_list(turn: Transition) -> list[Any]:
    arrays = (turn.observation, turn.action, turn.action_logprobs)
    counts = (int(turn.observation_tokens), int(turn.action_tokens))
    return [
        *(*counts, turn.reward, dict(turn.metrics), turn.stop_reason),
        *(None if array is None else array.tobytes() for array in arrays),
        turn.cached_observation_tokens,
    ]


def _transition_from_list(
    seen: Any,
    said: Any,
    reward: Any,
    metrics: Any,
    stop_reason: Any,
    observation: Any,
    action: Any,
    logprobs: Any,
    cached: Any,
) -> Transition:
    return Transition(
        observation_tokens=_whole(seen),
        action_tokens=_whole(said),
        reward=_number(reward),
        metrics=_numbers(metrics),
        stop_reason=_text(stop_reason),
        observation=_array(observation, np.int32, seen),
        action=_array(action, np.int32, said),
        action_logprobs=_array(logprobs, np.float32, said),
        cached_observation_tokens=None if cached is None else _whole(cached),
    )


def _chunk_to_list(chunk: object) -> list[Any]:
    match chunk:
        case TokensChunk(tokens=tokens):
            wide = np.asarray(tokens).dtype.itemsize > 4
            return ["tokens", int(wide), np.asarray(tokens).astype(_DTYPES[wide], copy=False).tobytes()]
        case ImageChunk():
            return ["image", bytes(chunk.data), _text(chunk.format), chunk.expected_tokens]
        case ImageAssetChunk():
            return ["asset", _text(chunk.location), _text(chunk.format), chunk.expected_tokens]
        case _:
            raise TypeError(f"an input with a {type(chunk).__name__}")


def _chunk_from_list(kind: str, *fields: Any) -> TokensChunk | ImageChunk | ImageAssetChunk:
    if kind == "tokens":
        wide, data = fields
        return TokensChunk(tokens=np.frombuffer(data, _DTYPES[wide]))
    place, form, expected = fields
    count = None if expected is None else _whole(expected)
    if kind == "image":
        return ImageChunk(data=bytes(place), format=_text(form), expected_tokens=count)
    return ImageAssetChunk(location=_text(place), format=_text(form), expected_tokens=count)


def _array(data: bytes | None, dtype: type[np.generic], length: int) -> np.ndarray | None:
    if data is None:
        return None
    found = np.frombuffer(data, dtype)
    if found.size != length:
        raise ValueError("an array of another length than it says")
    return found


def _numbers(fields: Mapping[str, Any]) -> dict[str, float]:
    return {_text(name): _number(value) for name, value in fields.items()}


def _number(value: object) -> float:
    if not isinstance(value, float) or not math.isfinite(value):
        raise TypeError(f"a {type(value).__name__} where a finite number should be")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"a {type(value).__name__} where a count should be")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__} where text should be")
    return str(value)


def stops_of(stop: Sequence[str | int]) -> list[str | int]:
    """A stop condition as it can be sent."""
    return [str(each) if isinstance(each, str) else int(each) for each in stop]


def stops_from(stop: Sequence[Any]) -> list[str | int]:
    """What `stops_of` was given; raises TypeError where it is none."""
    return [each if isinstance(each, str) else _id(each) for each in stop]


def _id(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"a {type(value).__name__} where a token id should be")
    return value
