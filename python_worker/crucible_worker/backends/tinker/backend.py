"""The backend of Tinker services: the configured services, and models of them with their checks of requests."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from crucible_bridge.errors import BackendError, FailedPrecondition, InvalidField, NotFound
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    BackendInfo,
    Conversation,
    Datum,
    ModelInput,
    ModelRef,
    SampledSequence,
    SamplingParams,
    TinkerModel,
)
from crucible_worker.backends.base import MAX_TEXT_BYTES, Backend, Capability, Model, check_sampling, exceeds
from crucible_worker.backends.distributions import NO_TOKEN, Measured, Wanted
from crucible_worker.backends.endpoints import BackendSettings
from crucible_worker.backends.openai.failures import final
from crucible_worker.backends.tinker.services import DEFAULT, TinkerService, default_service
from crucible_worker.backends.tinker.session import Shared, TinkerSession, in_thread
from crucible_worker.backends.tinker.tokenizer import ServedTokenizer, TextHost, Tokenizers
from crucible_worker.util.limits import WorkerLimits
from crucible_worker.util.reasoning import OPENING_TOKENS, opening_of_prompt, parted

if TYPE_CHECKING:
    from crucible_worker.backends.tinker.client import Sampled, Sampler, Trainer

__all__ = [
    "MAX_MODELS",
    "MAX_SEED",
    "MAX_TARGET_REFUSALS",
    "MAX_TOKEN",
    "ServedModel",
    "TinkerBackend",
    "check_target_rows",
    "check_targets",
    "each_seeded",
    "pairs_of",
    "tokens_of",
]

# Checks of requests before they are sent: the library checks nothing, and a service checks late.

MAX_TOKEN = (1 << 31) - 1
"""Token ids have 32 bits on the wire."""

MAX_SEED = (1 << 31) - 1
"""Seeds are reduced to this range, which every server accepts."""


def each_seeded(params: SamplingParams, num_samples: int) -> list[tuple[SamplingParams, int]]:
    """Split a request for samples into those to send, each with its number of samples.

    One request is enough, unless there is a seed: then each sample has its own request with a different seed.

    Raises:
        InvalidField: a parameter is out of range.
    """
    check_sampling(params, num_samples)
    if "" in params.stop:
        raise InvalidField(f"sampling.stop[{params.stop.index('')}]", "is empty")
    if params.seed is None:
        return [(params, num_samples)]
    seeds = [(params.seed + index) & MAX_SEED for index in range(num_samples)]
    if params.temperature == 0:
        return [(dataclasses.replace(params, seed=seeds[0]), num_samples)]
    return [(dataclasses.replace(params, seed=seed), 1) for seed in seeds]


def tokens_of(prompt: ModelInput) -> list[int]:
    """The tokens of a prompt, at least one.

    Raises:
        InvalidField: there is none, or an image, or an invalid token id.
    """
    tokens: list[int] = _tokens(prompt, "prompt").tolist()
    return tokens


def check_targets(count: int, targets: Sequence[tuple[int, int]]) -> None:
    """Refuse targets outside a prompt of `count` tokens.

    Raises:
        InvalidField: there is none, or one is no token id or is outside the prompt.
    """
    if not targets:
        raise InvalidField("targets", "is empty")
    if not all(0 < place < count for place, _ in targets):
        raise InvalidField("targets", f"has positions outside of 1 to {count - 1}")
    _known(np.array([token for _, token in targets], np.int64), "targets")


def check_target_rows(targets: np.ndarray) -> None:
    """Refuse targets that are no token ids, but for `NO_TOKEN`.

    Raises:
        InvalidField: names the first one.
    """
    unknown = (targets < NO_TOKEN) | (targets > MAX_TOKEN)
    if unknown.any():
        row, column = np.unravel_index(int(unknown.argmax()), targets.shape)
        raise InvalidField(f"targets[{row}][{column}]", f"is {targets[row, column]}, which is no token id")


def pairs_of(data: Sequence[Datum]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Input and `target_tokens` of each datum, int64 and of one shape.

    Raises:
        InvalidField: names the datum, and what is missing, is no token id, or has another length.
    """
    pairs: list[tuple[np.ndarray, np.ndarray]] = []
    for index, datum in enumerate(data):
        field = f'data[{index}].loss_fn_inputs["target_tokens"]'
        tokens = _tokens(datum.model_input, f"data[{index}].model_input")
        targets = datum.loss_fn_inputs.get("target_tokens")
        if targets is None:
            raise InvalidField(field, "is missing")
        if not isinstance(targets, np.ndarray) or targets.dtype.kind not in "iu":
            raise InvalidField(field, f"holds {targets.dtype}, not token ids")
        if targets.shape != tokens.shape:
            raise InvalidField(field, f"has shape {targets.shape}, model_input {tokens.shape}")
        pairs.append((tokens, _known(targets, field).astype(np.int64, copy=False)))
    return pairs


