"""An endpoint that speaks OpenAI's API: the worker's models, for programs that know no worker.

A request passes the same checks as a call of the gRPC services, in the same order: who asks, whether the worker drains,
how many calls are open, how many bytes there are. Then its bytes are read, and parsed in a thread if they are many.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
import structlog
import uvicorn

from crucible_bridge.errors import (
    BridgeError,
    DeadlineExceeded,
    FailedPrecondition,
    InternalError,
    InvalidField,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unimplemented,
)
from crucible_bridge.problems import error_of
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    BackendInfo,
    LogprobsItem,
    LogprobsRequest,
    ModelInput,
    ModelRef,
    Problem,
    SampledItem,
    SampleItem,
    SampleRequest,
    SequenceLogprobs,
)
from crucible_worker.backends.base import Capability, Model
from crucible_worker.engine.admission import draining_error
from crucible_worker.engine.usage import Charge
from crucible_worker.inference.batches import open_model
from crucible_worker.inference.logprobs import ask_logprobs
from crucible_worker.inference.model_calls import Backends, ask_samples
from crucible_worker.inference.retries import RetryPolicy
from crucible_worker.rendering.prompts import AUTO, RAW, require_tokenizer
from crucible_worker.rpc.authentication import TokenFile
from crucible_worker.rpc.calls import Calls, Method
from crucible_worker.rpc.offload import LARGE_BYTES, Offload
from crucible_worker.telemetry import bind_contextvars
from crucible_worker.util.error_reporter import logged, shortage
from crucible_worker.util.limits import WorkerLimits
from crucible_worker.util.tasks import Background
from crucible_worker.web.listening import QuietServer, foreign_host, foreign_site, hosts_of
from crucible_worker.web.openai_bodies import (
    CHAT_TOKENS,
    OpenAICall,
    memory_of,
    model_named,
    read_chat,
    read_completion,
)
from crucible_worker.web.openai_replies import (
    OpenAIResult,
    TokenTexts,
    error_of_openai,
    ids_of,
    reply_of,
    size_of,
    stream_of,
    tokens_in,
)

__all__ = ["OpenAIApp", "OpenAIListener", "OpenAIParts"]

SERVICE = "openai.v1"
"""What its calls are counted under."""
_MODELS = "/v1/models"
_READERS = {"/v1/chat/completions": read_chat, "/v1/completions": read_completion}

ESTIMATE_FACTOR = 4
"""An answer is refused before it is made if the estimate of its size is above so many messages."""
STATUS_SECONDS = 2.0
"""How long a stream waits for its answer before it begins: an error in this time has its status."""
KEEP_ALIVE_SECONDS = 15.0
"""Between two comments in a stream without an answer, which keep its connection."""

_T = TypeVar("_T")
_Receive = Callable[[], Awaitable[Any]]
_Send = Callable[[Any], Awaitable[None]]
_log = structlog.get_logger(__name__)


class _ClientGone(Exception):
    """The client has closed its connection."""


class _HTTPRefusal(Exception):
    """A request is refused with a status that only HTTP has."""

    def __init__(self, status: int, error: BridgeError) -> None:
        super().__init__(str(error))
        self.status, self.error = status, error


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OpenAIParts:
    """What the endpoint has of its worker."""

    models: Backends
    """Backends by the kind of reference that they open."""
    backends: Callable[[], Awaitable[Sequence[BackendInfo]]]
    """Describes them."""
    charge: Charge
    """Counts usage."""
    calls: Calls
    """The open calls."""
    limits: WorkerLimits
    """The worker's."""
    offload: Offload
    """Threads for large messages."""
    tokens: TokenFile | None
    """API keys; None if none is needed."""


