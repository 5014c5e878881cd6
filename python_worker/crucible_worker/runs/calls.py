"""Every model call of an evaluation passes this gate: counted, retried within a budget, refused after the end."""

from __future__ import annotations

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeGuard, TypeVar

import numpy as np

from crucible_bridge.errors import BackendError, BridgeError, Cancelled
from crucible_bridge.reasons import Reason
from crucible_bridge.types import ChatMessage, Conversation, Datum, ModelInput, SampledSequence, SamplingParams
from crucible_worker.backends.base import (
    ContinuationsClient,
    CookbookTokenizer,
    GreedyClient,
    Model,
    PartsClient,
    Rendered,
    SamplingClient,
    TargetClient,
    TemplateTokenizer,
    TextSamplingClient,
    Tokenizer,
    TrainingClient,
    context_length,
    renderer_of,
)
from crucible_worker.backends.encoding import encode_all
from crucible_worker.backends.forwarding import takes_parts
from crucible_worker.backends.metering import Meter, is_metered
from crucible_worker.runs.transcripts import Ear, Transcript

__all__ = ["ATTEMPTS_PER_CALL", "BACKOFF_SECONDS", "MAX_BACKOFF_SECONDS", "CallGate", "GatedModel", "gated_models"]

ATTEMPTS_PER_CALL = 6
"""How often one call is made at most, the first time included."""
RETRY_SHARE = 0.3
"""Retries of a whole attempt, as a share of its samples, or of the calls that these take where they are more: a backend
that is down is not asked for ever."""
MIN_RETRIES = 10
"""Retries that an attempt has in any case."""
BACKOFF_SECONDS = 0.1
"""Wait before the first retry; doubled each time, and drawn evenly from half of it to all of it."""
MAX_BACKOFF_SECONDS = 5.0
"""Longest wait between two tries, where the backend does not ask for another one."""

T = TypeVar("T")


class CallGate:
    """The gate of one attempt at an evaluation."""

    def __init__(self, samples: int) -> None:
        """Open, with a retry budget for so many samples."""
        self.samples = samples
        """As far as they are counted."""
        self._calls, self._retries = 0, 0
        self._closed = False

    def close(self) -> None:
        """From now on no call is made; those under way may finish and are thrown away."""
        self._closed = True

    async def call(self, function: Callable[[], Awaitable[T]], count: Callable[[], None] | None = None) -> T:
        """Make a call, again where its error says that this may help; `count` is called before each try.

        Raises:
            Cancelled: the gate is closed.
            BridgeError: the last error, when it is not retryable or the budget is spent.
        """
        self._calls += count is not None
        for attempt in range(1, ATTEMPTS_PER_CALL + 1):
            if self._closed:
                raise Cancelled("the evaluation has ended")
            if count is not None:
                count()
            try:
                return await _called(function)
            except BridgeError as error:
                if not error.retryable or attempt == ATTEMPTS_PER_CALL or self._is_spent:
                    raise
                self._retries += 1
                wait = _backoff(attempt) if error.retry_after is None else error.retry_after
            await asyncio.sleep(wait)
        raise AssertionError("the last attempt returns or raises")

    @property
    def _is_spent(self) -> bool:
        return self._retries >= max(MIN_RETRIES, int(max(self.samples, self._calls) * RETRY_SHARE))


async def _called(function: Callable[[], Awaitable[T]]) -> T:
    try:
        return await function()
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        # Nobody cancelled us: the backend's own connection was closed under the call, as grpc.aio does it.
        raise BackendError("the backend gave the call up", reason=Reason.BACKEND_CANCELLED) from None


def _backoff(attempt: int) -> float:
    ceiling = min(MAX_BACKOFF_SECONDS, BACKOFF_SECONDS * 2 ** (attempt - 1))
    return random.uniform(ceiling / 2, ceiling)


