"""Whether the columns of a batch of trajectories fit each other, and its keys do not collide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import TrajectoryBatch
from crucible_worker.metrics.sequences import check_column

__all__ = ["BUILT_IN_KEYS", "MAX_KEYS", "MAX_NAME_CHARS", "check_batch", "check_keys"]

MAX_KEYS = 10_000
"""Keys of all tags together: they must fit into a result."""
MAX_NAME_CHARS = 1_000
"""Characters of the name of a tag, and of an environment's metric."""

BUILT_IN_KEYS = frozenset(
    {
        "ac_tokens_per_turn",
        "ob_tokens_per_turn",
        "turns_per_episode",
        "total_episodes",
        "total_turns",
        "total_ac_tokens",
        "total_ob_tokens",
        "reward/total",
        "by_group/frac_mixed",
        "by_group/frac_all_good",
        "by_group/frac_all_bad",
    }
)
"""Names that an environment's metric cannot have."""

_ALL = "all"


def check_batch(batch: TrajectoryBatch) -> None:
    """Refuse an invalid batch.

    Raises:
        InvalidField: a column has another length than it should, the wrong elements or a negative count; there is no
            group, or one without trajectories; or names of metrics or tags are taken.
    """
    groups = _counts(batch.trajectories_per_group, "batch.trajectories_per_group")
    if not groups:
        raise InvalidField("batch.trajectories_per_group", "is empty")
    if empty := np.flatnonzero(batch.trajectories_per_group == 0).tolist():
        raise InvalidField(f"batch.trajectories_per_group[{empty[0]}]", "is 0, a group has at least one trajectory")
    trajectories = int(batch.trajectories_per_group.sum(dtype=np.int64))
    _counts(batch.transitions_per_trajectory, "batch.transitions_per_trajectory", trajectories, "trajectories")
    transitions = int(batch.transitions_per_trajectory.sum(dtype=np.int64))
    _counts(batch.action_tokens, "batch.action_tokens", transitions, "transitions")
    _counts(batch.observation_tokens, "batch.observation_tokens", transitions, "transitions")
    if (cached := batch.cached_observation_tokens) is not None:
        check_column(cached, "batch.cached_observation_tokens", kinds="iu", length=transitions, of="transitions")
        if wrong := np.flatnonzero((cached < -1) | (cached > batch.observation_tokens)).tolist():
            at = wrong[0]
            raise InvalidField(
                f"batch.cached_observation_tokens[{at}]",
                f"is {cached[at]}, of {batch.observation_tokens[at]} observation tokens; -1 says that it is not known",
            )
    check_column(batch.rewards, "batch.rewards", length=transitions, of="transitions")
    check_column(batch.final_rewards, "batch.final_rewards", length=trajectories, of="trajectories")
    for name, metrics, present, length, of in (
        ("transition_metric", batch.transition_metrics, batch.transition_metric_present, transitions, "transitions"),
        ("trajectory_metric", batch.trajectory_metrics, batch.trajectory_metric_present, trajectories, "trajectories"),
    ):
        _check_metrics(name, metrics, present, length, of)
    _check_tags(batch.tags, groups)


def check_keys(tags: int, metrics: int) -> None:
    """Refuse more keys than `MAX_KEYS`.

    Args:
        tags: the number of distinct tags, including "all".
        metrics: the number of distinct metrics of environments.

    Raises:
        InvalidField: there are more.
    """
    if (keys := tags * (len(BUILT_IN_KEYS) + metrics)) > MAX_KEYS:
        raise InvalidField("batch.tags", f"and metrics give {keys:,} keys, at most {MAX_KEYS:,} are reported")


def _counts(counts: np.ndarray, field: str, length: int | None = None, of: str = "") -> int:
    check_column(counts, field, kinds="iu", length=length, of=of)
    if counts.size and counts.min() < 0:
        at = int(np.argmax(counts < 0))
        raise InvalidField(f"{field}[{at}]", f"is {counts[at]}, less than 0")
    return counts.size


def _check_metrics(
    name: str, metrics: Mapping[str, np.ndarray], present: Mapping[str, np.ndarray], length: int, of: str
) -> None:
    for key, values in metrics.items():
        field = f'batch.{name}s["{key}"]'
        if len(key) > MAX_NAME_CHARS:
            raise InvalidField(f"batch.{name}s", _too_long("a name", key))
        if key in BUILT_IN_KEYS:
            raise InvalidField(field, "has the key of a built-in metric")
        check_column(values, field, length=length, of=of)
    for key, values in present.items():
        field = f'batch.{name}_present["{key}"]'
        if key not in metrics:
            raise InvalidField(field, f"has no metric in {name}s")
        check_column(values, field, kinds="b", length=length, of=of)


def _check_tags(tags: tuple[tuple[str, ...], ...], groups: int) -> None:
    if tags and len(tags) != groups:
        raise InvalidField("batch.tags", f"has {len(tags):,} lists of tags for {groups:,} groups")
    checked: set[tuple[str, ...]] = set()  # most groups have the same few
    for index, names in enumerate(tags):
        if names in checked:
            continue
        if _ALL in names:
            raise InvalidField(f"batch.tags[{index}]", f"holds {_ALL!r}, which stands for every group")
        if len(set(names)) < len(names):
            twice = Counter(names).most_common(1)[0][0]
            raise InvalidField(f"batch.tags[{index}]", f"holds {twice[:60]!r} twice")
        if (longest := max(names, key=len, default="")) and len(longest) > MAX_NAME_CHARS:
            raise InvalidField(f"batch.tags[{index}]", _too_long("a tag", longest))
        checked.add(names)


def _too_long(what: str, name: str) -> str:
    return f"holds {what} of {len(name):,} characters, at most {MAX_NAME_CHARS:,} are accepted: {name[:60]!r}"
