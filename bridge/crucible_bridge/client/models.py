"""ModelService, typed."""

# The timeout is not measured here: it travels to the worker as gRPC's deadline.
# ruff: noqa: ASYNC109

from __future__ import annotations

import dataclasses
import re
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
    ForwardOutput,
    ForwardRequest,
    LogprobsAnswer,
    LogprobsItem,
    LogprobsRequest,
    ModelInput,
    ModelRef,
    SampleAnswer,
    SampleItem,
    SampleRequest,
    SamplingParams,
    Teacher,
)
from crucible_bridge.v1 import models_pb2_grpc

__all__ = ["ModelsClient", "Prompt", "Tokens"]

Tokens = ModelInput | Sequence[int] | np.ndarray
"""A model's input."""
Prompt = str | Conversation | Tokens
"""A prompt for a model to continue."""

_READ = ("target_tokens", "weights")
_FORWARDED = re.compile(r"\Aitems(\[\d+\])(?:\.(?:conversation|text|datum))?")
"""The path of an item of Forward in the request."""


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
        top_logprobs: int | None = None,
        limits: BatchLimits | None = None,
        timeout: float | None = None,
    ) -> SampleAnswer:
        """Continuations of prompts.

        Args:
            model: a reference, "embedded:NAME", "local:PATH", "openai:SERVER/MODEL" or "tinker:...".
            prompts: text, conversations, token ids, or SampleItems, which have their own `num_samples` and seed.
            sampling: how to sample; the same for every prompt.
            num_samples: continuations of each prompt that is not a SampleItem.
            top_logprobs: so many of the likeliest tokens come with each generated one, as `top_tokens` and
                `top_logprobs` of each sequence.
            limits: bounds of the batch.
            timeout: seconds for the call. At its end all results are lost; `limits.deadline_ms` keeps them.

        Raises:
            InvalidField: model, sampling or limits are wrong, there is no prompt, or there are too many.
            NotFound: there is no such model.
            FailedPrecondition: it cannot be opened here, cannot sample, or does not name the likeliest tokens.
            DeadlineExceeded: it was not ready in time.
            BackendError: it could not be loaded.
        """
        items = tuple(
            prompt if isinstance(prompt, SampleItem) else _sample_item(prompt, num_samples, f"items[{index}]")
            for index, prompt in enumerate(_batch(prompts, "items"))
        )
        request = SampleRequest(
            model=as_model(model),
            items=items,
            sampling=sampling,
            limits=limits or BatchLimits(),
            top_logprobs=top_logprobs,
        )
        message = codec.sample_request_to_v1(request)
        return await self._calls.unary(self._stub.Sample, message, codec.sample_answer_from_v1, timeout)

    async def compute_logprobs(
        self,
        model: ModelRef | str | Sequence[Teacher],
        sequences: Iterable[LogprobsItem | Prompt],
        *,
        top_k: int | None = None,
        last_n: int | None = None,
        targets: Iterable[Any] | None = None,
        add_special_tokens: bool = False,
        limits: BatchLimits | None = None,
        timeout: float | None = None,
    ) -> LogprobsAnswer:
        """Log-probability of every token of sequences given those before it, except the first.

            answer = await bridge.models.compute_logprobs(teacher, [prompt + answer], top_k=20, last_n=len(answer))
            answer.sequences[0].top_tokens  # shape (len(answer), 20)

        Args:
            model: a reference, "embedded:NAME", "local:PATH", "openai:SERVER/MODEL" or "tinker:..."; or several
                Teachers, of which a sequence has the weighted mean of probabilities, as a logarithm.
            sequences: token ids, at least one each; text; conversations, by the model's chat template; or
                LogprobsItems, which have their own targets and continuation.
            top_k: so many of the likeliest tokens come with each measured one, as `top_tokens` and `top_logprobs`.
            last_n: only the last tokens of each sequence are measured, so many.
            targets: for each sequence that is not a LogprobsItem, further token ids to measure, or None: an array of
                shape (rows, m), one row for each measured token, or of shape (m,) for the same ones in every row.
            add_special_tokens: whether texts get the special tokens that the tokenizer puts around them.
            limits: bounds of the batch.
            timeout: seconds for the call. At its end all results are lost; `limits.deadline_ms` keeps them.

        Raises:
            BridgeError: as for `sample`; FailedPrecondition if the model can neither sample nor train, or does not
                report the likeliest tokens or those of one's own.
        """
        given = list(_batch(sequences, "sequences"))
        tables = [None] * len(given) if targets is None else list(_batch(targets, "targets"))
        if len(tables) != len(given):
            raise InvalidField("targets", f"has {len(tables):,} entries, sequences has {len(given):,}")
        teachers = _teachers(model)
        request = LogprobsRequest(
            model=None if teachers else as_model(model),
            teachers=teachers,
            limits=limits or BatchLimits(),
            top_k=top_k,
            last_n=last_n,
            add_special_tokens=add_special_tokens,
            **_sequences_or_items(given, tables),
        )
        message = codec.logprobs_request_to_v1(request)
        return await self._calls.unary(self._stub.ComputeLogprobs, message, codec.logprobs_answer_from_v1, timeout)

    async def forward(
        self,
        model: ModelRef | str,
        data: Iterable[DatumLike | str | Conversation],
        *,
        train_on: str = "",
        add_special_tokens: bool = False,
        limits: BatchLimits | None = None,
        timeout: float | None = None,
    ) -> ForwardAnswer:
        """Log-probabilities of given targets, and the loss if there are weights; the model is not changed.

        Args:
            model: a reference, "embedded:NAME", "local:PATH", "openai:SERVER/MODEL" or "tinker:...".
            data: our Datums or tinker's with "target_tokens", and "weights" for a loss; nothing else
                is sent. Or text, whose tokens but the first are targets of weight 1, and conversations.
            train_on: which tokens of conversations have weight, as of `rendering.build_supervised_example`;
                "last_assistant" if empty.
            add_special_tokens: whether texts get the special tokens that the tokenizer puts around them.
            limits: bounds of the batch.
            timeout: seconds for the call. At its end all results are lost; `limits.deadline_ms` keeps them.

        Raises:
            BridgeError: as for `sample`; FailedPrecondition if the model cannot train.
        """
        given = list(_batch(data, "data"))
        worded = any(isinstance(item, str | Conversation) for item in given)
        sent: tuple[Any, ...] = tuple(
            item if isinstance(item, str | Conversation) else _datum(item, f"data[{index}]")
            for index, item in enumerate(given)
        )
        request = ForwardRequest(
            model=as_model(model),
            limits=limits or BatchLimits(),
            train_on=train_on,
            add_special_tokens=add_special_tokens,
            items=sent if worded else (),
            data=() if worded else sent,
        )
        try:
            message = codec.forward_request_to_v1(request)
            answer = await self._calls.unary(self._stub.Forward, message, codec.forward_answer_from_v1, timeout)
        except InvalidField as error:
            raise InvalidField(_of_data(error.field), error.message, reason=error.reason) from error
        return dataclasses.replace(answer, outputs=tuple(map(_output_of_data, answer.outputs)))


