"""Summaries of trajectories: of all groups, and of those under each tag, for a batch or for groups one by one.

After tinker-cookbook's `compute_trajectory_metrics`, key by key, on columns in place of objects. For the groups of a
tag (`all`: every group; others only for tags that some groups have, but not all):

    env/<tag>/total_episodes, total_turns, total_ac_tokens, total_ob_tokens     counts
    env/<tag>/total_cached_ob_tokens        those of total_ob_tokens from the sampler's cache, if turns report them
    env/<tag>/ac_tokens_per_turn, ob_tokens_per_turn, turns_per_episode         ratios of them
    env/<tag>/reward/total                  mean total reward of a trajectory: its transitions' and its final reward
    env/<tag>/<metric>                      mean over the transitions and trajectories that have it
    env/<tag>/by_group/frac_mixed           share of groups whose trajectories differ in their total reward
    env/<tag>/by_group/frac_all_good        share of groups with one total reward, at or above the threshold
    env/<tag>/by_group/frac_all_bad         share of groups with one total reward, below it

Every column is summed once per group; tags then add up groups. Ratios over nothing, which are 0 in the original, are
undefined here; there is no key of cached tokens if no turn of the batch reports any.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.types import Metrics, TrajectoryBatch, TrajectoryGroup, bounds
from crucible_worker.metrics.sequences import BEYOND_FLOAT64, Defects, check_column, exact_sum

__all__ = [
    "ALL",
    "BLOCK_TURNS",
    "BUILT_IN_KEYS",
    "FIXED_COUNTS",
    "GOOD_THRESHOLD",
    "MAX_KEYS",
    "MAX_NAME_CHARS",
    "GroupSums",
    "Totals",
    "TrajectoryTotals",
    "check_batch",
    "check_keys",
    "groups_by_tag",
    "named",
    "trajectory_metrics",
]


# Whether the columns of a batch of trajectories fit each other, and its keys do not collide.

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
            raise InvalidField(f"batch.tags[{index}]", f"holds {clipped(twice)} twice")
        if (longest := max(names, key=len, default="")) and len(longest) > MAX_NAME_CHARS:
            raise InvalidField(f"batch.tags[{index}]", _too_long("a tag", longest))
        checked.add(names)


def _too_long(what: str, name: str) -> str:
    return f"holds {what} of {len(name):,} characters, at most {MAX_NAME_CHARS:,} are accepted: {clipped(name)}"


GOOD_THRESHOLD = bounds.COMPUTE_TRAJECTORY_METRICS_REQUEST_GOOD_THRESHOLD_DEFAULT
"""The total reward from which a group with one common reward is good."""

ALL = "all"
"""The tag of every group."""

_COUNTS = ("total_episodes", "total_turns", "total_ac_tokens", "total_ob_tokens")
_CACHED = "total_cached_ob_tokens"
_REWARD = "reward/total"
_KINDS = ("by_group/frac_mixed", "by_group/frac_all_good", "by_group/frac_all_bad")

FIXED_COUNTS = len(_COUNTS) + len(_KINDS) + 2
"""Integers of each group that do not depend on an environment's metrics."""


def trajectory_metrics(batch: TrajectoryBatch, *, good_threshold: float = GOOD_THRESHOLD) -> Metrics:
    """Summarise a batch.

    Args:
        batch: at least one group, each of at least one trajectory; a trajectory may have no transitions.
        good_threshold: total reward from which a group with one common reward is good.

    Returns:
        The keys of the module's description. A key without entries, or with some that are not finite, is undefined.

    Raises:
        InvalidField: the columns do not fit each other, a count is negative, a metric has a built-in key, tags are
            fewer than groups, doubled or "all", two keys would be the same, or there would be too many.
    """
    check_batch(batch)
    tags = {tag for tags in set(batch.tags) for tag in tags}
    check_keys(1 + len(tags), len(batch.transition_metrics.keys() | batch.trajectory_metrics.keys()))
    if np.isnan(good_threshold):
        raise InvalidField("good_threshold", "is NaN")
    with np.errstate(over="ignore", invalid="ignore"):  # the reasons of undefined keys report it
        sums = GroupSums.of(batch, good_threshold)
        cached = batch.cached_observation_tokens is not None
        return named(
            (tag, sums.totals(groups).summary(sums, groups, cached=cached)) for tag, groups in _selections(batch)
        )


def groups_by_tag(batch: TrajectoryBatch) -> dict[str, np.ndarray]:
    """The indices of the groups of each tag, in order of appearance."""
    alike: dict[tuple[str, ...], list[int]] = {}  # most groups have the same few tags
    for index, tags in enumerate(batch.tags):
        alike.setdefault(tags, []).append(index)
    groups_of: dict[str, list[int]] = {}
    for tags, groups in alike.items():
        for tag in tags:
            groups_of.setdefault(tag, []).extend(groups)
    return {tag: np.array(sorted(groups)) for tag, groups in groups_of.items()}


