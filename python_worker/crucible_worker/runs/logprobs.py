"""Log-probabilities of sequences under a model: asked concurrently, within a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import numpy as np

from crucible_bridge.errors import BackendError, BridgeError, DeadlineExceeded, FailedPrecondition, InvalidField
from crucible_bridge.types import Datum, ModelInput, ModelRef
from crucible_worker.backends.base import Backend, Model
from crucible_worker.runs.calls import CallGate

__all__ = ["model_logprobs"]

_Ask = Callable[[Datum, ModelInput], Awaitable[np.ndarray]]


async def model_logprobs(
    backends: Mapping[type[ModelRef], Backend],
    model: ModelRef,
    data: Sequence[Datum],
    *,
    field: str,
    seconds: float | None,
    concurrency: int,
) -> list[np.ndarray]:
    """Ask a model for the log-probabilities of every datum's target tokens.

    The full sequence is `model_input` and the last of `target_tokens`; the value of its first token, which no model
    has, is dropped.

    Args:
        backends: by the kind of reference that they open.
        model: the model.
        data: each with `target_tokens` of shape (T_i,), T_i >= 1.
        field: path of the model in the request.
        seconds: time for all of it, loading included; unbounded if None. No call starts after it.
        concurrency: calls at once, at most.

    Returns:
        float64 of shape (T_i,) per datum, nats; not finite where the model says so.

    Raises:
        InvalidField: a datum's targets are not its input moved by one token, or the model cannot take it.
        DeadlineExceeded: time ran out.
        FailedPrecondition: this worker has no such backend, or the model neither samples nor trains.
        BackendError: the model could not be asked, or answered nonsense; the field names the datum.
    """
    sequences = [_sequence(datum, f"data[{index}]") for index, datum in enumerate(data)]
    answers: dict[int, np.ndarray] = {}
    gate = CallGate(len(data))
    timer = asyncio.timeout(seconds)
    try:
        async with timer:
            opened = await _open(backends, model, gate, field)
            await _ask_all(_asker(opened, field), data, sequences, gate, answers, concurrency)
    except TimeoutError:
        if not timer.expired():
            raise
        raise DeadlineExceeded(
            f"is over: {len(answers):,} of {len(data):,} sequences had their log-probabilities", field="deadline_ms"
        ) from None
    finally:
        gate.close()
    return [answers[index] for index in range(len(data))]


async def _open(backends: Mapping[type[ModelRef], Backend], model: ModelRef, gate: CallGate, field: str) -> Model:
    backend = backends.get(type(model))
    if backend is None:
        raise FailedPrecondition(
            f"is a {type(model).__name__}, for which this worker has no backend", reason="NO_BACKEND", field=field
        )
    try:
        opened = await backend.open(model)
        await gate.call(opened.load)
    except BridgeError as error:
        raise _at(error, field) from error
    return opened


async def _ask_all(
    ask: _Ask,
    data: Sequence[Datum],
    sequences: Sequence[ModelInput],
    gate: CallGate,
    answers: dict[int, np.ndarray],
    concurrency: int,
) -> None:
    items = iter(range(len(data)))

    async def take() -> None:
        for index in items:
            try:
                answers[index] = await gate.call(lambda: ask(data[index], sequences[index]))  # noqa: B023 - awaited here
            except BridgeError as error:
                raise _at(error, f"data[{index}]") from error

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(data))):
                group.create_task(take())
    except BaseExceptionGroup as failed:
        # One reason is enough for the caller, and the group is no error of ours.
        raise failed.exceptions[0] from None


def _sequence(datum: Datum, field: str) -> ModelInput:
    """Input and last target: what the model is asked about."""
    path = f'{field}.loss_fn_inputs["target_tokens"]'
    targets = datum.loss_fn_inputs["target_tokens"]
    if not isinstance(targets, np.ndarray) or targets.dtype.kind not in "iu":
        raise InvalidField(path, f"holds {targets.dtype}, not token ids")
    try:
        tokens = datum.model_input.tokens()
    except InvalidField as error:
        raise _at(error, field) from error
    if targets.size == 0 or targets.size != tokens.size:
        raise InvalidField(path, f"has {targets.size:,} tokens, model_input {tokens.size:,}")
    if np.any(targets[:-1] != tokens[1:]):
        raise InvalidField(path, "is not model_input moved by one token, and a model knows no other targets")
    return ModelInput.of(np.append(tokens, targets[-1]))


def _asker(model: Model, field: str) -> _Ask:
    """How this model is asked: its sampling side, or a forward pass where it only trains."""
    if (sampling := model.sampling) is not None:

        async def of_sequence(datum: Datum, sequence: ModelInput) -> np.ndarray:
            answer = await sampling.compute_logprobs(sequence)
            known = [value for value in answer[1:] if value is not None]
            return _checked(np.array(known, np.float64), datum, "compute_logprobs")

        return of_sequence
    if (training := model.training) is not None:

        async def of_targets(datum: Datum, sequence: ModelInput) -> np.ndarray:
            answer = await training.forward([datum])
            return _checked(np.asarray(answer[0], np.float64), datum, "forward")

        return of_targets
    raise FailedPrecondition("neither samples nor trains", reason="MISSING_CLIENT", field=field)


def _checked(logprobs: np.ndarray, datum: Datum, method: str) -> np.ndarray:
    expected = len(datum.loss_fn_inputs["target_tokens"])  # pyright: ignore[reportArgumentType] - `_sequence` saw to it
    if logprobs.shape != (expected,):
        raise BackendError(
            f"{method} answered {expected:,} targets with values of shape {logprobs.shape}",
            reason="BACKEND_ANSWER",
            retryable=False,
        )
    return logprobs


def _at(error: BridgeError, field: str) -> BridgeError:
    """The same error, at a place of the request."""
    path = f"{field}.{error.field}" if error.field and error.field != "model" else field
    if isinstance(error, InvalidField):
        return InvalidField(path, error.message, reason=error.reason)
    return type(error)(
        error.message,
        reason=error.reason,
        code=error.code,
        field=path,
        retryable=error.retryable,
        retry_after=error.retry_after,
        metadata=error.metadata,
    )