class _Passage:
    """The way of one sample's calls of a model through the gate.

    The model's clients have it, and it has none of them: what is left of a sample goes at once, and the collector of
    cycles finds nothing.
    """

    __slots__ = ("answered", "calls", "counted", "ear", "gate")

    def __init__(
        self, gate: CallGate, answered: Callable[[], None] | None, ear: Ear | None, counted: Meter | None
    ) -> None:
        self.gate, self.answered, self.ear = gate, answered, ear
        self.counted = counted
        """The meter that calls are counted on here; None where the model tells it what they took."""
        self.calls = 0

    def count(self) -> None:
        """A call is made."""
        self.calls += 1

    async def take(self, function: Callable[[], Awaitable[T]]) -> T:
        """Make one call."""
        answer = await self.gate.call(function, self.count)
        if self.answered is not None:
            self.answered()
        return answer

    def asked(self, prompt: ModelInput) -> None:
        """Note what is to be measured."""
        if self.ear is not None:
            self.ear.asked(prompt)


class GatedModel:
    """A model as one sample sees it: each call passes the gate, and is counted with what it took."""

    __slots__ = ("_model", "_passage", "meter", "renderer", "sampling", "tokenizer", "training")

    def __init__(
        self,
        model: Model,
        gate: CallGate,
        answered: Callable[[], None] | None = None,
        ear: Ear | None = None,
        renderer: str | None = None,
    ) -> None:
        """Of a model.

        Args:
            model: the model.
            gate: each call passes it.
            answered: called after each call that succeeds.
            ear: hears prompts and answers.
            renderer: what `auto` came to before.
        """
        self.meter = Meter()
        """What the answered calls took, those of failed tries included."""
        counted: Meter | None = self.meter
        if is_metered(model):
            model, counted = model.metered(self.meter), None
        self._model = model
        self.renderer = renderer
        self._passage = _Passage(gate, answered, ear, counted)
        self.sampling: SamplingClient | None = _gated(self._passage, model.sampling)
        self.training: TrainingClient | None = _gated_training(self._passage, model.training)
        self.tokenizer: Tokenizer | None = _gated_tokenizer(self._passage, model.tokenizer)

    @property
    def calls(self) -> int:
        """Calls made, retries included."""
        return self._passage.calls

    @property
    def fingerprint(self) -> str:
        """The model's."""
        return self._model.fingerprint

    @property
    def context_length(self) -> int | None:
        """The model's."""
        return context_length(self._model)

    async def load(self) -> None:
        """Nothing to do: the engine has loaded the model before it takes samples."""


def gated_models(
    models: Mapping[str, Model],
    gate: CallGate,
    answered: Callable[[], None] | None = None,
    transcript: Transcript | None = None,
    renderers: Mapping[str, str] | None = None,
) -> Mapping[str, GatedModel]:
    """Further models as one sample sees them, by name."""
    known = renderers or {}
    return {
        name: GatedModel(model, gate, answered, None if transcript is None else transcript.ear(name), known.get(name))
        for name, model in models.items()
    }


def _gated(passage: _Passage, client: SamplingClient | None) -> SamplingClient | None:
    return None if client is None else _sampling_of(type(client))(passage, client)


@functools.cache
def _sampling_of(kind: type[SamplingClient]) -> Callable[[_Passage, Any], SamplingClient]:
    """What gates a kind of clients. A protocol takes 10 us to look for its methods, and every sample has its client."""
    greedy = issubclass(kind, GreedyClient)
    if issubclass(kind, TextSamplingClient):
        return _GreedyTextSampling if greedy else _TextSampling
    if issubclass(kind, ContinuationsClient):
        return _GreedyContinuationsSampling if greedy else _ContinuationsSampling
    if issubclass(kind, TargetClient):
        return _GreedyTargetSampling if greedy else _TargetSampling
    return _GreedySampling if greedy else _Sampling


def _gated_training(passage: _Passage, client: TrainingClient | None) -> TrainingClient | None:
    if client is None:
        return None
    parts = client  # a name of its own, as above
    return _PartsTraining(passage, parts) if takes_parts(parts) else _Training(passage, client)


def _gated_tokenizer(passage: _Passage, tokenizer: Tokenizer | None) -> Tokenizer | None:
    if tokenizer is None:
        return None
    cookbook = tokenizer  # a name of its own: the guard's answer takes the place of what is known of the type
    if _knows_cookbook(cookbook):
        return _CookbookTokenizer(passage.gate, tokenizer, passage.ear, cookbook)
    return _Tokenizer(passage.gate, tokenizer, passage.ear)


