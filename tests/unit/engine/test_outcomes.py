"""What the journal takes of an outcome, at the bounds."""

import dataclasses

import numpy as np
import pytest

from crucible_bridge.types import (
    MAX_GROUP_BYTES,
    SampleResult,
    Trajectory,
    TrajectoryGroup,
    Transition,
    Verdict,
)
from crucible_worker.engine.sample_runner import WEIGHT_BYTES, weight, why_not_kept
from crucible_worker.evaluators.base import Outcome

FINE = Outcome(verdict=Verdict.MEASURED, score=1.0)


def group(tokens: int, **fields) -> TrajectoryGroup:
    """A group of one turn that saw so many tokens."""
    turn = Transition(
        observation_tokens=tokens, action_tokens=0, reward=0.0, observation=np.zeros(tokens, np.int32), **fields
    )
    return TrajectoryGroup(trajectories=(Trajectory(transitions=(turn,)),))


def reason(outcome: Outcome) -> str | None:
    """Why it is not kept."""
    problem = why_not_kept(outcome)
    return None if problem is None else problem.reason


@pytest.mark.parametrize("fields", [{"score": float("nan")}, {"measurements": {"x": float("inf")}}])
def test_numbers_are_finite(fields):
    """A score or measurement that is not finite makes an ERROR of the sample."""
    assert reason(dataclasses.replace(FINE, **fields)) == "NOT_FINITE"
    assert reason(FINE) is None


def test_a_group_is_kept_up_to_its_bound_and_no_further():
    """One token more than the bound allows makes an ERROR of the sample, which says how large it was."""
    heads = group(0).size
    fits = group((MAX_GROUP_BYTES - heads) // 4)
    beyond = group((MAX_GROUP_BYTES - heads) // 4 + 1)

    problem = why_not_kept(dataclasses.replace(FINE, group=beyond))

    assert reason(dataclasses.replace(FINE, group=fits)) is None
    assert problem is not None
    assert problem.reason == "GROUP_TOO_LARGE"
    assert f"{beyond.size:,}" in problem.message


def test_a_group_that_is_none_names_its_field():
    """An evaluator that miscounts its own tokens does not poison a page."""
    problem = why_not_kept(dataclasses.replace(FINE, group=group(2, action=np.zeros(3, np.int32))))

    assert problem is not None
    assert (problem.reason, problem.field) == ("BAD_GROUP", "group.trajectories[0].transitions[0].action")


def test_a_result_weighs_more_with_its_rollouts():
    """What waits for the writer is bounded by its size, not by its number alone."""
    result = SampleResult(evaluator="e", sample_id="s", verdict=Verdict.MEASURED, score=1.0)

    assert weight(result) == 1
    assert weight(dataclasses.replace(result, group=group(WEIGHT_BYTES))) == 1 + 4
