"""The questions that a model answers directly: continuations, log-probabilities, forward passes.

Each `ask_...` takes a whole batch; `crucible_worker.runs.batches` runs it, and says what happens to an item that fails.
"""

from __future__ import annotations

import dataclasses
import math
import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import numpy as np

from crucible_bridge.arrays import floats
from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition, InvalidField
from crucible_bridge.problems import at_field
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    BatchLimits,
    Conversation,
    Datum,
    ForwardAnswer,
    ForwardOutput,
    ForwardRequest,
    LogprobsAnswer,
    LogprobsRequest,
    ModelInput,
    ModelRef,
    Problem,
    SampleAnswer,
    SampledItem,
    SampleItem,
    SampleRequest,
    SamplingParams,
    SequenceLogprobs,
    TokensChunk,
)
from crucible_worker.backends.base import ANSWERING, Backend, Capability, Model
from crucible_worker.limits import WorkerLimits
from crucible_worker.metrics.nll import nll_parts
from crucible_worker.rendering import SERVED, render_prompt, sample_answers
from crucible_worker.runs.batches import Ask, Bounds, ask_all
from crucible_worker.runs.specification import sample_seed

__all__ = ["Backends", "ask_forward", "ask_logprobs", "ask_samples", "bounds_of", "logprobs_asker"]

_TARGETS, _WEIGHTS = 'loss_fn_inputs["target_tokens"]', 'loss_fn_inputs["weights"]'

Backends = Mapping[type[ModelRef], Backend]
"""Backends by the kind of reference that they open."""
R = TypeVar("R")


async def ask_samples(
    backends: Backends, request: SampleRequest, *, limits: WorkerLimits, received: float
) -> SampleAnswer:
    """Continuations of every prompt.

    Args:
        backends: by the kind of reference that they open.
        request: the call's.
        limits: the worker's.
        received: time of receipt by the event loop's clock; the deadline counts from it.

    Raises:
        InvalidField: there is no item, or too many; a bound is beyond the worker's.
        BridgeError: see `ask_all`.
    """
    bounds = bounds_of(request.limits, len(request.items), "items", limits=limits, received=received)

    def asker(model: Model) -> Ask[SampleItem, SampledItem]:
        if model.capabilities.isdisjoint(ANSWERING):
            raise _missing("does not sample")

        async def ask(index: int, item: SampleItem) -> SampledItem:
            field = f"items[{index}]"
            if item.num_samples > limits.max_samples_per_item:
                most = f"at most {limits.max_samples_per_item:,} are accepted"
                raise InvalidField(f"{field}.num_samples", f"is {item.num_samples:,}, {most}")
            return await _at_field(_sample(model, item, _params(request.sampling, item, index)), field, own="")

        return ask

    answers = await ask_all(backends, request.model, request.items, asker, bounds=bounds)
    return SampleAnswer(
        items=tuple(_result_or_problem(SampledItem, result) for result in answers.results),
        model_fingerprint=answers.model_fingerprint,
        usage=answers.usage,
    )


async def ask_logprobs(
    backends: Backends, request: LogprobsRequest, *, limits: WorkerLimits, received: float
) -> LogprobsAnswer:
    """Log-probabilities of every token of every sequence but its first; arguments and errors as of `ask_samples`."""
    bounds = bounds_of(request.limits, len(request.sequences), "sequences", limits=limits, received=received)

    def asker(model: Model) -> Ask[ModelInput, SequenceLogprobs]:
        logprobs_of = logprobs_asker(model, "model")

        async def ask(index: int, sequence: ModelInput) -> SequenceLogprobs:
            return SequenceLogprobs(
                logprobs=await _at_field(logprobs_of(sequence), f"sequences[{index}]", own="model_input")
            )

        return ask

    answers = await ask_all(backends, request.model, request.sequences, asker, bounds=bounds)
    return LogprobsAnswer(
        sequences=tuple(_result_or_problem(SequenceLogprobs, result) for result in answers.results),
        model_fingerprint=answers.model_fingerprint,
        usage=answers.usage,
    )


async def ask_forward(
    backends: Backends, request: ForwardRequest, *, limits: WorkerLimits, received: float
) -> ForwardAnswer:
    """Log-probabilities of every datum's targets, and its loss; arguments and errors as of `ask_samples`."""
    bounds = bounds_of(request.limits, len(request.data), "data", limits=limits, received=received)

    def asker(model: Model) -> Ask[Datum, ForwardOutput]:
        if Capability.FORWARD not in model.capabilities:
            raise _missing("does not train, and forward passes need a training client")

        async def ask(index: int, datum: Datum) -> ForwardOutput:
            return await _at_field(_forward_output(model, datum), f"data[{index}]", own="")

        return ask

    answers = await ask_all(backends, request.model, request.data, asker, bounds=bounds)
    return ForwardAnswer(
        outputs=tuple(_result_or_problem(ForwardOutput, result) for result in answers.results),
        model_fingerprint=answers.model_fingerprint,
        usage=answers.usage,
    )


