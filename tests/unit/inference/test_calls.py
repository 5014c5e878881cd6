"""The gate of model calls: retries within bounds, and nothing after it is closed."""

import asyncio
import math

import numpy as np
import pytest

from crucible_bridge.errors import BackendError, Cancelled, FailedPrecondition, InvalidField
from crucible_bridge.types import Datum, ImageChunk, ModelInput, SampledSequence, SamplingParams, Usage
from crucible_worker.backends.base import Capability, Model
from crucible_worker.backends.distributions import Measured, Wanted
from crucible_worker.inference.retries import (
    ATTEMPTS_PER_CALL,
    MIN_RETRIES,
    MISFITS_PER_CALL,
    RETRY_SHARE,
    RetryingModel,
    RetryPolicy,
)
from crucible_worker.testing import ScriptedModel
from tests.tables import rows

PROMPT, PARAMS = ModelInput.of([1, 2]), SamplingParams(max_tokens=1)


class Backend:
    """Fails so many times, then answers; counts."""

    def __init__(self, failures, error=None):
        self.failures, self.calls = failures, 0
        self.error = error or BackendError("busy", retry_after=0.0)
        self.watched: RetryingModel | None = None
        self.counted: list[int] = []

    async def call(self):
        self.calls += 1
        if self.watched is not None:
            self.counted.append(self.watched.calls)
        if self.calls <= self.failures:
            raise self.error
        return "answer"


@pytest.mark.parametrize("failures", [0, 1, ATTEMPTS_PER_CALL - 1])
async def test_retried_until_it_works(failures):
    """As many failures as leave one try: the answer is returned, and every try was counted before it was made."""
    backend, gate = Backend(failures), RetryPolicy(10)
    model = RetryingModel(ScriptedModel(), gate)
    backend.watched = model
    answer = await gate.call(backend.call, counter=model)
    assert answer == "answer"
    assert backend.counted == list(range(1, failures + 2))


async def test_tries_of_one_call_are_bounded():
    """One failure more, and the last error is raised."""
    backend = Backend(ATTEMPTS_PER_CALL)
    with pytest.raises(BackendError):
        await RetryPolicy(1000).call(backend.call)
    assert backend.calls == ATTEMPTS_PER_CALL


@pytest.mark.parametrize(("failures", "answered"), [(MISFITS_PER_CALL - 1, True), (MISFITS_PER_CALL, False)])
async def test_an_answer_that_cannot_be_used_is_repeated_once(failures: int, answered: bool):
    """Each was generated and paid for: another one is tried once, whatever came between."""
    misfit = BackendError("no choice", reason="BACKEND_ANSWER")
    backend = Backend(failures, misfit)
    if answered:
        assert await RetryPolicy(1000).call(backend.call) == "answer"
    else:
        with pytest.raises(BackendError, match="no choice"):
            await RetryPolicy(1000).call(backend.call)
    assert backend.calls == MISFITS_PER_CALL

    errors = [BackendError("busy", retry_after=0.0), misfit, BackendError("busy", retry_after=0.0), misfit]

    async def mixed() -> str:
        raise errors.pop(0)

    with pytest.raises(BackendError, match="no choice"):
        await RetryPolicy(1000).call(mixed)
    assert not errors


@rows(("wait", "left"), [(5.0, 5.0), (3600.0, 5.0), (5.0, 0.0)])
async def test_a_time_beyond_the_samples_is_reported_at_once(wait: float, left: float):
    """No call waits for what it cannot live to see; the error says when, and that it may succeed later."""
    limited = BackendError("too many", reason="BACKEND_RATE_LIMITED", retry_after=wait)
    backend = Backend(1, limited)
    with pytest.raises(BackendError, match="too many; it is to be queried again in") as caught:
        await RetryPolicy(10).call(backend.call, seconds_left=lambda: left)
    assert f"{wait:,.0f} s" in caught.value.message
    assert (caught.value.reason, caught.value.retryable, caught.value.retry_after) == (
        "BACKEND_RATE_LIMITED",
        True,
        wait,
    )
    assert backend.calls == 1


@rows(("wait", "left"), [(0.01, 60.0), (0.01, None), (None, 0.0)])
async def test_a_time_within_the_samples_is_waited_for(wait: float | None, left: float | None):
    """Without a time of the server, or with one that comes in time, the call is made again."""
    backend = Backend(1, BackendError("too many", reason="BACKEND_RATE_LIMITED", retry_after=wait))
    assert await RetryPolicy(10).call(backend.call, seconds_left=lambda: left) == "answer"
    assert backend.calls == 2


async def test_final_errors_are_not_retried():
    """An error that is not retryable is raised at once."""
    for error in (InvalidField("prompt", "is too long"), BackendError("broken", retryable=False)):
        backend = Backend(1, error)
        with pytest.raises(type(error)):
            await RetryPolicy(10).call(backend.call)
        assert backend.calls == 1


