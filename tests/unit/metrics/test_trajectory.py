"""Trajectory metrics: keys, tags, and what is undefined."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import TrajectoryBatch
from crucible_worker.metrics.trajectory import BUILT_IN_KEYS, trajectory_metrics
from tests.tables import rows


def _batch(**changes) -> TrajectoryBatch:
    """Two groups: one of two trajectories (2 and 1 transitions), one of one (1 transition)."""
    batch = TrajectoryBatch(
        trajectories_per_group=np.array([2, 1], np.int32),
        transitions_per_trajectory=np.array([2, 1, 1], np.int32),
        action_tokens=np.array([1, 2, 3, 4], np.int32),
        observation_tokens=np.array([10, 20, 30, 40], np.int32),
        rewards=np.array([0.0, 1.0, 1.0, 0.25]),
        final_rewards=np.array([0.0, 0.0, 0.0]),
    )
    return dataclasses.replace(batch, **changes)


def test_the_formulas() -> None:
    """Counts, ratios of counts, mean total reward, and shares of groups with one reward or several."""
    metrics = trajectory_metrics(_batch(final_rewards=np.array([0.5, 0.5, 0.0])))

    assert metrics.undefined == {}
    assert metrics.values == {
        "env/all/ac_tokens_per_turn": 2.5,
        "env/all/ob_tokens_per_turn": 25.0,
        "env/all/turns_per_episode": 4 / 3,
        "env/all/total_episodes": 3,
        "env/all/total_turns": 4,
        "env/all/total_ac_tokens": 10,
        "env/all/total_ob_tokens": 100,
        "env/all/reward/total": (1.5 + 1.5 + 0.25) / 3,
        "env/all/by_group/frac_mixed": 0.0,
        "env/all/by_group/frac_all_good": 0.5,
        "env/all/by_group/frac_all_bad": 0.5,
    }


def test_every_built_in_key_is_reserved() -> None:
    """The keys that a batch without metrics has are those that no metric may take."""
    assert {key.removeprefix("env/all/") for key in trajectory_metrics(_batch()).values} == BUILT_IN_KEYS


CACHED = [
    (np.array([0, 5, -1, 40]), {"all": 45.0, "one": 5.0, "two": 40.0}),
    (np.array([0, 0, 0, 0]), {"all": 0.0, "one": 0.0, "two": 0.0}),
    (np.array([10, 20, 30, -1]), {"all": 60.0, "one": 60.0, "two": None}),
    (np.array([-1, -1, -1, -1]), {"all": None, "one": None, "two": None}),
]


@rows(("cached", "totals"), CACHED)
def test_cached_tokens_are_those_of_turns_that_report_them(cached: np.ndarray, totals: dict[str, float | None]) -> None:
    """A tag none of whose turns reports them has no sum, which is not 0."""
    metrics = trajectory_metrics(_batch(tags=(("one",), ("two",)), cached_observation_tokens=cached))

    for tag, total in totals.items():
        key = f"env/{tag}/total_cached_ob_tokens"
        assert metrics.values.get(key) == total
        assert (key in metrics.undefined) is (total is None)


def test_cached_tokens_that_nobody_reports_have_no_key() -> None:
    """A batch without them has the keys that it had."""
    metrics = trajectory_metrics(_batch())

    assert not [key for key in (*metrics.values, *metrics.undefined) if "cached" in key]


@rows(
    ("cached", "field"),
    [
        (np.array([0, 0, 0]), "batch.cached_observation_tokens"),
        (np.array([0, 0, 0, -2]), "batch.cached_observation_tokens[3]"),
        (np.array([0, 21, 0, 0]), "batch.cached_observation_tokens[1]"),
        (np.array([0.0, 0.0, 0.0, 0.0]), "batch.cached_observation_tokens"),
    ],
)
def test_cached_tokens_are_some_of_the_observed_ones(cached: np.ndarray, field: str) -> None:
    """Of another length, less than none, more than there are, or no counts: each is refused at its place."""
    with pytest.raises(InvalidField) as caught:
        trajectory_metrics(_batch(cached_observation_tokens=cached))
    assert caught.value.field == field


@rows(("threshold", "good"), [(0.25, 1.0), (0.26, 0.5), (1.0, 0.5), (1.01, 0.0)])
def test_a_group_is_good_from_the_threshold_on(threshold: float, good: float) -> None:
    """A group with one reward is good at the threshold, bad below."""
    values = trajectory_metrics(_batch(), good_threshold=threshold).values

    assert values["env/all/by_group/frac_all_good"] == good
    assert values["env/all/by_group/frac_all_bad"] == 1 - good


def test_a_group_with_two_rewards_is_mixed() -> None:
    """However little they differ."""
    values = trajectory_metrics(_batch(final_rewards=np.array([0.0, 1e-15, 0.0]))).values

    assert values["env/all/by_group/frac_mixed"] == 0.5


def test_the_order_of_rewards_makes_no_group_mixed() -> None:
    """0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 are one total, though float64 sums of them differ."""
    batch = TrajectoryBatch(
        trajectories_per_group=np.array([2]),
        transitions_per_trajectory=np.array([3, 3]),
        action_tokens=np.ones(6, np.int32),
        observation_tokens=np.ones(6, np.int32),
        rewards=np.array([0.1, 0.2, 0.3, 0.3, 0.2, 0.1]),
        final_rewards=np.zeros(2),
    )

    assert (0.1 + 0.2) + 0.3 != (0.3 + 0.2) + 0.1
    assert trajectory_metrics(batch).values["env/all/by_group/frac_all_good"] == 1.0


def test_a_metric_is_a_mean_over_the_entries_that_have_it() -> None:
    """Entries of transitions and of trajectories count alike; those without it do not count, whatever they hold."""
    metrics = trajectory_metrics(
        _batch(
            transition_metrics={"both": np.array([1.0, math.nan, 3.0, 4.0]), "turn": np.array([1, 2, 3, 4])},
            trajectory_metrics={"both": np.array([10.0, 20.0, math.inf]), "end": np.array([0.0, 1.0, 1.0])},
            transition_metric_present={"both": np.array([True, False, True, True])},
            trajectory_metric_present={"both": np.array([True, True, False])},
        )
    )

    assert metrics.values["env/all/both"] == pytest.approx((1 + 3 + 4 + 10 + 20) / 5)
    assert metrics.values["env/all/turn"] == 2.5
    assert metrics.values["env/all/end"] == pytest.approx(2 / 3)


def test_tags_select_groups() -> None:
    """Where some tag is on some of the groups only, every tag has keys of its own, beside those of all."""
    metrics = trajectory_metrics(_batch(tags=(("math", "rl"), ("rl",)), transition_metrics={"m": np.arange(4.0)}))

    assert {key.split("/")[1] for key in metrics.values} == {"all", "math", "rl"}
    assert metrics.values["env/math/m"] == 1.0
    assert metrics.values["env/math/total_episodes"] == 2
    assert metrics.values["env/math/total_ac_tokens"] == 6
    assert metrics.values["env/math/reward/total"] == 1.0
    for key in (*BUILT_IN_KEYS, "m"):
        assert metrics.values[f"env/rl/{key}"] == metrics.values[f"env/all/{key}"]


@pytest.mark.parametrize("tags", [(), (("rl",), ("rl",)), ((), ())])
def test_tags_that_select_nothing_have_no_keys(tags: tuple[tuple[str, ...], ...]) -> None:
    """Tags on every group, or none at all, add nothing to what all groups say."""
    assert all(key.startswith("env/all/") for key in trajectory_metrics(_batch(tags=tags)).values)


def test_a_trajectory_may_have_no_transitions() -> None:
    """Its total reward is its final reward; what needs a turn is undefined where there is none."""
    metrics = trajectory_metrics(
        _batch(
            transitions_per_trajectory=np.array([0, 4, 0]),
            final_rewards=np.array([2.25, 0.0, 1.0]),
            tags=(("a",), ("b",)),
        )
    )

    assert metrics.values["env/all/reward/total"] == pytest.approx((2.25 + 2.25 + 1.0) / 3)
    assert metrics.values["env/a/by_group/frac_all_good"] == 1.0
    assert metrics.values["env/b/turns_per_episode"] == 0.0
    assert metrics.undefined == {"env/b/ac_tokens_per_turn": "no turns", "env/b/ob_tokens_per_turn": "no turns"}


def test_a_batch_may_have_no_transitions_at_all() -> None:
    """Only final rewards then."""
    none = np.zeros(0, np.int32)
    batch = _batch(
        transitions_per_trajectory=np.zeros(3, np.int32),
        action_tokens=none,
        observation_tokens=none,
        rewards=np.zeros(0),
    )

    metrics = trajectory_metrics(batch)

    assert metrics.values["env/all/reward/total"] == 0.0
    assert set(metrics.undefined.values()) == {"no turns"}


def test_a_metric_that_no_entry_of_a_tag_has_is_undefined() -> None:
    """There, not elsewhere."""
    metrics = trajectory_metrics(
        _batch(
            tags=(("a",), ("b",)),
            trajectory_metrics={"m": np.array([1.0, 2.0, 3.0])},
            trajectory_metric_present={"m": np.array([True, True, False])},
        )
    )

    assert metrics.undefined == {"env/b/m": "no transition or trajectory has it"}
    assert metrics.values["env/a/m"] == metrics.values["env/all/m"] == 1.5


def test_values_that_are_not_finite_are_told() -> None:
    """A key says how many of its entries are what; keys of groups without such entries stand."""
    metrics = trajectory_metrics(
        _batch(
            tags=(("a",), ("b",)),
            rewards=np.array([0.0, 1.0, math.nan, 0.25]),
            transition_metrics={"m": np.array([1.0, 2.0, 3.0, math.inf])},
        )
    )

    shares = ("mixed", "all_good", "all_bad")
    assert metrics.undefined == {
        "env/all/m": "1 of 4 values is +inf",
        "env/b/m": "1 of 1 values is +inf",
        **{
            f"env/a/{key}": "1 of 2 total rewards is NaN"
            for key in ("reward/total", *(f"by_group/frac_{s}" for s in shares))
        },
        **{
            f"env/all/{key}": "1 of 3 total rewards is NaN"
            for key in ("reward/total", *(f"by_group/frac_{s}" for s in shares))
        },
    }
    assert metrics.values["env/b/reward/total"] == 0.25


BAD = [
    ("batch.trajectories_per_group", {"trajectories_per_group": np.zeros(0, np.int32)}, "is empty"),
    ("batch.trajectories_per_group[1]", {"trajectories_per_group": np.array([3, 0])}, "is 0"),
    ("batch.trajectories_per_group[0]", {"trajectories_per_group": np.array([-2, 1])}, "is -2"),
    ("batch.trajectories_per_group", {"trajectories_per_group": np.array([2.0, 1.0])}, "holds float64"),
    ("batch.trajectories_per_group", {"trajectories_per_group": np.array([[2, 1]])}, "has shape (1, 2)"),
    (
        "batch.transitions_per_trajectory",
        {"transitions_per_trajectory": np.array([2, 2])},
        "2 values for 3 trajectories",
    ),
    ("batch.transitions_per_trajectory[1]", {"transitions_per_trajectory": np.array([4, -1, 1])}, "is -1"),
    ("batch.action_tokens", {"action_tokens": np.ones(3, np.int32)}, "3 values for 4 transitions"),
    ("batch.action_tokens[2]", {"action_tokens": np.array([1, 1, -5, 1])}, "is -5"),
    ("batch.observation_tokens", {"observation_tokens": np.ones(5, np.int32)}, "5 values for 4 transitions"),
    ("batch.observation_tokens[0]", {"observation_tokens": np.array([-1, 1, 1, 1])}, "is -1"),
    ("batch.rewards", {"rewards": np.zeros(3)}, "3 values for 4 transitions"),
    ("batch.rewards", {"rewards": np.array(list("abcd"))}, "holds <U1"),
    ("batch.final_rewards", {"final_rewards": np.zeros(2)}, "2 values for 3 trajectories"),
    ('batch.transition_metrics["m"]', {"transition_metrics": {"m": np.zeros(3)}}, "3 values for 4 transitions"),
    ('batch.trajectory_metrics["m"]', {"trajectory_metrics": {"m": np.zeros(4)}}, "4 values for 3 trajectories"),
    *(
        (f'batch.{kind}["{key}"]', {kind: {key: np.zeros(size)}}, "built-in")
        for kind, size in (("transition_metrics", 4), ("trajectory_metrics", 3))
        for key in sorted(BUILT_IN_KEYS)
    ),
    ('batch.transition_metric_present["m"]', {"transition_metric_present": {"m": np.ones(4, bool)}}, "has no metric"),
    (
        'batch.trajectory_metric_present["m"]',
        {"trajectory_metrics": {"m": np.zeros(3)}, "trajectory_metric_present": {"m": np.ones(2, bool)}},
        "2 values for 3 trajectories",
    ),
    (
        'batch.transition_metric_present["m"]',
        {"transition_metrics": {"m": np.zeros(4)}, "transition_metric_present": {"m": np.ones(4)}},
        "holds float64, bools are needed",
    ),
    ("batch.tags", {"tags": (("a",),)}, "1 lists of tags for 2 groups"),
    ("batch.tags[1]", {"tags": (("a",), ("all",))}, "'all'"),
    ("batch.tags[0]", {"tags": (("a", "a"), ("b",))}, "'a' twice"),
    (
        "batch.tags",
        {"tags": (("a",), ("a/b",)), "transition_metrics": {"b/c": np.zeros(4), "c": np.zeros(4)}},
        "'env/a/b/c' twice",
    ),
]


@rows(("field", "changes", "what"), BAD, ids=[f"{row[0]} {row[2]}" for row in BAD])
def test_columns_that_do_not_fit_name_the_field(field: str, changes: dict, what: str) -> None:
    """The error points at the column, and at the entry where there is one."""
    with pytest.raises(InvalidField) as caught:
        trajectory_metrics(_batch(**changes))

    assert caught.value.field == field
    assert what in caught.value.message


def test_a_threshold_is_a_number() -> None:
    """NaN would make every group bad."""
    with pytest.raises(InvalidField, match="good_threshold is NaN"):
        trajectory_metrics(_batch(), good_threshold=math.nan)


@given(
    st.lists(
        st.tuples(
            st.lists(st.lists(st.tuples(st.floats(-9, 9), st.booleans()), max_size=3), min_size=1, max_size=3),
            st.sets(st.sampled_from("abc")),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_a_tag_says_what_its_groups_alone_would(groups) -> None:
    """The keys of a tag are those of a batch of its groups only."""

    def pack(chosen) -> TrajectoryBatch:
        trajectories = [trajectory for group, _ in chosen for trajectory in group]
        rows = [row for trajectory in trajectories for row in trajectory]
        return TrajectoryBatch(
            trajectories_per_group=np.array([len(group) for group, _ in chosen]),
            transitions_per_trajectory=np.array([len(trajectory) for trajectory in trajectories]),
            action_tokens=np.arange(len(rows)),
            observation_tokens=np.ones(len(rows), np.int32),
            rewards=np.array([row[0] for row in rows], np.float64),
            final_rewards=np.zeros(len(trajectories)),
            transition_metrics={"m": np.array([row[0] for row in rows], np.float64)},
            transition_metric_present={"m": np.array([row[1] for row in rows], np.bool_)},
            tags=tuple(tuple(sorted(tags)) for _, tags in chosen),
        )

    whole = trajectory_metrics(pack(groups))

    for tag in {key.split("/")[1] for key in whole.values} - {"all"}:
        alone = trajectory_metrics(dataclasses.replace(pack([g for g in groups if tag in g[1]]), tags=()))
        for key in BUILT_IN_KEYS - {"total_ac_tokens", "ac_tokens_per_turn"} | {"m"}:
            mine, theirs = (m.values.get(f"env/{t}/{key}") for m, t in ((whole, tag), (alone, "all")))
            assert mine == theirs or mine == pytest.approx(theirs, rel=1e-12, abs=1e-12)