def named(summaries: Iterable[tuple[str, Mapping[str, float | str]]]) -> Metrics:
    """Metrics of all tags: values, or why there are none.

    Raises:
        InvalidField: two keys would be the same.
    """
    values: dict[str, float] = {}
    undefined: dict[str, str] = {}
    for tag, summary in summaries:
        for key, value in summary.items():
            name = f"env/{tag}/{key}"
            if name in values or name in undefined:
                raise InvalidField("batch.tags", f"and metrics give the key {name!r} twice")
            if isinstance(value, str):
                undefined[name] = value
            else:
                values[name] = value
    return Metrics.of(values, undefined)


def _selections(batch: TrajectoryBatch) -> Iterator[tuple[str, np.ndarray]]:
    """Tags that some groups have, but not all, with the indices of their groups; "all" last."""
    groups_of = groups_by_tag(batch)
    if any(len(groups) < len(batch.tags) for groups in groups_of.values()):
        yield from groups_of.items()
    yield ALL, np.arange(batch.trajectories_per_group.size)


class _Segments:
    """Segments of rows: the trajectories or transitions of each group, the transitions of each trajectory."""

    def __init__(self, lengths: np.ndarray) -> None:
        self.lengths = lengths.astype(np.int64)
        starts = np.cumsum(self.lengths) - self.lengths
        # `reduceat` treats an empty segment as one of length 1.
        self._used = None if self.lengths.all() else np.flatnonzero(self.lengths)
        self._starts = starts if self._used is None else starts[self._used]

    def sums(self, rows: np.ndarray, dtype: type[np.generic] = np.float64) -> np.ndarray:
        """Sums by segment, in a type that is wide enough: shape (segments,)."""
        if self._used is None:
            return np.add.reduceat(rows, self._starts, dtype=dtype)
        sums = np.zeros(self.lengths.size, dtype)
        if self._used.size:
            sums[self._used] = np.add.reduceat(rows, self._starts, dtype=dtype)
        return sums

    def all_equal(self, rows: np.ndarray) -> np.ndarray:
        """Which segments have only one distinct value; none of them is empty."""
        return np.maximum.reduceat(rows, self._starts) == np.minimum.reduceat(rows, self._starts)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _MetricColumn:
    """Some rows' values of a metric."""

    values: np.ndarray
    """Shape (rows,)."""
    present: np.ndarray | None
    """Which rows have it, bool; all if None."""
    groups: _Segments
    """The rows of each group."""

    def sums(self) -> np.ndarray:
        """By group."""
        values = self.values if self.present is None else np.where(self.present, self.values, 0.0)
        return self.groups.sums(values)

    def entries(self) -> np.ndarray:
        """How many rows have it, by group."""
        return self.groups.lengths if self.present is None else self.groups.sums(self.present, np.int64)

    def defects(self) -> np.ndarray:
        """How many values are NaN, -inf and +inf, by group: shape (3, groups)."""
        return np.array(
            [
                self.groups.sums(found if self.present is None else found & self.present, np.int64)
                for found in (np.isnan(self.values), np.isneginf(self.values), np.isposinf(self.values))
            ]
        )


