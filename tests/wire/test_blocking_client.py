"""The blocking twin: the same client for code without an event loop."""

from __future__ import annotations

import asyncio
import gc
import inspect
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import crucible_bridge
from crucible_bridge import client, codec
from crucible_bridge.errors import Cancelled, InvalidField, NotFound
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


def public_methods(kind: type) -> dict[str, Any]:
    """The functions that a class offers, by name."""
    return {name: function for name, function in inspect.getmembers(kind, callable) if not name.startswith("_")}


TWINS = [
    (client.Bridge, client.BlockingBridge),
    (client.EvaluationClient, client.BlockingEvaluationClient),
    (client.GradingClient, client.BlockingGradingClient),
    (client.MetricsClient, client.BlockingMetricsClient),
    (client.ModelsClient, client.BlockingModelsClient),
    (client.TelemetryClient, client.BlockingTelemetryClient),
    (client.WorkerClient, client.BlockingWorkerClient),
]


@pytest.mark.parametrize(("one", "other"), TWINS, ids=lambda kind: kind.__name__)
def test_both_clients_have_the_same_methods(one: type, other: type):
    """Names, parameters, defaults and documentation are those of the asynchronous method."""
    own = {"close"} if other is client.BlockingBridge else set()
    ours, theirs = public_methods(one), public_methods(other)

    assert ours.keys() == theirs.keys() - own
    for name, method in ours.items():
        wanted, found = inspect.signature(method), inspect.signature(theirs[name])
        assert found.parameters == wanted.parameters, name
        assert inspect.getdoc(theirs[name]) == inspect.getdoc(method), name


@pytest.mark.parametrize("kind", [kind for pair in TWINS for kind in pair], ids=lambda kind: kind.__name__)
def test_every_parameter_has_a_type(kind: type):
    """No parameter of a call is anything: an editor can tell what each takes."""
    for name, method in public_methods(kind).items():
        for parameter in list(inspect.signature(method).parameters.values())[1:]:
            assert parameter.annotation not in (inspect.Parameter.empty, "Any", Any), f"{name}({parameter.name})"


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

    services = {"evaluation", "experiments", "grading", "metrics", "models", "rendering", "telemetry", "worker"}
    assert services | {"close", "experiment", "follow", "unfollow", "wait_for_worker"} == {
        name for name in namespaces if not name.startswith("_")
    }
    assert {"evaluate", "start_evaluation", "watch_evaluation", "get_samples"} <= set(calls)


async def test_a_client_needs_no_block(worker: CannedWorker, address: str):
    """What `connect_sync` returns is the client itself; closing it ends its thread, and may be repeated."""
    worker.replies["GetInfo"] = worker_pb2.GetInfoResponse(worker=worker_pb2.WorkerInfo(worker_id="w"))

    def use() -> None:
        bridge = crucible_bridge.connect_sync(address)
        assert bridge.worker.get_info() == WorkerInfo(worker_id="w", version="")
        bridge.close()
        bridge.close()

    await in_a_thread(use)

    assert client_threads() == []


async def test_a_closed_client_refuses_calls(worker: CannedWorker, address: str):
    """Calls, streams and pages of a closed client raise the same error as those of the asynchronous one."""
    worker.pages, worker.hold_streams = [(records(1, 2), "log", 2)], True

    def use() -> list[Cancelled]:
        errors = []
        with crucible_bridge.connect_sync(address) as bridge:
            stream = bridge.telemetry.subscribe()
            assert next(stream).sequence == 1
        for call in (
            bridge.worker.get_info,
            bridge.telemetry.subscribe,
            lambda: next(stream),
            lambda: next(bridge.evaluation.all_samples("e")),
            lambda: bridge.wait_for_worker(1),
        ):
            with pytest.raises(Cancelled) as caught:
                call()
            errors.append(caught.value)
        stream.close()
        return errors

    errors = await in_a_thread(use)

    assert {(error.reason, error.message) for error in errors} == {("CLIENT_CLOSED", "the client is closed")}


async def test_closing_ends_calls_that_wait(worker: CannedWorker, address: str):
    """A thread that waits for an answer gets an error when another one closes the client."""
    arrived, loop = threading.Event(), asyncio.get_running_loop()

    async def never() -> None:
        await asyncio.Event().wait()

    def asked(request: Any) -> Any:
        loop.call_soon(arrived.set)
        return never()

    worker.replies["GetInfo"] = asked

    def use() -> Cancelled:
        bridge = crucible_bridge.connect_sync(address)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(bridge.worker.get_info)
            assert arrived.wait(10)
            bridge.close()
            with pytest.raises(Cancelled) as caught:
                waiting.result()
        return caught.value

    assert (await in_a_thread(use)).reason == "CLIENT_CLOSED"


async def test_a_client_without_references_ends(worker: CannedWorker, address: str):
    """Its thread ends, and so do its calls at the worker; a stream that is still held keeps it."""
    worker.pages, worker.hold_streams = [(records(1), "log", 1)], True

    def use() -> None:
        stream = crucible_bridge.connect_sync(address).telemetry.subscribe()
        gc.collect()
        assert next(stream).sequence == 1
        del stream
        gc.collect()

    await in_a_thread(use)

    await asyncio.wait_for(worker.streams_ended.wait(), 10)
    assert client_threads() == []


async def test_a_client_that_is_left_open_does_not_keep_the_interpreter(worker: CannedWorker, address: str):
    """A script that ends with a client and a stream open ends at once, and without a word."""
    worker.pages, worker.hold_streams = [(records(1), "log", 1)], True
    script = (
        "import crucible_bridge\n"
        f"bridge = crucible_bridge.connect_sync({address!r})\n"
        "stream = bridge.telemetry.subscribe()\n"
        "print(next(stream).sequence)\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-c", script, stdout=PIPE, stderr=PIPE
    )

    output, errors = await asyncio.wait_for(process.communicate(), 60)

    assert (process.returncode, output, errors) == (0, b"1\n", b"")
    await asyncio.wait_for(worker.streams_ended.wait(), 10)


TWO_CLIENTS = """
import logging, sys, threading
import crucible_bridge

lost = threading.Event()

def seen(record):
    if record.exc_info and record.exc_info[0] is BlockingIOError:
        lost.set()
    return True

logging.getLogger("asyncio").addFilter(seen)  # before a client adds its own

def call():
    with crucible_bridge.connect_sync(sys.argv[1]) as bridge:
        while not lost.is_set():
            bridge.worker.health()

threads = [threading.Thread(target=call) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


async def test_two_clients_of_one_program_print_nothing(address: str):
    """Their event loops share gRPC's poller: one of them often finds the other's byte already read."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", TWO_CLIENTS, address, stdout=PIPE, stderr=asyncio.subprocess.STDOUT
    )
    printed, _ = await program.communicate()
    assert (program.returncode, printed) == (0, b"")
