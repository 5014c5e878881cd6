"""Every model call of an evaluation passes this gate: counted, retried within a budget, refused after the end.

While a model does not answer at all, its calls wait here, for a bounded time.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import structlog

from crucible_bridge.errors import BackendError, BridgeError, Cancelled
from crucible_bridge.problems import MAX_PROBLEM_BYTES, shorten
from crucible_bridge.reasons import Reason
from crucible_bridge.types import (
    ChatMessage,
    Conversation,
    ModelInput,
    ModelRef,
    OpenAIModel,
    ParsedResponse,
    Problem,
    RawResponse,
    SampledSequence,
    TinkerModel,
    ToolSpec,
)
from crucible_worker.backends.base import Capability, Model, Reading, Rendered, Tokenizer, WrappedModel
from crucible_worker.backends.distributions import HIGHEST_LOGPROB, Measured, impossible
from crucible_worker.backends.metering import Charged, Meter
from crucible_worker.inference.pacing import LIMITED_ATTEMPTS, RATE_BACKOFF, CallPace
from crucible_worker.inference.transcripts import CallListener
from crucible_worker.util.error_reporter import logged
from crucible_worker.util.model_refs import format_original_model
from crucible_worker.util.tasks import Backoff, TimeoutQueue

__all__ = [
    "ASK_SECONDS",
    "ATTEMPTS_PER_CALL",
    "BACKOFF_SECONDS",
    "FIRST_WAIT_SECONDS",
    "MAX_BACKOFF_SECONDS",
    "MAX_WAIT_SECONDS",
    "MISFITS_PER_CALL",
    "ModelOutages",
    "Outage",
    "OutageListener",
    "RetryPolicy",
    "RetryingModel",
    "gone",
    "sample_seed",
    "service_of",
]

# Models that do not answer at all: their calls wait until they answer again, for a bounded time.
#
#     12:00:01  call fails, is tried again, fails at its last try
#     12:00:04  the model is asked whether it is available: it is not, so an outage begins
#     12:00:04  no call of this model continues, and no sample runs out of time
#     12:00:13  it is available again: the calls that failed are made again, with all of their tries
#
# If the model is available at 12:00:04, the error is that of the call. An outage that lasts too long interrupts the
# evaluation.

FIRST_WAIT_SECONDS = 1.0
"""Seconds until a model that is not available is asked again; doubled each time, and drawn between half and all of it.
"""
MAX_WAIT_SECONDS = 15.0
"""Longest such wait, unless the model's server names another time."""
ASK_SECONDS = 30.0
"""A model that does not say within this time whether it is available is not."""

_log = structlog.get_logger(__name__)


@dataclasses.dataclass(slots=True, kw_only=True)
class Outage:
    """A model that does not answer."""

    name: str
    """What does not answer, as users know it: "server lab"."""
    message: str
    """The last error."""
    since_ns: int
    """When it was noticed, Unix time."""
    over: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    """Set at its end."""

    @property
    def waiting_for(self) -> str:
        """In words: "server lab since 22:57:03 UTC"."""
        return f"{self.name} since {time.strftime('%H:%M:%S', time.gmtime(self.since_ns / 1e9))} UTC"


class OutageListener(Protocol):
    """Whoever runs the samples."""

    def model_away(self, outage: Outage) -> None:
        """An outage has begun."""

    def model_back(self, outage: Outage) -> None:
        """It is over."""

    def model_gone(self, outage: Outage) -> None:
        """It has lasted too long."""


class CallBudget(Protocol):
    """What the calls of an attempt may cost."""

    @property
    def reached(self) -> str:
        """Which bound is reached, in words; empty if none is."""
        ...

    async def room(self) -> None:
        """Wait until another call may begin."""

    def close(self) -> None:
        """End all waits."""