async def test_other_exceptions_pass():
    """What is no BridgeError is nobody's to retry."""
    backend = Backend(1, ZeroDivisionError())  # pyright: ignore[reportArgumentType]
    with pytest.raises(ZeroDivisionError):
        await RetryPolicy(10).call(backend.call)
    assert backend.calls == 1


@rows("samples", [0, 1, 33, 34, 40, 1000])
async def test_budget_of_retries(samples):
    """All calls together are retried as often as the share of the samples says, at least MIN_RETRIES times."""
    gate, backend = RetryPolicy(samples), Backend(10**6)
    budget, asked = max(MIN_RETRIES, int(samples * RETRY_SHARE)), 0
    while backend.calls - asked < budget:
        asked += 1
        with pytest.raises(BackendError):
            await gate.call(backend.call)
    before = backend.calls
    for _ in range(3):
        with pytest.raises(BackendError):
            await gate.call(backend.call)
    assert backend.calls == before + 3


async def test_the_budget_grows_with_the_calls_that_a_sample_takes():
    """Of samples that take ten calls each, as many may be made again as of ten times the samples with one."""
    samples, calls = 40, 10
    gate, failing = RetryPolicy(samples), Backend(10**6)
    for _ in range(samples):
        model = RetryingModel(ScriptedModel(), gate)
        assert model.sampling is not None
        await asyncio.gather(*(model.sampling.compute_logprobs(PROMPT) for _ in range(calls)))

    asked, before = 0, -2
    while failing.calls - before > 1:  # the last one is not made again
        asked, before = asked + 1, failing.calls
        with pytest.raises(BackendError):
            await gate.call(failing.call)

    assert failing.calls - asked == int(samples * calls * RETRY_SHARE)


async def test_closed_gate_lets_nothing_through():
    """After close no call is made, neither a new one nor the next try of one that waits."""
    gate, backend = RetryPolicy(10), Backend(1, BackendError("busy", retry_after=0.001))
    retried = asyncio.create_task(gate.call(backend.call))
    while backend.calls == 0:
        await asyncio.sleep(0)
    gate.close()
    for call in (retried, gate.call(backend.call)):
        with pytest.raises(Cancelled):
            await call
    assert backend.calls == 1


async def test_gated_model_counts_model_calls_alone():
    """Sampling, log-probabilities and forward passes count; the tokenizer passes the gate uncounted."""
    from crucible_bridge.types import Datum

    gate = RetryPolicy(10)
    model = RetryingModel(ScriptedModel(), gate)
    assert model.tokenizer is not None
    assert model.sampling is not None
    assert model.training is not None
    await model.tokenizer.encode("a")
    assert model.calls == 0
    await model.sampling.sample(PROMPT, PARAMS)
    await model.sampling.compute_logprobs(PROMPT)
    await model.training.forward([Datum(model_input=[1], loss_fn_inputs={"target_tokens": [2]})])
    assert model.calls == 3
    gate.close()
    with pytest.raises(Cancelled):
        await model.tokenizer.encode("a")


def test_gated_model_has_the_sides_of_its_model():
    """A side that the model lacks is lacking behind the gate."""
    model = RetryingModel(ScriptedModel(trained=False, fingerprint="f"), RetryPolicy(1))
    assert (model.training, model.fingerprint) == (None, "f")
    assert RetryingModel(ScriptedModel(sampled=False), RetryPolicy(1)).sampling is None


async def test_call_that_the_backend_cancels_by_itself_is_retried():
    """A backend whose connection is closed under a call cancels it; nobody asked for that, so it is asked again."""
    tries = 0

    async def cancelled_once() -> str:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise asyncio.CancelledError
        return "answer"

    assert await RetryPolicy(samples=100).call(cancelled_once) == "answer"
    assert tries == 2


async def test_call_that_is_cancelled_from_outside_ends():
    """Cancelling the task that waits for a call ends it, and asks nothing again."""
    waiting = asyncio.Event()
    tries = 0

    async def never() -> None:
        nonlocal tries
        tries += 1
        waiting.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(RetryPolicy(samples=100).call(never))
    await waiting.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert tries == 1


class Words(ScriptedModel):
    """Takes words, too."""

    async def sample_text(self, input, params, num_samples=1, *, plain=False):
        raise AssertionError("nothing is sampled")


class Targets(ScriptedModel):
    """Measures other tokens than a prompt's, too."""

    async def compute_target_logprobs(self, prompt, targets):
        raise AssertionError("nothing is measured")


class Continuations(ScriptedModel):
    """Takes all continuations of a prompt at once, too."""

    async def compute_continuation_logprobs(self, prompt, continuations):
        await self.compute_logprobs(prompt)
        return [np.zeros(len(tokens)) for tokens in continuations]


