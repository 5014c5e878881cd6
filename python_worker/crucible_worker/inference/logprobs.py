"""Log-probabilities of sequences and of preference pairs under a model: computed concurrently, within a deadline."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from crucible_bridge.errors import BridgeError, DeadlineExceeded, InvalidField
from crucible_bridge.problems import at_field
from crucible_bridge.types import (
    Conversation,
    Datum,
    LogprobsAnswer,
    LogprobsItem,
    LogprobsRequest,
    ModelInput,
    ModelRef,
    PreferencePair,
    Problem,
    Sample,
    SequenceLogprobs,
    Usage,
)
from crucible_worker.backends.base import Backend, Capability, Model
from crucible_worker.backends.distributions import Measured, Wanted
from crucible_worker.evaluators.nll import NLL
from crucible_worker.evaluators.preference import parted
from crucible_worker.inference.batches import Ask, ask_all, each, open_model
from crucible_worker.inference.model_calls import (
    Backends,
    ColumnBudget,
    at_item,
    bounds_of,
    check_top,
    logprobs_asker,
    missing_client,
    nonsense,
    result_or_problem,
    tokens_of,
)
from crucible_worker.inference.retries import RetryingModel, RetryPolicy
from crucible_worker.util.limits import WorkerLimits

__all__ = ["PairLogprobs", "ask_each", "ask_logprobs", "items_of", "logprobs_ask", "model_logprobs", "pair_logprobs"]

# Log-probabilities of sequences, asked directly: of their own tokens, of the likeliest ones, and of given ones.

_VALUE_BYTES, _TOKEN_BYTES = 8, 4
"""Of a log-probability, and of a token id, in an answer."""
_MANY_TARGETS = 100_000
"""More take longer than the event loop should wait."""


async def ask_logprobs(
    backends: Backends, request: LogprobsRequest, *, limits: WorkerLimits, received: float
) -> LogprobsAnswer:
    """Log-probabilities of the measured tokens of every sequence.

    Args:
        backends: by the kind of reference that they open.
        request: the call's.
        limits: the worker's.
        received: time of receipt by the event loop's clock; the deadline counts from it.

    Raises:
        InvalidField: there is no sequence, or too many; a bound is beyond the worker's.
        BridgeError: see `ask_all`.
    """
    name, items = items_of(request)
    bounds = bounds_of(request.limits, len(items), name, limits=limits, received=received)
    check_top(request.top_k, "top_k", limits)
    if request.model is None:
        raise InvalidField("model", "is not given")
    asker = functools.partial(logprobs_ask, request, items, room=ColumnBudget(limits.max_message_bytes))
    answers = await ask_all(backends, request.model, items, asker, bounds=bounds)
    return LogprobsAnswer(
        sequences=tuple(result_or_problem(SequenceLogprobs, result) for result in answers.results),
        model_fingerprint=answers.model_fingerprint,
        usage=answers.usage,
    )


def logprobs_ask(
    request: LogprobsRequest,
    items: Sequence[LogprobsItem | Problem],
    model: Model,
    *,
    room: ColumnBudget,
    places: Sequence[int] | None = None,
) -> Ask[LogprobsItem, SequenceLogprobs]:
    """A function that asks a model for an item.

    Args:
        request: what is asked for.
        items: those that the model will be asked for.
        model: the model.
        room: what the answer may still hold.
        places: the index of each item in the request; its own if None.

    Raises:
        FailedPrecondition: the model does not answer what the request needs; at `model`.
    """
    name, _ = items_of(request)
    measure = _LogprobsRequest(model, request, room)
    targets = any(isinstance(item, LogprobsItem) and item.targets is not None for item in items)
    if (request.top_k or targets) and Capability.DISTRIBUTIONS not in model.capabilities:
        what = "top_k" if request.top_k else "targets"
        known = ", ".join(sorted(model.capabilities)) or "nothing"
        raise missing_client(f"does not answer {Capability.DISTRIBUTIONS}, which {what} needs; it answers {known}")

    async def ask(index: int, item: LogprobsItem) -> SequenceLogprobs:
        own = "prompt" if name == "sequences" else ""
        place = index if places is None else places[index]
        return await at_item(measure.item(item), f"{name}[{place}]", own=own)

    return ask


def items_of(request: LogprobsRequest) -> tuple[str, tuple[LogprobsItem | Problem, ...]]:
    """The field that has what is measured, and the items; a sequence is an item without anything of its own."""
    if request.items:
        return "items", request.items
    return "sequences", tuple(
        LogprobsItem(prompt=sequence) if isinstance(sequence, ModelInput) else sequence
        for sequence in request.sequences
    )


class _LogprobsRequest:
    """Measures the items of one request.

    Args:
        model: the model.
        request: the request.
        room: what the answer may still hold.
    """

    def __init__(self, model: Model, request: LogprobsRequest, room: ColumnBudget) -> None:
        self._model, self._request, self._room = model, request, room
        self._logprobs_of: Callable[[ModelInput], Awaitable[np.ndarray]] = logprobs_asker(model, "model")

    async def item(self, item: LogprobsItem) -> SequenceLogprobs:
        """What became of an item; its errors have paths within it."""
        given = await self._in_prompt(tokens_of(self._model, item, add_special_tokens=self._request.add_special_tokens))
        tokens, rows = given.tokens, given.measured
        if (last := item.last_n or self._request.last_n) is not None:
            rows = min(rows, last)
        top, width = self._request.top_k or 0, _target_width(item.targets, rows)
        self._room.take(_size(rows, top, width, tokens.size if given.rendered else 0))  # before there are any rows
        targets = None if item.targets is None else await _target_rows(item.targets, (rows, width))
        wanted = Wanted(last=rows, top_k=top, targets=targets)
        work = self._in_prompt(self._measured(tokens, wanted))
        measured = await _in_continuation(work, tokens.size - len(item.continuation))
        return SequenceLogprobs(
            logprobs=measured.logprobs,
            first=tokens.size - rows,
            tokens=tuple(tokens.tolist()) if given.rendered else (),
            top_tokens=measured.top_tokens,
            top_logprobs=measured.top_logprobs,
            target_logprobs=measured.target_logprobs,
        )

    async def _measured(self, tokens: np.ndarray, wanted: Wanted) -> Measured:
        prompt = ModelInput.of(tokens)
        further = wanted.top_k or wanted.targets is not None
        if wanted.last == 0:  # one token alone, of which no model has a value
            return Measured(
                logprobs=np.empty(0),
                top_tokens=np.empty((0, wanted.top_k), np.int32) if wanted.top_k else None,
                top_logprobs=np.empty((0, wanted.top_k)) if wanted.top_k else None,
                target_logprobs=None if wanted.targets is None else np.empty(wanted.targets.shape),
            )
        shorter = wanted.last < tokens.size - 1 and Capability.DISTRIBUTIONS in self._model.capabilities
        if not further and not shorter:
            return Measured(logprobs=(await self._logprobs_of(prompt))[-wanted.last :])
        return _checked(await self._model.compute_distributions(prompt, wanted), wanted)

    async def _in_prompt(self, work: Awaitable[T]) -> T:
        """Await work on the tokens of an item: what is wrong with a model's input is wrong with its prompt."""
        try:
            return await work
        except BridgeError as error:
            own = "model_input" if error.field.startswith("model_input") else ""
            if not own:
                raise
            raise at_field(error, "prompt", own=own) from error


