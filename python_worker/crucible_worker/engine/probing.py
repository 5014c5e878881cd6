"""Whether servers return the log-probabilities that evaluators of likelihood need, found out before the first sample.

Servers that only chat refuse the request. Others, such as llama.cpp, accept it and return those of the generated tokens
only: every sample would fail, one after another. One short request shows it, two if the server knows one of two forms.

A new evaluation that can do nothing else is refused at its start. Where other evaluators can work, or the server did
not answer at the start, the attempt finds it out, and only these evaluators fail.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

import structlog

from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField
from crucible_bridge.problems import problem_of
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    Datum,
    EvaluateRequest,
    EvaluatorSpec,
    ModelInput,
    ModelRef,
    OpenAIModel,
    Problem,
)
from crucible_worker.backends.base import Capability
from crucible_worker.engine.preparation import Plan, Preparer, option_path
from crucible_worker.evaluators.base import (
    Evaluator,
    HasAuxiliaryModels,
    likelihood_cure,
    measures_auxiliary_models,
    measures_likelihoods,
)
from crucible_worker.inference.retries import RetryPolicy

__all__ = ["PROBE_TOKENS", "START_SECONDS", "probe_likelihoods", "refuse_without_likelihoods"]

START_SECONDS = 3.0
"""How long the start of an evaluation waits for the servers; one that is away refuses nothing."""
_SHARE_OF_DEADLINE = 0.25
"""Most of the time until the evaluation's deadline that this may take."""

PROBE_TOKENS = 8
"""Most tokens of the first sample; fewer than two show nothing."""
_PROMPT = ModelInput.of([40, 71, 33, 86, 52, 97, 65, 110])
"""Sent at the start, before a data set is read: ids that every vocabulary has, in an order that no text has."""

_log = structlog.get_logger(__name__)


async def refuse_without_likelihoods(
    preparer: Preparer, request: EvaluateRequest, evaluators: Sequence[tuple[EvaluatorSpec, Evaluator]]
) -> None:
    """Refuse a request if each of its evaluators measures likelihoods that a server does not return.

    Only servers of the settings are queried: they run already, whereas others would have to be started.

    Raises:
        FailedPrecondition: none of the evaluators could measure anything (NO_PROMPT_LOGPROBS); it names the first.
    """
    measured = [_measured(request, index, evaluator) for index, (_, evaluator) in enumerate(evaluators)]
    if not all(any(isinstance(model, OpenAIModel) for model in models.values()) for models in measured):
        return
    # A server that is away takes all of that time, and must not end an evaluation by its deadline before it starts.
    deadline_ms = request.limits.deadline_ms
    seconds = START_SECONDS if deadline_ms is None else min(START_SECONDS, deadline_ms / 1000 * _SHARE_OF_DEADLINE)
    wanted = {model for models in measured for model in models.values() if isinstance(model, OpenAIModel)}
    found: dict[ModelRef, FailedPrecondition | None] = {}
    try:
        async with asyncio.timeout(seconds):
            for model in wanted:
                found[model] = await _probe(preparer, model, evaluators)
    except (TimeoutError, BridgeError) as error:  # found out later, or raised by what follows
        _log.debug("likelihoods_not_probed", model=str(request.model), error=str(error))
    refusals: list[tuple[str, FailedPrecondition]] = []
    for models in measured:
        named = ((field, error) for field, model in models.items() if (error := found.get(model)) is not None)
        if (refusal := next(named, None)) is None:
            return
        refusals.append(refusal)
    field, error = refusals[0]
    message = _with_cures(error.message, [evaluator for _, evaluator in evaluators])
    raise FailedPrecondition(message, reason=error.reason, field=field) from error


def _measured(request: EvaluateRequest, index: int, evaluator: Evaluator) -> dict[str, ModelRef]:
    """The models whose likelihoods an evaluator measures, by the field that an error names; empty if there are none."""
    if not measures_likelihoods(evaluator):
        return {}
    found = {f"evaluators[{index}]": request.model}
    if isinstance(evaluator, HasAuxiliaryModels) and measures_auxiliary_models(evaluator):
        found |= {option_path(index, name): model for name, model in evaluator.auxiliary_models.items()}
    return found


async def _probe(
    preparer: Preparer, ref: OpenAIModel, evaluators: Sequence[tuple[EvaluatorSpec, Evaluator]]
) -> FailedPrecondition | None:
    """Why a server returns no log-probabilities of a prompt; None if it does.

    Raises:
        BridgeError: that cannot be found out, or an evaluator refuses the model for another reason.
    """
    model = await preparer.open(ref)
    for _, evaluator in evaluators:
        evaluator.check(model)
    try:
        await model.probe_logprobs(_PROMPT)
    except FailedPrecondition as error:
        if error.reason != Reason.NO_PROMPT_LOGPROBS:  # such as of numbers that cannot be: the samples show them
            raise
        return error
    return None


async def probe_likelihoods(plan: Plan, gate: RetryPolicy) -> Plan:
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
        refused: dict[int, Problem] = dict(plan.refused)
        for index in asking:
            message = _with_cures(error.message, [plan.evaluators[index][1]])
            refused[index] = dataclasses.replace(problem_of(error), message=message)
        return dataclasses.replace(plan, refused=refused)
    return plan


def _with_cures(message: str, evaluators: Sequence[Evaluator]) -> str:
    """The message of an error, with what to evaluate by instead."""
    return "; ".join(dict.fromkeys(filter(None, [message, *map(likelihood_cure, evaluators)])))


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
