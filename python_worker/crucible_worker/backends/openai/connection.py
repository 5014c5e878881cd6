"""The connection to one server that its models share, and which program serves there, as far as the server shows it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import importlib
import importlib.util
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from crucible_bridge.errors import BridgeError, FailedPrecondition, Unavailable
from crucible_bridge.problems import problem_of
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Problem, SampledSequence, SamplingParams, ServerEngine
from crucible_worker.backends.openai.bodies import Adjustments, Dialect, Dialects
from crucible_worker.backends.openai.documents import InvalidAnswer, apart, max_bytes, parse, read_document, takes_long
from crucible_worker.backends.openai.failures import FailedRequest, of_error_document
from crucible_worker.backends.openai.reading import read_apart
from crucible_worker.backends.openai.servers import OpenAIServer

if TYPE_CHECKING:
    from crucible_worker.backends.openai.client import Client

__all__ = [
    "CLOSE_SECONDS",
    "DECISIVE",
    "LOOK_SECONDS",
    "PROBE_PARAMS",
    "PROBE_SECONDS",
    "PROBE_TEXT",
    "PROGRAMS",
    "REFUSALS",
    "Listed",
    "Look",
    "ProbeForm",
    "ServerConnection",
    "ServerFacts",
    "closed",
    "listed_of",
]

# Which program serves a model, and how, as far as its server shows it: found once per evaluation.
#
# vLLM reports its version at /version, llama.cpp at /props; the list of models names their owner, and a header of every
# answer may name the program. Answers of the model may have a fingerprint of how it is served, and a name of the model.
#
# A short request before the first sample, the probe, shows at each replica how many tokens its prompt has, and whether
# a stop string ends the text and is left out of it. It is none of the evaluation's samples, and no part of its usage.

LOOK_SECONDS = 2.0
"""How long a server may take to report its program; the samples wait for that."""
PROBE_SECONDS = 10.0
"""How long the probe may take, likewise."""

PROBE_TEXT = "Continue the list: 1, 2, 3, 4,"
"""The prompt of the probe: what follows has a comma soon, from models that chat and from those that complete."""
_STOP = ","
PROBE_PARAMS = SamplingParams(max_tokens=16, temperature=0.0, stop=(_STOP,))

PROGRAMS = {"vllm": "vllm", "llamacpp": "llama.cpp", "sglang": "sglang"}
"""Programs by the owner that they report for their models."""

_MAX_CHARS = 100
"""Most characters of a text that a server reports about itself."""

_MAX_FINGERPRINTS = 4
"""Most fingerprints of one evaluation's answers: a server with a new one for each answer must not fill the journal."""
_MAX_NAMES = 4
"""Likewise of names of models."""

REFUSALS = frozenset({Reason.BACKEND_REFUSED, Reason.UNKNOWN_MODEL})
"""Errors of a server that does not accept a form of the probe; one without its path answers as one without the model.
"""

_BY_SEVERITY = ("ignored", "kept", "refused", "unknown", "applied")
"""What replicas show of stop strings, the most important one first."""

Look = Callable[[str], Awaitable[tuple[bytes, str]]]
"""Gets a path of a server, /models below its base URL and others below its root: returns the content, and the header
that names the program."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What a list of models shows of a model, and of others."""

    owner: str = ""
    """Owner of the model, or of the first one if it is not listed."""
    others: tuple[str, ...] = ()
    """Names of the first models; empty if the model is listed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProbeForm:
    """One form of the probe."""

    path: str
    """Below the base URL."""
    body: dict[str, Any]
    """Of the request."""
    read: Callable[[dict[str, Any], str], SampledSequence]
    """Reads the answer, given the server's name."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Probed:
    """What one replica answered."""

    document: dict[str, Any] = dataclasses.field(default_factory=dict)
    prompt_tokens: int | None = None
    stop_strings: str = ""
    problem: Problem | None = None


