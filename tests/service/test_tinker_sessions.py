"""What models of a Tinker service share: clients made once, calls that stall or are cancelled, and how many at once."""

import asyncio
import time

import numpy as np
import pytest

from crucible_bridge.errors import BackendError, BridgeError
from crucible_bridge.types import Datum, ModelInput, SamplingParams, TinkerModel
from crucible_worker.backends.tinker.backend import MAX_MODELS, TinkerBackend
from tests.service.tinker_kit import (
    SAMPLER,
    STATE,
    Call,
    Fault,
    HereLoaded,
    ScriptedLibrary,
    sampled,
    served,
    service,
    status,
)

PARAMS = SamplingParams(max_tokens=8)
PROMPT = ModelInput.of([ord("a"), ord("b")])
TRAINING = TinkerModel(state_path=STATE)


def datum(*tokens: int) -> Datum:
    """A datum whose targets are its input, moved by one."""
    return Datum(model_input=list(tokens[:-1]), loss_fn_inputs={"target_tokens": np.array(tokens[1:])})


async def test_clients_are_made_once_and_shared(tmp_path):
    """One session a service and one client a model, however many open it and ask at once; finished when it closes."""
    library = ScriptedLibrary()
    backend = TinkerBackend([service(tmp_path)], library, tokenizers=HereLoaded(library))
    models = [await backend.open(TinkerModel(model_path=SAMPLER)) for _ in range(3)]
    models.append(await backend.open(TinkerModel(model_path=SAMPLER, service="default")))
    await asyncio.gather(*(model.load() for model in models for _ in range(3)))
    other = await backend.open(TinkerModel(base_model="tiny/other"))
    await other.load()
    assert len(library.of("session")) == 1
    assert [call.asked["base_model"] for call in library.of("sampler")] == [None, "tiny/other"]
    assert len({model.fingerprint for model in [*models, other]}) == 2
    await backend.aclose()
    await backend.aclose()
    assert library.closed == 1
    with pytest.raises(BridgeError) as caught:
        await (await backend.open(TinkerModel(base_model="tiny/third"))).load()
    assert caught.value.reason == "BACKEND_CLOSED"


async def test_so_many_models_are_kept_and_no_more(tmp_path):
    """The one asked least recently is forgotten first; whoever holds it goes on with it."""
    backend = TinkerBackend([service(tmp_path)], ScriptedLibrary())
    refs = [TinkerModel(base_model=f"m{index}") for index in range(MAX_MODELS + 1)]
    opened = [await backend.open(ref) for ref in refs]
    assert await backend.open(refs[1]) is opened[1]
    assert await backend.open(refs[0]) is not opened[0]


async def test_a_client_that_could_not_be_made_is_made_anew(tmp_path):
    """A failure is told to all who wait for it, and forgotten."""

    def script(call: Call):
        return status(503) if (call.kind, call.index) == ("sampler", 0) else None

    async with served(tmp_path, script) as (library, model):
        failures = await asyncio.gather(model.load(), model.load(), return_exceptions=True)
        assert [getattr(failure, "reason", failure) for failure in failures] == ["BACKEND_FAILED"] * 2
        await model.load()
    assert len(library.of("sampler")) == 2


async def test_a_stall_is_bounded_and_other_answers_are_progress(tmp_path):
    """A call ends when nothing at all was answered for so long, not before; what it began is cancelled."""
    stall = 0.6

    def script(call: Call):
        return Fault.STALL if call.kind == "sample" and call.text == "ab" else None

    async with served(tmp_path, script, stall_seconds=stall) as (library, model):
        await model.load()
        sampling = model.sampling
        assert sampling is not None
        began = answered = time.monotonic()
        waiting = asyncio.create_task(sampling.sample(PROMPT, PARAMS))
        while time.monotonic() < began + 1.5 * stall:
            assert not waiting.done()
            answered = time.monotonic()
            await sampling.compute_logprobs(PROMPT)
            await asyncio.sleep(stall / 10)
        with pytest.raises(BackendError) as caught:
            await waiting
    assert (caught.value.reason, caught.value.retryable) == ("BACKEND_TIMEOUT", True)
    assert time.monotonic() - answered >= stall
    assert library.of("sample")[0].future.cancelled()


async def test_a_cancelled_sample_is_cancelled_at_the_library(tmp_path):
    """Nobody waits for it any longer, so that the service need not go on; the next may take its turn."""

    def script(call: Call):
        return Fault.STALL if call.kind == "sample" and call.index == 0 else None

    async with served(tmp_path, script, max_in_flight=1) as (library, model):
        await model.load()
        assert model.sampling is not None
        waiting = asyncio.create_task(model.sampling.sample(PROMPT, PARAMS))
        while not library.of("sample"):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert library.of("sample")[0].future.cancelled()
        assert await model.sampling.sample(PROMPT, PARAMS)


async def test_a_cancelled_forward_pass_is_forgotten(tmp_path):
    """It is not ended: the library takes requests in order, and one that is never sent holds up all after it."""

    def script(call: Call):
        return Fault.STALL if call.kind == "forward" and call.index == 0 else None

    async with served(tmp_path, script, TRAINING) as (library, model):
        assert model.training is not None
        waiting = asyncio.create_task(model.training.forward([datum(1, 2)]))
        while not library.of("forward"):
            await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        (call,) = library.of("forward")
        assert not call.future.cancelled()
        call.future.set_exception(status(500))  # comes too late, and is nobody's trouble
        assert await model.training.forward([datum(1, 2)])
    assert len(library.of("trainer")) == 1


async def test_a_training_client_that_stalls_is_made_anew(tmp_path):
    """Its order of requests may be broken for good."""

    def script(call: Call):
        return Fault.STALL if call.kind == "forward" and call.index == 0 else None

    async with served(tmp_path, script, TRAINING, stall_seconds=0.1) as (library, model):
        assert model.training is not None
        with pytest.raises(BackendError, match="has answered no call"):
            await model.training.forward([datum(1, 2)])
        assert await model.training.forward([datum(1, 2)])
    assert len(library.of("trainer")) == 2


async def test_a_session_that_does_not_come_about_is_given_up(tmp_path):
    """Whoever waits is told in time, and the session that comes about later is finished at once."""
    async with served(tmp_path, lambda call: Fault.STALL, stall_seconds=0.05) as (library, model):
        with pytest.raises(BackendError) as caught:
            await model.load()
        assert caught.value.reason == "BACKEND_UNREACHABLE"
        library.of("session")[0].future.set_result(object())
        async with asyncio.timeout(10):
            while not library.closed:
                await asyncio.sleep(0.001)


async def test_no_more_are_asked_at_once_than_the_settings_say(tmp_path):
    """The others wait for their turn."""

    def script(call: Call):
        return Fault.STALL if call.kind == "sample" else None

    async with served(tmp_path, script, max_in_flight=2) as (library, model):
        await model.load()
        assert model.sampling is not None
        waiting = [asyncio.create_task(model.sampling.sample(PROMPT, PARAMS)) for _ in range(5)]
        for done in range(5):
            async with asyncio.timeout(10):
                while len(library.of("sample")) < min(5, done + 2):
                    await asyncio.sleep(0.001)
            for _ in range(10):
                await asyncio.sleep(0)
            assert len(library.of("sample")) == min(5, done + 2)
            library.of("sample")[done].future.set_result(sampled([65]))
        assert len(await asyncio.gather(*waiting)) == 5
