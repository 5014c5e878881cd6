"""ModelService at its bounds: order, concurrency, deadlines, stalls, and calls that end before their answer."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import pytest

from crucible_bridge.errors import BackendError, BridgeError, Code, FailedPrecondition
from crucible_bridge.types import BatchLimits, LocalModel, ModelInput, SampledSequence, SamplingParams
from crucible_worker.testing import STALL, ScriptedModel, record_events, run_worker
from crucible_worker.util.limits import MIN_MESSAGE_BYTES, WorkerLimits
from tests.service.evaluation_kit import refused
from tests.service.models_kit import EIGHT, datum, reasons, texts
from tests.service.server_kit import until


async def test_order_is_the_requests_whatever_comes_first():
    """Many items at once, the first of them the slowest."""
    model = ScriptedModel()

    async def sample(prompt: ModelInput, params: SamplingParams, num_samples: int = 1) -> list[SampledSequence]:
        token = int(prompt.tokens()[0])
        await asyncio.sleep(0.001 * (token % 7))
        return [SampledSequence(text=str(token), tokens=(token,))]

    model.sample = sample  # type: ignore[method-assign]
    async with run_worker({"m": model}) as worker:
        answer = await worker.bridge.models.sample("embedded:m", [[token] for token in range(300, 0, -1)], EIGHT)

    assert texts(answer.items) == [str(token) for token in range(300, 0, -1)]


@pytest.mark.parametrize(("limits", "peak"), [(None, 4), (BatchLimits(concurrency=2), 2)])
async def test_so_many_at_once(limits: BatchLimits | None, peak: int):
    """As many as the request says, or the worker by default."""
    model = ScriptedModel(latency=0.005)
    async with run_worker({"m": model}, limits=WorkerLimits(default_concurrency=4)) as worker:
        await worker.bridge.models.sample("embedded:m", ["a"] * 20, EIGHT, limits=limits)

    assert model.counts["peak"] == peak


async def test_what_holds_for_all_items_is_refused_as_a_whole():
    """Nothing is asked."""
    limits = WorkerLimits(max_model_items=3, default_concurrency=4, max_concurrency=8)
    async with run_worker({"m": (model := ScriptedModel())}, limits=limits) as worker:
        sample, logprobs = worker.bridge.models.sample, worker.bridge.models.compute_logprobs
        await refused(sample("embedded:m", [], EIGHT), Code.INVALID_ARGUMENT, "INVALID_FIELD", "items")
        await refused(sample("embedded:m", ["a"] * 4, EIGHT), Code.INVALID_ARGUMENT, "INVALID_FIELD", "items")
        await refused(logprobs("embedded:m", [[1]] * 4), Code.INVALID_ARGUMENT, "INVALID_FIELD", "sequences")
        many = BatchLimits(concurrency=9)
        await refused(
            sample("embedded:m", ["a"], EIGHT, limits=many),
            Code.INVALID_ARGUMENT,
            "INVALID_FIELD",
            "limits.concurrency",
        )
        assert model.calls == 0
        await sample("embedded:m", ["a"] * 3, EIGHT, limits=BatchLimits(concurrency=8))

    assert model.calls == 3


async def test_models_that_cannot_be_asked_are_refused():
    """Unknown, of a kind that this worker has no place for, without the side that is needed, or refused on loading."""
    broken = ScriptedModel()

    async def load() -> None:
        raise FailedPrecondition("is refused", reason="MODEL_REFUSED")

    broken.load = load  # type: ignore[method-assign]
    scripted = {
        "broken": broken,
        "mute": ScriptedModel(sampled=False, trained=False),
        "sampler": ScriptedModel(trained=False),
        "trainer": ScriptedModel(sampled=False),
    }
    async with run_worker(scripted) as worker:
        models, precondition = worker.bridge.models, Code.FAILED_PRECONDITION
        await refused(models.sample("embedded:nobody", ["a"], EIGHT), Code.NOT_FOUND, "UNKNOWN_MODEL", "model")
        await refused(models.sample(LocalModel("x"), ["a"], EIGHT), precondition, "NO_BACKEND", "model")
        await refused(models.sample("embedded:broken", ["a"], EIGHT), precondition, "MODEL_REFUSED", "model")
        await refused(models.sample("embedded:trainer", ["a"], EIGHT), precondition, "MISSING_CLIENT", "model")
        await refused(models.compute_logprobs("embedded:mute", [[1]]), precondition, "MISSING_CLIENT", "model")
        await refused(models.forward("embedded:sampler", [datum(1, 2)]), precondition, "MISSING_CLIENT", "model")


async def test_at_the_deadline_what_there_is_stands():
    """Items without an answer are told so, and no call starts any more."""
    model = ScriptedModel(fault=lambda call: STALL if call.index >= 2 else None)
    async with run_worker({"m": model}) as worker:
        started = time.monotonic()
        answer = await worker.bridge.models.sample(
            "embedded:m", ["a"] * 10, EIGHT, limits=BatchLimits(concurrency=2, deadline_ms=200)
        )
        taken = time.monotonic() - started

    assert texts(answer.items) == ["A", "A", *[None] * 8]
    assert reasons(answer.items) == [None, None, *["DEADLINE_EXCEEDED"] * 8]
    assert taken >= 0.2
    assert (model.counts["sample"], model.counts["in_flight"]) == (4, 0)


async def test_a_deadline_before_the_model_is_ready_is_the_calls():
    """Then there is nothing that could stand."""
    model = ScriptedModel()

    async def load() -> None:
        await asyncio.Event().wait()

    model.load = load  # type: ignore[method-assign]
    async with run_worker({"m": model}) as worker:
        call = worker.bridge.models.sample("embedded:m", ["a"], EIGHT, limits=BatchLimits(deadline_ms=50))
        await refused(call, Code.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED", "limits.deadline_ms")


@pytest.mark.parametrize("own", [True, False], ids=["request", "worker"])
async def test_an_item_that_stalls_is_given_up(own: bool):
    """After its own time, its retries included; the others go on."""
    model = ScriptedModel(fault=lambda call: STALL if call.text == "b" else None)
    worker_limits = WorkerLimits() if own else WorkerLimits(default_sample_timeout_seconds=0.1)
    limits = BatchLimits(item_timeout_ms=100) if own else None
    async with run_worker({"m": model}, limits=worker_limits) as worker:
        answer = await worker.bridge.models.sample("embedded:m", ["a", "b", "c"], EIGHT, limits=limits)

    assert texts(answer.items) == ["A", None, "C"]
    problem = answer.items[1].problem
    assert problem is not None
    assert (problem.reason, problem.retryable) == ("ITEM_TIMEOUT", True)
    assert model.counts["in_flight"] == 0


async def test_a_timeout_inside_the_backend_is_no_timeout_of_the_item():
    """Python's TimeoutError from elsewhere is a bug like any other, and is not told as ours."""
    model = ScriptedModel()

    async def sample(*_: Any) -> list[SampledSequence]:
        raise TimeoutError

    model.sample = sample  # type: ignore[method-assign]
    async with run_worker({"m": model}) as worker:
        answer = await worker.bridge.models.sample("embedded:m", ["a"], EIGHT)

    assert reasons(answer.items) == ["INTERNAL"]