async def _in_continuation(work: Awaitable[T], start: int) -> T:
    """Await work on the tokens of an item, whose continuation begins at `start`: a wrong one there has its index."""
    try:
        return await work
    except InvalidField as error:
        found = re.fullmatch(r"prompt\[(\d+)\]", error.field)
        if found is None or int(found[1]) < start:
            raise
        field = f"continuation[{int(found[1]) - start}]"
        raise InvalidField(field, error.message, reason=error.reason) from error


def _target_width(targets: np.ndarray | None, rows: int) -> int:
    """Number of targets in a row; 0 if there are none.

    Raises:
        InvalidField: they fit no such number of rows.
    """
    if targets is None:
        return 0
    fits = targets.ndim == 1 or (targets.ndim == 2 and len(targets) == rows)
    if not fits or targets.shape[-1] == 0:
        needed = f"must have {rows:,} rows, one for each measured token, or one dimension"
        raise InvalidField("targets", f"has shape {list(targets.shape)}, {needed}")
    return targets.shape[-1]


async def _target_rows(targets: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Targets with a row for each measured token, int64; a thread makes many."""

    def repeated() -> np.ndarray:
        return np.broadcast_to(targets, shape).astype(np.int64)

    return await asyncio.to_thread(repeated) if math.prod(shape) > _MANY_TARGETS else repeated()


def _size(rows: int, top_k: int, width: int, tokens: int) -> int:
    """Bytes of an answer with `width` targets in a row, about."""
    columns = top_k * (_VALUE_BYTES + _TOKEN_BYTES) + width * _VALUE_BYTES
    return rows * (_VALUE_BYTES + columns) + tokens * _TOKEN_BYTES


def _checked(measured: Measured, wanted: Wanted) -> Measured:
    """What a backend answered, if it fits the question.

    Raises:
        BackendError: it does not (BACKEND_ANSWER).
    """
    shapes: list[tuple[np.ndarray | None, tuple[int, ...]]] = [(measured.logprobs, (wanted.last,))]
    if wanted.targets is not None:
        shapes.append((measured.target_logprobs, wanted.targets.shape))
    if wanted.top_k:
        tops = measured.top_tokens
        width = wanted.top_k if tops is None or tops.ndim != 2 else min(wanted.top_k, tops.shape[1])
        shapes += [(tops, (wanted.last, width)), (measured.top_logprobs, (wanted.last, width))]
    for array, shape in shapes:
        if array is None or array.shape != shape:
            found = "nothing" if array is None else f"values of shape {array.shape}"
            raise nonsense(f"{Capability.DISTRIBUTIONS} answered with {found} where {shape} is needed")
    given = [array for array in (measured.logprobs, measured.top_logprobs) if array is not None]
    if any(np.isnan(array).any() for array in given):
        raise nonsense(f"{Capability.DISTRIBUTIONS} answered with values that are not numbers")
    return measured


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


# Log-probabilities of the answers of preference pairs under a model, as the evaluator `preference` measures them.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PairLogprobs:
    """Sums of the log-probabilities of the answers' tokens, shape (pairs,), nats; -inf with an impossible token."""

    chosen: np.ndarray
    """Of the chosen answers."""
    rejected: np.ndarray
    """Of the rejected answers."""
    usage: Usage | None = None
    """Of the calls, without a cost."""


async def pair_logprobs(
    backends: Mapping[type[ModelRef], Backend],
    model: ModelRef,
    pairs: Sequence[PreferencePair],
    *,
    field: str,
    seconds: float | None,
    concurrency: int,
) -> PairLogprobs:
    """Measure both answers of each pair with a model.

    Args:
        backends: by the kind of reference that they open.
        model: the model.
        pairs: conversations that end with the answers.
        field: path of the model in the request.
        seconds: time for the whole batch, loading included; unbounded if None.
        concurrency: calls at once, at most.

    Raises:
        InvalidField: a conversation does not end with the assistant's message, or its answer has no tokens.
        DeadlineExceeded: time ran out.
        FailedPrecondition: this worker has no such backend, the model gives no log-probabilities, or it cannot render
            a conversation.
        BackendError: the model could not be called, or its answer is invalid; the field names the conversation.
    """
    places = [f"pairs[{index}].{name}" for index in range(len(pairs)) for name in ("chosen", "rejected")]
    conversations = [conversation for pair in pairs for conversation in (pair.chosen, pair.rejected)]
    samples = [_sample(*each) for each in zip(conversations, places, strict=True)]
    evaluator = NLL()

    def asker(opened: RetryingModel) -> Callable[[int], Awaitable[float]]:
        evaluator.check(opened)

        async def measure(index: int) -> float:
            outcome = await evaluator.measure(await evaluator.rendered(samples[index], opened), opened)
            if not outcome.measurements["weighted_tokens"]:
                raise InvalidField("", "has an answer without tokens")
            return outcome.measurements.get("weighted_logprob_sum", -math.inf)

        return measure

    sums, usage = await ask_each(backends, model, places, asker, field=field, seconds=seconds, concurrency=concurrency)
    columns = np.array(sums, np.float64).reshape(-1, 2)
    return PairLogprobs(chosen=columns[:, 0].copy(), rejected=columns[:, 1].copy(), usage=usage)


def _sample(conversation: Conversation, place: str) -> Sample:
    try:
        before, answer = parted(conversation.messages, "messages")
    except InvalidField as error:
        raise at_field(error, place) from error
    if not before:
        raise InvalidField(f"{place}.messages", "has an answer and no prompt before it")
    return Sample(input=Conversation(before, conversation.tools), targets=(answer,))