class ModelOutages:
    """The outages of the models of one attempt; used in one event loop."""

    def __init__(
        self,
        listener: OutageListener,
        timeouts: TimeoutQueue,
        *,
        seconds: float,
        name_of: Callable[[Model], str],
    ) -> None:
        """See the module.

        Args:
            listener: receives each outage.
            timeouts: of the samples; no time passes for them during an outage.
            seconds: how long one may last.
            name_of: returns what a model is called.
        """
        self._listener, self._timeouts, self._seconds, self.name_of = listener, timeouts, seconds, name_of
        self._asking: dict[int, asyncio.Task[Outage | None]] = {}
        self.answered: dict[int, float] = {}
        """When a call of a model has succeeded the last time, by the id of the model."""
        self._probing: set[asyncio.Task[None]] = set()
        self._closed = False
        self.now: dict[int, Outage] = {}
        """Those under way."""

    async def over(self, model: Model) -> None:
        """Wait for the end of a model's outage, if there is one."""
        if (outage := self.now.get(id(model))) is not None:
            await outage.over.wait()

    async def began(self, model: Model, error: BridgeError, tried: float) -> bool:
        """Find whether an error that a call keeps is that of an outage, and if so, wait for its end.

        Args:
            model: the model.
            error: of the call's last try.
            tried: when that try began, by `time.monotonic`.

        Returns:
            Whether there was an outage, so that the call is to be made again.
        """
        key = id(model)
        if key not in self.now:
            if self._closed or self.answered.get(key, tried) > tried:
                return False
            if key not in self._asking:
                # Calls that fail together share an answer, and the cancellation of one does not affect the others.
                self._asking[key] = asyncio.create_task(self._ask(model, error))
                self._asking[key].add_done_callback(lambda _: self._asking.pop(key, None))
            asking = self._asking[key]
            await asyncio.wait([asking])
            outage = None if asking.cancelled() else asking.result()
            if outage is None:
                return self._closed  # then no call is let through any more
            await outage.over.wait()
        else:
            await self.now[key].over.wait()
        return True

    def close(self) -> None:
        """End all waits."""
        self._closed = True
        for task in (*self._asking.values(), *self._probing):
            task.cancel()
        for outage in self.now.values():
            outage.over.set()
        self.now.clear()

    async def _ask(self, model: Model, error: BridgeError) -> Outage | None:
        if (found := await _unavailable(model)) is None or self._closed:
            return None
        outage = Outage(name=self.name_of(model), message=found.message, since_ns=time.time_ns())
        _log.warning("model_away", model=outage.name, reason=found.reason, error=found.message)
        if not self.now:
            self._timeouts.freeze()
        self.now[id(model)] = outage
        self._listener.model_away(outage)
        task = asyncio.create_task(self._wait(model, outage, error.retry_after))
        self._probing.add(task)
        task.add_done_callback(self._probing.discard)
        return outage

    async def _wait(self, model: Model, outage: Outage, named: float | None) -> None:
        """Ask until the model is available, or the outage has lasted too long."""
        ends, backoff, failures = time.monotonic() + self._seconds, Backoff(FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS), 0
        while (left := ends - time.monotonic()) > 0:
            failures += 1
            await asyncio.sleep(min(left, max(backoff.drawn_after(failures), named or 0.0)))
            found = await _unavailable(model)
            if found is None:
                self._end(model, outage)
                return
            named, outage.message = found.retry_after, found.message
        _log.warning("model_gone", model=outage.name, seconds=self._seconds, error=outage.message)
        self._listener.model_gone(outage)

    def _end(self, model: Model, outage: Outage) -> None:
        seconds = (time.time_ns() - outage.since_ns) / 1e9
        _log.info("model_back", model=outage.name, seconds=round(seconds, 1))
        self.now.pop(id(model), None)
        self.answered[id(model)] = time.monotonic()
        if not self.now:
            self._timeouts.go_on()
        self._listener.model_back(outage)
        outage.over.set()


def gone(outage: Outage, seconds: float) -> Problem:
    """Why an evaluation is interrupted by an outage that lasted so long."""
    message = f"{outage.name} did not answer for outage_seconds, {seconds:g}: {outage.message}"
    return Problem(reason=Reason.MODEL_OUTAGE, message=shorten(message, MAX_PROBLEM_BYTES), retryable=True)


