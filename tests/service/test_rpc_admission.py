"""How many calls at once."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from crucible_bridge.errors import Code, ResourceExhausted
from crucible_bridge.v1 import (
    evaluation_pb2,
    events_pb2,
    events_pb2_grpc,
    worker_pb2,
)
from crucible_worker.rpc.byte_budget import (
    ARRIVING_BYTES,
    ARRIVING_SECONDS,
    LARGE_BYTES,
    RETRY_AFTER_SECONDS,
    SMALL_BYTES,
)
from crucible_worker.rpc.calls import Calls
from crucible_worker.util.limits import WorkerLimits
from tests.service.server_kit import Rig, error_of, evaluate_request, serving, settings_for, token_file, until

pytestmark = pytest.mark.core

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


SUBSCRIBE = "/crucible_bridge.v1.TelemetryService/Subscribe"
MEAN_NLL = "/crucible_bridge.v1.MetricsService/ComputeMeanNLL"
CHECK = "/grpc.health.v1.Health/Check"


def raw(rig: Rig) -> Any:
    """Its channel, for calls in bytes; Any, as the stubs want serializers."""
    return rig.channel


def another_connection(address: str) -> grpc.aio.Channel:
    """A channel that shares no connection with others."""
    return grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])


async def opened(stub: Any, count: int) -> list[Any]:
    """So many subscriptions, each with its first batch."""
    calls = [stub.Subscribe(events_pb2.SubscribeRequest()) for _ in range(count)]
    for call in calls:
        await call.read()
    return calls


async def test_one_connection_cannot_take_all_streams(tmp_path):
    """Up to its share a connection is served, one more is refused, and another connection still is."""
    limits = WorkerLimits(max_streams=2 * LIMIT, max_streams_per_peer=LIMIT)
    async with serving(settings_for(tmp_path, limits=limits)) as rig, another_connection(rig.worker.address) as other:
        held = await opened(rig.telemetry, LIMIT)

        error = await error_of(anext(aiter(rig.telemetry.Subscribe(events_pb2.SubscribeRequest()))))

        assert (error.code, error.reason) == (Code.RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS_OF_PEER")
        assert (error.retryable, error.retry_after) == (True, RETRY_AFTER_SECONDS)
        # Another service counts for itself, and so does another connection.
        watch = rig.evaluation.WatchEvaluation(evaluation_pb2.WatchEvaluationRequest(evaluation_id="e1"))
        assert await watch.read()
        held += await opened(events_pb2_grpc.TelemetryServiceStub(other), LIMIT)
        # What the connection gives back, it has again.
        held[0].cancel()
        await until(lambda: rig.worker.load().calls == 2 * LIMIT)
        held += await opened(rig.telemetry, 1)


async def test_callers_of_a_unix_socket_are_not_told_apart(tmp_path):
    """GRPC gives no name to a connection of a Unix socket: the share of one is that of all."""
    limits = WorkerLimits(max_streams=2 * LIMIT, max_streams_per_peer=LIMIT)
    async with serving(settings_for(tmp_path, limits=limits, unix_socket=tmp_path / "socket")) as rig:
        held = await opened(rig.telemetry, 2 * LIMIT)
        error = await error_of(anext(aiter(rig.telemetry.Subscribe(events_pb2.SubscribeRequest()))))

        assert error.reason == "TOO_MANY_STREAMS"
        assert len(held) == 2 * LIMIT


async def test_watches_of_health_are_bounded_and_probes_are_not(tmp_path):
    """They need no token: up to the limit they are served, one more is refused; Check always answers."""
    settings = settings_for(
        tmp_path, limits=WorkerLimits(max_health_watches=LIMIT), token_file=token_file(tmp_path, "t")
    )
    async with serving(settings) as rig:
        request = health_pb2.HealthCheckRequest()
        watches = [rig.health.Watch(request) for _ in range(LIMIT)]
        assert [(await watch.read()).status for watch in watches] == [health_pb2.HealthCheckResponse.SERVING] * LIMIT

        error = await error_of(rig.health.Watch(request).read())

        assert (error.code, error.reason) == (Code.RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS")
        assert (await rig.health.Check(request)).status == health_pb2.HealthCheckResponse.SERVING
        assert rig.worker.load().calls == 0
        watches[0].cancel()
        assert await _eventually_read(lambda: rig.health.Watch(request))


async def _eventually_read(start: Any) -> Any:
    """The first message of a stream that is refused until another has ended."""
    async with asyncio.timeout(10):
        while True:
            call = start()
            try:
                return await call.read()
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.005)


async def test_streams_of_reflection_are_bounded(tmp_path):
    """Up to the limit they are served, one more is refused."""
    async with serving(settings_for(tmp_path, limits=WorkerLimits(max_reflection_streams=LIMIT))) as rig:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(rig.channel)
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        held = [stub.ServerReflectionInfo() for _ in range(LIMIT)]
        for call in held:
            await call.write(asked)
            assert await call.read()

        one_more = stub.ServerReflectionInfo()
        error = await error_of(one_more.read())

        assert (error.code, error.reason) == (Code.RESOURCE_EXHAUSTED, "TOO_MANY_STREAMS")


@pytest.mark.parametrize(("path", "kind"), [(MEAN_NLL, "stream_unary"), (SUBSCRIBE, "stream_stream")])
async def test_a_call_without_the_token_is_refused_before_its_message(tmp_path, path, kind):
    """Nothing of a message is waited for: who has no token cannot make the worker receive 64 MiB."""
    async with serving(settings_for(tmp_path, token_file=token_file(tmp_path, "t"))) as rig:
        call = getattr(raw(rig), kind)(path)()

        assert await call.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_call_without_room_is_refused_before_its_message(tmp_path):
    """A full service receives no further message."""
    async with serving(limited(tmp_path)) as rig:
        held = [raw(rig).stream_unary(MEAN_NLL)() for _ in range(LIMIT)]
        await until(lambda: rig.worker.load().calls == LIMIT)

        assert await raw(rig).stream_unary(MEAN_NLL)().code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for call in held:
            call.cancel()
        await until(lambda: rig.worker.load().calls == 0)


@pytest.mark.parametrize("path", [MEAN_NLL, SUBSCRIBE, CHECK, "/grpc.health.v1.Health/Watch"])
async def test_a_message_that_does_not_arrive_ends_its_call(tmp_path, path):
    """An admitted caller has so long to send its message, and one of health, who needs no token, its own time."""
    limits = WorkerLimits(request_seconds=0.05, health_request_seconds=0.05)
    async with serving(settings_for(tmp_path, limits=limits)) as rig:
        call = raw(rig).stream_stream(path)()
        error = await error_of(call.read())

        assert (error.code, error.reason) == (Code.DEADLINE_EXCEEDED, "REQUEST_TOO_SLOW")
        await until(lambda: rig.worker.load().calls == 0)


@pytest.mark.parametrize("path", [CHECK, "/grpc.health.v1.Health/Watch"])
async def test_a_message_without_a_token_is_not_awaited_while_memory_grows(tmp_path, path):
    """Its size is not known while it arrives; another call's message is awaited, as its caller has a token."""
    async with serving(settings_for(tmp_path)) as rig:
        other, call, held = raw(rig).stream_unary(MEAN_NLL)(), raw(rig).stream_stream(path)(), list[bytes]()
        reading = asyncio.create_task(error_of(call.read()))
        while not reading.done():
            held.append(b"." * ARRIVING_BYTES)
            await asyncio.sleep(ARRIVING_SECONDS)
        error = await reading

        assert (error.code, error.reason) == (Code.RESOURCE_EXHAUSTED, "TOO_MANY_REQUEST_BYTES")
        assert "memory grew by more than 33,554,432 bytes" in error.message
        assert not other.done()
        other.cancel()


