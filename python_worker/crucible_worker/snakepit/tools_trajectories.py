"""Trajectories in the form of a training loop: groups of trajectories of transitions, with tokens or their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from crucible_bridge.codec.fields import child, entry
from crucible_bridge.codec.metrics import trajectory_metrics_request_to_bytes
from crucible_bridge.errors import InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import TrajectoryBatch, TrajectoryMetricsRequest
from crucible_bridge.v1 import metrics_pb2
from crucible_worker.snakepit.arguments import Arguments
from crucible_worker.snakepit.tools_fields import fields_reader
from crucible_worker.snakepit.tools_values import read_integer, read_number, read_text, wrong_type

__all__ = ["GROUP_NAMES", "TRAJECTORY_NAMES", "TRANSITION_NAMES", "read_trajectories"]

GROUP_NAMES: Mapping[str, str] = {
    "trajectories": "trajectories",
    "trajectories_G": "trajectories",
    "final_rewards": "final_rewards",
    "final_rewards_G": "final_rewards",
    "metrics": "metrics",
    "metrics_G": "metrics",
    "tags": "tags",
}
"""The entries of a group, by all their names."""

TRAJECTORY_NAMES: Mapping[str, str] = {"transitions": "transitions", "final_ob": "final_ob"}
"""The entries of a trajectory; its last observation is not a turn, and is not counted."""

TRANSITION_NAMES: Mapping[str, str] = {
    "ob": "ob",
    "ac": "ac",
    "reward": "reward",
    "metrics": "metrics",
    "cached_observation_tokens": "cached_observation_tokens",
    "episode_done": "episode_done",
}
"""The entries of a transition."""

_MAX_TOKENS = (1 << 31) - 1

_of_columns = fields_reader(metrics_pb2.ComputeTrajectoryMetricsRequest)


def read_trajectories(arguments: Arguments) -> Any:
    """Read `groups` of trajectories, or the columns of `batch`."""
    groups = arguments.take("groups")
    if groups is None:
        return _of_columns(arguments)
    arguments.renamed["trajectory_groups"] = "groups"
    read = [_group(group, f"groups[{index}]") for index, group in enumerate(_listed(groups, "groups"))]
    tags = [group.tags for group in read]
    threshold = arguments.take("good_threshold")
    request = TrajectoryMetricsRequest(
        batch=TrajectoryBatch.of(read, tags if any(tags) else ()),
        good_threshold=None if threshold is None else read_number(threshold, "good_threshold"),
    )
    return trajectory_metrics_request_to_bytes(request)


def _group(value: Any, field: str) -> SimpleNamespace:
    """A group in a form that TrajectoryBatch.of accepts."""
    known = _known(value, field, GROUP_NAMES)
    trajectories = [
        _trajectory(each, path) for path, each in _numbered(known.get("trajectories"), child(field, "trajectories"))
    ]
    rewards, metrics = known.get("final_rewards"), known.get("metrics")
    return SimpleNamespace(
        trajectories_G=trajectories,
        final_rewards_G=[0.0] * len(trajectories)
        if rewards is None
        else [read_number(each, path) for path, each in _numbered(rewards, child(field, "final_rewards"))],
        metrics_G=[{}] * len(trajectories)
        if metrics is None
        else [_metrics(each, path) for path, each in _numbered(metrics, child(field, "metrics"))],
        tags=[read_text(each, path) for path, each in _numbered(known.get("tags") or [], child(field, "tags"))],
    )


def _trajectory(value: Any, field: str) -> SimpleNamespace:
    transitions = _known(value, field, TRAJECTORY_NAMES).get("transitions")
    return SimpleNamespace(
        transitions=[_transition(each, path) for path, each in _numbered(transitions, child(field, "transitions"))]
    )


def _transition(value: Any, field: str) -> SimpleNamespace:
    known = _known(value, field, TRANSITION_NAMES)
    return SimpleNamespace(
        # Only the length of the tokens is used.
        ob=range(_tokens(known.get("ob"), child(field, "ob"))),
        ac=range(_tokens(known.get("ac"), child(field, "ac"))),
        reward=read_number(known.get("reward"), child(field, "reward")),
        metrics=_metrics(known.get("metrics") or {}, child(field, "metrics")),
        cached_observation_tokens=_cached(known, field),
    )


def _cached(known: Mapping[str, Any], field: str) -> int | None:
    value = known.get("cached_observation_tokens")
    return None if value is None else read_integer(value, child(field, "cached_observation_tokens"), 0, _MAX_TOKENS)


def _tokens(value: Any, field: str) -> int:
    """The number of tokens: given as a number, as a list, or inside an object."""
    match value:
        case list() | tuple():
            return len(value)
        case {"chunks": list() as chunks}:
            return sum(_tokens(chunk, path) for path, chunk in _numbered(chunks, child(field, "chunks")))
        case {"tokens": tokens}:
            return _tokens(tokens, child(field, "tokens"))
        case {"expected_tokens": tokens}:
            return read_integer(tokens, child(field, "expected_tokens"), 0, _MAX_TOKENS)
        case _:
            return read_integer(value, field, 0, _MAX_TOKENS)


def _metrics(value: Any, field: str) -> dict[str, float | None]:
    if not isinstance(value, Mapping):
        raise wrong_type(field, value, "an object")
    return {
        read_text(key, field): None if item is None else read_number(item, entry(field, key))
        for key, item in value.items()
    }


def _known(value: Any, field: str, names: Mapping[str, str]) -> dict[str, Any]:
    """The entries of an object by their canonical names."""
    if not isinstance(value, Mapping):
        raise wrong_type(field, value, "an object")
    known: dict[str, Any] = {}
    for key, item in value.items():
        if key not in names:
            message = f"is unknown; there are {', '.join(names)}"
            raise InvalidField(child(field, str(key)[:60]), message, reason=Reason.UNKNOWN_PARAMETER)
        if item is None:
            continue
        if names[key] in known:
            raise InvalidField(child(field, key), f"is given with {names[key]}, which is the same")
        known[names[key]] = item
    return known


def _numbered(value: Any, field: str) -> list[tuple[str, Any]]:
    return [(f"{field}[{index}]", each) for index, each in enumerate(_listed(value, field))]


def _listed(value: Any, field: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise wrong_type(field, value, "a list")
    return value