def service_of(model: ModelRef) -> str:
    """What answers for a model, as users know it: "server lab", or the model itself."""
    match model:
        case OpenAIModel():
            return f"server {model.server}"
        case TinkerModel():
            return f"service {model.service}" if model.service else "the Tinker service"
        case _:
            return f"model {format_original_model(model)}"


async def _unavailable(model: Model) -> BridgeError | None:
    """Why a model is not available; None if it is, or if it answers with what is no matter of time."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            await model.available()
    except TimeoutError:
        return BridgeError(f"did not say within {ASK_SECONDS:g} s whether it is available")
    except BridgeError as error:
        return error if error.retryable else None
    except Exception as error:  # of a user's backend: the call's own error counts
        logged(_log, "availability_unknown", error)
    return None


ATTEMPTS_PER_CALL = 6
"""Tries of one call at most, the first included."""
EARLY_ATTEMPT = 2
"""The try after which it is asked for the first time whether the model is available at all; again after the last one.
"""
MISFITS_PER_CALL = 2
"""Answers of one call at most that arrive and cannot be used: each is generated, and paid for, and the next one is
mostly alike."""
RETRY_SHARE = 0.3
"""Retries of a whole attempt, as a share of its samples, or of their calls if these are more: those after answers that
cannot be used, and all of a model whose outages are not waited for."""
MIN_RETRIES = 10
"""Such retries that an attempt has at least."""
BACKOFF_SECONDS = 0.1
"""Seconds before the first retry; doubled each time, and drawn uniformly between half of that and all of it."""
MAX_BACKOFF_SECONDS = 5.0
"""Longest wait between two tries, unless the backend names another one."""
_BACKOFF = Backoff(BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)

T = TypeVar("T")


class RetryPolicy:
    """The gate of one attempt at an evaluation."""

    def __init__(self, samples: int, outages: ModelOutages | None = None) -> None:
        """Open, with a retry budget for so many samples; without `outages` no call waits for a model."""
        self.outages = outages
        """The models that do not answer."""
        self.budget: CallBudget | None = None
        """What calls may cost, if that is bounded."""
        self.samples = samples
        """Number of samples, as far as they are counted."""
        self.asking = 0
        """Calls of samples that are in flight, the waits between their tries included."""
        self._calls, self._retries = 0, 0
        self._paces: dict[int | str, CallPace] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether no further call is let through."""
        return self._closed

    def close(self) -> None:
        """Let no further call through; calls under way may finish, and their answers are discarded."""
        self._closed = True
        if self.outages is not None:
            self.outages.close()
        if self.budget is not None:
            self.budget.close()
        for pace in self._paces.values():
            pace.close()

    async def call(
        self,
        function: Callable[..., Awaitable[T]],
        arguments: tuple[Any, ...] = (),
        options: Mapping[str, Any] | None = None,
        counter: RetryingModel | None = None,
        seconds_left: Callable[[], float | None] | None = None,
        model: Model | None = None,
    ) -> T:
        """Make a call; retry it if its error is retryable.

        Args:
            function: what is called.
            arguments: what it takes by position.
            options: what it takes by name.
            counter: counts each try, before it is made.
            seconds_left: returns the seconds until the caller gives up; None if it does not.
            model: the model that is called; while it does not answer at all, the call waits, see `ModelOutages`.

        Raises:
            Cancelled: the gate is closed.
            BridgeError: the last error, when it is not retryable, the budget is spent, or the backend names a later
                time than the caller waits for.
        """
        if counter is not None:
            self._calls += 1
        outages = None if model is None else self.outages
        pace = None if model is None else self._pace_of(model)
        attempt = misfits = 0
        limited = 0  # tries that the server refused for their rate
        while True:
            if outages is not None and model is not None and outages.now:
                await outages.over(model)
            budget = None if counter is None else self.budget
            if budget is not None:
                await budget.room()
            if pace is not None:
                asked = time.monotonic()
                await pace.begin()
                if counter is not None:
                    counter.waited(time.monotonic() - asked)
                away = outages is not None and id(model) in outages.now
                if not self._closed and (away or (budget is not None and budget.reached)):
                    pace.end()  # either began while this call waited for its turn
                    continue
            attempt += 1
            if self._closed:
                if pace is not None:
                    pace.end()
                raise Cancelled("the evaluation has ended")
            if counter is not None:
                counter.calls += 1
            began = time.monotonic()
            try:
                try:
                    answer = await function(*arguments) if options is None else await function(*arguments, **options)
                except BridgeError as error:
                    if pace is not None and error.reason == Reason.BACKEND_RATE_LIMITED and error.retryable:
                        pace.refused(began, _within(error.retry_after, seconds_left))
                    raise
                finally:
                    if pace is not None:
                        pace.end()
            except BridgeError as error:
                if not error.retryable:
                    raise
                misfit = error.reason == Reason.BACKEND_ANSWER
                limits = pace is not None and error.reason == Reason.BACKEND_RATE_LIMITED
                misfits += misfit
                budgeted = misfit or (outages is None and not limits)
                left = None if seconds_left is None else seconds_left()
                late = error.retry_after is not None and left is not None and error.retry_after >= left
                if pace is not None and limits:
                    # Not a try of the call. It ends with its sample's time, or when the server answers no call at all.
                    attempt -= 1
                    limited += 1
                    last = pace.refusals >= ATTEMPTS_PER_CALL or (left is None and limited >= LIMITED_ATTEMPTS)
                    wait = error.retry_after or 0.0
                    if error.retry_after is None or limited >= ATTEMPTS_PER_CALL:
                        wait = max(wait, RATE_BACKOFF.drawn_after(limited))
                else:
                    last = attempt == ATTEMPTS_PER_CALL or misfits == MISFITS_PER_CALL or (budgeted and self._is_spent)
                    wait = _BACKOFF.drawn_after(attempt) if error.retry_after is None else error.retry_after
                # A limit of the rate is usual; anything else that a repeated call gets may be an outage.
                early = attempt == EARLY_ATTEMPT and error.reason != Reason.BACKEND_RATE_LIMITED
                asks = not misfit and (last or late or early)
                if asks and outages is not None and model is not None and await outages.began(model, error, began):
                    attempt = misfits = 0
                    if pace is not None:
                        pace.refusals = 0
                    continue
                if last and pace is not None and limits and left is not None and outages is not None:
                    pace.refusals = 0  # the server is available: it answers, and this call has time
                elif last:
                    raise
                if late and left is not None:
                    raise _too_late(error, error.retry_after or 0.0, left) from error
                self._retries += budgeted
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                if attempt == ATTEMPTS_PER_CALL or self._is_spent:
                    # Our task was not cancelled: the backend's connection was closed during the call, as grpc.aio does.
                    raise BackendError("the backend cancelled the call", reason=Reason.BACKEND_CANCELLED) from None
                wait = _BACKOFF.drawn_after(attempt)
                self._retries += 1
            else:
                if pace is not None:
                    pace.answered()
                if outages is not None:
                    outages.answered[id(model)] = time.monotonic()
                return answer
            await asyncio.sleep(wait)

    def _pace_of(self, model: Model) -> CallPace:
        """The pace of what answers for a model: models of one server share it."""
        if (pace := self._paces.get(id(model))) is None:
            name = id(model) if self.outages is None else self.outages.name_of(model)
            pace = self._paces[id(model)] = self._paces.setdefault(name, CallPace())
        return pace

    @property
    def _is_spent(self) -> bool:
        return self._retries >= max(MIN_RETRIES, int(max(self.samples, self._calls) * RETRY_SHARE))


