"""Which checkpoints are evaluated, by policy."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from crucible_bridge.types import FollowPolicy
from crucible_worker.planning.follow.checkpoints import FollowedCheckpoint
from crucible_worker.planning.follow.following import chosen


def _new(steps: list[int]) -> list[FollowedCheckpoint]:
    return [
        FollowedCheckpoint(
            name=str(step), path=Path(str(step)), step=step, adapter=False, identity="i", files=(), written_at=0.0
        )
        for step in steps
    ]


def _taken(policy: FollowPolicy, steps: list[int], *, every: int = 0, before: int = 0, latest: int | None = None):
    found = list(chosen(policy, every, _new(steps), before=before, latest=latest))
    assert [checkpoint.step for checkpoint, _ in found] == steps
    return [checkpoint.step for checkpoint, reason in found if not reason]


STEPS = st.lists(st.integers(0, 10**6), unique=True).map(sorted)


@given(STEPS)
def test_all_takes_all(steps: list[int]):
    """In their order."""
    assert _taken(FollowPolicy.ALL, steps) == steps


@given(STEPS, st.integers(1, 7), st.data())
def test_every_counts_those_that_were_found(steps: list[int], every: int, data: st.DataObject):
    """However they are spread over looks, the same ones are taken."""
    cut = data.draw(st.integers(0, len(steps)))
    first = _taken(FollowPolicy.EVERY, steps[:cut], every=every)
    then = _taken(FollowPolicy.EVERY, steps[cut:], every=every, before=cut)
    assert first + then == steps[::every]


@given(STEPS, st.one_of(st.none(), st.integers(0, 10**6)))
def test_latest_takes_one_at_most(steps: list[int], latest: int | None):
    """The last one, unless a later one was taken before."""
    expected = steps[-1:] if latest is None or (steps and steps[-1] >= latest) else []
    assert _taken(FollowPolicy.LATEST, steps, latest=latest) == expected
