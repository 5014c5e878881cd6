"""Log-probabilities of the answers of preference pairs under a model, as the evaluator `preference` measures them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.problems import at_field
from crucible_bridge.types import Conversation, ModelRef, PreferencePair, Sample, Usage
from crucible_worker.backends.base import Backend
from crucible_worker.evaluators.nll import NLL
from crucible_worker.evaluators.preference import parted
from crucible_worker.inference.logprobs import ask_each
from crucible_worker.inference.retries import RetryingModel

__all__ = ["PairLogprobs", "pair_logprobs"]


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
    return Sample(input=Conversation(before), targets=(answer,))
