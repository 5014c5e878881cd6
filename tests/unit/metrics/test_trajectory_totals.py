"""Groups that come one by one add up to what a batch of them does."""

import contextlib
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Metrics, Trajectory, TrajectoryBatch, TrajectoryGroup, Transition
from crucible_worker.metrics import trajectory
from crucible_worker.metrics.trajectory import (
    BUILT_IN_KEYS,
    MAX_KEYS,
    MAX_NAME_CHARS,
    TrajectoryTotals,
    trajectory_metrics,
)
from tests.tables import rows


def _drawn(seed: int) -> list[TrajectoryGroup]:
    """A few groups: strategies of hypothesis take a hundred times as long to make them."""
    draw = random.Random(seed)
    cached = draw.random() < 0.5

    def metrics() -> dict[str, float]:
        return {name: draw.uniform(-9, 9) for name in ("right", "stop/x", "late") if draw.random() < 0.4}

    def turn() -> Transition:
        seen = draw.randrange(9)
        return Transition(
            observation_tokens=seen,
            action_tokens=draw.randrange(9),
            reward=draw.choice([0.0, 0.1, 0.5, draw.uniform(-9, 9)]),
            metrics=metrics(),
            cached_observation_tokens=draw.choice([None, *range(seen + 1)]) if cached else None,
        )

    def trajectory() -> Trajectory:
        turns = tuple(turn() for _ in range(draw.randrange(4)))
        return Trajectory(transitions=turns, final_reward=draw.choice([0.0, 0.1]), metrics=metrics())

    return [
        TrajectoryGroup(
            trajectories=tuple(trajectory() for _ in range(draw.randint(1, 3))),
            tags=tuple(tag for tag in ("math", "code", "hard") if draw.random() < 0.5),
        )
        for _ in range(draw.randint(1, 6))
    ]


def _group(*rewards: float, tags: tuple[str, ...] = (), **metrics: Any) -> TrajectoryGroup:
    turns = [Transition(observation_tokens=2, action_tokens=1, reward=reward, metrics=metrics) for reward in rewards]
    return TrajectoryGroup(trajectories=tuple(Trajectory(transitions=(turn,)) for turn in turns), tags=tags)


def _batch(groups: list[TrajectoryGroup]) -> TrajectoryBatch:
    return TrajectoryBatch.of(map(trajectory._packed, groups), [group.tags for group in groups])


def _totals(groups: list[TrajectoryGroup]) -> Metrics:
    totals = TrajectoryTotals()
    for group in groups:
        totals.add(group)
    return totals.metrics()


@given(st.integers(0, 2**32))
def test_one_block_gives_what_a_batch_gives(seed: int) -> None:
    """Bit for bit, what is undefined included."""
    groups = _drawn(seed)
    found, expected = _totals(groups), trajectory_metrics(_batch(groups))

    assert found.values == expected.values
    assert found.undefined == expected.undefined


@given(st.integers(0, 2**32))
def test_blocks_give_what_a_batch_gives(seed: int) -> None:
    """Keys and counts are the same wherever a block ends, and sums but for their rounding."""
    groups = _drawn(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trajectory, "BLOCK_TURNS", 3)
        found = _totals(groups)
    expected = trajectory_metrics(_batch(groups))

    assert found.values == pytest.approx(expected.values, rel=1e-9, abs=1e-12)
    assert found.undefined == expected.undefined


def test_nothing_waits_beyond_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many groups come."""
    monkeypatch.setattr(trajectory, "BLOCK_TURNS", 10)
    totals = TrajectoryTotals()
    for _ in range(100):
        totals.add(_group(1.0, 0.0))
        assert totals._turns < 10
        assert len(totals._waiting) < 5

    assert totals.metrics().values["env/all/total_turns"] == 200


def test_no_group_leaves_every_key_undefined() -> None:
    """None of them is 0."""
    metrics = TrajectoryTotals().metrics()

    assert metrics.values == {}
    assert metrics.undefined == {f"env/all/{key}": "no group succeeded" for key in BUILT_IN_KEYS}


def test_a_sum_beyond_float64_is_undefined(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one block or over several, with the reason."""
    for size in (1, 1_000):
        monkeypatch.setattr(trajectory, "BLOCK_TURNS", size)
        metrics = _totals([_group(1e308, big=1e308), _group(1e308, big=1e308)])

        assert "float64" in metrics.undefined["env/all/reward/total"]
        assert "float64" in metrics.undefined["env/all/big"]
        assert metrics.values["env/all/by_group/frac_all_good"] == 1.0


def test_a_mean_over_blocks_is_rounded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each block has one group of one reward, the sum is exact."""
    monkeypatch.setattr(trajectory, "BLOCK_TURNS", 1)
    rewards = [0.1, 1e16, -1e16, 0.2] * 5

    metrics = _totals([_group(reward) for reward in rewards])

    assert metrics.values["env/all/reward/total"] == math.fsum(rewards) / 20


@rows(
    ("groups", "told"),
    [
        ([_group(1.0, tags=("all",))], "stands for every group"),
        ([_group(1.0, tags=("a", "a"))], "twice"),
        ([_group(1.0, tags=(), **{"reward/total": 1.0})], "built-in"),
        ([_group(1.0, tags=("a/b",), c=1.0), _group(1.0, tags=("a",), **{"b/c": 1.0})], "twice"),
    ],
)
def test_names_that_are_taken_are_refused(groups: list[TrajectoryGroup], told: str) -> None:
    """As in a batch."""
    with pytest.raises(InvalidField, match=told):
        _totals(groups)


@pytest.mark.parametrize(("limit", "refused"), [(26, False), (25, True)])
def test_keys_are_counted(monkeypatch: pytest.MonkeyPatch, limit: int, refused: bool) -> None:
    """Those of all tags together have a limit: here two metrics, for one tag and for all."""
    monkeypatch.setattr(trajectory, "MAX_KEYS", limit)
    groups: list[Any] = [_group(1.0, tags=("a",), x=1.0, y=2.0), _group(0.0)]
    if refused:
        with pytest.raises(InvalidField, match="26 keys, at most 25"):
            _totals(groups)
    else:
        assert len(_totals(groups).values) == 26


def test_tags_give_a_limited_number_of_keys() -> None:
    """Refused before anything is computed: a result has to have room for them."""
    most = MAX_KEYS // len(BUILT_IN_KEYS) - 1
    groups: list[Any] = [_group(1.0, tags=(f"t{number}",)) for number in range(most + 1)]

    assert len(trajectory_metrics(_batch(groups[:most])).values) == (most + 1) * len(BUILT_IN_KEYS)
    with pytest.raises(InvalidField, match="at most 10,000 are reported"):
        trajectory_metrics(_batch(groups))


@pytest.mark.parametrize("place", ["tag", "metric"])
def test_names_have_a_limited_length(place: str) -> None:
    """Each of them comes many times in a result."""
    for length, refused in ((MAX_NAME_CHARS, False), (MAX_NAME_CHARS + 1, True)):
        name = "a" * length
        group: Any = _group(1.0, tags=(name,)) if place == "tag" else _group(1.0, **{name: 1.0})  # pyright: ignore[reportArgumentType]
        with pytest.raises(InvalidField, match="at most 1,000") if refused else contextlib.nullcontext():
            trajectory_metrics(_batch([group]))
