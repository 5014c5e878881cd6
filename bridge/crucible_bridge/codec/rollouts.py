"""Rollouts of a sample <-> v1."""

from __future__ import annotations

from typing import Any

import numpy as np

from crucible_bridge.codec.bulk import stored_from_v1
from crucible_bridge.codec.data import array_to_v1
from crucible_bridge.codec.fields import child, unicode_text
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Trajectory, TrajectoryGroup, Transition
from crucible_bridge.v1 import evaluation_pb2, types_pb2

__all__ = ["trajectory_group_from_v1", "trajectory_group_to_v1"]


def trajectory_group_to_v1(group: TrajectoryGroup) -> evaluation_pb2.TrajectoryGroup:
    """Encode the rollouts of a sample."""
    return evaluation_pb2.TrajectoryGroup(
        trajectories=[_trajectory_to_v1(trajectory) for trajectory in group.trajectories],
        tags=[unicode_text(tag) for tag in group.tags],
    )


def trajectory_group_from_v1(message: evaluation_pb2.TrajectoryGroup, field: str) -> TrajectoryGroup:
    """Decode the rollouts of a sample: finite numbers, arrays as long as they are said to be."""
    trajectories = child(field, "trajectories")
    return TrajectoryGroup(
        trajectories=tuple(
            _trajectory_from_v1(trajectory, f"{trajectories}[{index}]")
            for index, trajectory in enumerate(message.trajectories)
        ),
        tags=tuple(message.tags),
    ).checked(field)


def _trajectory_to_v1(trajectory: Trajectory) -> evaluation_pb2.Trajectory:
    return evaluation_pb2.Trajectory(
        transitions=[_transition_to_v1(transition) for transition in trajectory.transitions],
        final_reward=trajectory.final_reward,
        metrics={unicode_text(key): value for key, value in trajectory.metrics.items()},
    )


def _trajectory_from_v1(message: evaluation_pb2.Trajectory, field: str) -> Trajectory:
    transitions = child(field, "transitions")
    return Trajectory(
        transitions=tuple(
            _transition_from_v1(transition, f"{transitions}[{index}]")
            for index, transition in enumerate(message.transitions)
        ),
        final_reward=message.final_reward,
        metrics=dict(sorted(message.metrics.items())),
    )


def _transition_to_v1(transition: Transition) -> evaluation_pb2.Transition:
    return evaluation_pb2.Transition(
        observation_tokens=transition.observation_tokens,
        action_tokens=transition.action_tokens,
        reward=transition.reward,
        metrics={unicode_text(key): value for key, value in transition.metrics.items()},
        stop_reason=unicode_text(transition.stop_reason),
        observation=_array_to_v1(transition.observation),
        action=_array_to_v1(transition.action),
        action_logprobs=_array_to_v1(transition.action_logprobs),
        cached_observation_tokens=transition.cached_observation_tokens,
    )


def _transition_from_v1(message: evaluation_pb2.Transition, field: str) -> Transition:
    return Transition(
        observation_tokens=message.observation_tokens,
        action_tokens=message.action_tokens,
        reward=message.reward,
        metrics=dict(sorted(message.metrics.items())),
        stop_reason=message.stop_reason,
        observation=_array_from_v1(message, "observation", field),
        action=_array_from_v1(message, "action", field),
        action_logprobs=_array_from_v1(message, "action_logprobs", field),
        cached_observation_tokens=(
            message.cached_observation_tokens if message.HasField("cached_observation_tokens") else None
        ),
    )


def _array_to_v1(array: np.ndarray | None) -> types_pb2.Tensor | None:
    return None if array is None else array_to_v1(array)


def _array_from_v1(message: Any, name: str, field: str) -> np.ndarray | None:
    if not message.HasField(name):
        return None
    path = child(field, name)
    array = stored_from_v1(getattr(message, name), path)
    if not isinstance(array, np.ndarray):
        raise InvalidField(path, f"has {array.dtype}, must have i32 or f32")
    return array