@pytest.mark.parametrize(
    ("path", "limit"), [(MEAN_NLL, "health_request_seconds"), ("/grpc.health.v1.Health/Check", "request_seconds")]
)
async def test_the_times_of_health_and_of_others_are_two(tmp_path, path, limit):
    """Neither ends the calls of the other."""
    async with serving(settings_for(tmp_path, limits=dataclasses.replace(WorkerLimits(), **{limit: 0.01}))) as rig:
        short = CHECK if limit.startswith("health") else MEAN_NLL
        waiting, ended = raw(rig).stream_unary(path)(), raw(rig).stream_unary(short)()

        assert await ended.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert not waiting.done()
        waiting.cancel()


async def test_a_stream_may_last_longer_than_its_request_may_take(tmp_path):
    """The time is for the message alone."""
    async with serving(settings_for(tmp_path, limits=WorkerLimits(request_seconds=0.2))) as rig:
        (call,) = await opened(rig.telemetry, 1)
        late = raw(rig).stream_unary(MEAN_NLL)()
        assert await late.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        assert not call.done()


async def test_a_call_without_a_message_is_the_callers_error(tmp_path):
    """A client that ends its side at once has sent no request."""
    async with serving(settings_for(tmp_path)) as rig:
        call = raw(rig).stream_unary(MEAN_NLL)()
        await call.done_writing()
        error = await error_of(call)

        assert (error.code, error.reason) == (Code.INVALID_ARGUMENT, "MALFORMED_MESSAGE")