class OpenAIApp:
    """The endpoint as an ASGI application."""

    def __init__(self, parts: OpenAIParts, hosts: Sequence[str]) -> None:
        """Answer from a worker.

        Args:
            parts: of the worker.
            hosts: values of the Host header to accept: "127.0.0.1:8000".
        """
        self._parts, self._hosts = parts, frozenset(hosts)

    async def __call__(self, scope: Mapping[str, Any], receive: _Receive, send: _Send) -> None:
        """Handle a request."""
        path, began, sending = scope["path"], time.perf_counter(), _Sending(send)
        error: BridgeError | None = None
        status = 200
        try:
            await self._answer(scope, path, receive, sending)
        except _ClientGone:
            status = 499
        except _HTTPRefusal as refused:
            error, status = refused.error, refused.status
        except BridgeError as raised:
            error, status = raised, 0
        except Exception as raised:
            if (error := shortage(raised)) is None:
                error = InternalError(f"internal error {logged(_log, 'unexpected_error', raised)}")
            status = 0
        if error is not None:
            bind_contextvars(reason=error.reason)  # for the line that tells how the request ended
            status = await sending.error(error, status or None, chat=_READERS.get(path) is read_chat)
        known = path if path in _READERS else _MODELS
        milliseconds = round((time.perf_counter() - began) * 1000, 3)
        _log.info("openai_call", path=known, status=status, milliseconds=milliseconds)

    async def _answer(self, scope: Mapping[str, Any], path: str, receive: _Receive, sending: _Sending) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        await self._let_in(headers)
        reads = path == _MODELS or path.startswith(f"{_MODELS}/")
        if not reads and path not in _READERS:
            raise NotFound(f"there is no {path[:200]}: there are {', '.join((_MODELS, *_READERS))}")
        wanted = "GET" if reads else "POST"
        if scope["method"] != wanted:
            raise _HTTPRefusal(405, Unimplemented(f"{path[:200]} is for {wanted}"))
        method = Method(path=f"/{SERVICE}/{path.rpartition('/v1/')[2] if not reads else 'models'}", streams=False)
        calls, peer = self._parts.calls, f"http:{scope.get('client')}"
        calls.enter(method, peer)
        try:
            with _until_drained(calls):
                if reads:
                    await sending.json(200, msgspec.json.encode(await self._known(unquote(path[len(_MODELS) :]))))
                else:
                    await self._post(_READERS[path], headers, receive, sending)
        finally:
            calls.leave(method, peer)

    async def _let_in(self, headers: Mapping[bytes, str]) -> None:
        """Refuse whom the endpoint does not answer.

        Raises:
            PermissionDenied: the request was sent by a page of another site, or is meant for another server.
            Unauthenticated: it has no API key, or a wrong one.
        """
        if foreign_host(headers.get(b"host", ""), self._hosts):
            raise PermissionDenied(f"this server has another name: {', '.join(sorted(self._hosts))}")
        if foreign_site(headers.get(b"origin"), headers.get(b"sec-fetch-site", "none"), self._hosts):
            raise PermissionDenied("a page of another site must not use this server")
        if self._parts.tokens is None:
            return
        given = headers.get(b"authorization")
        if given is None:
            raise Unauthenticated(
                "the request needs 'Authorization: Bearer KEY' with a token of the worker", reason=Reason.MISSING_TOKEN
            )
        scheme, _, shown = given.partition(" ")
        if scheme.lower() != "bearer" or not await self._parts.tokens.accepts(shown.strip().encode("latin-1")):
            raise Unauthenticated("the API key is no token of the worker", reason=Reason.WRONG_TOKEN)

    async def _known(self, rest: str) -> dict[str, Any]:
        """The models that the backends know by themselves, or one that a request names."""
        if name := rest.removeprefix("/"):
            ref = model_named(name)
            backend = self._parts.models.get(type(ref))
            if backend is None:
                raise FailedPrecondition("has no backend in this worker", reason=Reason.NO_BACKEND, field="model")
            await backend.check(ref)
            return _model(name, name.partition(":")[0])
        infos = await self._parts.backends()
        return {
            "object": "list",
            "data": [_model(f"{info.name}:{model}", info.name) for info in infos for model in info.models],
        }

    async def _post(
        self,
        read: Callable[[bytes, WorkerLimits], OpenAICall],
        headers: Mapping[bytes, str],
        receive: _Receive,
        sending: _Sending,
    ) -> None:
        parts, room = self._parts, self._parts.calls.room
        with room.working_on(_declared(headers, parts.limits.max_message_bytes)) as work:
            call = await self._parsed(read, await self._received(receive, work), work)
            async with _while_connected(receive):
                if call.stream:
                    content = await self._streamed(call, sending)
                else:
                    result = await self._result(call)
                    content = await self._encoded(call, result, lambda: msgspec.json.encode(reply_of(call, result)))
            # Outside: a client is gone as well once its answer is complete.
            await (sending.end(content) if call.stream else sending.json(200, content))

    async def _parsed(self, read: Callable[[bytes, WorkerLimits], OpenAICall], data: bytes, work: Any) -> OpenAICall:
        parts = self._parts
        if len(data) >= LARGE_BYTES:
            parts.calls.room.grow(work, await parts.offload.in_thread(lambda: memory_of(data)))
        return await parts.offload.run(len(data), lambda: read(data, parts.limits))

    async def _received(self, receive: _Receive, work: Any) -> bytes:
        """The body of a request.

        Raises:
            _HTTPRefusal: it is larger than a message may be.
            DeadlineExceeded: it does not arrive in time.
        """
        limits, arrived = self._parts.limits, bytearray()
        arrival = self._parts.calls.timeouts.within(limits.request_seconds)
        try:
            with arrival:
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _ClientGone
                    arrived += message.get("body", b"")
                    if len(arrived) > limits.max_message_bytes:
                        raise _too_large(limits.max_message_bytes)
                    if len(arrived) > work.size:
                        self._parts.calls.room.grow(work, len(arrived) - work.size)
                    if not message.get("more_body"):
                        return bytes(arrived)
        except TimeoutError:
            if not arrival.expired():
                raise
            message = f"the request has not arrived within {limits.request_seconds:g} s"
            raise DeadlineExceeded(message, reason=Reason.REQUEST_TOO_SLOW) from None

    async def _encoded(self, call: OpenAICall, result: OpenAIResult, encode: Callable[[], bytes]) -> bytes:
        """Encode an answer, in a thread if it is large.

        Raises:
            ResourceExhausted: it is larger than a message (ANSWER_TOO_LARGE).
        """
        size, most = size_of(call, result), self._parts.limits.max_message_bytes
        if size > ESTIMATE_FACTOR * most:  # before it is made: one of many choices with many names takes gigabytes
            raise _answer_too_large(f"about {size:,}")
        content = await self._parts.offload.run(size, encode)
        if len(content) > most:
            raise _answer_too_large(f"{len(content):,}")
        return content

    async def _streamed(self, call: OpenAICall, sending: _Sending) -> bytes:
        """Begin a stream, and return what ends it: the answer, as no backend has a part of one before the end."""
        async with _together(self._result(call)) as (answering,):
            await asyncio.wait((answering,), timeout=STATUS_SECONDS)
            while not answering.done():
                await sending.comment()
                await asyncio.wait((answering,), timeout=KEEP_ALIVE_SECONDS)
            result: OpenAIResult = answering.result()

        def pieces() -> bytes:
            return b"".join(map(_event, stream_of(call, result)))

        return await self._encoded(call, result, pieces) + b"data: [DONE]\n\n"

    async def _result(self, call: OpenAICall) -> OpenAIResult:
        """Ask the model for everything that a request wants."""
        received = asyncio.get_running_loop().time()
        measures = call.echo and call.logprobs is not None
        model = None
        if call.echo or call.logprobs is not None or not call.bounded:
            model = await self._opened(call.model)
        if measures:
            call = dataclasses.replace(call, prompts=await _in_tokens(model, call.prompts))
        measured: Sequence[SequenceLogprobs | None] = [None] * len(call.prompts)
        items: Sequence[SampledItem | None] = [None] * len(call.prompts)
        fingerprint = "" if model is None else model.fingerprint
        if measures and call.sampling is not None:
            async with _together(self._measured(call, received), self._sampled(call, model, received)) as asked:
                measured, (items, fingerprint) = await asked[0], await asked[1]
        elif measures:
            measured = await self._measured(call, received)
        elif call.sampling is not None:
            items, fingerprint = await self._sampled(call, model, received)
        ids = [ids_of(prompt) for prompt in call.prompts] if call.echo else [()] * len(call.prompts)
        texts = TokenTexts()
        result = OpenAIResult(
            items=items,
            measured=measured,
            prompt_tokens=ids,
            prompt_texts=await _texts_of(model, call.prompts) if call.echo else (),
            fingerprint=fingerprint,
            texts=texts,
        )
        if call.logprobs is not None and model is not None:
            found = await self._parts.offload.run(size_of(call, result), lambda: tokens_in(result))
            await texts.read(model.tokenizer, found)
        return result

    async def _opened(self, ref: ModelRef) -> Model:
        gate = RetryPolicy(1)
        try:
            return await open_model(self._parts.models, ref, gate, "model")
        finally:
            gate.close()

    async def _sampled(
        self, call: OpenAICall, model: Model | None, received: float
    ) -> tuple[Sequence[SampledItem | None], str]:
        sampling = call.sampling
        assert sampling is not None
        if not call.bounded and model is not None and model.context_length is not None:
            sampling = dataclasses.replace(sampling, max_tokens=min(CHAT_TOKENS, model.context_length))
        seed = sampling.seed
        request = SampleRequest(
            model=call.model,
            items=tuple(SampleItem(prompt=prompt, num_samples=call.count, seed=seed) for prompt in call.prompts),
            sampling=dataclasses.replace(sampling, seed=None),
            top_logprobs=call.logprobs or None,
        )
        if call.logprobs == 0 and model is not None and not _names_tokens(model, call.prompts):
            message = "needs top_logprobs of at least 1 at this model's server, which names no tokens otherwise"
            raise FailedPrecondition(message, reason=Reason.NO_TOP_LOGPROBS, field="logprobs")
        answer = await ask_samples(
            self._parts.models,
            request,
            limits=self._parts.limits,
            received=received,
            renderer=AUTO if call.chat else RAW,
        )
        self._parts.charge(answer.usage, call.model)
        for item in answer.items:
            _raise_problem(item.problem)
            if call.logprobs is not None and any(
                one.text and (one.logprobs is None or not one.tokens) for one in item.sequences
            ):
                message = "needs log-probabilities by tokens, which the model's backend does not report"
                raise FailedPrecondition(message, reason=Reason.NO_TOP_LOGPROBS, field="logprobs")
        return answer.items, answer.model_fingerprint

    async def _measured(self, call: OpenAICall, received: float) -> Sequence[SequenceLogprobs]:
        request = LogprobsRequest(
            model=call.model,
            items=tuple(LogprobsItem(prompt=prompt) for prompt in call.prompts),
            top_k=call.logprobs or None,
        )
        answer = await ask_logprobs(self._parts.models, request, limits=self._parts.limits, received=received)
        self._parts.charge(answer.usage, call.model)
        for sequence in answer.sequences:
            _raise_problem(sequence.problem)
        return answer.sequences