def _tokens(model_input: ModelInput, field: str) -> np.ndarray:
    try:
        tokens = model_input.tokens()
    except InvalidField as error:  # an image; the error has only the path within the input
        raise InvalidField(error.field.replace("model_input", field, 1), error.message) from None
    if tokens.size == 0:
        raise InvalidField(field, "is empty: a model needs at least one token")
    return _known(tokens, field)


def _known(tokens: np.ndarray, field: str) -> np.ndarray:
    unknown = (tokens < 0) | (tokens > MAX_TOKEN)
    if unknown.any():
        index = int(unknown.argmax())
        raise InvalidField(f"{field}[{index}]", f"is {tokens[index]}, which is no token id")
    return tokens


MAX_TARGET_REFUSALS = 3
"""After so many refused requests for targets, and none answered, a service gets no more of them."""

_TRAINING = frozenset({Capability.FORWARD})
_SAMPLING = frozenset(Capability) - _TRAINING


# A model of a service: its clients and its tokenizer, made when they are first needed, and shared by all callers.


class ServedModel(Model):
    """A model of a Tinker service: weights that sample, a training state that answers forward passes, or both."""

    def __init__(self, session: TinkerSession, ref: TinkerModel, tokenizers: Tokenizers) -> None:
        self._session = session
        self._tokenizers = tokenizers
        self._ref = ref
        self._name = ref.model_path or ref.state_path or ref.base_model or ""
        self._tokenizer: Shared[ServedTokenizer] = Shared(self._load_tokenizer)
        self._sampler: Shared[Sampler] = Shared(self._make_sampler)
        self._trainer: Shared[Trainer] = Shared(self._make_trainer)
        self._state_path = ref.state_path or ""
        self._samples = ref.model_path is not None or ref.base_model is not None
        self._knows_targets, self._target_refusals = False, 0
        asked = (_SAMPLING if self._samples else frozenset()) | (_TRAINING if ref.state_path else frozenset())
        self._capabilities = self._defined & asked
        service = session.service
        identity = ("tinker", service.name, service.base_url, ref.model_path, ref.state_path, ref.base_model)
        self.fingerprint = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
        """SHA-256 of the names of service and model, and of the service's address.

        A service writes each path once, and does not report the content of its weights: another base model under the
        same name is not detected.
        """

    async def load(self) -> None:
        """Make its client, which shows whether there is such a model, and load its tokenizer.

        If the model has both clients, this makes the sampling client; the training state, which takes memory of the
        service, is loaded at the first forward pass.

        Raises:
            NotFound: the service has no such model (UNKNOWN_MODEL).
            FailedPrecondition: the extra is not installed (EXTRA_NOT_INSTALLED), the key cannot be read (BACKEND_KEY).
            BackendError: the service cannot be reached, or refuses.
        """
        await self._client()
        if (held := self._tokenizer.made) is not None and not held.is_there:
            self._tokenizer.drop()  # it may be available now
        await self._tokenizer.get()

    async def available(self) -> None:
        """Have the service generate a token, if the model does; it is none of any sample.

        Raises:
            BackendError: it does not answer, or with an error that may pass.
        """
        await self.load()
        if Capability.SAMPLE in self.capabilities:
            await self.sample(ModelInput.of([1]), SamplingParams(max_tokens=1))

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Weights sample; a training state only answers forward passes."""
        return self._capabilities

    @property
    def tokenizer(self) -> ServedTokenizer | None:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """The tokenizer of its base model, once it is loaded; if that failed, its methods raise the reason."""
        return self._tokenizer.made

    async def _client(self) -> Sampler | Trainer:
        return await (self._sampler if self._samples else self._trainer).get()

    async def _load_tokenizer(self) -> ServedTokenizer:
        client = await self._client()
        name = await in_thread(lambda: client.tokenizer_name)
        return await ServedTokenizer.load(self._tokenizers, name)

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> tuple[SampledSequence, ...]:
        """Generate continuations of tokens.

        Raises:
            InvalidField: the prompt is empty, holds an image, or is longer than the context (PROMPT_TOO_LONG); a
                parameter is out of range.
            FailedPrecondition: there is no tokenizer to decode the samples (NO_TOKENIZER).
            BackendError: there is no valid answer.
        """
        return await self._sample(prompt, params, num_samples)

    async def sample_with_top(
        self, input: ModelInput | str | Conversation, params: SamplingParams, num_samples: int, top: int
    ) -> tuple[SampledSequence, ...]:
        """As `sample`, of tokens, with the likeliest tokens in place of each generated one.

        Raises:
            FailedPrecondition: as of `sample`; or the service returns none (NO_TOP_LOGPROBS).
        """
        if not isinstance(input, ModelInput):
            self._refuse(Capability.SAMPLE_TEXT)
        return await self._sample(input, params, num_samples, top)

    async def _sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int, top: int = 0
    ) -> tuple[SampledSequence, ...]:
        tokens, requests = tokens_of(prompt), each_seeded(params, num_samples)
        client, tokenizer = await self._sampler.get(), await self._tokenizer.get()
        tokenizer.there()  # raises now if the samples could not be decoded
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._ask(client, tokens, some, count, top)) for some, count in requests]
        except BaseExceptionGroup as failed:
            # The caller needs one error, not an ExceptionGroup.
            raise failed.exceptions[0] from None
        samples = [sample for task in tasks for sample in task.result()]
        # A stop string within the reasoning does not end an answer.
        opening = opening_of_prompt(await tokenizer.show(tokens[-OPENING_TOKENS:])) if params.stop else ""
        return tuple([await _read(tokenizer, sample, params.stop, opening) for sample in samples])

    async def compute_logprobs(self, prompt: ModelInput) -> tuple[float | None, ...]:
        """Log-probability of every token of a prompt given those before it, nats; the first is None.

        Raises:
            InvalidField: the prompt is empty, holds an image, or is longer than the context (PROMPT_TOO_LONG).
            BackendError: there is no valid answer.
        """
        tokens = tokens_of(prompt)
        if len(tokens) == 1:
            return (None,)
        client = await self._sampler.get()
        values = await self._session.call(lambda: client.compute_logprobs(tokens), self._name)
        return client.read_logprobs(values, len(tokens))

    async def compute_target_logprobs(
        self, prompt: ModelInput, targets: Sequence[tuple[int, int]]
    ) -> tuple[float, ...]:
        """Log-probability of each target token at its position in the prompt, given the tokens before it, nats.

        Raises:
            InvalidField: as in `compute_logprobs`; or a target is no token, or is outside the prompt.
            FailedPrecondition: the service refuses such requests, or ignores their targets (NO_TARGET_LOGPROBS).
            BackendError: there is no valid answer.
        """
        tokens = tokens_of(prompt)
        check_targets(len(tokens), targets)
        if not self._knows_targets and self._target_refusals >= MAX_TARGET_REFUSALS:
            raise self._no_targets("it refuses such requests")
        client = await self._sampler.get()
        try:
            response = await self._session.call(lambda: client.compute_target_logprobs(tokens, targets), self._name)
        except BackendError as error:
            if error.reason != Reason.BACKEND_REFUSED:
                raise
            # It may have refused the prompt, and not the targets: a request without targets shows it.
            self._target_refusals += 1
            raise self._no_targets(error.message) from None
        values = client.read_targets(response, len(tokens), targets)
        if values is None:
            self._target_refusals = MAX_TARGET_REFUSALS
            raise self._no_targets("its answers do not have them")
        self._knows_targets = True
        return values

    async def compute_distributions(self, prompt: ModelInput, wanted: Wanted) -> Measured:
        """Distributions at the last tokens of a prompt, by one request.

        Raises:
            InvalidField: as in `compute_logprobs`; or a target is no token.
            FailedPrecondition: the service does not return what is wanted (NO_TOP_LOGPROBS, NO_TARGET_LOGPROBS).
            BackendError: there is no valid answer.
        """
        tokens = tokens_of(prompt)
        client = await self._sampler.get()
        targets = None
        if wanted.targets is not None:
            check_target_rows(wanted.targets)
            targets = await asyncio.to_thread(client.rows_of_targets, len(tokens), wanted.targets)
        response = await self._session.call(lambda: client.compute_distributions(tokens, wanted, targets), self._name)
        return await asyncio.to_thread(client.read_distributions, response, len(tokens), wanted, targets)

    async def compute_argmax(self, prompt: ModelInput) -> tuple[int | None, ...]:
        """Likeliest token at every position of a prompt given those before it; the first is None.

        Raises:
            InvalidField: as in `compute_logprobs`.
            FailedPrecondition: the service's answer does not have them (NO_GREEDY_TOKENS).
            BackendError: there is no valid answer.
        """
        tokens = tokens_of(prompt)
        if len(tokens) == 1:
            return (None,)
        client = await self._sampler.get()
        response = await self._session.call(lambda: client.compute_argmax(tokens), self._name)
        if (found := client.read_argmax(response, len(tokens))) is None:
            where = f"Tinker service {self._session.service.name!r}"
            raise FailedPrecondition(f"{where} returns no likeliest tokens of a prompt", reason=Reason.NO_GREEDY_TOKENS)
        return found

    def _no_targets(self, why: str) -> FailedPrecondition:
        where = f"Tinker service {self._session.service.name!r}"
        return FailedPrecondition(
            f"{where} returns no log-probabilities of tokens that are not the prompt's: {why}",
            reason=Reason.NO_TARGET_LOGPROBS,
        )

    async def _ask(
        self, client: Sampler, tokens: list[int], params: SamplingParams, count: int, top: int
    ) -> list[Sampled]:
        response = await self._session.call(lambda: client.sample(tokens, params, count, top), self._name)
        return client.read_samples(response, count, top)

    async def _make_sampler(self) -> Sampler:
        if not self._samples:
            self._refuse(Capability.SAMPLE)
        service = await self._session.ready()
        client = await self._session.call(
            lambda: service.sampler(model_path=self._ref.model_path, base_model=self._ref.base_model), self._name
        )
        return service.sampling(client)

    async def forward(self, data: Sequence[Datum]) -> tuple[np.ndarray, ...]:
        """Log-probabilities of `target_tokens`, float32, one array per datum.

        Raises:
            InvalidField: names the datum: lengths differ, or an input is longer than the context (PROMPT_TOO_LONG).
            BackendError: there is no valid answer.
        """
        pairs = pairs_of(data)
        if not pairs:
            return ()
        client = await self._trainer.get()
        try:
            # Left running, never cancelled: the library and the service process a client's requests in order, and one
            # that was numbered but never sent would block all later ones.
            output = await self._session.call(lambda: client.forward(pairs), self._state_path, cancel=False)
        except BackendError as error:
            if error.reason == Reason.BACKEND_TIMEOUT and self._trainer.made is client:
                self._trainer.drop()  # its order may be broken, and all later requests would wait
            raise
        return client.read_logprobs(output, [targets.size for _, targets in pairs])

    async def _make_trainer(self) -> Trainer:
        if not self._state_path:
            self._refuse(Capability.FORWARD)
        service = await self._session.ready()
        return service.training(await self._session.call(lambda: service.trainer(self._state_path), self._state_path))


async def _read(tokenizer: ServedTokenizer, sample: Sampled, stop: Sequence[str], opening: str) -> SampledSequence:
    """A sample with its text, which ends before the first stop string after the reasoning.

    It also ends at the end-of-sequence token: some servers stop only at the given strings.
    """
    tokens, logprobs, reason, cached, top = sample
    if (end := tokenizer.eos_token_id) in tokens:
        length = tokens.index(end) + 1
        tokens, logprobs, reason = tokens[:length], None if logprobs is None else logprobs[:length], "stop"
        top = None if top is None else (top[0][:length], top[1][:length])
    text = await tokenizer.decode_answer(tokens)
    if exceeds(text):
        raise final(f"a sample of more than {MAX_TEXT_BYTES:,} bytes of text", Reason.BACKEND_ANSWER)
    answer_end = parted(text, opening=opening, stops=stop).end
    return SampledSequence(
        text=text[:answer_end],
        tokens=tokens,
        logprobs=logprobs,
        stop_reason="stop" if answer_end < len(text) else reason,
        cached_prompt_tokens=cached,
        top_tokens=None if top is None else top[0],
        top_logprobs=None if top is None else top[1],
    )


MAX_MODELS = 64
"""Most models with cached clients; the least recently used ones are dropped."""


class TinkerBackend(Backend):
    """Models of the Tinker services that a worker is configured with; it opens TinkerModel refs.

    No service is queried, and nothing heavy imported, before a model is loaded. A service has one session, and a model
    one client, for all evaluations; a training state occupies its service until the worker ends.

    Args:
        services: of the settings; if none is named "default", that of the environment is added (TINKER_API_KEY).
        library: makes the tinker library's client of `base_url` and `api_key`; the library's own if None.
        limits: of the worker; the defaults if None.
        tokenizers: loads tokenizers; children of a text host if None.
    """

    opens = (TinkerModel,)
    extras = (("tinker", "query Tinker services"),)
    libraries = ("tinker",)

    def __init__(
        self,
        services: Sequence[TinkerService] = (),
        library: Callable[..., Any] | None = None,
        limits: WorkerLimits | None = None,
        tokenizers: Tokenizers | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        known = {service.name: service for service in services}
        known.setdefault(DEFAULT, default_service(environment))
        self._configured = bool(services)
        self._sessions = {name: TinkerSession(service, library, environment) for name, service in known.items()}
        self._tokenizers = TextHost(limits) if tokenizers is None else tokenizers
        self._models: OrderedDict[TinkerModel, ServedModel] = OrderedDict()

    @classmethod
    def create(cls, settings: BackendSettings) -> Self:
        """Make it with the services, the limits, and the variables that have the keys."""
        services = settings.endpoints_of(TinkerService)
        return cls(services, limits=settings.limits, environment=settings.environment)

    def info(self) -> BackendInfo:
        """Whether a service is configured. Imports nothing."""
        return BackendInfo(
            name="tinker", unavailable=self.missing() or ("" if self._configured else self._no_default())
        )

    async def open(self, model: ModelRef) -> ServedModel:
        """Find a service by its name; only loading shows whether it has the model.

        Raises:
            NotFound: there is no service of that name (UNKNOWN_SERVICE).
            FailedPrecondition: the extra is not installed (EXTRA_NOT_INSTALLED), or there is no key (BACKEND_KEY).
        """
        if not isinstance(model, TinkerModel):
            raise InvalidField("model", f"is a {type(model).__name__}, not one of a Tinker service")
        name = DEFAULT if model.service is None else model.service
        session = self._sessions.get(name)
        if session is None:
            known = ", ".join(sorted(self._sessions))
            raise NotFound(
                f"names the Tinker service {name!r}, which is not known here; there are {known}: "
                f"add --tinker-service {name}=URL",
                reason=Reason.UNKNOWN_SERVICE,
                field="model",
            )
        self.refuse_missing()
        session.key()
        ref = dataclasses.replace(model.checked("model"), service=name)
        opened = self._models.setdefault(ref, ServedModel(session, ref, self._tokenizers))
        self._models.move_to_end(ref)
        if len(self._models) > MAX_MODELS:
            self._models.popitem(last=False)
        return opened

    async def aclose(self) -> None:
        """Finish every session, and end the text host, within a second. Idempotent."""
        await asyncio.gather(self._tokenizers.aclose(), *(session.aclose() for session in self._sessions.values()))

    def _no_default(self) -> str:
        try:
            self._sessions[DEFAULT].service.check()
        except ValueError as error:
            return f"no service: {error}; set it, or name one in the settings ([tinker_services.NAME])"
        return ""
