"""Who may call."""

from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from crucible_bridge.errors import Code
from crucible_bridge.v1 import events_pb2, worker_pb2
from tests.service.server_kit import bearer, error_of, serving, settings_for, token_file

pytestmark = pytest.mark.core

TOKEN = "s3cret-token"


@pytest.fixture
async def rig(tmp_path: Path):
    """A worker that wants a token."""
    async with serving(settings_for(tmp_path, token_file=token_file(tmp_path, TOKEN))) as rig:
        yield rig


async def test_the_right_token_passes(rig):
    """A caller that shows the token is served."""
    stub = rig.about

    answer = await stub.GetInfo(worker_pb2.GetInfoRequest(), metadata=bearer(TOKEN))

    assert answer.worker.worker_id


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ((), "MISSING_TOKEN"),
        ((("authorization", f"Bearer {TOKEN}x"),), "WRONG_TOKEN"),
        ((("authorization", f"Bearer {TOKEN[:-1]}"),), "WRONG_TOKEN"),
        ((("authorization", TOKEN),), "WRONG_TOKEN"),
        ((("authorization", ""),), "WRONG_TOKEN"),
        ((("x-authorization", f"Bearer {TOKEN}"),), "MISSING_TOKEN"),
    ],
)
async def test_anything_else_is_unauthenticated(rig, metadata, reason):
    """Without the very token a call is refused, and the refusal does not repeat what was shown."""
    stub = rig.about

    error = await error_of(stub.GetInfo(worker_pb2.GetInfoRequest(), metadata=metadata))

    assert (error.code, error.reason, error.retryable) == (Code.UNAUTHENTICATED, reason, False)
    assert TOKEN[:-1] not in str(error)


async def test_streams_need_the_token_too(rig):
    """A stream without a token ends before its first message."""
    stub = rig.telemetry

    error = await error_of(anext(aiter(stub.Subscribe(events_pb2.SubscribeRequest()))))

    assert error.code is Code.UNAUTHENTICATED


async def test_probes_need_no_token(rig):
    """An orchestrator's health check holds no secret."""
    answer = await rig.health.Check(health_pb2.HealthCheckRequest())

    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_reflection_needs_the_token(rig):
    """What the worker can be asked is not told to strangers."""
    stub = reflection_pb2_grpc.ServerReflectionStub(rig.channel)
    asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])

    error = await error_of(anext(aiter(stub.ServerReflectionInfo(asked))))

    assert error.code is Code.UNAUTHENTICATED


async def test_what_is_refused_is_never_parsed(rig):
    """Bytes of a stranger are not read: they could be 64 MiB, and they could be anything."""
    call = rig.channel.unary_unary("/crucible_bridge.v1.WorkerService/GetInfo")

    error = await error_of(call(b"\xff\xff\xff"))

    assert error.code is Code.UNAUTHENTICATED