def logprobs_asker(model: Model, field: str) -> Callable[[ModelInput], Awaitable[np.ndarray]]:
    """A function that returns a model's log-probabilities of a sequence: by its sampling client, or by forward passes.

    For a sequence of n tokens it returns float64 of shape (n - 1,), nats, without the first token. An answer of another
    shape, or with missing values, is a BackendError.

    Raises:
        FailedPrecondition: the model has neither client; the error is at `field`.
    """
    if Capability.LOGPROBS in model.capabilities:

        async def of_sampling(sequence: ModelInput) -> np.ndarray:
            tokens = _tokens(sequence)
            try:
                answer = await model.compute_logprobs(sequence)
            except InvalidField as error:
                raise at_field(error, "model_input", own="prompt") from error
            known = np.array([value for value in answer[1:] if value is not None], np.float64)
            return _shaped(known, (tokens.size - 1,), "compute_logprobs")

        return of_sampling
    if Capability.FORWARD in model.capabilities:

        async def of_training(sequence: ModelInput) -> np.ndarray:
            tokens = _tokens(sequence)
            if tokens.size == 1:
                return np.empty(0)
            datum = Datum(model_input=tokens[:-1], loss_fn_inputs={"target_tokens": tokens[1:]})
            try:
                return await _forward(model, datum, (tokens.size - 1,))
            except InvalidField as error:
                # The datum is made here: the caller knows only its tokens.
                raise InvalidField("model_input", error.message, reason=error.reason) from error

        return of_training
    raise _missing("neither samples nor trains", field)


async def _sample(model: Model, item: SampleItem, params: SamplingParams) -> SampledItem:
    prompt = await _prompt(model, item.prompt)
    sequences = tuple(await sample_answers(model, prompt, params, item.num_samples, renderer=SERVED))
    if len(sequences) != item.num_samples:
        raise _nonsense(f"sample gave {len(sequences):,} continuations, {item.num_samples:,} were requested")
    for sequence in sequences:
        # A server that returns no ids may count an end of sequence without a log-probability.
        tokens, given = sequence.tokens, sequence.logprobs
        if given is not None and tokens and len(given) != len(tokens):
            raise _nonsense(f"sample gave {len(tokens):,} tokens with {len(given):,} log-probabilities")
    # A server that gets text reports the prompt's tokens with each continuation.
    prompt_tokens = sequences[0].prompt_tokens if isinstance(prompt, str | Conversation) else _count(prompt)
    return SampledItem(sequences=sequences, prompt_tokens=prompt_tokens, seed=params.seed)


def _count(prompt: ModelInput) -> int | None:
    """Tokens of a prompt, if known."""
    if not all(isinstance(chunk, TokensChunk) for chunk in prompt.chunks):
        return None
    return prompt.tokens().size


async def _prompt(model: Model, prompt: str | Conversation | ModelInput) -> str | Conversation | ModelInput:
    """The prompt in tokens, so that they can be counted; unchanged if only the model's server has the tokenizer."""
    able = model.capabilities
    in_text = Capability.SAMPLE_TEXT in able and (model.tokenizer is None or Capability.SAMPLE not in able)
    if isinstance(prompt, ModelInput) or in_text:
        return prompt
    try:
        return await render_prompt(model.tokenizer, prompt)
    except BridgeError as error:
        raise at_field(error, "prompt", own="input") from error


def _params(sampling: SamplingParams, item: SampleItem, index: int) -> SamplingParams:
    """How to sample one item; greedy sampling needs no seed, other sampling gets one that can be reported."""
    if sampling.temperature == 0:
        seed = None
    elif item.seed is not None:
        seed = item.seed
    elif sampling.seed is not None:
        seed = sample_seed(sampling.seed, str(index), 0)
    else:
        seed = secrets.randbits(63)
    return dataclasses.replace(sampling, seed=seed)


async def _forward_output(model: Model, datum: Datum) -> ForwardOutput:
    targets, weights = _loss_inputs(datum)
    # The backend needs nothing else, and should not copy more.
    logprobs = await _forward(
        model, Datum(model_input=datum.model_input, loss_fn_inputs={"target_tokens": targets}), targets.shape
    )
    if weights is None:
        return ForwardOutput(logprobs=logprobs)
    loss = 0.0 - nll_parts(logprobs, weights).weighted_logprob_sum  # no -0.0 if nothing has weight
    return ForwardOutput(logprobs=logprobs, loss=loss if math.isfinite(loss) else None)