class Mute(Model):
    """Samples, and tells no likeliest tokens."""

    fingerprint = "mute"

    async def sample(self, prompt, params, num_samples=1):
        raise AssertionError("nothing is sampled")


@rows("kind", [ScriptedModel, Words, Targets, Continuations])
async def test_likeliest_tokens_pass_the_gate(kind):
    """Whatever else a client can do: counted and retried; one that does not tell them does not behind the gate."""
    model = kind(fault=lambda call: BackendError("busy", retry_after=0.0) if call.index == 0 else None)
    gated = RetryingModel(model, RetryPolicy(10))

    assert gated.capabilities == model.capabilities
    assert (Capability.TARGETS in gated.capabilities) is (kind is Targets)
    assert (Capability.CONTINUATIONS in gated.capabilities) is (kind is Continuations)
    assert (Capability.SAMPLE_TEXT in gated.capabilities) is (kind is Words)
    found = await gated.compute_argmax(PROMPT)

    assert (len(found), gated.calls) == (2, 2)
    with pytest.raises(FailedPrecondition, match=r"^model does not answer compute_argmax; it answers sample$"):
        await RetryingModel(Mute(), RetryPolicy(10)).compute_argmax(PROMPT)


class Improbable(ScriptedModel):
    """Returns one value as each log-probability."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    async def sample(self, prompt, params, num_samples=1):
        return [SampledSequence(text="x", tokens=(1, 2), logprobs=(-1.0, self.value))] * num_samples

    async def sample_text(self, input, params, num_samples=1, *, plain=False):
        return await self.sample(PROMPT, params, num_samples)

    async def sample_with_top(self, input, params, num_samples, top):
        tops = np.array([[-0.5, -1.0], [self.value, -1.0]])
        return [SampledSequence(text="x", tokens=(1, 2), top_tokens=np.ones((2, 2), np.int32), top_logprobs=tops)]

    async def compute_logprobs(self, prompt):
        return (None, self.value)

    async def compute_target_logprobs(self, prompt, targets):
        return (-1.0, self.value)

    async def compute_continuation_logprobs(self, prompt, continuations):
        return [np.array([-1.0]), np.array([self.value])]

    async def compute_distributions(self, prompt, wanted):
        return Measured(logprobs=np.array([-1.0]), target_logprobs=np.array([[np.nan, self.value]]))

    async def forward(self, data):
        return [np.array([-1.0, np.nan, self.value], np.float32), np.array([])]

    async def forward_parts(self, data):
        return await self.forward(data)


@rows(
    "call",
    [
        lambda model: model.sample(PROMPT, PARAMS),
        lambda model: model.sample_text("x", PARAMS),
        lambda model: model.sample_with_top(PROMPT, PARAMS, 1, 2),
        lambda model: model.compute_logprobs(PROMPT),
        lambda model: model.compute_target_logprobs(PROMPT, [(1, 2)]),
        lambda model: model.compute_continuation_logprobs(PROMPT, [[2], [3]]),
        lambda model: model.compute_distributions(PROMPT, Wanted(last=1)),
        lambda model: model.forward([]),
        lambda model: model.forward_parts([]),
    ],
)
async def test_no_log_probability_is_above_zero(call):
    """Of any backend, in the answer to any question: refused once and with its reason; rounding and NaN are kept."""
    for value in (0.0011, 0.5, math.inf):
        gated = RetryingModel(Improbable(value), RetryPolicy(10))
        with pytest.raises(BackendError, match="above 0") as caught:
            await call(gated)
        assert (caught.value.reason, caught.value.retryable, gated.calls) == ("IMPOSSIBLE_LOGPROBS", False, 1)
    for value in (0.0009, 0.0, -math.inf, math.nan):
        await call(RetryingModel(Improbable(value), RetryPolicy(10)))


async def test_continuations_pass_the_gate():
    """Of a client that takes them at once: counted and retried as other calls are."""
    model = Continuations(fault=lambda call: BackendError("busy", retry_after=0.0) if call.index == 0 else None)
    gated = RetryingModel(model, RetryPolicy(10))

    assert Capability.CONTINUATIONS in gated.capabilities
    found = await gated.compute_continuation_logprobs(PROMPT, [[2]])

    assert (len(found), gated.calls) == (1, 2)


def test_a_context_is_known_behind_the_gate():
    """Where the model knows it."""
    assert RetryingModel(ScriptedModel(context_length=9), RetryPolicy(1)).context_length == 9
    assert RetryingModel(ScriptedModel(), RetryPolicy(1)).context_length is None


class Windows(ScriptedModel):
    """Takes windows together."""

    async def forward_parts(self, data):
        return await self.forward(data)


async def test_windows_pass_the_gate():
    """Counted and retried as forward passes are; of a model that does not take them together they are some."""
    model = Windows(fault=lambda call: BackendError("busy", retry_after=0.0) if call.index == 0 else None)
    gated, plain = (RetryingModel(each, RetryPolicy(10)) for each in (model, ScriptedModel()))
    datum = Datum(model_input=PROMPT, loss_fn_inputs={"target_tokens": np.array([2, 3])})

    assert Capability.PARTS in gated.capabilities
    assert Capability.PARTS not in plain.capabilities
    (found,), (other,) = await gated.forward_parts([datum]), await plain.forward_parts([datum])

    assert (found.shape, gated.calls) == ((2,), 2)
    assert (other.shape, plain.calls) == ((2,), 1)


class Everything(Windows):
    """Takes windows and words, and counts the tokens of both."""

    async def sample_text(self, input, params, num_samples=1, *, plain=False):
        await self.compute_logprobs(PROMPT)
        return [SampledSequence(text="ab", tokens=(), token_count=2, prompt_tokens=7)] * num_samples


class Answers(ScriptedModel):
    """Measures other tokens than a prompt's."""

    async def compute_target_logprobs(self, prompt, targets):
        await self.compute_logprobs(prompt)
        return [-1.0] * len(targets)


