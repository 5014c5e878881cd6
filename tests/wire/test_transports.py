"""A client over Unix sockets and TLS."""

from __future__ import annotations

import subprocess
from pathlib import Path

import grpc
import grpc.aio
import pytest

import crucible_bridge
from crucible_bridge.channel import channel_options
from crucible_bridge.errors import Unavailable
from crucible_bridge.types import WorkerInfo
from crucible_bridge.v1 import worker_pb2, worker_pb2_grpc
from tests import needs
from tests.wire.conftest import CannedWorker

INFO = WorkerInfo(worker_id="w", version="1")


def server_of(worker: CannedWorker) -> grpc.aio.Server:
    """A server without ports that answers GetInfo."""
    worker.replies["GetInfo"] = worker_pb2.GetInfoResponse(worker=worker_pb2.WorkerInfo(worker_id="w", version="1"))
    server = grpc.aio.server()
    worker_pb2_grpc.add_WorkerServiceServicer_to_server(worker, server)
    return server


async def test_a_unix_socket_is_an_address(worker: CannedWorker, tmp_path: Path):
    """Both sides name it alike."""
    server = server_of(worker)
    address = f"unix:{tmp_path}/w.sock"
    server.add_insecure_port(address)
    await server.start()

    try:
        async with crucible_bridge.connect(address) as bridge:
            assert await bridge.worker.get_info() == INFO
    finally:
        await server.stop(None)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key."""
    openssl = needs.program("openssl")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    return cert, key


async def test_tls_needs_the_right_authority(worker: CannedWorker, certificate: tuple[Path, Path]):
    """The path of a certificate, a Tls of files and one of bytes are the same; plain text and others are refused."""
    cert, key = certificate
    server = server_of(worker)
    pair = (key.read_bytes(), cert.read_bytes())
    credentials = grpc.ssl_server_credentials([pair], root_certificates=cert.read_bytes(), require_client_auth=False)
    port = server.add_secure_port("localhost:0", credentials)
    await server.start()

    try:
        for tls in (
            str(cert),
            crucible_bridge.Tls(ca=cert),
            crucible_bridge.Tls(ca=pair[1], cert=pair[1], key=pair[0]),
        ):
            async with crucible_bridge.connect(f"localhost:{port}", token="s3cret", tls=tls) as bridge:
                assert await bridge.worker.get_info() == INFO
        for refused in (None, crucible_bridge.Tls()):
            async with crucible_bridge.connect(f"localhost:{port}", tls=refused) as bridge:
                with pytest.raises(Unavailable):
                    await bridge.worker.drain()
    finally:
        await server.stop(None)


async def test_a_certificate_may_be_for_another_name_than_the_address(
    worker: CannedWorker, certificate: tuple[Path, Path]
):
    """Told the name that it is for, a client takes it; without, or with another, it is refused as ever."""
    cert, key = certificate
    server = server_of(worker)
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key.read_bytes(), cert.read_bytes())]))
    await server.start()

    try:
        named = crucible_bridge.Tls(ca=cert, server_name="localhost")
        async with crucible_bridge.connect(f"127.0.0.1:{port}", tls=named) as bridge:
            assert await bridge.worker.get_info() == INFO
        for refused in (crucible_bridge.Tls(ca=cert), crucible_bridge.Tls(ca=cert, server_name="elsewhere")):
            async with crucible_bridge.connect(f"127.0.0.1:{port}", tls=refused) as bridge:
                with pytest.raises(Unavailable):
                    await bridge.worker.drain()
    finally:
        await server.stop(None)


async def test_a_compressed_request_is_refused_before_it_is_read(worker: CannedWorker, address: str):
    """A small message may become a thousand times larger: UNIMPLEMENTED, and nothing reaches the service."""
    worker.replies["GetInfo"] = worker_pb2.GetInfoResponse(worker=worker_pb2.WorkerInfo(worker_id="w", version="1"))
    options = [option for option in channel_options() if option[0] != "grpc.compression_enabled_algorithms_bitset"]
    compressed = grpc.aio.insecure_channel(address, options=options, compression=grpc.Compression.Gzip)
    async with compressed, crucible_bridge.connect(address) as bridge:
        with pytest.raises(grpc.aio.AioRpcError, match="gzip") as refused:
            await worker_pb2_grpc.WorkerServiceStub(compressed).GetInfo(worker_pb2.GetInfoRequest())
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert not worker.requests
        assert await bridge.worker.get_info() == INFO