async def test_when_the_caller_goes_no_more_is_asked():
    """What is under way is given up, nothing new starts."""
    model = ScriptedModel(fault=lambda call: STALL if call.text == "a" else None)
    async with run_worker({"m": model}) as worker:
        call = asyncio.create_task(
            worker.bridge.models.sample("embedded:m", ["a"] * 10, EIGHT, limits=BatchLimits(concurrency=3))
        )
        await until(lambda: model.counts["in_flight"] == 3)
        call.cancel()
        await until(lambda: model.counts["in_flight"] == 0)
        with pytest.raises(asyncio.CancelledError):
            await call
        await worker.bridge.models.sample("embedded:m", ["b"], EIGHT)

    assert model.counts["sample"] == 4


async def test_a_drain_ends_a_batch_that_waits():
    """UNAVAILABLE, DRAINING: another worker may serve; nothing goes on here."""
    model = ScriptedModel(fault=lambda call: STALL)
    async with run_worker({"m": model}) as worker:
        call = asyncio.create_task(worker.bridge.models.forward("embedded:m", [datum(1, 2)] * 5))
        await until(lambda: model.counts["in_flight"] == 5)
        await worker.bridge.worker.drain()
        error = await refused(call, Code.UNAVAILABLE, "DRAINING")
        assert error.retryable
        await until(lambda: model.counts["in_flight"] == 0)


async def test_an_answer_that_outgrows_a_message_costs_what_has_no_room():
    """A problem at its place, in place of an error for all."""
    limits = WorkerLimits(max_message_bytes=MIN_MESSAGE_BYTES)
    async with run_worker({"m": ScriptedModel(answer=lambda prompt: "x" * int(prompt))}, limits=limits) as worker:
        answer = await worker.bridge.models.sample(
            "embedded:m", ["10", str(MIN_MESSAGE_BYTES), "20"], SamplingParams(max_tokens=MIN_MESSAGE_BYTES)
        )

    assert reasons(answer.items) == [None, "ANSWER_TOO_LARGE", None]


async def test_a_large_request_is_read_as_any_other():
    """A thread reads it; its items are answered in order."""
    sequences = [np.arange(start, start + 500) for start in range(200)]
    async with run_worker({"m": (model := ScriptedModel())}) as worker:
        answer = await worker.bridge.models.compute_logprobs("embedded:m", sequences)

    for sequence, found in zip(sequences, answer.sequences, strict=True):
        expected = [model.logprob(int(token), index) for index, token in enumerate(sequence[1:])]
        np.testing.assert_array_equal(found.logprobs, expected)  # type: ignore[arg-type]


async def test_no_event_is_told_and_limits_are():
    """The log stays as it is; GetInfo names the bounds of a batch."""
    async with run_worker({"m": ScriptedModel()}) as worker, record_events(worker.bridge) as recorder:
        await worker.bridge.models.sample("embedded:m", ["a"], EIGHT)
        await worker.bridge.metrics.compute_mean_nll([[-1.0]], [[1.0]])
        await recorder.wait_for(lambda event: True)
        info = await worker.bridge.worker.get_info()

    assert [event.metadata.get("call") for event in recorder.events] == ["ComputeMeanNLL"]
    assert (info.limits["max_model_items"], info.limits["max_samples_per_item"]) == (4_096, 1_000)


async def test_retryable_failures_of_loading_are_asked_again():
    """A host that died once does not cost the batch."""
    model, failures = ScriptedModel(), iter([BackendError("died", retry_after=0.0)])

    async def load() -> None:
        error: BridgeError | None = next(failures, None)
        if error is not None:
            raise error

    model.load = load  # type: ignore[method-assign]
    async with run_worker({"m": model}) as worker:
        answer = await worker.bridge.models.sample("embedded:m", ["a"], EIGHT)

    assert texts(answer.items) == ["A"]
