"""Trajectories of a batch, in columns: groups hold trajectories, trajectories hold transitions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.types.data import ModelInput
from crucible_bridge.types.rollouts import TrajectoryGroup

__all__ = ["TrajectoryBatch"]

_GROUPS = "trajectory_groups"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrajectoryBatch:
    """Trajectories in columns, in order: those of the first group first; their transitions likewise."""

    trajectories_per_group: np.ndarray
    """Trajectories in each group, shape (groups,), int32 or int64."""
    transitions_per_trajectory: np.ndarray
    """Transitions in each trajectory, shape (trajectories,), int32 or int64."""
    action_tokens: np.ndarray
    """Action tokens of each transition, shape (transitions,), int32 or int64."""
    observation_tokens: np.ndarray
    """Observation tokens of each transition, shape (transitions,), int32 or int64."""
    rewards: np.ndarray
    """Reward of each transition, shape (transitions,)."""
    final_rewards: np.ndarray
    """Added to the rewards of each trajectory's transitions, shape (trajectories,)."""
    transition_metrics: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Metrics of the transitions, shape (transitions,)."""
    trajectory_metrics: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Metrics of the trajectories, shape (trajectories,)."""
    tags: tuple[tuple[str, ...], ...] = ()
    """Tags of each group; empty if no group has tags."""
    transition_metric_present: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Which transitions have a metric, bool; all, if a key is absent."""
    trajectory_metric_present: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Which trajectories have a metric, bool; all, if a key is absent."""
    cached_observation_tokens: np.ndarray | None = None
    """Those of each transition's observation tokens that came from the sampler's cache, shape (transitions,), int32 or
    int64; -1 if it did not report them. None if no transition has them."""

    @classmethod
    def of(cls, trajectory_groups: Iterable[Any], tags: Sequence[Sequence[str]] = ()) -> TrajectoryBatch:
        """Pack objects with tinker-cookbook's attributes, of any class.

        Args:
            trajectory_groups: each with `trajectories_G`, `final_rewards_G` and `metrics_G`; a trajectory has
                `transitions`, a transition `ob` (a model input with `length`, or tokens), `ac` (with `tokens`, or
                tokens), `reward` and `metrics`. A metric that is None counts as absent. Cached tokens are those of
                `ac.prompt_cache_hit_tokens`, or `cached_observation_tokens` of the transition.
            tags: of each group, or None.

        Raises:
            InvalidField: a group has not as many final rewards or metrics as trajectories, a metric or reward is not
                a number, or tags are text.
        """
        groups = list(trajectory_groups)
        for index, group in enumerate(groups):
            _check_group(group, f"{_GROUPS}[{index}]")
        trajectories = [trajectory for group in groups for trajectory in group.trajectories_G]
        transitions = [transition for trajectory in trajectories for transition in trajectory.transitions]
        metrics, present = _columns([transition.metrics for transition in transitions], "transitions")
        final_metrics, final_present = _columns([each for group in groups for each in group.metrics_G], "metrics_G")
        return cls(
            trajectories_per_group=_counts([len(group.trajectories_G) for group in groups]),
            transitions_per_trajectory=_counts([len(trajectory.transitions) for trajectory in trajectories]),
            action_tokens=_counts([len(getattr(transition.ac, "tokens", transition.ac)) for transition in transitions]),
            observation_tokens=_counts(_observed([transition.ob for transition in transitions])),
            rewards=_numbers([transition.reward for transition in transitions], "reward"),
            final_rewards=_numbers([reward for group in groups for reward in group.final_rewards_G], "final_rewards_G"),
            transition_metrics=metrics,
            trajectory_metrics=final_metrics,
            tags=tuple(_tags(each, f"tags[{index}]") for index, each in enumerate(tags)),
            transition_metric_present=present,
            trajectory_metric_present=final_present,
            cached_observation_tokens=_cached(transitions),
        )

    @classmethod
    def of_groups(cls, groups: Iterable[TrajectoryGroup]) -> TrajectoryBatch:
        """Pack the rollouts of samples' results, with their tags; of tokens only the numbers."""
        groups = list(groups)
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        transitions = [transition for trajectory in trajectories for transition in trajectory.transitions]
        metrics, present = _columns([transition.metrics for transition in transitions], "transitions")
        final_metrics, final_present = _columns([trajectory.metrics for trajectory in trajectories], "trajectories")
        return cls(
            trajectories_per_group=_counts([len(group.trajectories) for group in groups]),
            transitions_per_trajectory=_counts([len(trajectory.transitions) for trajectory in trajectories]),
            action_tokens=_counts([transition.action_tokens for transition in transitions]),
            observation_tokens=_counts([transition.observation_tokens for transition in transitions]),
            rewards=_numbers([transition.reward for transition in transitions], "reward"),
            final_rewards=_numbers([trajectory.final_reward for trajectory in trajectories], "final_reward"),
            transition_metrics=metrics,
            trajectory_metrics=final_metrics,
            tags=tuple(group.tags for group in groups) if any(group.tags for group in groups) else (),
            transition_metric_present=present,
            trajectory_metric_present=final_present,
            cached_observation_tokens=_cached(transitions),
        )


def _check_group(group: Any, field: str) -> None:
    expected = len(group.trajectories_G)
    for name in ("final_rewards_G", "metrics_G"):
        if (found := len(getattr(group, name))) != expected:
            raise InvalidField(f"{field}.{name}", f"has {found} entries for {expected} trajectories")


def _columns(rows: Sequence[Mapping[str, Any]], field: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Metrics by row -> arrays by key, and which rows have a key, if not all do; None is no value."""
    values: dict[str, np.ndarray] = {}
    present: dict[str, np.ndarray] = {}
    for key in sorted(set().union(*rows)):
        column = [row.get(key) for row in rows]
        has = [value is not None for value in column]
        if not any(has):
            continue
        values[key] = _numbers([0.0 if value is None else value for value in column], f'{field} metric "{key}"')
        if not all(has):
            present[key] = np.array(has)
    return values, present


def _counts(numbers: Sequence[int]) -> np.ndarray:
    return np.array(numbers, np.int32)


def _cached(transitions: Sequence[Any]) -> np.ndarray | None:
    """Cached tokens of each transition, -1 if it has none; None if no transition has any."""
    found = [_cached_of(transition) for transition in transitions]
    if all(count is None for count in found):
        return None
    return _counts([-1 if count is None else count for count in found])


def _cached_of(transition: Any) -> int | None:
    own = getattr(transition, "cached_observation_tokens", None)
    return getattr(getattr(transition, "ac", None), "prompt_cache_hit_tokens", None) if own is None else own


def _numbers(values: Sequence[Any], what: str) -> np.ndarray:
    try:
        numbers = np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidField(_GROUPS, f"hold a {what} that is not a number: {error}") from error
    if numbers.shape != (len(values),):
        raise InvalidField(_GROUPS, f"hold a {what} that is an array, not a number")
    return numbers


def _observed(observations: Sequence[Any]) -> list[int]:
    try:
        # tinker's ModelInput has its length, images included.
        return [observation.length for observation in observations]
    except AttributeError:
        return [len(each.tokens() if isinstance(each, ModelInput) else each) for each in observations]


def _tags(tags: Sequence[str], field: str) -> tuple[str, ...]:
    if isinstance(tags, str):
        raise InvalidField(field, f"is the text {tags!r}, not a list of tags")
    if isinstance(tags, Mapping):
        raise InvalidField(field, f"is a {type(tags).__name__}, not a list of tags")
    return tuple(tags)