def _tells_template(tokenizer: object) -> TypeGuard[TemplateTokenizer]:
    return _is_template_tokenizer(type(tokenizer))


@functools.cache
def _is_template_tokenizer(kind: type) -> bool:
    return issubclass(kind, TemplateTokenizer)


def _knows_cookbook(tokenizer: object) -> TypeGuard[CookbookTokenizer]:
    return _is_cookbook_tokenizer(type(tokenizer))


@functools.cache
def _is_cookbook_tokenizer(kind: type) -> bool:
    return issubclass(kind, CookbookTokenizer)


class _Sampling:
    __slots__ = ("_client", "_passage")

    def __init__(self, passage: _Passage, client: SamplingClient) -> None:
        self._passage = passage
        self._client = client

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> Sequence[SampledSequence]:
        ear = self._passage.ear
        asked = None if ear is None else ear.asked(prompt)
        answers = await self._passage.take(lambda: self._client.sample(prompt, params, num_samples))
        if ear is not None and asked is not None:
            ear.answered(asked, prompt, answers)
        if (meter := self._passage.counted) is not None:
            meter.sampled(prompt, answers)
        return answers

    async def compute_logprobs(self, prompt: ModelInput) -> Sequence[float | None]:
        self._passage.asked(prompt)
        answer = await self._passage.take(lambda: self._client.compute_logprobs(prompt))
        if (meter := self._passage.counted) is not None:
            meter.read((prompt,))
        return answer


class _TextSampling(_Sampling):
    __slots__ = ("_text_client", "renderer")

    def __init__(self, passage: _Passage, client: TextSamplingClient) -> None:
        super().__init__(passage, client)
        self._text_client = client
        self.renderer = renderer_of(client)

    async def sample_text(
        self, input: str | Conversation, params: SamplingParams, num_samples: int = 1, *, plain: bool = False
    ) -> Sequence[SampledSequence]:
        ear = self._passage.ear
        if ear is not None:
            ear.asked(input)
        answers = await self._passage.take(
            lambda: self._text_client.sample_text(input, params, num_samples, plain=plain)
        )
        if ear is not None:
            ear.answered(input, input, answers)
        if (meter := self._passage.counted) is not None:
            meter.sampled(None, answers)
        return answers


class _TargetSampling(_Sampling):
    """Of a client in tokens alone: those that take words have no such calls."""

    __slots__ = ("_target_client",)

    def __init__(self, passage: _Passage, client: TargetClient) -> None:
        super().__init__(passage, client)
        self._target_client = client

    async def compute_target_logprobs(self, prompt: ModelInput, targets: Sequence[tuple[int, int]]) -> Sequence[float]:
        self._passage.asked(prompt)
        answer = await self._passage.take(lambda: self._target_client.compute_target_logprobs(prompt, targets))
        if (meter := self._passage.counted) is not None:
            meter.read((prompt,))
        return answer


class _ContinuationsSampling(_Sampling):
    """As above."""

    __slots__ = ("_continuations_client",)

    def __init__(self, passage: _Passage, client: ContinuationsClient) -> None:
        super().__init__(passage, client)
        self._continuations_client = client

    async def compute_continuation_logprobs(
        self, prompt: ModelInput, continuations: Sequence[Sequence[int]]
    ) -> Sequence[np.ndarray]:
        self._passage.asked(prompt)
        client = self._continuations_client
        answer = await self._passage.take(lambda: client.compute_continuation_logprobs(prompt, continuations))
        if (meter := self._passage.counted) is not None:
            meter.read((prompt,), further=sum(map(len, continuations)))
        return answer


class _GreedyCalls:
    """What the gated clients of models have besides that tell likeliest tokens."""

    __slots__ = ()
    _client: GreedyClient
    _passage: _Passage

    async def compute_greedy(self, prompt: ModelInput) -> Sequence[int | None]:
        self._passage.asked(prompt)
        answer = await self._passage.take(lambda: self._client.compute_greedy(prompt))
        if (meter := self._passage.counted) is not None:
            meter.read((prompt,))
        return answer


class _GreedySampling(_GreedyCalls, _Sampling):
    __slots__ = ()


class _GreedyTextSampling(_GreedyCalls, _TextSampling):
    __slots__ = ()


class _GreedyTargetSampling(_GreedyCalls, _TargetSampling):
    __slots__ = ()