class ServerFacts:
    """What is known of the server of one evaluation's model.

    Args:
        server: its name.
        requested: the model's name in requests.
    """

    def __init__(self, server: str, requested: str) -> None:
        self._server = server
        self._requested = requested
        self.owner = ""
        """As of `Listed`, once the server was queried."""
        self.logprobs = ""
        """As of `ServerEngine`."""
        self._looked = False
        self._name = self._version = ""
        self._fingerprints: dict[str, None] = {}
        self._not_applied: set[str] = set()
        self._sent_as: dict[str, str] = {}
        self._names: dict[str, None] = {}
        self._listed: tuple[str, ...] = ()
        self._probed = _Probed()

    async def look(self, get: Look) -> None:
        """Query the server; what it does not report in time stays unknown."""
        self._looked = True
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._look(get)
        except TimeoutError:
            return

    async def probe(
        self,
        each: Callable[[Callable[[Any], Awaitable[_Probed]]], Awaitable[Sequence[_Probed]]],
        attempts: Sequence[ProbeForm],
        dialect: Dialect,
    ) -> None:
        """Send the probe to each replica; its failure is recorded.

        Args:
            each: calls a function with the connection to each replica.
            attempts: its forms; each one is sent if the server refuses the one before.
            dialect: of the model: each form is sent without what the server refuses.
        """

        async def one(connection: Any) -> _Probed:
            return await self._probe_one(connection.ask, attempts, dialect)

        try:
            async with asyncio.timeout(PROBE_SECONDS):
                self._probed = _together(await each(one))
        except TimeoutError:
            message = f"server {self._server!r} did not answer the probe within {PROBE_SECONDS:g} s"
            self._probed = _Probed(problem=Problem(reason=Reason.BACKEND_TIMEOUT, message=message, retryable=True))
        except BridgeError as error:
            self._probed = _Probed(problem=problem_of(error))

    def answered(self, document: dict[str, Any]) -> None:
        """Record the fingerprint and the name of the model of an answer."""
        said = document.get("system_fingerprint")
        if said and isinstance(said, str) and len(self._fingerprints) < _MAX_FINGERPRINTS:
            self._fingerprints[_text(said)] = None
        if (name := self._name_in(document)) and len(self._names) < _MAX_NAMES:
            self._names[name] = None

    def adjusted(self, adjustments: Adjustments) -> None:
        """Record how a request differed from the one that was wanted."""
        self._not_applied |= adjustments.not_applied
        self._sent_as.update(adjustments.sent_as)

    def refusal(self, document: dict[str, Any] | None = None) -> str:
        """Why a model is not the one requested, by its name; empty if nothing shows it.

        Args:
            document: an answer; what is known of the server if None.
        """
        if document is not None:
            name = self._name_in(document)
            if name == self._requested:
                return ""
            return f"answers in the name of {name!r}" if name else "answers without the name of a model"
        if others := sorted(self._names.keys() - {self._requested}):
            return f"answers in the name of {others[0]!r}"
        return f"lists {', '.join(map(repr, self._listed))} alone" if self._listed else ""

    def engine(self, sampling_defaults: str) -> ServerEngine | None:
        """What is known; None if the server was not queried, and nothing is.

        Args:
            sampling_defaults: as of `ServerEngine`.
        """
        if not (self._looked or self._fingerprints or self._names or self._not_applied or self._sent_as):
            return None
        return ServerEngine(
            name=self._name,
            version=self._version,
            fingerprint=",".join(sorted(self._fingerprints)),
            requested_name=self._requested,
            served_names=tuple(sorted(self._names)),
            listed_names=self._listed,
            sampling_defaults=sampling_defaults,
            probe_prompt_tokens=self._probed.prompt_tokens,
            stop_strings=self._probed.stop_strings,
            logprobs=self.logprobs,
            probe_problem=self._probed.problem,
            not_applied=tuple(sorted(self._not_applied)),
            sent_as=dict(sorted(self._sent_as.items())),
        )

    async def _look(self, get: Look) -> None:
        content, header = await _content(get, "/models")
        listed = listed_of(content, self._requested)
        self.owner, self._listed = listed.owner, listed.others
        self._name = PROGRAMS.get(self.owner, "")
        told, other = await _document(get, "/version")
        header = header or other
        self._version = _text(told.get("version"))
        if not self._version:
            told, other = await _document(get, "/props")
            header = header or other
            self._version = _text(told.get("build_info"))
            if self._version:
                self._name = self._name or "llama.cpp"
        elif told.keys() == {"version"}:  # the form of vLLM's answer
            self._name = self._name or "vllm"
        self._name = self._name or _text(header)

    async def _probe_one(
        self, ask: Callable[..., Awaitable[dict[str, Any]]], attempts: Sequence[ProbeForm], dialect: Dialect
    ) -> _Probed:
        refused: BridgeError | None = None
        for attempt in attempts:
            send = functools.partial(ask, attempt.path, model=self._requested, tokens=PROBE_PARAMS.max_tokens)
            try:
                # How it differs is not recorded: the evaluation's requests may have other values.
                document, adjustments = await dialect.ask(attempt.body, send)
                self.answered(document)
                answer = attempt.read(document, self._server)
            except BridgeError as error:
                if error.reason not in REFUSALS:
                    return _Probed(problem=problem_of(error))
                refused = error
                continue
            sent = "stop" in attempt.body and "stop" not in dict(adjustments.sent_as)
            stops = _stop_strings(document, answer) if sent else "refused"
            return _Probed(prompt_tokens=answer.prompt_tokens, stop_strings=stops)
        return _Probed(problem=None if refused is None else problem_of(refused))

    def _name_in(self, document: dict[str, Any]) -> str:
        name = document.get("model")
        # One that is too long is compared before it is truncated.
        return name if name == self._requested and isinstance(name, str) else _text(name)


