"""Summaries of groups that arrive one by one: those of `trajectory`, in memory independent of their number."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from crucible_bridge.types import Metrics, TrajectoryBatch, TrajectoryGroup
from crucible_worker.metrics.sums import exact_sum
from crucible_worker.metrics.trajectory import (
    ALL,
    FIXED_COUNTS,
    GOOD_THRESHOLD,
    GroupSums,
    Totals,
    groups_by_tag,
    named,
)
from crucible_worker.metrics.trajectory_checks import BUILT_IN_KEYS, check_batch, check_keys

__all__ = ["BLOCK_TURNS", "TrajectoryTotals"]

BLOCK_TURNS = 16_384
"""Turns that wait at most, except those of the last group, until they are added up."""


@dataclasses.dataclass(frozen=True, slots=True)
class _PackedTurn:
    """A turn in the form for packing a batch; a range has the length of the tokens, and takes no memory."""

    ob: range
    ac: range
    reward: float
    metrics: dict[str, float]
    cached_observation_tokens: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class _Episode:
    transitions: list[_PackedTurn]


@dataclasses.dataclass(frozen=True, slots=True)
class _GroupTotals:
    trajectories_G: list[_Episode]
    final_rewards_G: list[float]
    metrics_G: list[dict[str, float]]
    tags: tuple[str, ...]


class _TagTotals:
    """Totals of the groups of one tag over the blocks so far; sums are rounded once at the end."""

    def __init__(self) -> None:
        self.groups = 0
        self._counts = [0] * FIXED_COUNTS
        self._entries: dict[str, int] = {}
        self._sums: dict[str, list[float]] = {}

    @property
    def names(self) -> list[str]:
        """The totals so far, sorted."""
        return sorted(self._sums)

    def add(self, block: Totals) -> None:
        """Add the totals of a block."""
        self.groups += block.groups
        self._counts = [mine + its for mine, its in zip(self._counts, block.counts, strict=True)]
        for key, value in block.sums.items():
            self._entries[key] = self._entries.get(key, 0) + block.entries[key]
            self._sums.setdefault(key, []).append(value)

    @property
    def cached(self) -> bool:
        """Whether any turn reports its cached tokens."""
        return self._counts[-1] > 0

    def summary(self, names: Sequence[str], *, cached: bool) -> dict[str, float | str]:
        """Keys with their values, or why there are none: those of every tag, as in a batch."""
        sums = {name: exact_sum(self._sums.get(name, ())) for name in names}
        entries = {name: self._entries.get(name, 0) for name in names}
        return Totals(groups=self.groups, counts=self._counts, sums=sums, entries=entries).summary(cached=cached)


class TrajectoryTotals:
    """Adds up groups of finite numbers; `metrics` equals `trajectory_metrics` of all of them.

    Sums of blocks of groups are rounded like those of a batch, and their sum once.
    """

    def __init__(self) -> None:
        """Nothing yet."""
        self._waiting: list[_GroupTotals] = []
        self._turns = 0
        self._tags: dict[str, _TagTotals] = {ALL: _TagTotals()}

    def add(self, group: TrajectoryGroup) -> None:
        """Add a group of at least one trajectory; its tokens are not stored.

        Raises:
            InvalidField: a metric has a built-in key, or a tag is doubled or "all", in this or an earlier group; or
                there are too many keys.
        """
        self._waiting.append(_packed(group))
        self._turns += sum(1 + len(trajectory.transitions) for trajectory in group.trajectories)
        if self._turns >= BLOCK_TURNS:
            self._add_up()

    def metrics(self) -> Metrics:
        """Everything so far.

        Raises:
            InvalidField: as for `add`; or two keys would be the same.
        """
        if self._waiting:
            self._add_up()
        every = self._tags[ALL]
        if not every.groups:
            return Metrics.all_undefined([f"env/{ALL}/{key}" for key in sorted(BUILT_IN_KEYS)], "no group succeeded")
        some = {tag: totals for tag, totals in self._tags.items() if tag != ALL}
        told = some if any(totals.groups < every.groups for totals in some.values()) else {}
        names = every.names
        return named((tag, totals.summary(names, cached=every.cached)) for tag, totals in (*told.items(), (ALL, every)))

    def _add_up(self) -> None:
        groups, self._waiting, self._turns = self._waiting, [], 0
        batch = TrajectoryBatch.of(groups, [group.tags for group in groups])
        check_batch(batch)
        with np.errstate(over="ignore", invalid="ignore"):  # the reasons of undefined keys report it
            sums = GroupSums.of(batch, GOOD_THRESHOLD)
            self._tags[ALL].add(sums.totals(np.arange(len(groups))))
            for tag, indices in groups_by_tag(batch).items():
                self._tags.setdefault(tag, _TagTotals()).add(sums.totals(indices))
        # One of the names is that of the total reward, a built-in key.
        check_keys(len(self._tags), len(self._tags[ALL].names) - 1)


def _packed(group: TrajectoryGroup) -> _GroupTotals:
    return _GroupTotals(
        [
            _Episode(
                [
                    _PackedTurn(
                        range(turn.observation_tokens),
                        range(turn.action_tokens),
                        turn.reward,
                        dict(turn.metrics),
                        turn.cached_observation_tokens,
                    )
                    for turn in trajectory.transitions
                ]
            )
            for trajectory in group.trajectories
        ],
        [trajectory.final_reward for trajectory in group.trajectories],
        [dict(trajectory.metrics) for trajectory in group.trajectories],
        group.tags,
    )
