"""Following a run by the client: shorter forms of what is evaluated, and how errors name them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    Dataset,
    EvaluationPlan,
    EvaluatorSpec,
    FollowPolicy,
    FollowRunResponse,
    PlannedEvaluation,
)
from crucible_bridge.v1 import evaluation_pb2
from tests.wire.conftest import CannedWorker

PLAN = EvaluationPlan(
    plan_id="p",
    run_id="mine",
    eval_every=5,
    evaluations=(PlannedEvaluation(evaluators=(EvaluatorSpec(kind="nll"),), dataset=Dataset.of("builtin:arithmetic")),),
)


async def test_a_run_is_followed_by_fields_by_a_plan_or_by_its_id(worker: CannedWorker, address: str):
    """The run is the directory's name unless it is given, or the plan has it; fields make a plan of each step."""
    worker.replies["FollowRun"] = evaluation_pb2.FollowRunResponse(plan_id="p", existed=True)
    worker.replies["UnfollowRun"] = evaluation_pb2.UnfollowRunResponse(followed=True)
    async with crucible_bridge.connect(address) as bridge:
        answer = await bridge.follow(
            Path("runs/a"), evaluators="nll", dataset="builtin:arithmetic", base_model="hub:o/n", mark=True
        )
        await bridge.follow("runs/b", PLAN, policy=FollowPolicy.EVERY, every=2)
        await bridge.follow("runs/c", "q", run_id="d", name_pattern="ckpt-{step}", marker="DONE")
        assert await bridge.unfollow("a") is True

    assert answer == FollowRunResponse(plan_id="p", existed=True)
    by_fields, by_plan, by_id = [request for name, request in worker.requests if name == "FollowRun"]
    assert (by_fields.run_id, by_fields.directory, by_fields.mark) == ("a", "runs/a", True)
    assert (by_fields.plan.plan_id, by_fields.plan.run_id, by_fields.plan.eval_every) == ("a", "a", 1)
    assert by_fields.plan.evaluations[0].evaluators[0].kind == "nll"
    assert by_fields.base_model.hub.repo_id == "o/n"
    assert (by_plan.run_id, by_plan.plan.plan_id, by_plan.every) == ("mine", "p", 2)
    assert by_plan.policy == evaluation_pb2.FOLLOW_POLICY_EVERY
    assert (by_id.run_id, by_id.plan_id, by_id.HasField("plan")) == ("d", "q", False)
    assert (by_id.name_pattern, by_id.marker) == ("ckpt-{step}", "DONE")
    (ended,) = [request for name, request in worker.requests if name == "UnfollowRun"]
    assert ended.run_id == "a"


UNSENDABLE: tuple[tuple[str, str, Any], ...] = (
    ("plan", "runs/a", {"plan": PLAN, "evaluators": "nll"}),
    ("plan", "runs/a", {"plan": 3}),
    ("evaluators", "runs/a", {}),
    ("dataset", "runs/a", {"evaluators": "nll"}),
    ("run_id", "/", {"plan": "p"}),
    ("run_id", "..", {"plan": "p"}),
)


async def test_what_cannot_be_sent_is_named(address: str):
    """By the parameter, before anything is sent."""
    async with crucible_bridge.connect(address) as bridge:
        for field, directory, given in UNSENDABLE:
            with pytest.raises(InvalidField) as caught:
                await bridge.follow(directory, **given)
            assert caught.value.field == field
