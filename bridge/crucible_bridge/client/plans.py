"""The calls of EvaluationService that are about plans, typed."""

# The timeout is not measured here: it travels to the worker as gRPC's deadline.
# ruff: noqa: ASYNC109

from __future__ import annotations

import dataclasses
from typing import Any

from crucible_bridge.client.calls import Calls
from crucible_bridge.codec.fields import made, sendable
from crucible_bridge.codec.generated import model_ref_to_v1
from crucible_bridge.codec.plans import evaluation_plan_to_v1
from crucible_bridge.codec.results import evaluation_from_v1
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Evaluation, EvaluationPlan, ModelRef, parse_model
from crucible_bridge.v1 import evaluation_pb2

__all__ = ["PlanCalls", "RegisteredPlan", "StartedEvaluation"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StartedEvaluation:
    """The reply to StartEvaluation, and a part of the reply to NotifyStep."""

    evaluation: Evaluation
    """Its current state."""
    existed: bool
    """It existed already (and resumes, if it was interrupted)."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredPlan:
    """The reply to RegisterPlan."""

    fingerprint: str
    """SHA-256 of the plan, in hexadecimal."""
    existed: bool
    """It existed already."""


class PlanCalls:
    """What is evaluated while a run trains: registered once, then notified of steps."""

    def __init__(self, calls: Calls, stub: Any) -> None:
        self._calls = calls
        self._stub = stub

    async def register_plan(self, plan: EvaluationPlan, *, timeout: float | None = None) -> RegisteredPlan:
        """Register a plan for the steps to come; the same plan again changes nothing.

        Args:
            plan: what to evaluate, and how often.
            timeout: seconds for the call.

        Raises:
            InvalidField: an evaluator, an option or a data set is refused; the path begins at the plan.
            AlreadyExists: the id belongs to another plan.
        """
        if not isinstance(plan, EvaluationPlan):
            raise InvalidField("plan", f"is a {type(plan).__name__}, not an EvaluationPlan")
        message = evaluation_pb2.RegisterPlanRequest(plan=evaluation_plan_to_v1(plan))
        return await self._calls.unary(
            self._stub.RegisterPlan,
            message,
            lambda reply: RegisteredPlan(fingerprint=reply.fingerprint, existed=reply.existed),
            timeout,
        )

    async def notify_step(
        self, plan_id: str, step: int, model: ModelRef | str, *, last: bool = False, timeout: float | None = None
    ) -> tuple[StartedEvaluation, ...]:
        """Queue what is due at a step, without waiting for it; the same call again starts nothing twice.

        Data sets are read afterwards: if one is refused then, its evaluation fails with that problem.

        Args:
            plan_id: of a registered plan.
            step: which step, from 0.
            model: its state after this step; a ModelRef, or text as `parse_model` reads it.
            last: training ends with this step: everything is due.
            timeout: seconds for the call.

        Returns:
            What is due; empty if nothing is.

        Raises:
            NotFound: there is no such plan.
            AlreadyExists: evaluations of this step are of another model.
            ResourceExhausted: the queue is full; `not_started` in its metadata names the evaluations to call again for.
        """
        reference = parse_model(model) if isinstance(model, str) else model
        with sendable("model"):
            asked = model_ref_to_v1(reference)
        message = made(evaluation_pb2.NotifyStepRequest, "", plan_id=plan_id, step=step, model=asked, last=last)
        return await self._calls.unary(
            self._stub.NotifyStep,
            message,
            lambda reply: tuple(
                StartedEvaluation(
                    evaluation=evaluation_from_v1(started.evaluation, f"evaluations[{index}].evaluation"),
                    existed=started.existed,
                )
                for index, started in enumerate(reply.evaluations)
            ),
            timeout,
        )