class _GreedyContinuationsSampling(_GreedyCalls, _ContinuationsSampling):
    __slots__ = ()


class _Training:
    __slots__ = ("_client", "_passage")

    def __init__(self, passage: _Passage, client: TrainingClient) -> None:
        self._passage = passage
        self._client = client

    async def forward(self, data: Sequence[Datum]) -> Sequence[np.ndarray]:
        if data:
            self._passage.asked(data[0].model_input)
        answer = await self._passage.take(lambda: self._client.forward(data))
        if (meter := self._passage.counted) is not None:
            meter.forwarded(data)
        return answer


class _PartsTraining(_Training):
    __slots__ = ("_parts_client",)

    def __init__(self, passage: _Passage, client: PartsClient) -> None:
        super().__init__(passage, client)
        self._parts_client = client

    async def forward_parts(self, data: Sequence[Datum]) -> Sequence[np.ndarray]:
        if data:
            self._passage.asked(data[0].model_input)
        answer = await self._passage.take(lambda: self._parts_client.forward_parts(data))
        if (meter := self._passage.counted) is not None:
            meter.forwarded(data)
        return answer


class _Tokenizer:
    """Retried like a call of the model, as it may live in the same process, but not counted as one."""

    __slots__ = ("_ear", "_gate", "_tokenizer", "bos_token_id", "eos_token_id", "has_chat_template")

    def __init__(self, gate: CallGate, tokenizer: Tokenizer, ear: Ear | None) -> None:
        self._gate = gate
        self._tokenizer = tokenizer
        self._ear = ear
        self.bos_token_id = tokenizer.bos_token_id
        self.eos_token_id = tokenizer.eos_token_id
        self.has_chat_template = tokenizer.has_chat_template

    async def encode(self, text: str) -> Sequence[int]:
        tokens = await self._gate.call(lambda: self._tokenizer.encode(text))
        self._heard(text, tokens)
        return tokens

    async def encode_continuation(self, text: str) -> Sequence[int]:
        return await self._gate.call(lambda: self._tokenizer.encode_continuation(text))

    async def encode_all(self, texts: Sequence[str], *, continuations: bool = False) -> Sequence[Sequence[int]]:
        encoded = await self._gate.call(lambda: encode_all(self._tokenizer, texts, continuations=continuations))
        if not continuations:
            for text, tokens in zip(texts, encoded):
                self._heard(text, tokens)
        return encoded

    async def encode_chat(self, messages: Sequence[ChatMessage], *, generation_prompt: bool) -> Sequence[int]:
        tokenizer = self._tokenizer
        if self._ear is not None and _tells_template(tokenizer):
            template = tokenizer  # the lambda would see the name before the guard's answer
            rendered = await self._gate.call(
                lambda: template.render_chat(messages, generation_prompt=generation_prompt)
            )
            self._heard(Conversation(tuple(messages)) if rendered.text is None else rendered.text, rendered.tokens)
            return rendered.tokens
        tokens = await self._gate.call(
            lambda: self._tokenizer.encode_chat(messages, generation_prompt=generation_prompt)
        )
        if self._ear is not None:
            self._ear.encoded(Conversation(tuple(messages)), tokens)
        return tokens

    def _heard(self, text: str | Conversation, tokens: Sequence[int]) -> None:
        if self._ear is not None:
            self._ear.encoded(text, tokens)


class _CookbookTokenizer(_Tokenizer):
    __slots__ = ("_cookbook",)

    def __init__(self, gate: CallGate, tokenizer: Tokenizer, ear: Ear | None, cookbook: CookbookTokenizer) -> None:
        super().__init__(gate, tokenizer, ear)
        self._cookbook = cookbook

    async def decode(self, tokens: Sequence[int]) -> str:
        return await self._gate.call(lambda: self._cookbook.decode(tokens))

    async def render_cookbook(
        self, renderer: str, messages: Sequence[ChatMessage], *, train_on: str | None = None
    ) -> Rendered:
        rendered = await self._gate.call(lambda: self._cookbook.render_cookbook(renderer, messages, train_on=train_on))
        self._heard(Conversation(tuple(messages)) if rendered.text is None else rendered.text, rendered.tokens)
        return rendered
