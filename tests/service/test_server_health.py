"""Probes and reflection."""

import grpc.aio
import pytest
from google.protobuf import descriptor_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from crucible_bridge.errors import Code
from tests.service.server_kit import Rig, error_of, serving, settings_for, until

pytestmark = pytest.mark.core

EVALUATION, EXPERIMENTS = (f"crucible_bridge.v1.{name}Service" for name in ("Evaluation", "Experiment"))
METRICS, MODELS, TELEMETRY, WORKER = (
    f"crucible_bridge.v1.{name}Service" for name in ("Metrics", "Model", "Telemetry", "Worker")
)
SERVICES = ("", EVALUATION, EXPERIMENTS, METRICS, MODELS, TELEMETRY, WORKER)
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


async def status(rig: Rig, service: str = "") -> int:
    """What a probe is told."""
    answer = await rig.health.Check(health_pb2.HealthCheckRequest(service=service))
    return answer.status


async def warm(rig: Rig) -> None:
    """Wait until every service can be called."""
    async with grpc.aio.insecure_channel(rig.worker.address) as channel:
        for service in SERVICES:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=service))
            async for answer in watch:
                if answer.status == SERVING:
                    break


@pytest.fixture
async def rig(tmp_path):
    """A worker."""
    async with serving(settings_for(tmp_path)) as rig:
        yield rig


async def test_a_started_worker_serves_and_its_services_follow(rig):
    """The worker as a whole is SERVING when it has started; each service turns so by itself."""
    overall = await status(rig)
    await warm(rig)

    assert overall == SERVING
    assert {service: await status(rig, service) for service in SERVICES} == dict.fromkeys(SERVICES, SERVING)


async def test_an_unknown_service_is_not_found(rig):
    """A probe for what the worker does not have is told so."""
    call = rig.health.Check(health_pb2.HealthCheckRequest(service="nothing"))

    assert (await error_of(call)).code is Code.NOT_FOUND


async def test_an_unwritable_journal_stops_what_writes_to_it_and_for_as_long(rig):
    """Evaluations and experiments are NOT_SERVING while the journal cannot be written, and SERVING when it can."""
    await warm(rig)

    rig.evaluations.writable = False
    rig.evaluations.on_writable_change(False)
    stopped = [service for service in SERVICES if await status(rig, service) != SERVING]
    rig.evaluations.writable = True
    rig.evaluations.on_writable_change(True)

    assert stopped == [EVALUATION, EXPERIMENTS]
    assert [await status(rig, service) for service in stopped] == [SERVING, SERVING]


async def test_every_watcher_hears_of_a_change(rig):
    """A watcher that leaves takes nothing from the others."""
    await warm(rig)
    stub = rig.health
    watches = [stub.Watch(health_pb2.HealthCheckRequest(service=EVALUATION)) for _ in range(3)]
    answers = [aiter(watch) for watch in watches]
    first = [(await anext(answer)).status for answer in answers]
    watches[0].cancel()
    await until(lambda: watches[0].done())

    rig.evaluations.writable = False
    rig.evaluations.on_writable_change(False)

    assert first == [SERVING] * 3
    assert [(await anext(answer)).status for answer in answers[1:]] == [NOT_SERVING] * 2


async def test_a_watched_service_may_be_unknown(rig):
    """A watch for what the worker does not have says SERVICE_UNKNOWN and stays open, as the protocol asks for."""
    watch = rig.health.Watch(health_pb2.HealthCheckRequest(service="nothing"))

    assert (await anext(aiter(watch))).status == health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


async def test_reflection_lists_the_services(rig):
    """Reflection names what the worker serves, and describes it."""
    stub = reflection_pb2_grpc.ServerReflectionStub(rig.channel)
    asked = (
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=EVALUATION),
    )

    listed, described = [answer async for answer in stub.ServerReflectionInfo(iter(asked))]

    names = {service.name for service in listed.list_services_response.service}
    proto = descriptor_pb2.FileDescriptorProto.FromString(described.file_descriptor_response.file_descriptor_proto[0])
    assert names >= {*SERVICES[1:], "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
    assert proto.service[0].name == "EvaluationService"
