"""Where a worker listens, and on what terms."""

import asyncio
import contextlib
import socket
import stat
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import trustme

from crucible_bridge.channel import open_channel
from crucible_bridge.v1 import events_pb2, events_pb2_grpc, worker_pb2, worker_pb2_grpc
from crucible_worker.server import StartError
from crucible_worker.server.listen import options
from crucible_worker.server.process import remove_ready_file, write_ready_file
from crucible_worker.util.limits import WorkerLimits
from tests.service.server_kit import serving, settings_for


async def worker_id(channel: grpc.aio.Channel) -> str:
    """Who answers."""
    answer = await worker_pb2_grpc.WorkerServiceStub(channel).GetInfo(worker_pb2.GetInfoRequest(), timeout=5)
    return answer.worker.worker_id


async def test_port_zero_picks_one(tmp_path):
    """The address tells the port that was picked."""
    async with serving(settings_for(tmp_path)) as rig:
        host, _, port = rig.worker.address.rpartition(":")

        assert host == "127.0.0.1"
        assert int(port) > 0
        assert await worker_id(rig.channel)


async def test_a_taken_port_is_said_plainly(tmp_path):
    """The operator learns which address, and that it is in use."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(StartError, match=rf"cannot listen on 127\.0\.0\.1:{port}: Address already in use"):
            async with serving(settings_for(tmp_path, port=port)):
                pass


async def test_two_workers_never_share_a_port(tmp_path):
    """A port of another worker is taken like any other: calls must not be spread over both."""
    async with serving(settings_for(tmp_path)) as rig:
        port = int(rig.worker.address.rpartition(":")[2])

        with pytest.raises(StartError, match="Address already in use"):
            async with serving(settings_for(tmp_path, port=port)):
                pass


async def test_a_unix_socket_is_its_owners(tmp_path):
    """A Unix socket has mode 0600, and calls go through it."""
    path = tmp_path / "worker.sock"
    async with serving(settings_for(tmp_path, unix_socket=path)) as rig:
        assert rig.worker.address == f"unix:{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert await worker_id(rig.channel)
    assert not path.exists()


async def test_a_stale_socket_is_replaced(tmp_path):
    """A socket that nobody listens on, as a killed worker leaves it, is no hindrance."""
    path = tmp_path / "worker.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))

    async with serving(settings_for(tmp_path, unix_socket=path)) as rig:
        assert await worker_id(rig.channel)


async def test_a_living_workers_socket_is_left_alone(tmp_path):
    """A socket that somebody listens on is refused, and still works."""
    path = tmp_path / "worker.sock"
    async with serving(settings_for(tmp_path, unix_socket=path)) as rig:
        with pytest.raises(StartError, match="another process listens there"):
            async with serving(settings_for(tmp_path, unix_socket=path)):
                pass

        assert await worker_id(rig.channel)


async def test_a_file_in_the_sockets_place_is_left_alone(tmp_path):
    """What is no socket is never removed."""
    path = tmp_path / "worker.sock"
    path.write_text("precious")

    with pytest.raises(StartError, match="no socket"):
        async with serving(settings_for(tmp_path, unix_socket=path)):
            pass

    assert path.read_text() == "precious"


async def test_tls_with_a_certificate(tmp_path):
    """With a certificate, callers that trust its authority are served, and plain ones are not."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    cert, key, ca = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem"
    certificate.cert_chain_pems[0].write_to_path(cert)
    certificate.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(ca)

    async with serving(settings_for(tmp_path, tls_cert=cert, tls_key=key)) as rig:
        async with open_channel(rig.worker.address, ca) as channel:
            assert await worker_id(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await worker_id(rig.channel)

    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_key_that_is_none_is_refused(tmp_path):
    """A certificate that cannot be used is said at the start."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    for path in (cert, key):
        path.write_text("nonsense")

    with pytest.raises(StartError, match="certificate"):
        async with serving(settings_for(tmp_path, tls_cert=cert, tls_key=key)):
            pass


async def test_the_ready_file_is_never_half_written(tmp_path):
    """A reader that looks all the time finds no file, or the whole of it, and no draft is left."""
    path = tmp_path / "ready"
    seen: set[str] = set()

    def look() -> None:
        while "127.0.0.1:50051" not in seen:
            if path.exists():
                seen.add(path.read_text())

    looking = asyncio.create_task(asyncio.to_thread(look))
    await asyncio.to_thread(write_ready_file, path, "127.0.0.1:50051")
    await looking

    assert seen == {"127.0.0.1:50051"}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("content", "left"), [("127.0.0.1:1", False), ("127.0.0.1:2", True)])
def test_only_ones_own_ready_file_is_removed(tmp_path: Path, content: str, left: bool):
    """A worker that goes does not take away the file of the one that came after it."""
    path = tmp_path / "ready"
    path.write_text(content)

    remove_ready_file(path, "127.0.0.1:1")

    assert path.exists() is left


LIMIT = 2


def connection(address: str) -> grpc.aio.Channel:
    """A connection of its own; it is not opened again by itself."""
    return grpc.aio.insecure_channel(
        address, options=[("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    )


async def test_connections_are_bounded(tmp_path):
    """Up to the limit they are served, one more is closed as it is opened, and one that ends makes room."""
    limits = WorkerLimits(max_connections=LIMIT)
    async with serving(settings_for(tmp_path, limits=limits)) as rig:
        # That of the rig is not opened before its first call.
        channels = [connection(rig.worker.address) for _ in range(LIMIT)]
        for channel in channels:
            assert await worker_id(channel)

        async with connection(rig.worker.address) as one_more:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await worker_id(one_more)
        await channels.pop().close(None)

        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        async with asyncio.timeout(30):
            while True:
                async with connection(rig.worker.address) as later:
                    try:
                        assert await worker_id(later)
                        break
                    except grpc.aio.AioRpcError:
                        await asyncio.sleep(0.01)
        for channel in channels:
            await channel.close(None)


async def test_calls_of_one_connection_are_bounded(tmp_path):
    """Beyond the limit calls wait at the client until one has ended; another connection is served meanwhile."""
    limits = WorkerLimits(max_calls_per_connection=LIMIT)
    async with (
        serving(settings_for(tmp_path, limits=limits)) as rig,
        connection(rig.worker.address) as crowded,
        connection(rig.worker.address) as other,
    ):
        assert await worker_id(crowded)  # the client knows the limit once it has heard of it
        stub = events_pb2_grpc.TelemetryServiceStub(crowded)
        held: list[Any] = [stub.Subscribe(events_pb2.SubscribeRequest()) for _ in range(LIMIT)]
        for call in held:
            assert await call.read()
        waiting = asyncio.create_task(worker_id(crowded))
        for _ in range(20):  # many a call's time
            assert await worker_id(other)

        assert not waiting.done()
        held[0].cancel()
        assert await waiting


async def test_idle_connections_are_closed_and_streams_stay_open(tmp_path):
    """A connection without a call ends after its time; one with a stream lives on, for many times as long."""
    async with serving(settings_for(tmp_path, limits=WorkerLimits(connection_idle_seconds=0.1))) as rig:
        subscription: Any = rig.telemetry.Subscribe(events_pb2.SubscribeRequest())
        assert await subscription.read()
        host, _, port = rig.worker.address.rpartition(":")
        for _ in range(5):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0")
            async with asyncio.timeout(30):
                await reader.read(-1)  # to its end, which the worker makes
            writer.close()

        assert not subscription.done()
        rig.evaluations.gate.set()  # the stream's last event, over the same connection
        assert await subscription.read() is grpc.aio.EOF  # pyright: ignore[reportAttributeAccessIssue]
        assert await subscription.code() is grpc.StatusCode.OK


@pytest.mark.parametrize("sent", [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], ids=["nothing", "the beginning"])
async def test_connections_that_do_not_begin_are_closed(tmp_path, sent):
    """Silent ones take no place from others for long: one more than there may be open gets in after their time."""
    limits = WorkerLimits(handshake_seconds=0.5, max_connections=3)
    async with serving(settings_for(tmp_path, limits=limits)) as rig, contextlib.AsyncExitStack() as opened:
        host, _, port = rig.worker.address.rpartition(":")
        for _ in range(limits.max_connections):
            silent = opened.enter_context(socket.create_connection((host, int(port))))
            silent.sendall(sent)
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    async with open_channel(rig.worker.address) as channel:
                        assert await worker_id(channel)
                        break


def test_no_connection_ends_for_its_age():
    """WatchEvaluation and Subscribe last for as long as both sides live."""
    names = {name for name, _ in options(WorkerLimits())}

    assert not {name for name in names if "connection_age" in name}


def test_a_time_that_grpc_cannot_count_is_its_longest():
    """Seconds become milliseconds of at least one, and at most what gRPC counts."""
    for seconds, milliseconds in ((1e-9, 1), (0.5, 500), (1e12, 2**31 - 1)):
        named = dict(options(WorkerLimits(connection_idle_seconds=seconds)))
        assert named["grpc.max_connection_idle_ms"] == milliseconds