def _within(wait: float | None, seconds_left: Callable[[], float | None] | None) -> float | None:
    """A time that a server names; 0 if it is after the end of the call, which then stops no other call."""
    left = None if seconds_left is None else seconds_left()
    return 0.0 if wait is not None and left is not None and wait >= left else wait


def _too_late(error: BridgeError, wait: float, left: float) -> BridgeError:
    """The same error, which says that its time of the next try is too late; a later run may still succeed."""
    message = (
        f"{error.message}; it is to be queried again in {wait:,.0f} s, and the time limit is over before, in "
        f"{max(left, 0):,.0f} s (sample_timeout_ms of an evaluation, item_timeout_ms of a call)"
    )
    return type(error)(
        message,
        reason=error.reason,
        code=error.code,
        field=error.field,
        retryable=error.retryable,
        retry_after=error.retry_after,
        metadata=error.metadata,
    )


class RetryingModel(WrappedModel):
    """A model as one sample sees it: each call passes the gate, is counted with its usage, and is recorded.

    It has no reference to itself: a finished sample is freed at once, without the cycle collector.
    """

    __slots__ = (
        *("_answered", "_counts", "_gate", "_listener", "_reading", "_seconds_left", "_tokenizer", "_unmetered"),
        *("calls", "meter", "resolved_renderer", "waited"),
    )

    def __init__(
        self,
        model: Model,
        gate: RetryPolicy,
        answered: Callable[[], None] | None = None,
        listener: CallListener | None = None,
        renderer: str | None = None,
        seconds_left: Callable[[], float | None] | None = None,
        reading: Reading | None = None,
        charged: Charged | None = None,
        waited: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """Of a model.

        Args:
            model: the model.
            gate: each call passes it.
            answered: called after each call that succeeds.
            listener: receives prompts and answers.
            renderer: what `auto` was resolved to before.
            seconds_left: returns the seconds that the sample has left; None if its time has no end.
            reading: how it reads text; the model's if None.
            charged: called with what each answered call took.
            waited: called with the seconds that a call has waited for its turn at a server that limits its rate.
        """
        self.meter = meter = Meter(charged)
        """Usage of the calls that got an answer, including their failed tries."""
        metered = model.metered(meter) if model.reports_usage else None
        self._unmetered = model
        self._model = model if metered is None else metered
        self._counts = metered is None
        self._gate, self._answered, self._listener = gate, answered, listener
        self._seconds_left, self.waited = seconds_left, waited
        self.calls = 0
        """Calls made, retries included."""
        self.resolved_renderer = renderer
        self._reading = model.reading if reading is None else reading
        self._tokenizer: Tokenizer | None = None

    @property
    def reading(self) -> Reading:
        """How it reads text."""
        return self._reading

    @property
    def tokenizer(self) -> Tokenizer | None:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        """The model's tokenizer; its calls wait at the gate as the model's do."""
        found = self._tokenizer
        if found is None and (tokenizer := self._model.tokenizer) is not None:
            found = self._tokenizer = _GatedTokenizer(
                self._gate, self._unmetered, tokenizer, self._listener, self._reading
            )
        return found

    async def _through(
        self,
        question: Capability,
        method: Callable[..., Awaitable[Any]],
        arguments: tuple[Any, ...],
        options: Mapping[str, Any] | None = None,
    ) -> Any:
        listener, prompt, asked = self._listener, arguments[0], None
        if question in _FORWARDS:  # of examples: the first has the prompt
            prompt = prompt[0].model_input if prompt else None
        if listener is not None and prompt is not None:
            asked = listener.asked(prompt)
        self._gate.asking += 1
        try:
            answer = await self._gate.call(method, arguments, options, self, self._seconds_left, self._unmetered)
        finally:
            self._gate.asking -= 1
        if self._answered is not None:
            self._answered()
        if listener is not None and asked is not None and prompt is not None and question in _GENERATING:
            listener.answered(asked, prompt, answer)
        if self._counts:
            _COUNTS[question](self.meter, arguments, answer)
        if (logprobs := _LOGPROBS.get(question)) is not None:
            for logprob in logprobs(answer):
                if logprob > HIGHEST_LOGPROB:  # NaN is not
                    raise impossible(float(logprob))
        return answer


_GENERATING = frozenset({Capability.SAMPLE, Capability.SAMPLE_TEXT, Capability.SAMPLE_TOP})

_FORWARDS = frozenset({Capability.FORWARD, Capability.PARTS})


def _read_prompt(meter: Meter, arguments: tuple[Any, ...], answer: Any) -> None:
    meter.read((arguments[0],))


def _forwarded(meter: Meter, arguments: tuple[Any, ...], answer: Any) -> None:
    meter.forwarded(arguments[0])


_COUNTS: Mapping[Capability, Callable[[Meter, tuple[Any, ...], Any], None]] = {
    Capability.SAMPLE: lambda meter, arguments, answers: meter.sampled(arguments[0], answers),
    Capability.SAMPLE_TEXT: lambda meter, arguments, answers: meter.sampled(None, answers),
    Capability.LOGPROBS: _read_prompt,
    Capability.PROBE: _read_prompt,
    Capability.TARGETS: _read_prompt,
    Capability.CONTINUATIONS: lambda meter, arguments, answer: meter.read(
        (arguments[0],), further=sum(map(len, arguments[1]))
    ),
    Capability.ARGMAX: _read_prompt,
    Capability.DISTRIBUTIONS: _read_prompt,
    Capability.SAMPLE_TOP: lambda meter, arguments, answers: meter.sampled(
        arguments[0] if isinstance(arguments[0], ModelInput) else None, answers
    ),
    Capability.FORWARD: _forwarded,
    Capability.PARTS: _forwarded,
}
"""How each answered question is counted."""


def _of_sequences(answers: Sequence[SampledSequence]) -> Iterable[float]:
    for answer in answers:
        yield from answer.logprobs or ()
        if answer.top_logprobs is not None:
            yield from _largest((answer.top_logprobs,))


def _of_prompt(answer: Sequence[float | None]) -> Iterable[float]:
    return (logprob for logprob in answer if logprob is not None)


def _of_distributions(answer: Measured) -> Iterable[float]:
    return _largest((answer.logprobs, answer.top_logprobs, answer.target_logprobs))


def _largest(arrays: Iterable[np.ndarray | None]) -> Iterable[float]:
    """The largest number of each array that has one."""
    for array in arrays:
        if array is not None and np.size(array):
            yield float(np.fmax.reduce(np.asarray(array), axis=None))  # NaN counts as missing


_LOGPROBS: Mapping[Capability, Callable[[Any], Iterable[float]]] = {
    Capability.SAMPLE: _of_sequences,
    Capability.SAMPLE_TEXT: _of_sequences,
    Capability.SAMPLE_TOP: _of_sequences,
    Capability.LOGPROBS: _of_prompt,
    Capability.TARGETS: _of_prompt,
    Capability.CONTINUATIONS: _largest,
    Capability.DISTRIBUTIONS: _of_distributions,
    Capability.FORWARD: _largest,
    Capability.PARTS: _largest,
}
"""Log-probabilities of the answers of each question that has any, or the largest ones."""


class _GatedTokenizer(Tokenizer):
    """Retried like a call of the model, as it may live in the same process, but not counted as one."""

    __slots__ = ("_gate", "_listener", "_model", "_reading", "_tokenizer")

    def __init__(
        self, gate: RetryPolicy, model: Model, tokenizer: Tokenizer, listener: CallListener | None, reading: Reading
    ) -> None:
        self._gate, self._model, self._listener, self._reading = gate, model, listener, reading
        self._tokenizer = tokenizer.with_special_tokens() if reading.special_tokens else tokenizer

    @property
    def target_delimiter(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        known = self._reading.target_delimiter
        return self._tokenizer.target_delimiter if known is None else known

    @property
    def eos_token_id(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        return self._tokenizer.eos_token_id

    @property
    def bos_token_id(self) -> int | None:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        return self._tokenizer.bos_token_id

    @property
    def has_chat_template(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        return self._tokenizer.has_chat_template

    @property
    def tool_form(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] (read only)
        return self._tokenizer.tool_form

    async def encode(self, text: str) -> Sequence[int]:
        tokens = await self._gate.call(self._tokenizer.encode, (text,), model=self._model)
        if self._listener is not None:
            self._listener.encoded(text, tokens)
        return tokens

    async def encode_continuation(self, text: str) -> Sequence[int]:
        return await self._gate.call(self._tokenizer.encode_continuation, (text,), model=self._model)

    async def encode_all(self, texts: Sequence[str], *, continuations: bool = False) -> Sequence[Sequence[int]]:
        encoded = await self._gate.call(
            self._tokenizer.encode_all, (texts,), {"continuations": continuations}, model=self._model
        )
        if not continuations and self._listener is not None:
            for text, tokens in zip(texts, encoded):
                self._listener.encoded(text, tokens)
        return encoded

    async def tokenize(self, texts: Sequence[str], *, add_special_tokens: bool) -> Sequence[Sequence[int]]:
        return await self._gate.call(
            self._tokenizer.tokenize, (texts,), {"add_special_tokens": add_special_tokens}, model=self._model
        )

    async def encode_chat(self, messages: Sequence[ChatMessage], *, generation_prompt: bool) -> Sequence[int]:
        tokenizer, listener, options = self._tokenizer, self._listener, {"generation_prompt": generation_prompt}
        if listener is not None and type(tokenizer).render_chat is not Tokenizer.render_chat:
            return (await self.render_chat(messages, generation_prompt=generation_prompt)).tokens
        tokens = await self._gate.call(tokenizer.encode_chat, (messages,), options, model=self._model)
        if listener is not None:
            listener.encoded(Conversation(tuple(messages)), tokens)
        return tokens

    async def render_chat(
        self, messages: Sequence[ChatMessage], *, generation_prompt: bool, tools: Sequence[ToolSpec] = ()
    ) -> Rendered:
        options: dict[str, Any] = {"generation_prompt": generation_prompt}
        if tools:
            options["tools"] = tools
        rendered = await self._gate.call(self._tokenizer.render_chat, (messages,), options, model=self._model)
        return self._record(messages, rendered, tools)

    async def decode(self, tokens: Sequence[int]) -> str:
        return await self._gate.call(self._tokenizer.decode, (tokens,), model=self._model)

    async def show(self, tokens: Sequence[int]) -> str:
        return await self._gate.call(self._tokenizer.show, (tokens,), model=self._model)

    async def decode_calls(self, tokens: Sequence[int]) -> str:
        return await self._gate.call(self._tokenizer.decode_calls, (tokens,), model=self._model)

    async def parse_cookbook(self, renderer: str, response: RawResponse) -> ParsedResponse:
        return await self._gate.call(self._tokenizer.parse_cookbook, (renderer, response), model=self._model)

    async def render_cookbook(
        self,
        renderer: str,
        messages: Sequence[ChatMessage],
        *,
        train_on: str | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> Rendered:
        options: dict[str, Any] = {"train_on": train_on}
        if tools:
            options["tools"] = tools
        rendered = await self._gate.call(
            self._tokenizer.render_cookbook, (renderer, messages), options, model=self._model
        )
        return self._record(messages, rendered, tools)

    def _record(self, messages: Sequence[ChatMessage], rendered: Rendered, tools: Sequence[ToolSpec]) -> Rendered:
        if self._listener is not None:
            text = Conversation(tuple(messages), tuple(tools)) if rendered.text is None else rendered.text
            self._listener.encoded(text, rendered.tokens)
        return rendered


def sample_seed(evaluation_seed: int, sample_id: str, repeat: int) -> int:
    """The seed of one sample: a function of these three alone, so that every attempt draws the same."""
    text = f"{evaluation_seed}\0{repeat}\0{sample_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little") >> 1
