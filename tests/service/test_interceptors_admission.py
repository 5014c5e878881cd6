"""How many calls at once."""

import asyncio
from pathlib import Path

from grpc_health.v1 import health_pb2

from crucible_bridge.errors import Code
from crucible_bridge.v1 import (
    evaluation_pb2,
    events_pb2,
    worker_pb2,
)
from crucible_worker.interceptors.calls import RETRY_AFTER_SECONDS
from crucible_worker.limits import WorkerLimits
from tests.service.server_kit import error_of, evaluate_request, serving, settings_for, until

LIMIT = 3


def limited(folder: Path):
    """Settings of a worker with room for three calls and three streams in each service."""
    return settings_for(folder, limits=WorkerLimits(max_calls_per_service=LIMIT, max_streams=LIMIT))


async def test_calls_up_to_the_limit_wait_and_one_more_is_refused(tmp_path):
    """The limit itself is admitted; the next call is told so, and when to come again."""
    async with serving(limited(tmp_path)) as rig:
        stub = rig.evaluation
        held = [stub.Evaluate(evaluate_request(f"e{n}")) for n in range(LIMIT)]
        await until(lambda: rig.evaluations.waiting == LIMIT)

        error = await error_of(stub.Evaluate(evaluate_request("one-more")))

        assert (error.code, error.reason) == (Code.RESOURCE_EXHAUSTED, "TOO_MANY_CALLS")
        assert (error.retryable, error.retry_after) == (True, RETRY_AFTER_SECONDS)
        rig.evaluations.gate.set()
        assert len(await asyncio.gather(*held)) == LIMIT


async def test_a_call_that_ends_makes_room(tmp_path):
    """Room is given back by calls that go well, fail, and are cancelled alike."""
    async with serving(limited(tmp_path)) as rig:
        stub = rig.evaluation
        for _ in range(LIMIT + 1):
            call = stub.Evaluate(evaluate_request())
            await until(lambda: rig.evaluations.waiting == 1)
            call.cancel()
            await until(lambda: rig.evaluations.waiting == 0)
            await error_of(stub.GetEvaluation(evaluation_pb2.GetEvaluationRequest(evaluation_id="unknown")))
        rig.evaluations.gate.set()

        answer = await stub.Evaluate(evaluate_request())

        assert answer.evaluation.evaluation_id == "e1"
        assert rig.worker.load().calls == 0


async def test_streams_are_bounded_apart_from_calls(tmp_path):
    """A service full of streams still answers calls; one stream more is refused."""
    async with serving(limited(tmp_path)) as rig:
        stub = rig.evaluation
        request = evaluation_pb2.WatchEvaluationRequest(evaluation_id="e1")
        streams = [aiter(stub.WatchEvaluation(request)) for _ in range(LIMIT)]
        for stream in streams:
            await anext(stream)

        error = await error_of(anext(aiter(stub.WatchEvaluation(request))))

        assert (error.code, error.reason) == (Code.RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS")
        assert await stub.GetEvaluation(evaluation_pb2.GetEvaluationRequest(evaluation_id="e1"))


async def test_a_full_service_starves_no_other(tmp_path):
    """Each service has its own room, and neither probes nor the worker's own service are ever refused."""
    async with serving(limited(tmp_path)) as rig:
        stub = rig.evaluation
        held = [stub.Evaluate(evaluate_request(f"e{n}")) for n in range(LIMIT)]
        await until(lambda: rig.evaluations.waiting == LIMIT)

        # Held: a stream that nobody refers to is cancelled whenever it is collected, and its room given back.
        subscription = rig.telemetry.Subscribe(events_pb2.SubscribeRequest())
        batch = await anext(aiter(subscription))
        infos = await asyncio.gather(*(rig.about.GetInfo(worker_pb2.GetInfoRequest()) for _ in range(2 * LIMIT)))
        probes = await asyncio.gather(*(rig.health.Check(health_pb2.HealthCheckRequest()) for _ in range(2 * LIMIT)))

        assert batch.through_sequence == 1
        assert {info.worker.calls for info in infos} == {LIMIT + 1}
        assert {probe.status for probe in probes} == {health_pb2.HealthCheckResponse.SERVING}
        assert not subscription.done()
        rig.evaluations.gate.set()
        await asyncio.gather(*held)