@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_requests_in_work_have_a_bounded_size_together(extra):
    """Up to the limit they are admitted, beyond it refused; one alone is admitted whatever its size."""
    unit = SMALL_BYTES
    calls = Calls(WorkerLimits(max_request_bytes_in_flight=5 * unit))
    with calls.room.working_on(3 * unit):
        if extra == 1:
            with pytest.raises(ResourceExhausted) as caught, calls.room.working_on(2 * unit + 1):
                pass
            assert (caught.value.reason, caught.value.retry_after) == ("TOO_MANY_REQUEST_BYTES", RETRY_AFTER_SECONDS)
        else:
            with calls.room.working_on(2 * unit + extra):
                pass
    with calls.room.working_on(50 * unit):
        pass
    with calls.room.working_on(5 * unit):  # everything was given back
        pass


@pytest.mark.parametrize("extra", [0, 1])
def test_a_small_request_is_admitted_however_much_is_in_work(extra):
    """Up to the size of a probe, a read or a cancel there is always room; one byte more, and it counts."""
    calls = Calls(WorkerLimits(max_request_bytes_in_flight=1))
    with calls.room.working_on(10 * SMALL_BYTES):
        if extra:
            with pytest.raises(ResourceExhausted), calls.room.working_on(SMALL_BYTES + extra):
                pass
        else:
            with calls.room.working_on(SMALL_BYTES), calls.room.working_on(SMALL_BYTES):
                pass


@pytest.mark.parametrize("extra", [-1, 0])
def test_large_requests_end_the_quiet(extra):
    """The worker is not idle while a request of the size is in work; smaller ones do not matter."""
    calls = Calls(WorkerLimits())
    with calls.room.working_on(LARGE_BYTES + extra):
        assert (calls.room.quiet_seconds() == 0.0) is (extra == 0)
    before = calls.room.quiet_seconds()
    assert before >= 0.0
    assert calls.room.quiet_seconds() >= before


async def test_requests_in_flight_starve_no_small_call(tmp_path):
    """One request that takes all the room is admitted, and probes, reads and cancels next to it are never refused."""
    data = evaluate_request("held").SerializeToString() + b"\xc2\x3e\xa0\x8d\x06" + b"x" * 100_000
    limits = WorkerLimits(max_request_bytes_in_flight=1)
    async with serving(settings_for(tmp_path, limits=limits)) as rig:
        held = raw(rig).unary_unary("/crucible_bridge.v1.EvaluationService/Evaluate")(data)
        await until(lambda: rig.evaluations.waiting == 1)

        for service in ("", "crucible_bridge.v1.MetricsService"):
            probe = await rig.health.Check(health_pb2.HealthCheckRequest(service=service))
            assert probe.status == health_pb2.HealthCheckResponse.SERVING
        assert await rig.about.GetInfo(worker_pb2.GetInfoRequest())
        assert await rig.evaluation.CancelEvaluation(evaluation_pb2.CancelEvaluationRequest(evaluation_id="held"))
        rig.evaluations.gate.set()
        assert await held


async def test_requests_beyond_the_bytes_in_flight_are_refused_until_one_is_answered(tmp_path):
    """Refused with when to come again; a read next to them passes, and so does the same call later."""
    # A field that no version has: what is unknown is received as well.
    data = evaluate_request("held").SerializeToString() + b"\xc2\x3e\xa0\x8d\x06" + b"x" * 100_000
    limits = WorkerLimits(max_request_bytes_in_flight=150_000)
    async with serving(settings_for(tmp_path, limits=limits)) as rig:
        evaluate = raw(rig).unary_unary("/crucible_bridge.v1.EvaluationService/Evaluate")
        held = evaluate(data)
        await until(lambda: rig.evaluations.waiting == 1)

        error = await error_of(evaluate(data))

        assert (error.code, error.reason) == (Code.RESOURCE_EXHAUSTED, "TOO_MANY_REQUEST_BYTES")
        assert (error.retryable, error.retry_after) == (True, RETRY_AFTER_SECONDS)
        assert await rig.evaluation.GetEvaluation(evaluation_pb2.GetEvaluationRequest(evaluation_id="e1"))
        rig.evaluations.gate.set()
        assert await held
        assert await evaluate(data)