def _loss_inputs(datum: Datum) -> tuple[np.ndarray, np.ndarray | None]:
    """Targets and weights, checked against each other; the backend checks them against the input."""
    targets = datum.loss_fn_inputs.get("target_tokens")
    if targets is None:
        raise InvalidField(_TARGETS, "is missing")
    if not isinstance(targets, np.ndarray) or targets.dtype.kind not in "iu":
        raise InvalidField(_TARGETS, f"holds {targets.dtype}, not token ids")
    if targets.ndim != 1 or targets.size == 0:
        raise InvalidField(_TARGETS, f"has shape {targets.shape}, one dimension with at least one token is needed")
    if all(isinstance(chunk, TokensChunk) for chunk in datum.model_input.chunks):
        length = datum.model_input.tokens().size
        if length != targets.size:
            raise InvalidField(_TARGETS, f"has {targets.size:,} tokens, model_input {length:,}")
    if "weights" not in datum.loss_fn_inputs:
        return targets, None
    weights = floats(datum.loss_fn_inputs["weights"], _WEIGHTS)
    if weights.shape != targets.shape:
        raise InvalidField(_WEIGHTS, f"has shape {weights.shape}, target_tokens {targets.shape}")
    if bad := int(np.count_nonzero(~np.isfinite(weights))):
        raise InvalidField(_WEIGHTS, f"holds {bad:,} values that are not finite, of {weights.size:,}")
    return targets, weights


async def _forward(model: Model, datum: Datum, shape: tuple[int, ...]) -> np.ndarray:
    try:
        answers = await model.forward([datum])
    except InvalidField as error:
        # There is one datum, and the caller names it.
        raise InvalidField(error.field.removeprefix("data[0]."), error.message, reason=error.reason) from error
    if len(answers) != 1:
        raise _nonsense(f"forward answered one datum with {len(answers):,}")
    return _shaped(np.asarray(answers[0], np.float64), shape, "forward")


def _shaped(logprobs: np.ndarray, shape: tuple[int, ...], method: str) -> np.ndarray:
    if logprobs.shape != shape:
        raise _nonsense(f"{method} answered {shape[0]:,} targets with values of shape {logprobs.shape}")
    return logprobs


def _tokens(sequence: ModelInput) -> np.ndarray:
    tokens = sequence.tokens()
    if tokens.size == 0:
        raise InvalidField("model_input", "is empty: a model needs at least one token")
    return tokens


async def _at_field(work: Awaitable[R], field: str, *, own: str) -> R:
    """Await an item's work; its errors get the item's path in the request, except those about the whole request."""
    try:
        return await work
    except BridgeError as error:
        if error.field == "model" or error.field.startswith("sampling."):
            raise
        raise at_field(error, field, own=own) from error


def bounds_of(given: BatchLimits, count: int, field: str, *, limits: WorkerLimits, received: float) -> Bounds:
    """The bounds of a batch.

    Args:
        given: the limits of its request.
        count: number of its items.
        field: path of the items.
        limits: the worker's.
        received: when the request came, by the event loop's clock.

    Raises:
        InvalidField: there is no item, or too many; a bound is beyond the worker's.
    """
    if count == 0:
        raise InvalidField(field, "is empty, at least one is needed")
    if count > limits.max_model_items:
        raise InvalidField(field, f"has {count:,}, at most {limits.max_model_items:,} are accepted")
    concurrency = limits.default_concurrency if given.concurrency is None else given.concurrency
    if concurrency > limits.max_concurrency:
        raise InvalidField("limits.concurrency", f"is {concurrency:,}, at most {limits.max_concurrency:,} is accepted")
    seconds = limits.default_sample_timeout_seconds
    return Bounds(
        concurrency=concurrency,
        item_seconds=seconds if given.item_timeout_ms is None else given.item_timeout_ms / 1000,
        deadline=None if given.deadline_ms is None else received + given.deadline_ms / 1000,
    )


def _result_or_problem(kind: Callable[..., R], result: R | Problem) -> R:
    """A result, or one that only has a problem."""
    return kind(problem=result) if isinstance(result, Problem) else result


def _missing(message: str, field: str = "model") -> FailedPrecondition:
    return FailedPrecondition(message, reason=Reason.MISSING_CLIENT, field=field)


def _nonsense(message: str) -> BackendError:
    return BackendError(message, reason=Reason.BACKEND_ANSWER, retryable=False)
