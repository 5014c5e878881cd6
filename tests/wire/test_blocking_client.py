"""The blocking twin: the same client for code without an event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge import codec
from crucible_bridge.errors import InvalidField, NotFound
from crucible_bridge.types import WorkerInfo
from crucible_bridge.v1 import evaluation_pb2, worker_pb2
from tests.wire.conftest import CannedWorker
from tests.wire.test_client import EVALUATION, REQUEST, RESULTS
from tests.wire.test_streams import records


async def in_a_thread(function: Callable[[], Any]) -> Any:
    """Run blocking code beside the server's event loop."""
    return await asyncio.wait_for(asyncio.to_thread(function), 20)


def client_threads() -> list[str]:
    """Threads of blocking clients."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("crucible-bridge")]


async def test_calls_and_errors_are_those_of_the_client(worker: CannedWorker, address: str):
    """Results, errors and their classes are the same, and the thread ends with the block."""
    worker.replies |= {
        "Evaluate": evaluation_pb2.EvaluateResponse(evaluation=codec.evaluation_to_v1(EVALUATION)),
        "GetEvaluation": NotFound("is gone"),
        "GetInfo": worker_pb2.GetInfoResponse(worker=worker_pb2.WorkerInfo(worker_id="w")),
    }

    def use() -> None:
        with crucible_bridge.connect_sync(address) as bridge:
            assert bridge.evaluation.evaluate(REQUEST) == EVALUATION
            assert bridge.worker.get_info() == WorkerInfo(worker_id="w", version="")
            assert bridge.worker.health() is True
            with pytest.raises(NotFound, match="is gone"):
                bridge.evaluation.get_evaluation("e-1")
            assert len(client_threads()) == 1

    await in_a_thread(use)

    assert client_threads() == []


async def test_every_method_shows_its_parameters(address: str):
    """`help` and an editor show those of the asynchronous method, and its documentation, not `*args`."""

    def use() -> None:
        with crucible_bridge.connect_sync(address) as bridge:
            seen = 0
            for space, namespace in vars(bridge._bridge).items():
                if space.startswith("_"):
                    continue
                for name in dir(getattr(bridge, space)):
                    method, wanted = getattr(getattr(bridge, space), name), getattr(namespace, name)
                    assert inspect.signature(method) == inspect.signature(wanted), name
                    assert (method.__name__, method.__doc__) == (name, wanted.__doc__)
                    seen += 1
            assert seen > 20
            assert "responses" in str(inspect.signature(bridge.grading.extract_code))

    await in_a_thread(use)


async def test_streams_become_blocking_iterators(worker: CannedWorker, address: str):
    """Events, batches and pages are iterated over with `for`; the position is there too."""
    samples = [codec.sample_result_to_v1(result) for result in RESULTS]
    worker.replies["GetSamples"] = evaluation_pb2.GetSamplesResponse(samples=samples)
    worker.pages = [(records(3, 5), "log", 7)]

    def use() -> None:
        with crucible_bridge.connect_sync(address) as bridge:
            stream = bridge.telemetry.subscribe(after_sequence=2)
            assert [event.sequence for event in stream] == [3, 5]
            assert (stream.through_sequence, stream.log_id) == (7, "log")
            assert [batch.through_sequence for batch in bridge.telemetry.subscribe().batches()] == [7]
            assert tuple(bridge.evaluation.all_samples("e-1")) == RESULTS

    await in_a_thread(use)


async def test_an_open_stream_ends_with_its_block(worker: CannedWorker, address: str):
    """Closing the iterator, or the client around it, ends the call at the worker."""
    worker.pages, worker.hold_streams = [(records(1), "log", 1)], True

    def close_iterator() -> None:
        with crucible_bridge.connect_sync(address) as bridge:
            with bridge.telemetry.subscribe() as stream:
                assert next(stream).sequence == 1
            assert list(stream) == []

    def close_client() -> None:
        with crucible_bridge.connect_sync(address) as bridge:
            assert next(bridge.telemetry.subscribe()).sequence == 1

    for use in (close_iterator, close_client):
        worker.streams_ended.clear()
        await in_a_thread(use)
        await asyncio.wait_for(worker.streams_ended.wait(), 5)
    assert client_threads() == []


async def test_several_threads_share_a_client(worker: CannedWorker, address: str):
    """Calls of many threads run side by side: each is answered only when all have arrived."""
    together = asyncio.Barrier(8)

    async def answer() -> worker_pb2.GetInfoResponse:
        await together.wait()
        return worker_pb2.GetInfoResponse(worker=worker_pb2.WorkerInfo(worker_id="w"))

    worker.replies["GetInfo"] = lambda _: answer()

    def use() -> list[WorkerInfo]:
        with crucible_bridge.connect_sync(address) as bridge, ThreadPoolExecutor(8) as pool:
            return [future.result() for future in [pool.submit(bridge.worker.get_info) for _ in range(8)]]

    assert len(await in_a_thread(use)) == 8


def test_a_client_that_cannot_be_made_leaves_no_thread():
    """A wrong address is refused, and nothing stays behind."""
    with pytest.raises(InvalidField), crucible_bridge.connect_sync("nowhere"):
        pass

    assert client_threads() == []


async def test_namespaces_list_their_calls(address: str):
    """Tab completion finds what the client can do."""

    def use() -> tuple[list[str], list[str]]:
        with crucible_bridge.connect_sync(address) as bridge:
            return dir(bridge), dir(bridge.evaluation)

    namespaces, calls = await in_a_thread(use)

    assert namespaces == ["evaluation", "grading", "metrics", "models", "telemetry", "worker"]
    assert {"evaluate", "start_evaluation", "watch_evaluation", "get_samples"} <= set(calls)
