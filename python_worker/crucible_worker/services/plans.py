"""The calls of EvaluationService that are about plans: decode, call, encode."""

from __future__ import annotations

import asyncio

from crucible_bridge.codec.fields import at_least
from crucible_bridge.codec.models import model_ref_from_v1
from crucible_bridge.codec.plans import evaluation_plan_from_v1
from crucible_bridge.codec.results import evaluation_to_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.v1 import evaluation_pb2 as pb
from crucible_worker.interceptors.methods import Context
from crucible_worker.runs.plans import EvaluationPlans
from crucible_worker.telemetry.logging import bind_contextvars

__all__ = ["PlanCalls"]


class PlanCalls:
    """Plans, over the wire."""

    def __init__(self, plans: EvaluationPlans) -> None:
        """Serve these plans."""
        self._plans = plans

    async def _register_plan(self, request: pb.RegisterPlanRequest, context: Context) -> pb.RegisterPlanResponse:
        """Keep a plan."""
        if not request.HasField("plan"):
            raise InvalidField("plan", "is not given")
        bind_contextvars(plan_id=request.plan.plan_id, run_id=request.plan.run_id)
        # By a thread: inline samples may be many.
        fingerprint, existed = await self._plans.register(
            await asyncio.to_thread(evaluation_plan_from_v1, request.plan)
        )
        return pb.RegisterPlanResponse(fingerprint=fingerprint, existed=existed)

    async def _notify_step(self, request: pb.NotifyStepRequest, context: Context) -> pb.NotifyStepResponse:
        """Start what is due."""
        if not request.plan_id:
            raise InvalidField("plan_id", "is empty")
        bind_contextvars(plan_id=request.plan_id, step=request.step)
        at_least(request.step, 0, "step")
        if not request.HasField("model"):
            raise InvalidField("model", "is not given")
        found = await self._plans.notify(
            request.plan_id, request.step, model_ref_from_v1(request.model, "model"), last=request.last
        )
        return pb.NotifyStepResponse(
            evaluations=[
                pb.StartEvaluationResponse(evaluation=evaluation_to_v1(evaluation), existed=existed)
                for evaluation, existed in found
            ]
        )