DATUM = Datum(model_input=PROMPT, loss_fn_inputs={"target_tokens": np.array([2, 3])})
IMAGE = ModelInput((*PROMPT.chunks, ImageChunk(data=b"", format="png")))
TOLD = ModelInput((*PROMPT.chunks, ImageChunk(data=b"", format="png", expected_tokens=5)))

COUNTED = [
    (ScriptedModel, lambda it: it.sample(PROMPT, SamplingParams(max_tokens=4), 3), (2, 6)),
    (ScriptedModel, lambda it: it.compute_logprobs(PROMPT), (2, 0)),
    (ScriptedModel, lambda it: it.compute_argmax(PROMPT), (2, 0)),
    (ScriptedModel, lambda it: it.forward([DATUM, DATUM]), (4, 0)),
    (Everything, lambda it: it.forward_parts([DATUM, DATUM]), (4, 0)),
    (Everything, lambda it: it.sample_text("a", PARAMS, 3), (7, 6)),
    (Continuations, lambda it: it.compute_continuation_logprobs(PROMPT, [[1], [2, 3]]), (5, 0)),
    (Answers, lambda it: it.compute_target_logprobs(PROMPT, [(1, 2)]), (2, 0)),
]
"""A model, a call of it, and the tokens of its prompt and of its output."""


@rows(("kind", "call", "tokens"), COUNTED)
async def test_what_a_call_took_is_counted(kind, call, tokens):
    """Of every kind of call, once it is answered; a failed try costs nothing."""
    model = kind(fault=lambda call: BackendError("busy", retry_after=0.0) if call.index == 0 else None)
    gated = RetryingModel(model, RetryPolicy(10))
    assert gated.meter.usage is None
    await call(gated)
    assert gated.meter.usage == Usage(prompt_tokens=tokens[0], output_tokens=tokens[1], calls=1)


class Sees(ScriptedModel):
    """Takes images, and says "x" in tokens, or in words alone."""

    words = False

    async def sample(self, prompt, params, num_samples=1):
        return [SampledSequence(text="x", tokens=() if self.words else (1,))]


@rows(
    ("prompt", "words", "usage"),
    [
        (IMAGE, False, Usage(output_tokens=1, calls=1, unreported_calls=1)),
        (TOLD, False, Usage(prompt_tokens=7, output_tokens=1, calls=1)),
        (PROMPT, True, Usage(prompt_tokens=2, calls=1, unreported_calls=1)),
    ],
)
async def test_what_cannot_be_counted_is_not_reported(prompt, words, usage):
    """Images that do not say their tokens, and words of an answer whose tokens nobody tells."""
    model = Sees()
    model.words = words
    gated = RetryingModel(model, RetryPolicy(10))
    assert gated.sampling is not None
    await gated.sampling.sample(prompt, PARAMS)
    assert gated.meter.usage == usage


class Metered(ScriptedModel):
    """Tells a meter more than its answers do: a try that failed was charged."""

    def metered(self, meter):
        meter.add(100, 10, 50, 5)
        return self


async def test_a_model_that_tells_what_it_took_is_not_counted_again():
    """Its own word counts, and once the meter is closed nothing does."""
    gated = RetryingModel(Metered(), RetryPolicy(10))
    assert gated.sampling is not None
    await gated.sampling.compute_logprobs(PROMPT)
    whole = Usage(prompt_tokens=100, cached_prompt_tokens=50, reasoning_tokens=5, output_tokens=10, calls=1)
    assert gated.meter.usage == whole
    gated.meter.close()
    gated.meter.add(1, 1)
    assert gated.meter.usage == whole
