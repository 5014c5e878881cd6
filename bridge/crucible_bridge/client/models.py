"""ModelService, typed."""

# The timeout is not measured here: it travels to the worker as gRPC's deadline.
# ruff: noqa: ASYNC109

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from crucible_bridge.arrays import as_array
from crucible_bridge.client.calls import Calls
from crucible_bridge.client.given import DatumLike, as_model
from crucible_bridge.client.plain_calls import PlainModelCalls
from crucible_bridge.codec import model_calls as codec
from crucible_bridge.errors import InvalidField
from crucible_bridge.types import (
    BatchLimits,
    Conversation,
    Datum,
    ForwardAnswer,
    ForwardRequest,
    LogprobsAnswer,
    LogprobsRequest,
    ModelInput,
    ModelRef,
    SampleAnswer,
    SampleItem,
    SampleRequest,
    SamplingParams,
)
from crucible_bridge.v1 import models_pb2_grpc

__all__ = ["ModelsClient", "Prompt", "Tokens"]

Tokens = ModelInput | Sequence[int] | np.ndarray
"""A model's input."""
Prompt = str | Conversation | Tokens
"""A prompt for a model to continue."""

_READ = ("target_tokens", "weights")


class ModelsClient(PlainModelCalls):
    """The worker's models, called directly: teachers, reference policies.

    Every call takes a batch and returns for each item, in order, a result or a `problem`. It raises an error only if no
    item has a result.
    """

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._stub: Any = models_pb2_grpc.ModelServiceStub(calls.channel)

    async def sample(
        self,
        model: ModelRef | str,
        prompts: Iterable[SampleItem | Prompt],
        sampling: SamplingParams,
        *,
        num_samples: int = 1,
        limits: BatchLimits | None = None,
        timeout: float | None = None,
    ) -> SampleAnswer:
        """Continuations of prompts.

        Args:
            model: a reference, "embedded:NAME", "local:PATH", "openai:SERVER/MODEL" or "tinker:...".
            prompts: text, conversations, token ids, or SampleItems, which have their own `num_samples` and seed.
            sampling: how to sample; the same for every prompt.
            num_samples: continuations of each prompt that is not a SampleItem.
            limits: bounds of the batch.
            timeout: seconds for the call. At its end all results are lost; `limits.deadline_ms` keeps them.

        Raises:
            InvalidField: model, sampling or limits are wrong, there is no prompt, or there are too many.
            NotFound: there is no such model.
            FailedPrecondition: it cannot be opened here, or cannot sample.
            DeadlineExceeded: it was not ready in time.
            BackendError: it could not be loaded.
        """
        items = tuple(
            prompt if isinstance(prompt, SampleItem) else _sample_item(prompt, num_samples, f"items[{index}]")
            for index, prompt in enumerate(_batch(prompts, "items"))
        )
        request = SampleRequest(model=as_model(model), items=items, sampling=sampling, limits=limits or BatchLimits())
        message = codec.sample_request_to_v1(request)
        return await self._calls.unary(self._stub.Sample, message, codec.sample_answer_from_v1, timeout)

    async def compute_logprobs(
        self,
        model: ModelRef | str,
        sequences: Iterable[Tokens],
        *,
        limits: BatchLimits | None = None,
        timeout: float | None = None,
    ) -> LogprobsAnswer:
        """Log-probability of every token of sequences given those before it, except the first.

        Args:
            model: a reference, "embedded:NAME", "local:PATH", "openai:SERVER/MODEL" or "tinker:...".
            sequences: token ids, at least one each.
            limits: bounds of the batch.
            timeout: seconds for the call. At its end all results are lost; `limits.deadline_ms` keeps them.

        Raises:
            BridgeError: as for `sample`; FailedPrecondition if the model can neither sample nor train.
        """
        inputs = tuple(
            _tokens(sequence, f"sequences[{index}]") for index, sequence in enumerate(_batch(sequences, "sequences"))
        )
        request = LogprobsRequest(model=as_model(model), sequences=inputs, limits=limits or BatchLimits())
        message = codec.logprobs_request_to_v1(request)
        return await self._calls.unary(self._stub.ComputeLogprobs, message, codec.logprobs_answer_from_v1, timeout)

    async def forward(
        self,
        model: ModelRef | str,
        data: Iterable[DatumLike],
        *,
        limits: BatchLimits | None = None,
        timeout: float | None = None,
    ) -> ForwardAnswer:
        """Log-probabilities of given targets, and the loss if there are weights; the model is not changed.

        Args:
            model: a reference, "embedded:NAME", "local:PATH", "openai:SERVER/MODEL" or "tinker:...".
            data: our Datums or tinker's with "target_tokens", and "weights" for a loss; nothing else
                is sent.
            limits: bounds of the batch.
            timeout: seconds for the call. At its end all results are lost; `limits.deadline_ms` keeps them.

        Raises:
            BridgeError: as for `sample`; FailedPrecondition if the model cannot train.
        """
        sent = tuple(_datum(datum, f"data[{index}]") for index, datum in enumerate(_batch(data, "data")))
        request = ForwardRequest(model=as_model(model), data=sent, limits=limits or BatchLimits())
        message = codec.forward_request_to_v1(request)
        return await self._calls.unary(self._stub.Forward, message, codec.forward_answer_from_v1, timeout)


def _batch(items: Iterable[Any], field: str) -> Iterable[Any]:
    alone = str | bytes | ModelInput | Datum | SampleItem | Conversation | Mapping
    if isinstance(items, alone) or not isinstance(items, Iterable):
        raise InvalidField(field, f"is a {type(items).__name__}, not a sequence of them")
    return items


def _sample_item(prompt: Any, num_samples: int, field: str) -> SampleItem:
    tokens = prompt if isinstance(prompt, str | Conversation) else _tokens(prompt, field)
    return SampleItem(prompt=tokens, num_samples=num_samples)


def _tokens(tokens: Any, field: str) -> ModelInput:
    try:
        return ModelInput.of(tokens)
    except InvalidField as error:
        raise InvalidField(field, error.message) from error


def _datum(datum: Any, field: str) -> Datum:
    try:
        given = datum.loss_fn_inputs
        read = {key: as_array(given[key], field=f'loss_fn_inputs["{key}"]') for key in _READ if key in given}
        if isinstance(datum, Datum):
            return Datum(model_input=datum.model_input, loss_fn_inputs=read)
        return Datum(model_input=datum.model_input.to_ints(), loss_fn_inputs=read)
    except InvalidField as error:
        raise InvalidField(f"{field}.{error.field}", error.message, reason=error.reason) from error
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidField(field, f"is not a Datum of tokens: {error}") from error
