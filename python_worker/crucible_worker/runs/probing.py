"""Before the first sample: whether a server gives the log-probabilities that evaluators of likelihood measure.

Some servers take the request and give those of the generated tokens alone, as llama.cpp does: every sample would fail,
one after another. One request tells, with the first tokens of the first sample.
"""

from __future__ import annotations

import dataclasses

from crucible_bridge.errors import FailedPrecondition, InvalidField
from crucible_bridge.problems import problem_of
from crucible_bridge.types import Datum, ModelInput, Problem
from crucible_worker.backends.base import Capability
from crucible_worker.evaluators.base import measures_likelihoods
from crucible_worker.runs.calls import CallGate
from crucible_worker.runs.preparation import Plan

__all__ = ["PROBE_TOKENS", "probe_likelihoods"]

PROBE_TOKENS = 8
"""Of the first sample, at most; with fewer than two there is nothing to tell by."""


async def probe_likelihoods(plan: Plan, gate: CallGate) -> Plan:
    """Have evaluators fail that measure what the model's server does not give; the others stand.

    Raises:
        BridgeError: the server could not be asked.
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
        await gate.call(model.probe_logprobs, (tokens,))
    except FailedPrecondition as error:
        refused: dict[int, Problem] = {**plan.refused, **dict.fromkeys(asking, problem_of(error))}
        return dataclasses.replace(plan, refused=refused)
    return plan


def _tokens(plan: Plan) -> ModelInput | None:
    """The beginning of the first sample; None where that is not tokens, which a server without a tokenizer needs."""
    first = plan.samples[0]
    datum = getattr(first, "input", None)
    if not isinstance(datum, Datum):
        return None
    try:
        tokens = datum.model_input.tokens()[:PROBE_TOKENS]
    except InvalidField:  # an image, which its sample is refused for
        return None
    return ModelInput.of(tokens) if tokens.size > 1 else None
