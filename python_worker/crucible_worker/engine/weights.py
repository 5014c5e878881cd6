"""Whether the models of an evaluation keep their weights while it runs: recorded at its start, confirmed at its end.

Results of two sets of weights are those of neither, so the evaluation fails.
"""

from __future__ import annotations

from crucible_worker.engine.preparation import Plan
from crucible_worker.inference.retries import RetryPolicy

__all__ = ["confirm_weights", "full_fingerprint", "record_weights"]


async def full_fingerprint(plan: Plan) -> str:
    """The fingerprint of the models of a plan, with digests of every byte where there are some; may take minutes."""
    return "+".join([await model.full_fingerprint() for model in plan.models])


async def record_weights(plan: Plan, gate: RetryPolicy) -> None:
    """Have each model of a plan remember its weights.

    Raises:
        BridgeError: the weights of a model cannot be found out.
    """
    for model in plan.models:
        await gate.call(model.record_weights, model=model)


async def confirm_weights(plan: Plan, gate: RetryPolicy) -> None:
    """Have each model of a plan check that its weights are those that it had.

    Raises:
        FailedPrecondition: those of a model have changed (MODEL_CHANGED).
        BridgeError: those of a model cannot be found out.
    """
    for model in plan.models:
        await gate.call(model.confirm_weights, model=model)
