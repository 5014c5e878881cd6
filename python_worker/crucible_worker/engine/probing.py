"""A check before the first sample: does the server return the log-probabilities that evaluators of likelihood need?

Some servers, such as llama.cpp, accept the request and return those of the generated tokens only: every sample would
fail, one after another. One request with the first tokens of the first sample shows it.
"""

from __future__ import annotations

import dataclasses

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.problems import problem_of
from crucible_bridge.types import Datum, ModelInput, Problem
from crucible_worker.backends.base import Capability
from crucible_worker.engine.preparation import Plan
from crucible_worker.evaluators.base import measures_likelihoods
from crucible_worker.inference.calls import CallGate

__all__ = ["PROBE_TOKENS", "probe_likelihoods"]

PROBE_TOKENS = 8
"""Most tokens of the first sample; fewer than two show nothing."""


async def probe_likelihoods(plan: Plan, gate: CallGate) -> Plan:
    """Fail the evaluators that measure what the model's server does not return; the others stay.

    Raises:
        BridgeError: the server could not be queried.
    """
    model, tokens = plan.model, _tokens(plan)
    asking = [
        index
        for index, (_, evaluator) in enumerate(plan.evaluators)
        if index not in plan.refused and measures_likelihoods(evaluator)
    ]
    if not asking or tokens is None or Capability.PROBE not in model.capabilities:
        return plan
    try:
        await gate.call(model.probe_logprobs, (tokens,), model=model)
    except FailedPrecondition as error:
        refused: dict[int, Problem] = {**plan.refused, **dict.fromkeys(asking, problem_of(error))}
        return dataclasses.replace(plan, refused=refused)
    return plan


def _tokens(plan: Plan) -> ModelInput | None:
    """The beginning of the first sample; None if it is not tokens, which a server without a tokenizer needs."""
    first = plan.samples[0]
    datum = getattr(first, "input", None)
    if not isinstance(datum, Datum):
        return None
    try:
        tokens = datum.model_input.tokens()[:PROBE_TOKENS]
    except InvalidField:  # an image: the sample itself will be refused
        return None
    return ModelInput.of(tokens) if tokens.size > 1 else None
