"""The backend of OpenAI-compatible servers: the configured servers, and models of them."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import urlsplit

from crucible_bridge import types
from crucible_bridge.errors import BridgeError, FailedPrecondition, InvalidField, NotFound
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    BackendInfo,
    Conversation,
    ModelInput,
    ModelRef,
    OpenAIModel,
    SampledSequence,
    SamplingParams,
    ServerEngine,
)
from crucible_worker.backends.base import Backend, Model
from crucible_worker.backends.distributions import Measured, Wanted
from crucible_worker.backends.endpoints import BackendSettings, ServerPlace
from crucible_worker.backends.metering import Meter
from crucible_worker.backends.openai.answers import chat_answer, completion_answer, refuse_other_prompt, report_usage
from crucible_worker.backends.openai.bodies import Dialects, chat_body, completion_body, sampling_defaults, seeded
from crucible_worker.backends.openai.connection import (
    PROBE_PARAMS,
    PROBE_TEXT,
    PROGRAMS,
    REFUSALS,
    ProbeForm,
    ServerConnection,
    ServerFacts,
)
from crucible_worker.backends.openai.documents import apart
from crucible_worker.backends.openai.failures import final
from crucible_worker.backends.openai.fleet import Fleet
from crucible_worker.backends.openai.scoring import (
    BYTES_TO_READ,
    LogprobsOfProbe,
    Scorer,
    measure_all,
    refuse_change,
    refuse_difference,
    told_of_distance,
)
from crucible_worker.backends.openai.servers import AUTO, CHAT_TEMPLATE, DEFAULT, RAW, URL_VARIABLE, OpenAIServer

__all__ = ["OpenAIBackend", "Reachable", "RemoteModel"]

# A model of a server: it gets text or tokens, is never loaded here, and has no local tokenizer.

_OPENAI_HOST = "api.openai.com"
_OF_OPENAI = f", or set {URL_VARIABLE} (https://{_OPENAI_HOST}/v1 is OpenAI's own)"

T = TypeVar("T")


class Reachable(Protocol):
    """What a model needs of the connection to its server: of one server, of replicas, or of a managed one."""

    dialects: Dialects
    """What the server refuses, by model."""
    owner: str
    """The owner that its list of models last named; empty if that is not known."""

    @property
    def server(self) -> OpenAIServer:
        """The server."""
        ...

    async def reach(self, model: str) -> None:
        """Check that it can be used; see `ServerConnection.reach`."""

    async def connections(self, *, serving: bool = True) -> Mapping[str, ServerConnection]:
        """The connection to each replica, by its name."""
        ...

    async def each(self, call: Callable[[ServerConnection], Awaitable[T]]) -> tuple[T, ...]:
        """What a call returns for each replica."""
        ...

    async def look(self, path: str) -> tuple[bytes, str]:
        """What it returns at a path; see `ServerConnection.look`."""
        ...

    async def ask(self, path: str, body: dict[str, object], model: str, *, tokens: int) -> dict[str, Any]:
        """Send a request; see `ServerConnection.ask`."""
        ...


class RemoteModel(Model):
    """A model of an OpenAI-compatible server."""

    def __init__(self, connection: Reachable, name: str) -> None:
        self._connection = connection
        self._server = connection.server
        self._name = name
        self._scorer = Scorer(self._server.name, name, self._scored)
        self._meter: Meter | None = None
        self._served = ServerFacts(self._server.name, name)
        self._measured: Mapping[str, LogprobsOfProbe] | None = None
        self.renderer = RAW if self._server.renderer == RAW else CHAT_TEMPLATE
        """How an evaluator's text is sent if its option is `auto`: as the server's settings say, else as a chat."""
        # With the former values of the setting, so that evaluations of earlier releases resume.
        self.fingerprint = self._identity("chat" if self._server.renderer == CHAT_TEMPLATE else "completion")
        """SHA-256 of the names of server and model, and of how text is sent.

        Servers do not report the content of their weights: see `record_weights`.
        """

    def metered(self, meter: Meter) -> RemoteModel:
        """The same model; it reports the usage of each answer to the meter, valid or not."""
        model = object.__new__(type(self))  # every sample has one: `copy.copy` takes ten times as long
        vars(model).update(vars(self), _meter=meter)
        return model

    @property
    def evaluated_fingerprint(self) -> str:
        """Likewise for answers of evaluators. Releases that do not know this fingerprint refuse to resume with it."""
        return self._identity(self.renderer)

    def _identity(self, asked: str) -> str:
        identity = ("openai", self._server.name, self._name, asked)
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    async def load(self) -> None:
        """Check that the server is reachable and accepts the key, so that otherwise not every sample fails.

        Raises:
            FailedPrecondition: the extra is not installed (EXTRA_NOT_INSTALLED), the key cannot be read (BACKEND_KEY).
            FailedPrecondition: the server's replicas do not serve the same model (REPLICAS_DIFFER).
            BackendError: the server cannot be reached, or refuses the key.
        """
        await self._connection.reach(self._name)

    async def available(self) -> None:
        """Send the server the shortest request that it accepts; it is none of any sample, and counts in no usage.

        Raises:
            BackendError: it does not answer, or with an error that may pass.
        """
        for attempt in self._attempts():

            async def send(body: dict[str, Any], path: str = attempt.path) -> dict[str, Any]:
                return await self._connection.ask(path, body, self._name, tokens=1)

            try:
                await self._connection.dialects.of(self._name).ask({**attempt.body, "max_tokens": 1}, send)
            except BridgeError as error:
                if error.reason in REFUSALS:  # it accepts no such request, and answers
                    continue
                raise
            return

    async def record_weights(self) -> None:
        """Measure a fixed prompt at each replica, if the server's settings have `probe`.

        Raises:
            FailedPrecondition: two replicas have different weights (REPLICAS_DIFFER).
            FailedPrecondition: the server returns no log-probabilities of a prompt (NO_PROMPT_LOGPROBS).
            BackendError: no replica answers.
        """
        if self._server.probe:
            self._measured = await measure_all(self._connection, self._name)
            refuse_difference(self._server.name, self._name, self._measured)

    async def confirm_weights(self) -> None:
        """Measure the same prompt again, if it was measured.

        Raises:
            FailedPrecondition: the model has other weights than before (MODEL_CHANGED).
            BackendError: no replica answers.
        """
        if self._measured is not None:
            now = await measure_all(self._connection, self._name)
            refuse_change(self._server.name, self._name, told_of_distance(self._measured, now))

    async def find_engine(self) -> None:
        """Query which program the server is, and send it the probe; what it does not report in time stays unknown.

        Raises:
            FailedPrecondition: it has another model (SERVED_NAME_DIFFERS), and its settings refuse that.
        """
        await self._served.look(self._connection.look)
        self._connection.owner = self._served.owner or self._connection.owner
        dialect = self._connection.dialects.of(self._name)
        await self._served.probe(self._connection.each, self._attempts(), dialect)
        if self._server.require_served_name and (what := self._served.refusal()):
            raise FailedPrecondition(self._refusal(what), reason=Reason.SERVED_NAME_DIFFERS)

    @property
    def engine(self) -> ServerEngine | None:
        """Which program serves the model, and how, as far as that is known now."""
        return self._served.engine(sampling_defaults(self._program))

    @property
    def _program(self) -> str:
        """The program by the settings, else as far as it is known; empty if it is not."""
        if self._server.program != AUTO:
            return self._server.program
        if all(urlsplit(url).hostname == _OPENAI_HOST for url in self._server.urls):
            return "openai"
        return PROGRAMS.get(self._connection.owner, "")

    def _attempts(self) -> tuple[ProbeForm, ...]:
        """The forms of the probe: as text is sent, then without stop strings, then a chat as a completion."""
        program, unstopped = self._program, dataclasses.replace(PROBE_PARAMS, stop=())
        chats = [
            ProbeForm(
                path="/chat/completions",
                body=chat_body(self._name, PROBE_TEXT, params, logprobs=False, program=program),
                read=chat_answer,
            )
            for params in (PROBE_PARAMS, unstopped)
        ]
        completions = [
            ProbeForm(
                path="/completions",
                body=completion_body(self._name, PROBE_TEXT, params, logprobs=False, program=program),
                read=completion_answer,
            )
            for params in (PROBE_PARAMS, unstopped)
        ]
        return tuple(completions) if self.renderer == RAW else (*chats, completions[0])

    def _refusal(self, what: str) -> str:
        return (
            f"model {self._name!r} was requested, and server {self._server.name!r} {what}: its settings have "
            "require_served_name"
        )

    async def sample(
        self, prompt: ModelInput, params: SamplingParams, num_samples: int = 1
    ) -> tuple[SampledSequence, ...]:
        """Generate continuations of tokens, which not every server accepts; one request each, all at once.

        Raises:
            InvalidField: the prompt is empty, holds an image, or is longer than the context (PROMPT_TOO_LONG).
            BackendError: there is no valid answer.
        """
        return await self._several(_tokens(prompt), params, num_samples, chat=False)

    async def sample_text(
        self, input: str | Conversation, params: SamplingParams, num_samples: int = 1, *, plain: bool = False
    ) -> tuple[SampledSequence, ...]:
        """Generate answers to a conversation, or to text as the server's settings say; one request each, all at once.

        Text that is `plain` is a completion, whatever the settings say.

        Raises:
            InvalidField: the input is empty, or longer than the context (PROMPT_TOO_LONG).
            BackendError: there is no valid answer.
        """
        return await self._in_words(input, params, num_samples, plain=plain)

    async def compute_logprobs(self, prompt: ModelInput) -> tuple[float | None, ...]:
        """Log-probability of every token of a prompt given those before it, nats; the first is None.

        Raises:
            InvalidField: the prompt is empty, holds an image, or is longer than the context (PROMPT_TOO_LONG).
            FailedPrecondition: the server gives none (NO_PROMPT_LOGPROBS).
            BackendError: there is no valid answer.
        """
        return await self._scorer.score(_tokens(prompt), self._scored)

    async def probe_logprobs(self, prompt: ModelInput) -> None:
        """Request log-probabilities of a prompt, and check that they cover it.

        Raises:
            FailedPrecondition: they do not (NO_PROMPT_LOGPROBS).
            BackendError: there is no answer.
        """
        try:
            await self._scorer.probe(_tokens(prompt))
        except FailedPrecondition as error:
            self._served.logprobs = error.reason
            raise
        self._served.logprobs = "measured"

    async def compute_argmax(self, prompt: ModelInput) -> tuple[int | None, ...]:
        """Likeliest token at every position of a prompt given those before it; the first is None.

        `UNKNOWN_TOKEN` if the server shows only that it is not the prompt's token.

        Raises:
            InvalidField: the prompt is empty, holds an image, or is longer than the context (PROMPT_TOO_LONG).
            FailedPrecondition: the server gives no log-probabilities (NO_PROMPT_LOGPROBS), or only those of the
                prompt's tokens (NO_GREEDY_TOKENS).
            BackendError: there is no valid answer.
        """
        return await self._scorer.likeliest(_tokens(prompt), self._scored)

    async def compute_distributions(self, prompt: ModelInput, wanted: Wanted) -> Measured:
        """Log-probabilities of the last tokens of a prompt, and the likeliest ones in their place.

        Raises:
            InvalidField: the prompt is empty, holds an image, or is longer than the context (PROMPT_TOO_LONG).
            FailedPrecondition: targets are wanted (NO_TARGET_LOGPROBS); the server gives no log-probabilities of a
                prompt (NO_PROMPT_LOGPROBS), or names no tokens by their ids (NO_TOP_LOGPROBS).
            BackendError: there is no valid answer.
        """
        return await self._scorer.distributions(_tokens(prompt), wanted, self._scored)

    async def sample_with_top(
        self, input: ModelInput | str | Conversation, params: SamplingParams, num_samples: int, top: int
    ) -> tuple[SampledSequence, ...]:
        """As `sample`, or `sample_text` for words, with the likeliest tokens in place of each generated one.

        Raises:
            InvalidField: the input is empty, or longer than the context (PROMPT_TOO_LONG).
            FailedPrecondition: the server does not name them by their ids (NO_TOP_LOGPROBS).
            BackendError: there is no valid answer.
        """
        if isinstance(input, ModelInput):
            return await self._several(_tokens(input), params, num_samples, chat=False, top=top)
        return await self._in_words(input, params, num_samples, plain=False, top=top)

    async def _in_words(
        self, input: str | Conversation, params: SamplingParams, num_samples: int, *, plain: bool, top: int = 0
    ) -> tuple[SampledSequence, ...]:
        if isinstance(input, Conversation):
            if not input.messages:
                raise InvalidField("input.messages", "is empty")
            return await self._several(input, params, num_samples, chat=True, top=top)
        if not input:
            raise InvalidField("input", "is empty: a model needs at least one token")
        chat = not plain and self._server.renderer == CHAT_TEMPLATE
        return await self._several(input, params, num_samples, chat=chat, top=top)

    async def _several(
        self,
        input: str | list[int] | Conversation,
        params: SamplingParams,
        num_samples: int,
        *,
        chat: bool,
        top: int = 0,
    ) -> tuple[SampledSequence, ...]:
        if num_samples == 1:  # the usual number, which needs no task
            return (await self._one(input, seeded(params, 0), chat=chat, top=top),)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._one(input, seeded(params, index), chat=chat, top=top))
                    for index in range(num_samples)
                ]
        except BaseExceptionGroup as failed:
            # The caller needs one error, not an ExceptionGroup.
            raise failed.exceptions[0] from None
        return tuple(task.result() for task in tasks)

    async def _one(
        self, input: str | list[int] | Conversation, params: SamplingParams, *, chat: bool, top: int
    ) -> SampledSequence:
        logprobs = self._server.logprobs
        if isinstance(input, Conversation) or (chat and isinstance(input, str)):
            body = chat_body(self._name, input, params, logprobs=logprobs, top=top, program=self._program)
            path, read = "/chat/completions", chat_answer
        else:
            body = completion_body(self._name, input, params, logprobs=logprobs, top=top, program=self._program)
            path, read = "/completions", completion_answer
        tokens = params.max_tokens * (1 + top)

        send = functools.partial(self._ask, path, tokens=tokens)
        document, adjustments = await self._connection.dialects.of(self._name).ask(body, send)
        self._served.adjusted(adjustments)
        return await apart(tokens * BYTES_TO_READ if top else 0, read, document, self._server.name, top)

    async def _scored(self, body: dict[str, Any], tokens: int) -> dict[str, Any]:
        return await self._ask("/completions", body, tokens=tokens)

    async def _ask(self, path: str, body: dict[str, Any], *, tokens: int) -> dict[str, Any]:
        document = await self._connection.ask(path, body, self._name, tokens=tokens)
        self._served.answered(document)
        if self._meter is not None:
            report_usage(self._meter, document, body)
        if self._server.require_served_name and (what := self._served.refusal(document)):
            raise final(self._refusal(what), Reason.SERVED_NAME_DIFFERS)
        refuse_other_prompt(document, body, self._server.name)
        return document


def _tokens(prompt: ModelInput) -> list[int]:
    try:
        tokens: Sequence[int] = prompt.tokens().tolist()
    except InvalidField as error:  # an image; the error has only the path within the input
        raise InvalidField(error.field.replace("model_input", "prompt", 1), error.message) from None
    if not tokens:
        raise InvalidField("prompt", "is empty: a model needs at least one token")
    return list(tokens)


class OpenAIBackend(Backend):
    """Models of the servers that a worker is configured with; it opens OpenAIModel refs.

    No server is queried, and nothing heavy imported, before a model is loaded.
    """

    opens = (OpenAIModel,)
    extras = (("openai", "query OpenAI-compatible servers"),)
    libraries = ("aiohttp",)

    def __init__(self, servers: Sequence[OpenAIServer] = (), environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._servers = {server.name: server for server in servers}
        self._connections: dict[str, ServerConnection | Fleet] = {}

    @classmethod
    def create(cls, settings: BackendSettings) -> Self:
        """Make it with the servers, and the variables that have their keys."""
        return cls(settings.endpoints_of(OpenAIServer), settings.environment)

    def info(self) -> BackendInfo:
        """Whether a server is configured. Imports nothing."""
        no_server = "" if self._servers else "no server; start the worker with --openai-server"
        return BackendInfo(name="openai", unavailable=self.missing() or no_server)

    def fleets(self) -> tuple[types.Fleet, ...]:
        """The replicas of each server that has several and has been used."""
        return tuple(
            types.Fleet(backend="openai", name=name, replicas=connection.states())
            for name, connection in self._connections.items()
            if isinstance(connection, Fleet)
        )

    async def open(self, model: ModelRef) -> RemoteModel:
        """Find a server by its name; only a request shows whether it has the model.

        Raises:
            NotFound: there is no server of that name (UNKNOWN_SERVER).
            FailedPrecondition: the extra is not installed (EXTRA_NOT_INSTALLED).
        """
        if not isinstance(model, OpenAIModel):
            raise InvalidField("model", f"is a {type(model).__name__}, not one of an OpenAI-compatible server")
        server = self._servers.get(model.server)
        if server is None:
            known = f"; there are {', '.join(sorted(self._servers))}" if self._servers else "; there is none"
            raise NotFound(
                f"names the server {model.server!r}, which is not known here{known}: "
                f"add --openai-server {model.server}=URL{_OF_OPENAI if model.server == DEFAULT else ''}",
                reason=Reason.UNKNOWN_SERVER,
                field="model",
            )
        self.refuse_missing()
        connection = self._connections.get(server.name)
        if connection is None:
            make = Fleet if server.is_fleet else ServerConnection
            connection = self._connections[server.name] = make(server, self._environment)
        return RemoteModel(connection, model.model)

    def place(self, name: str) -> ServerPlace | None:
        """Where a server is, by the settings."""
        server = self._servers.get(name)
        return None if server is None else server.place

    async def aclose(self) -> None:
        """Close every connection, within a second. Idempotent."""
        await asyncio.gather(*(connection.aclose() for connection in self._connections.values()))