def listed_of(content: bytes, model: str) -> Listed:
    """What a list of models shows of a model; nothing if it is none.

    Args:
        content: of the answer of /models.
        model: its name.
    """
    try:
        data = parse(content, 0).get("data")
    except InvalidAnswer:
        return Listed()
    entries = [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []
    if not entries:
        return Listed()
    own = next((entry for entry in entries if entry.get("id") == model), None)
    names = [] if own is not None else [_text(entry.get("id")) for entry in entries[:_MAX_NAMES]]
    owner = (entries[0] if own is None else own).get("owned_by")
    return Listed(owner=owner if isinstance(owner, str) else "", others=tuple(filter(None, names)))


def _together(probed: Sequence[_Probed]) -> _Probed:
    """What all replicas answered, as one."""
    if not probed:
        return _Probed()
    stops = [one.stop_strings for one in probed]
    counts = sorted({one.prompt_tokens for one in probed if one.prompt_tokens is not None})
    problem = next((one.problem for one in probed if one.problem is not None), None)
    if len(counts) > 1:
        message = f"replicas count {counts[0]:,} and {counts[-1]:,} tokens of one prompt: they render it differently"
        problem = Problem(reason=Reason.REPLICAS_DIFFER, message=message)
    return _Probed(
        prompt_tokens=counts[0] if len(counts) == 1 else None,
        stop_strings=next((one for one in _BY_SEVERITY if one in stops), ""),
        problem=problem,
    )


def _stop_strings(document: dict[str, Any], answer: SampledSequence) -> str:
    """What an answer shows of stop strings, as of `ServerEngine`."""
    before, found, after = answer.text.partition(_STOP)
    if found:
        return "kept" if answer.stop_reason == "stop" and not after.strip() else "ignored"
    # An empty text may be that of a model that says nothing; vLLM and SGLang name what has ended it.
    choice = document["choices"][0]
    named = _STOP in (choice.get("stop_reason"), choice.get("matched_stop"))
    return "applied" if named or (answer.stop_reason == "stop" and before) else "unknown"


async def _document(get: Look, path: str) -> tuple[dict[str, Any], str]:
    content, header = await _content(get, path)
    try:
        return parse(content, 0), header
    except InvalidAnswer:
        return {}, header


async def _content(get: Look, path: str) -> tuple[bytes, str]:
    try:
        return await get(path)
    except BridgeError:
        return b"", ""


def _text(value: Any) -> str:
    return " ".join(value.split())[:_MAX_CHARS] if isinstance(value, str) else ""


CLOSE_SECONDS = 0.5
"""Seconds to close connections; those still open then stay until the process ends."""

T = TypeVar("T")

_READERS = 2
"""Long answers of one server that are parsed at once: each may take a processor and a few GB."""

DECISIVE = frozenset(
    {
        Reason.BACKEND_UNAUTHENTICATED,
        Reason.BACKEND_FORBIDDEN,
        Reason.BACKEND_UNREACHABLE,
        Reason.BACKEND_CONNECTION_LOST,
        Reason.BACKEND_TIMEOUT,
    }
)
"""Errors of the request for the server's models that hold for every other request, too."""


class ServerConnection:
    """A server and the connections to it; making one sends nothing.

    Args:
        server: with one base URL.
        environment: that its key is read from.
        address: of the server, in place of those of its name.
    """

    def __init__(self, server: OpenAIServer, environment: Mapping[str, str], address: str | None = None) -> None:
        self.server = server
        self.dialects = Dialects()
        """What it refuses, by model."""
        self.owner = ""
        """The owner that its list of models last named: it tells which program it is. Empty if that is not known."""
        self._address = address
        self._environment = environment
        self._client: Client | None = None
        self._making = asyncio.Lock()
        self._readers = asyncio.Semaphore(_READERS)
        self._turns = asyncio.Semaphore(server.max_connections)
        self._reached = False
        self._closed = False

    async def reach(self, model: str) -> None:
        """Check that the server is reachable and accepts the key; repeated until it succeeds once.

        Args:
            model: that is wanted; a single server is not compared with others.

        Raises:
            FailedPrecondition: the extra is not installed, or the key cannot be read.
            BackendError: the server cannot be reached, or refuses the key.
        """
        await self._ready()
        if self._reached:
            return
        try:
            content = await self.models()
            self.owner = (await apart(len(content), listed_of, content, model)).owner
        except BridgeError as error:
            # A server without a list of models, or one that cannot return it now, may answer other requests.
            if error.reason in DECISIVE:
                raise
        self._reached = True

    async def models(self) -> bytes:
        """The server's list of its models, as it sends it.

        Raises:
            FailedPrecondition: the extra is not installed, or the key cannot be read.
            BackendError: there is no such answer; see `failures`.
        """
        return await (await self._ready()).send("/models", None, "", max_bytes(0))

    async def connections(self, *, serving: bool = True) -> Mapping[str, ServerConnection]:
        """Itself, by its base URL: as of several replicas."""
        return {self.server.base_url: self}

    async def each(self, call: Callable[[ServerConnection], Awaitable[T]]) -> tuple[T, ...]:
        """What a call returns for this connection: as of several replicas."""
        return (await call(self),)

    async def look(self, path: str) -> tuple[bytes, str]:
        """What the server returns at a path, and the name of its program; see `Client.look`.

        Raises:
            BridgeError: there is no answer, or the server was not reached.
        """
        return await (await self._ready()).look(path)

    async def ask(self, path: str, body: dict[str, object], model: str, *, tokens: int) -> dict[str, Any]:
        """Send a request and read its answer, a JSON object.

        Args:
            path: below the base URL: "/completions".
            body: of the request.
            model: its name, for errors.
            tokens: most tokens that the answer may list.

        Raises:
            BridgeError: there is no answer; see `failures`.
        """
        client = await self._ready()
        async with self._turns:
            if self._closed:  # while this one waited for its turn
                raise closed()
            content = await client.send(path, body, model, max_bytes(tokens))
        if not takes_long(content):
            document = await apart(len(content), read_document, content, tokens, self.server.name)
        else:
            async with self._readers:
                document = await read_apart(content, tokens, self.server.name)
        error = of_error_document(
            FailedRequest(server=self.server.name, unauthenticated=self.server.unauthenticated, model=model, path=path),
            document,
        )
        if error is not None:
            raise error
        return document

    async def finish(self) -> None:
        """Close the connections when the requests under way have ended; no other may be sent after this call."""
        try:
            for _ in range(self.server.max_connections):
                await self._turns.acquire()
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; requests under way fail. Idempotent."""
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await client.aclose()

    async def _ready(self) -> Client:
        if self._client is not None and not self._closed:
            return self._client
        async with self._making:
            if self._client is None and not self._closed:
                self._client = await asyncio.to_thread(self._make)
            # Checked again: the worker may have ended while the client was made.
            if self._client is None or self._closed:
                raise closed()
            return self._client

    def _make(self) -> Client:
        try:
            key = self.server.key(self._environment)
        except ValueError as error:
            raise FailedPrecondition(str(error), reason=Reason.BACKEND_KEY) from None
        module = importlib.import_module("crucible_worker.backends.openai.client")
        return module.Client(self.server, key, self._address)


def closed() -> Unavailable:
    """The error of a request after the end of the backend."""
    return Unavailable("the openai backend is closed", reason=Reason.BACKEND_CLOSED, retryable=False)