async def _in_tokens(model: Model | None, prompts: Sequence[Any]) -> Sequence[ModelInput]:
    """Prompts in tokens: log-probabilities belong to these."""
    if isinstance(prompts[0], ModelInput):
        return prompts
    tokenizer = require_tokenizer(None if model is None else model.tokenizer)
    encoded = await tokenizer.encode_all(prompts)
    if not all(encoded):
        raise InvalidField("prompt", "has no tokens: a model needs at least one")
    return [ModelInput.of(list(tokens)) for tokens in encoded]


async def _texts_of(model: Model | None, prompts: Sequence[Any]) -> Sequence[str]:
    if isinstance(prompts[0], str):
        return prompts
    tokenizer = require_tokenizer(None if model is None else model.tokenizer)
    return await tokenizer.detokenize([ids_of(prompt) for prompt in prompts], skip_special_tokens=False)


def _answer_too_large(size: str) -> ResourceExhausted:
    message = f"an answer of {size} bytes is larger than a message: request less at once"
    return ResourceExhausted(message, reason=Reason.ANSWER_TOO_LARGE, retryable=False)


def _names_tokens(model: Model, prompts: Sequence[Any]) -> bool:
    """Whether answers have their tokens: those to messages that only the model's server reads have none."""
    in_tokens = model.tokenizer is not None and Capability.SAMPLE in model.capabilities
    return in_tokens or isinstance(prompts[0], ModelInput)


