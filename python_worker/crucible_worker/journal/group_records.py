"""Rollouts of a sample as the journal keeps them: msgpack inside of the sample's record.

They are bytes there, so that a reader of the score alone unpacks no tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crucible_bridge.types import Trajectory, TrajectoryGroup, Transition
from crucible_worker.journal.packing import pack, unpack

__all__ = ["group_from_record", "group_to_record"]

_TOKENS, _LOGPROBS = np.dtype("<i4"), np.dtype("<f4")


def group_to_record(group: TrajectoryGroup) -> bytes:
    """Pack the rollouts of a sample."""
    return pack(
        {
            "tags": group.tags,
            "trajectories": [
                {
                    "transitions": [_transition_to_map(transition) for transition in trajectory.transitions],
                    "final_reward": trajectory.final_reward,
                    "metrics": dict(trajectory.metrics),
                }
                for trajectory in group.trajectories
            ],
        }
    )


def group_from_record(record: bytes) -> TrajectoryGroup:
    """Unpack the rollouts of a sample; arrays are views of the record's bytes."""
    data = unpack(record)
    trajectories = tuple(
        Trajectory(
            transitions=tuple(map(_transition_from_map, trajectory["transitions"])),
            final_reward=trajectory["final_reward"],
            metrics=trajectory["metrics"],
        )
        for trajectory in data["trajectories"]
    )
    return TrajectoryGroup(trajectories=trajectories, tags=tuple(data["tags"]))


def _transition_to_map(transition: Transition) -> dict[str, Any]:
    data = {
        "observation_tokens": transition.observation_tokens,
        "action_tokens": transition.action_tokens,
        "reward": transition.reward,
        "metrics": dict(transition.metrics),
        "stop_reason": transition.stop_reason,
        "observation": _array_to_bytes(transition.observation, _TOKENS),
        "action": _array_to_bytes(transition.action, _TOKENS),
        "action_logprobs": _array_to_bytes(transition.action_logprobs, _LOGPROBS),
    }
    if transition.cached_observation_tokens is not None:
        data["cached_observation_tokens"] = transition.cached_observation_tokens
    return data


def _transition_from_map(data: Mapping[str, Any]) -> Transition:
    return Transition(
        **{
            **data,
            "observation": _array_from_bytes(data["observation"], _TOKENS),
            "action": _array_from_bytes(data["action"], _TOKENS),
            "action_logprobs": _array_from_bytes(data["action_logprobs"], _LOGPROBS),
        }
    )


def _array_to_bytes(array: np.ndarray | None, dtype: np.dtype) -> bytes | None:
    return None if array is None else array.astype(dtype, copy=False).tobytes()


def _array_from_bytes(data: bytes | None, dtype: np.dtype) -> np.ndarray | None:
    return None if data is None else np.frombuffer(data, dtype)