def _of_data(field: str) -> str:
    """The path of an item in the argument `data`, in place of that in the request."""
    return _FORWARDED.sub(r"data\1", field)


def _output_of_data(output: ForwardOutput) -> ForwardOutput:
    if output.problem is None or not output.problem.field:
        return output
    return dataclasses.replace(
        output, problem=dataclasses.replace(output.problem, field=_of_data(output.problem.field))
    )


def _batch(items: Iterable[Any], field: str) -> Iterable[Any]:
    alone = str | bytes | ModelInput | Datum | LogprobsItem | SampleItem | Conversation | Mapping
    if isinstance(items, alone) or not isinstance(items, Iterable):
        raise InvalidField(field, f"is a {type(items).__name__}, not a sequence of them")
    return items


def _teachers(model: Any) -> tuple[Teacher, ...]:
    """The teachers that are given in place of a model; none if it is a model, or nothing that could be one."""
    if not isinstance(model, list | tuple) or not model:
        return ()
    for index, teacher in enumerate(model):
        if not isinstance(teacher, Teacher):
            kind = type(teacher).__name__
            raise InvalidField(
                f"teachers[{index}]", f"is a {kind}, not a Teacher: write Teacher.of(MODEL, weight=WEIGHT)"
            )
    return tuple(model)


def _sample_item(prompt: Any, num_samples: int, field: str) -> SampleItem:
    tokens = prompt if isinstance(prompt, str | Conversation) else _tokens(prompt, field)
    return SampleItem(prompt=tokens, num_samples=num_samples)


def _sequences_or_items(given: Sequence[Any], targets: Sequence[Any]) -> dict[str, Any]:
    """Those fields of a request that hold what is measured: tokens alone travel as releases before knew them."""
    if all(table is None for table in targets) and not any(
        isinstance(item, str | Conversation | LogprobsItem) for item in given
    ):
        return {"sequences": tuple(_tokens(item, f"sequences[{index}]") for index, item in enumerate(given))}
    pairs = enumerate(zip(given, targets, strict=True))
    items = tuple(_logprobs_item(item, table, f"[{index}]") for index, (item, table) in pairs)
    return {"items": items}


def _logprobs_item(item: Any, targets: Any, place: str) -> LogprobsItem:
    table = None if targets is None else _token_ids(targets, f"targets{place}")
    if isinstance(item, LogprobsItem):
        if table is not None:
            raise InvalidField(f"targets{place}", "is given beside a LogprobsItem, which has targets of its own")
        if item.targets is None:
            return item
        return dataclasses.replace(item, targets=_token_ids(item.targets, f"sequences{place}.targets"))
    prompt = item if isinstance(item, str | Conversation) else _tokens(item, f"sequences{place}")
    return LogprobsItem(prompt=prompt, targets=table)


def _token_ids(value: Any, field: str) -> np.ndarray:
    array = as_array(value, field=field)
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "iu":
        raise InvalidField(field, f"holds {array.dtype}, not token ids")
    return array


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
