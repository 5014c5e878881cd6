"""The end of a worker: what callers are told, in which order things close, and that nothing can hold it up."""

import asyncio
import gc

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2

from crucible_bridge.errors import Code
from crucible_bridge.v1 import (
    evaluation_pb2,
    events_pb2,
    worker_pb2,
)
from crucible_worker.util.limits import WorkerLimits
from tests.service.server_kit import error_of, evaluate_request, serving, settings_for, until

pytestmark = pytest.mark.core

GET = evaluation_pb2.GetEvaluationRequest(evaluation_id="e1")


async def test_open_streams_and_waiting_calls_are_told_to_come_again(tmp_path):
    """A drain ends what is open with UNAVAILABLE, reason DRAINING, which is worth a retry elsewhere."""
    async with serving(settings_for(tmp_path)) as rig:
        evaluations = rig.evaluation
        telemetry = rig.telemetry
        watch = aiter(evaluations.WatchEvaluation(evaluation_pb2.WatchEvaluationRequest(evaluation_id="e1")))
        subscription = aiter(telemetry.Subscribe(events_pb2.SubscribeRequest()))
        await anext(watch)
        await anext(subscription)
        waiting = evaluations.Evaluate(evaluate_request("mine"))
        await until(lambda: rig.evaluations.waiting == 3)

        ends = asyncio.gather(error_of(anext(watch)), error_of(anext(subscription)), error_of(waiting))
        await rig.worker.stop()

        errors = await ends
        assert {(error.code, error.reason) for error in errors} == {(Code.UNAVAILABLE, "DRAINING")}
        assert all(error.retryable and error.retry_after for error in errors)
        assert errors[2].metadata == {"evaluation_id": "mine"}


async def test_new_calls_are_refused_while_probes_are_answered(tmp_path):
    """From the first moment on health says NOT_SERVING, and whoever still calls is told why."""
    async with serving(settings_for(tmp_path)) as rig:
        evaluations = rig.evaluation
        await evaluations.GetEvaluation(GET)
        rig.evaluations.drain_hangs = True
        rig.worker.drain()
        await until(lambda: rig.evaluations.drains == 1)

        refused = await error_of(evaluations.StartEvaluation(evaluation_pb2.StartEvaluationRequest()))
        probe = await rig.health.Check(health_pb2.HealthCheckRequest())
        worker = (await rig.about.GetInfo(worker_pb2.GetInfoRequest())).worker

        assert (refused.code, refused.reason, refused.retryable) == (Code.UNAVAILABLE, "DRAINING", True)
        assert probe.status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert worker.draining


async def test_watchers_of_health_hear_of_the_end_and_do_not_delay_it(tmp_path):
    """A health watch is told NOT_SERVING, then ended."""
    async with serving(settings_for(tmp_path)) as rig:
        answers = aiter(rig.health.Watch(health_pb2.HealthCheckRequest()))
        first = await anext(answers)

        stop = asyncio.create_task(rig.worker.stop())
        second = await anext(answers)
        error = await error_of(anext(answers))
        await stop

        assert first.status == health_pb2.HealthCheckResponse.SERVING
        assert second.status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert error.reason == "DRAINING"


async def test_drain_over_the_wire_answers_before_the_worker_goes(tmp_path):
    """The Drain call gets the interrupted evaluations, then the worker closes backends and journal."""
    told = []
    async with serving(settings_for(tmp_path), on_drain=lambda: told.append(True)) as rig:
        answer = await rig.about.Drain(worker_pb2.DrainRequest())
        await rig.worker.stop()

        assert list(answer.interrupted) == ["interrupted-1"]
        assert (rig.evaluations.drains, rig.evaluations.closed, rig.backend.closed) == (1, True, True)
    assert told == [True]


async def test_a_drain_that_hangs_is_left_behind(tmp_path):
    """A part that does not end takes its share of the time, and the next is closed all the same."""
    settings = settings_for(tmp_path, limits=WorkerLimits(drain_seconds=0.5))
    async with serving(settings) as rig:
        rig.evaluations.drain_hangs = True

        async with asyncio.timeout(5):  # it would never end otherwise
            await rig.worker.stop()

        assert rig.evaluations.closed
        assert rig.backend.closed


async def test_a_worker_that_cannot_start_leaves_nothing_open(tmp_path):
    """A part that cannot be built is the error; the port is free again."""

    async def build(_):
        raise RuntimeError("no journal")

    with pytest.raises(RuntimeError, match="no journal"):
        async with serving(settings_for(tmp_path), build=build):
            pass


async def test_a_start_that_is_cancelled_while_grpc_starts_reports_no_error(tmp_path, monkeypatch):
    """The server is started before it is stopped: gRPC cannot stop one whose start was cancelled."""
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    starts, begun = grpc.aio.server, asyncio.Event()

    def server(*args, **options):
        made = starts(*args, **options)
        start = made.start

        def starting():
            begun.set()
            return start()

        made.start = starting
        return made

    monkeypatch.setattr(grpc.aio, "server", server)

    async def enter():
        async with serving(settings_for(tmp_path)):
            pass

    running = asyncio.create_task(enter())
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    del running
    gc.collect()
    assert errors == []