def _raise_problem(problem: Problem | None) -> None:
    if problem is not None:
        raise error_of(problem)


@contextlib.asynccontextmanager
async def _together(*work: Awaitable[Any]) -> AsyncIterator[Sequence[asyncio.Future[Any]]]:
    """Run several things at once, and cancel the others where one fails."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def _while_connected(receive: _Receive) -> AsyncIterator[None]:
    """Do something as long as the client stays; a client that goes away cancels it.

    Raises:
        _ClientGone: it has gone.
    """
    task, gone = asyncio.current_task(), False
    assert task is not None

    async def watch() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        gone = True
        task.cancel()

    watching = asyncio.create_task(watch())
    try:
        yield
    except asyncio.CancelledError:
        if not gone:
            raise
        task.uncancel()
        raise _ClientGone from None
    finally:
        watching.cancel()


@contextlib.contextmanager
def _until_drained(calls: Calls) -> Iterator[None]:
    """End a block when the worker drains.

    Raises:
        Unavailable: it does (DRAINING).
    """
    timer = calls.timeouts.within(None)
    try:
        with timer:
            calls.watch(timer)
            try:
                yield
            finally:
                calls.forget(timer)
    except TimeoutError:
        if not timer.expired():
            raise
        raise draining_error() from None


def _declared(headers: Mapping[bytes, str], most: int) -> int:
    """The bytes that a body is said to have; 0 if that is not said.

    Raises:
        _HTTPRefusal: they are more than a message may have.
    """
    given = headers.get(b"content-length", "0")
    size = int(given) if given.isdecimal() else 0
    if size > most:
        raise _too_large(most)
    return size


def _too_large(most: int) -> _HTTPRefusal:
    return _HTTPRefusal(413, InvalidField("", f"The body is larger than {most:,} bytes (max_message_bytes)"))


def _model(name: str, owner: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": owner}


def _event(value: Any) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(value)


class _Sending:
    """The answer to a request, as ASGI sends it."""

    def __init__(self, send: _Send) -> None:
        self._send, self._begun = send, False

    async def json(self, status: int, content: bytes, further: Mapping[str, str] | None = None) -> None:
        """Send an answer whole."""
        pairs = {"content-type": "application/json", "content-length": str(len(content)), **(further or {})}
        await self._begin(status, pairs)
        await self._send({"type": "http.response.body", "body": content, "more_body": False})

    async def comment(self) -> None:
        """Send nothing in a stream, which keeps its connection."""
        await self._begin_stream()
        await self._send({"type": "http.response.body", "body": b": no answer yet\n\n", "more_body": True})

    async def end(self, events: bytes) -> None:
        """Send the last events of a stream."""
        await self._begin_stream()
        await self._send({"type": "http.response.body", "body": events, "more_body": False})

    async def error(self, error: BridgeError, status: int | None, *, chat: bool) -> int:
        """Send an error, as an event if a stream has begun; returns its status."""
        status, body, headers = error_of_openai(error, status, chat=chat)
        if self._begun:
            await self.end(_event(body))
        else:
            await self.json(status, msgspec.json.encode(body), headers)
        return status

    async def _begin_stream(self) -> None:
        if not self._begun:
            await self._begin(200, {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"})

    async def _begin(self, status: int, pairs: Mapping[str, str]) -> None:
        self._begun = True
        headers = [(name.encode(), value.encode()) for name, value in pairs.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})


class OpenAIListener:
    """The endpoint on a port of this machine; made once it is bound."""

    def __init__(self, listener: socket.socket, host: str) -> None:
        """Take a socket that is bound.

        Args:
            listener: the socket.
            host: what it was bound to, as the settings call it.
        """
        self._listener, self._host = listener, host
        self._server: QuietServer | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """The base URL of clients."""
        return f"http://{hosts_of(self._listener.getsockname()[1], self._host)[0]}/v1"

    def serve(self, parts: OpenAIParts, background: Background) -> None:
        """Begin to answer; a server that fails is reported and started again."""
        port = self._listener.getsockname()[1]
        config = uvicorn.Config(
            OpenAIApp(parts, hosts_of(port, self._host)),  # pyright: ignore[reportArgumentType] (a plain ASGI application)
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=parts.limits.max_connections,
        )

        async def run() -> None:
            self._server = QuietServer(config)
            # It closes what it is given.
            await self._server.serve(sockets=[self._listener.dup()])

        self._serving = background.keep("openai", run)

    async def aclose(self, seconds: float) -> None:
        """End it: open requests may still end in this time."""
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            _, late = await asyncio.wait((self._serving,), timeout=seconds)
            if late:
                self._server.force_exit = True
                await asyncio.wait(late)
        self._listener.close()
