"""Several questions to a model at once, and log-probabilities of several continuations of a prompt in few calls.

A model that takes all continuations of a prompt at once (CONTINUATIONS) is called once. Any other measures each token
of a sequence given those before it, and one call serves

| capability | continuations of one call |
|---|---|
| TARGETS | all that differ from the sequence in their last token alone, or end earlier: choices of one token each |
| LOGPROBS | those that the sequence begins with |
| FORWARD | all: each is a datum |
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Datum, ModelInput
from crucible_worker.backends.base import Capability, Model

__all__ = ["concurrently", "forward_continuations", "sample_continuations"]

# Several questions at once, for one sample or one call.

T = TypeVar("T")


async def concurrently(*questions: Coroutine[Any, Any, T]) -> list[T]:
    """Await all of them at once, and return their answers in this order; the first error cancels the others."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(question) for question in questions]
    except BaseExceptionGroup as failed:
        # The caller needs one error, not an ExceptionGroup.
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


Tokens = Sequence[int]


async def sample_continuations(model: Model, prompt: Tokens, continuations: Sequence[Tokens]) -> tuple[np.ndarray, ...]:
    """Call a model that samples; the calls that it takes are made all at once.

    Args:
        model: what is called.
        prompt: token ids, at least one.
        continuations: token ids, at least one each; the same one twice costs nothing.

    Returns:
        Log-probabilities of each continuation's tokens, nats: float64 of its length.

    Raises:
        InvalidField: the prompt or a continuation is empty, or together they are longer than the context.
        FailedPrecondition: the model gives no log-probabilities.
        BackendError: there is no answer, or none that makes sense.
    """
    _check(prompt, continuations)
    if Capability.CONTINUATIONS in model.capabilities:
        return await _by_continuations(model, prompt, continuations)
    if Capability.TARGETS in model.capabilities:
        try:
            return await _by_targets(model, prompt, continuations)
        except FailedPrecondition as error:
            if error.reason != Reason.NO_TARGET_LOGPROBS:
                raise
    return await _by_prompts(model, prompt, continuations)


async def forward_continuations(
    model: Model, prompt: Tokens, continuations: Sequence[Tokens]
) -> tuple[np.ndarray, ...]:
    """Call a model that makes forward passes, once; arguments, result and errors as of `sample_continuations`."""
    _check(prompt, continuations)
    sequences = [np.array([*prompt, *continuation], np.int64) for continuation in continuations]
    data = [
        Datum(model_input=ModelInput.of(whole[:-1]), loss_fn_inputs={"target_tokens": whole[1:]}) for whole in sequences
    ]
    answers = await model.forward(data)
    if [np.shape(answer) for answer in answers] != [(whole.size - 1,) for whole in sequences]:
        raise _nonsense(f"a forward pass over {len(data):,} data was answered by arrays of other shapes")
    return tuple(
        np.asarray(answer, np.float64)[-len(continuation) :]
        for answer, continuation in zip(answers, continuations, strict=True)
    )


async def _by_continuations(model: Model, prompt: Tokens, continuations: Sequence[Tokens]) -> tuple[np.ndarray, ...]:
    answers = await model.compute_continuation_logprobs(ModelInput.of(prompt), continuations)
    if [np.shape(answer) for answer in answers] != [(len(continuation),) for continuation in continuations]:
        raise _nonsense(f"{len(continuations):,} continuations were answered by arrays of other shapes")
    return tuple(np.asarray(answer, np.float64) for answer in answers)


async def _by_targets(model: Model, prompt: Tokens, continuations: Sequence[Tokens]) -> tuple[np.ndarray, ...]:
    # What is measured at a continuation's last place needs no more than the tokens before it.
    calls = _covering([tuple(continuation[:-1]) for continuation in continuations])

    async def ask(longest: int, covered: Sequence[int]) -> dict[tuple[int, int], float]:
        targets = list(dict.fromkeys(pair for index in covered for pair in _placed(prompt, continuations[index])))
        sequence = ModelInput.of([*prompt, *continuations[longest]])
        answer = await model.compute_target_logprobs(sequence, targets)
        if len(answer) != len(targets):
            raise _nonsense(f"{len(targets):,} targets were measured by {len(answer):,} values")
        return dict(zip(targets, answer, strict=True))

    answers = await concurrently(*[ask(longest, covered) for longest, covered in calls.items()])
    found: dict[int, np.ndarray] = {}
    for covered, values in zip(calls.values(), answers, strict=True):
        for index in covered:
            found[index] = np.array([values[pair] for pair in _placed(prompt, continuations[index])], np.float64)
    return tuple(found[index] for index in range(len(continuations)))


async def _by_prompts(model: Model, prompt: Tokens, continuations: Sequence[Tokens]) -> tuple[np.ndarray, ...]:
    calls = _covering([tuple(continuation) for continuation in continuations])

    async def ask(longest: int) -> np.ndarray:
        sequence = [*prompt, *continuations[longest]]
        answer = await model.compute_logprobs(ModelInput.of(sequence))
        if len(answer) != len(sequence):
            raise _nonsense(f"compute_logprobs answered {len(sequence):,} tokens with {len(answer):,} values")
        known = [value for value in answer[len(prompt) :] if value is not None]
        if len(known) != len(continuations[longest]):
            raise _nonsense("compute_logprobs returned no value for a token after the first")
        return np.array(known, np.float64)

    answers = await concurrently(*[ask(longest) for longest in calls])
    found: dict[int, np.ndarray] = {}
    for covered, values in zip(calls.values(), answers, strict=True):
        for index in covered:
            found[index] = values[: len(continuations[index])]
    return tuple(found[index] for index in range(len(continuations)))


def _covering(keys: Sequence[tuple[int, ...]]) -> dict[int, list[int]]:
    """Indices of keys that no other one begins with, each with those of the keys that it begins with, itself included.

    Of equal keys the first one counts.
    """
    covering: dict[int, list[int]] = {}
    latest = -1
    # Descending order: a key comes after those that begin with it, and all between them begin with it too.
    for index in sorted(range(len(keys)), key=keys.__getitem__, reverse=True):
        key = keys[index]
        if latest < 0 or keys[latest][: len(key)] != key:
            latest = index
        covering.setdefault(latest, []).append(index)
    return covering


def _placed(prompt: Tokens, continuation: Tokens) -> list[tuple[int, int]]:
    """Each token of a continuation with its place after the prompt."""
    return list(enumerate(map(int, continuation), len(prompt)))


def _check(prompt: Tokens, continuations: Sequence[Tokens]) -> None:
    if not len(prompt):
        raise InvalidField("prompt", "is empty: a continuation needs at least one token before it")
    for index, continuation in enumerate(continuations):
        if not len(continuation):
            raise InvalidField(f"continuations[{index}]", "has no tokens")


def _nonsense(message: str) -> BackendError:
    return BackendError(message, reason=Reason.BACKEND_ANSWER, retryable=False)
