"""Log-probabilities of sequences under a model: computed concurrently, within a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from crucible_bridge.errors import BridgeError, DeadlineExceeded, InvalidField
from crucible_bridge.problems import at_field
from crucible_bridge.types import Datum, ModelInput, ModelRef, Usage
from crucible_worker.backends.base import Backend
from crucible_worker.inference.batches import each, open_model
from crucible_worker.inference.model_calls import logprobs_asker
from crucible_worker.inference.retries import RetryingModel, RetryPolicy

__all__ = ["ask_each", "model_logprobs"]

T = TypeVar("T")


async def model_logprobs(
    backends: Mapping[type[ModelRef], Backend],
    model: ModelRef,
    data: Sequence[Datum],
    *,
    field: str,
    seconds: float | None,
    concurrency: int,
) -> tuple[list[np.ndarray], Usage | None]:
    """Compute the log-probabilities of every datum's target tokens with a model.

    The full sequence is `model_input` and the last of `target_tokens`; its first token has no value.

    Args:
        backends: by the kind of reference that they open.
        model: the model.
        data: each with `target_tokens` of shape (T_i,), T_i >= 1.
        field: path of the model in the request.
        seconds: time for the whole batch, loading included; unbounded if None. No call starts after it.
        concurrency: calls at once, at most.

    Returns:
        float64 of shape (T_i,) per datum, nats, not finite where the model returned such values; and the usage of the
        calls, without a cost.

    Raises:
        InvalidField: a datum's targets are not its input moved by one token, or the model cannot take it.
        DeadlineExceeded: time ran out.
        FailedPrecondition: this worker has no such backend, or the model neither samples nor trains.
        BackendError: the model could not be called, or its answer is invalid; the field names the datum.
    """
    sequences = [_sequence(datum, f"data[{index}]") for index, datum in enumerate(data)]

    def asker(opened: RetryingModel) -> Callable[[int], Awaitable[np.ndarray]]:
        logprobs_of = logprobs_asker(opened, field)
        return lambda index: logprobs_of(sequences[index])

    places = [f"data[{index}]" for index in range(len(data))]
    return await ask_each(backends, model, places, asker, field=field, seconds=seconds, concurrency=concurrency)


async def ask_each(
    backends: Mapping[type[ModelRef], Backend],
    model: ModelRef,
    places: Sequence[str],
    asker: Callable[[RetryingModel], Callable[[int], Awaitable[T]]],
    *,
    field: str,
    seconds: float | None,
    concurrency: int,
) -> tuple[list[T], Usage | None]:
    """Ask a model something about each sequence of a request; the first error ends all.

    Args:
        backends: by the kind of reference that they open.
        model: the model.
        places: path of each sequence in the request.
        asker: makes the function that asks about a sequence, given its index, from the open model.
        field: path of the model in the request.
        seconds: time for the whole batch, loading included; unbounded if None. No call starts after it.
        concurrency: calls at once, at most.

    Returns:
        The answers in their order, and the usage of the calls, without a cost.

    Raises:
        DeadlineExceeded: time ran out.
        BridgeError: the model cannot be opened, or `asker` or a call raises it; the field names model or sequence.
    """
    answers: dict[int, T] = {}
    gate = RetryPolicy(len(places))
    timer = asyncio.timeout(seconds)
    try:
        async with timer:
            ends, loop = timer.when(), asyncio.get_running_loop()
            opened = RetryingModel(
                await open_model(backends, model, gate, field),
                gate,
                seconds_left=lambda: None if ends is None else ends - loop.time(),
            )
            asked = asker(opened)

            async def ask(index: int) -> None:
                try:
                    answers[index] = await asked(index)
                except BridgeError as error:
                    # The first error of a server may be about the model, and not about this sequence.
                    place = field if error.field == "model" else places[index]
                    raise at_field(error, place, own="model") from error

            await each(len(places), ask, concurrency)
            usage = opened.meter.usage
    except TimeoutError:
        if not timer.expired():
            raise
        raise DeadlineExceeded(
            f"is over: {len(answers):,} of {len(places):,} sequences had their log-probabilities", field="deadline_ms"
        ) from None
    finally:
        gate.close()
    return [answers[index] for index in range(len(places))], usage


def _sequence(datum: Datum, field: str) -> ModelInput:
    """Input and last target: the sequence that the model gets."""
    path = f'{field}.loss_fn_inputs["target_tokens"]'
    targets = datum.loss_fn_inputs["target_tokens"]
    if not isinstance(targets, np.ndarray) or targets.dtype.kind not in "iu":
        raise InvalidField(path, f"holds {targets.dtype}, not token ids")
    try:
        tokens = datum.model_input.tokens()
    except InvalidField as error:
        raise at_field(error, field) from error
    if targets.size == 0 or targets.size != tokens.size:
        raise InvalidField(path, f"has {targets.size:,} tokens, and model_input has {tokens.size:,}")
    if np.any(targets[:-1] != tokens[1:]):
        raise InvalidField(path, "is not model_input shifted by one token; the model measures no other targets")
    return ModelInput.of(np.append(tokens, targets[-1]))