def _cached_counts(batch: TrajectoryBatch, transitions: _Segments) -> tuple[np.ndarray, np.ndarray]:
    """By group: the cached tokens of its turns, and how many turns report them."""
    if (cached := batch.cached_observation_tokens) is None:
        nothing = np.zeros(transitions.lengths.size, np.int64)
        return nothing, nothing
    known = cached >= 0
    return transitions.sums(np.where(known, cached, 0), np.int64), transitions.sums(known, np.int64)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupSums:
    """Everything summed by group."""

    columns: dict[str, tuple[_MetricColumn, ...]]
    """Keys: total rewards, then the environment's metrics: of trajectories, of transitions or both."""
    sums: np.ndarray
    """Sums of each key's values, shape (keys, groups)."""
    counts: np.ndarray
    """Integers, shape (`FIXED_COUNTS` + keys, groups): those of `_COUNTS`, 1 for groups of each of `_KINDS`, cached
    tokens, turns that report them, entries by key."""
    defects: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    """Like `_MetricColumn.defects`, for the requested keys: rows are read once, however many tags there are."""

    @classmethod
    def of(cls, batch: TrajectoryBatch, good_threshold: float) -> GroupSums:
        """Sum a batch."""
        of_group, of_trajectory = _Segments(batch.trajectories_per_group), _Segments(batch.transitions_per_trajectory)
        transitions = _Segments(of_group.sums(of_trajectory.lengths, np.int64))
        # Equal rewards in another order must have the same sum: the platform's longest float (64 bits of
        # mantissa or more, except on Windows and Apple) adds the few terms of a trajectory without rounding.
        totals = of_trajectory.sums(batch.rewards, np.longdouble) + batch.final_rewards
        rewards = totals.astype(np.float64)
        equal, good = of_group.all_equal(rewards), of_group.sums(rewards >= good_threshold, np.int64) > 0
        columns: dict[str, tuple[_MetricColumn, ...]] = {
            _REWARD: (_MetricColumn(values=rewards, present=None, groups=of_group),)
        }
        for metrics, present, groups in (
            (batch.transition_metrics, batch.transition_metric_present, transitions),
            (batch.trajectory_metrics, batch.trajectory_metric_present, of_group),
        ):
            for key, values in metrics.items():
                column = _MetricColumn(values=values, present=present.get(key), groups=groups)
                columns[key] = (*columns.get(key, ()), column)
        counts = [
            of_group.lengths,
            transitions.lengths,
            *(transitions.sums(tokens, np.int64) for tokens in (batch.action_tokens, batch.observation_tokens)),
            *(~equal, equal & good, equal & ~good),
            *_cached_counts(batch, transitions),
            *(sum(column.entries() for column in parts) for parts in columns.values()),
        ]
        sums = [sum(column.sums() for column in parts) for parts in columns.values()]
        return cls(columns=columns, sums=np.array(sums), counts=np.array(counts, np.int64))

    def totals(self, groups: np.ndarray) -> Totals:
        """The totals of some groups."""
        counts = self.counts.take(groups, axis=1).sum(axis=1).tolist()
        return Totals(
            groups=groups.size,
            counts=counts[:FIXED_COUNTS],
            sums=dict(zip(self.columns, self.sums.take(groups, axis=1).sum(axis=1).tolist())),
            entries=dict(zip(self.columns, counts[FIXED_COUNTS:])),
        )

    def reason(self, key: str, groups: np.ndarray, entries: int) -> str:
        """Why a key's sum over some groups, of so many values, is not finite."""
        if (known := self.defects.get(key)) is None:
            known = self.defects[key] = sum((column.defects() for column in self.columns[key]), np.zeros(1, np.int64))
        nan, minus_inf, plus_inf = known.take(groups, axis=1).sum(axis=1).tolist()
        found = Defects(nan=nan, minus_inf=minus_inf, plus_inf=plus_inf)
        return found.reason(entries, "total rewards" if key == _REWARD else "values") or BEYOND_FLOAT64


@dataclasses.dataclass(slots=True, kw_only=True)
class Totals:
    """The totals of some groups."""

    groups: int
    """The number of groups."""
    counts: list[int]
    """Those of `_COUNTS`, groups of each of `_KINDS`, cached tokens, and turns that report them."""
    sums: dict[str, float]
    """Sums of each key's values; not finite if the sum is not."""
    entries: dict[str, int]
    """Numbers of each key's values."""

    def summary(
        self, sums: GroupSums | None = None, groups: np.ndarray | None = None, *, cached: bool = False
    ) -> dict[str, float | str]:
        """Keys with their values, or why there are none.

        Args:
            sums: the sums of the totals, to report why a sum is not finite; if None, all values are finite.
            groups: likewise.
            cached: whether any turn, in any group, reports its cached tokens.
        """
        episodes, turns, action_tokens, observation_tokens = self.counts[:4]
        found: dict[str, float | str] = {
            "ac_tokens_per_turn": action_tokens / turns if turns else "no turns",
            "ob_tokens_per_turn": observation_tokens / turns if turns else "no turns",
            "turns_per_episode": turns / episodes,
            **dict(zip(_COUNTS, map(float, self.counts))),
        }
        if cached:  # an environment's own metric of that name replaces it, as in the original
            found[_CACHED] = float(self.counts[-2]) if self.counts[-1] else "no turn reports its cached tokens"
        for key, total in self.sums.items():
            if not self.entries[key]:
                found[key] = "no transition or trajectory has it"
            elif np.isfinite(total):
                found[key] = total / self.entries[key]
            else:
                found[key] = (
                    BEYOND_FLOAT64 if sums is None or groups is None else sums.reason(key, groups, self.entries[key])
                )
        for key, count in zip(_KINDS, self.counts[len(_COUNTS) :]):
            found[key] = count / self.groups
        if isinstance(reason := found[_REWARD], str) and reason != BEYOND_FLOAT64:
            found |= dict.fromkeys(_KINDS, reason)
        return found


# Summaries of groups that arrive one by one: those of a batch, in memory independent of their number.

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
