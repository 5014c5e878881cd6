"""Certificates and tokens are renewed while a worker serves: no call fails, and what cannot be used changes nothing."""

from __future__ import annotations

import asyncio
import datetime
import os
import ssl
from pathlib import Path

import grpc
import grpc.aio
import pytest
import trustme
from cryptography import x509
from structlog.testing import capture_logs

from crucible_bridge.channel import open_channel
from crucible_bridge.v1 import worker_pb2, worker_pb2_grpc
from crucible_worker.server import credentials
from crucible_worker.server.credentials import Certificate, StartError, expires_at
from tests.robustness.harness import until
from tests.service.server_kit import serving, settings_for

NAMES = ("localhost", "127.0.0.1")


def issued(authority: trustme.CA, folder: Path, *, expires: datetime.datetime | None = None) -> tuple[Path, Path]:
    """A certificate of an authority and its key, in files."""
    folder.mkdir(exist_ok=True)
    made = authority.issue_cert(*NAMES, not_after=expires)
    chain, key = folder / "cert.pem", folder / "key.pem"
    made.cert_chain_pems[0].write_to_path(chain)
    made.private_key_pem.write_to_path(key)
    return chain, key


def of_authority(folder: Path) -> tuple[trustme.CA, Path]:
    """An authority, and the file by which callers trust it."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    return authority, folder / "ca.pem"


async def shown_at(address: str) -> bytes:
    """The certificate that a handshake shows now."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return found


async def test_a_certificate_is_renewed_under_load(tmp_path: Path) -> None:
    """Each call opens a connection of its own: all of them succeed, also while key and certificate do not match."""
    authority, ca = of_authority(tmp_path)
    chain, key = issued(authority, tmp_path / "served")
    new_chain, new_key = issued(authority, tmp_path / "new")
    calls = 0
    async with serving(settings_for(tmp_path, tls_cert=chain, tls_key=key)) as rig:

        async def call_on(over: asyncio.Event) -> None:
            nonlocal calls
            while not over.is_set():
                async with open_channel(rig.worker.address, ca) as channel:
                    await worker_pb2_grpc.WorkerServiceStub(channel).GetInfo(worker_pb2.GetInfoRequest())
                calls += 1

        over = asyncio.Event()
        async with asyncio.TaskGroup() as callers:
            for _ in range(4):
                callers.create_task(call_on(over))
            await until(lambda: calls >= 8)
            before = await shown_at(rig.worker.address)
            os.replace(new_key, key)
            assert await shown_at(rig.worker.address) == before
            so_far = calls
            await until(lambda: calls >= so_far + 8)
            wanted = ssl.PEM_cert_to_DER_cert(new_chain.read_text())
            os.replace(new_chain, chain)
            assert await shown_at(rig.worker.address) == wanted != before
            so_far = calls
            await until(lambda: calls >= so_far + 8)
            over.set()


async def test_a_certificate_that_a_look_has_found_is_shown(tmp_path: Path) -> None:
    """Also if no handshake came before the look."""
    authority, ca = of_authority(tmp_path)
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=400)
    chain, key = issued(authority, tmp_path / "served")
    new_chain, new_key = issued(authority, tmp_path / "new", expires=later)
    wanted = ssl.PEM_cert_to_DER_cert(new_chain.read_text())
    with capture_logs() as logs:
        async with serving(settings_for(tmp_path, tls_cert=chain, tls_key=key)) as rig:
            before = await shown_at(rig.worker.address)
            os.replace(new_key, key)
            os.replace(new_chain, chain)
            await until(lambda: any(entry["event"] == "certificate_read" for entry in logs))
            assert await shown_at(rig.worker.address) == wanted != before
            assert await shown_at(rig.worker.address) == wanted
            async with open_channel(rig.worker.address, ca) as channel:
                told = await worker_pb2_grpc.WorkerServiceStub(channel).GetInfo(worker_pb2.GetInfoRequest())
            assert told.worker.certificate_expires_unix_ns == later.replace(microsecond=0).timestamp() * 1e9


async def test_a_renewal_that_cannot_be_used_is_logged_and_changes_nothing(tmp_path: Path) -> None:
    """Once for each state of the files; the next good one is used."""
    authority, _ = of_authority(tmp_path)
    certificate = Certificate(*issued(authority, tmp_path / "served"))
    expires = certificate.expires
    with capture_logs() as logs:
        for text in ("nonsense", (tmp_path / "ca.pem").read_text()):
            (tmp_path / "served" / "cert.pem").write_text(text)
            certificate.look()
            certificate.look()
        assert certificate.expires == expires
        later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=400)
        issued(authority, tmp_path / "served", expires=later)
        await until(lambda: certificate.look() or certificate.expires != expires)
    assert [entry["event"] for entry in logs] == ["certificate_refused", "certificate_refused", "certificate_read"]
    assert all("cert.pem cannot be used with the key" in entry["reason"] for entry in logs[:2])
    assert certificate.expires == int(later.timestamp())


@pytest.mark.parametrize(
    ("days", "events"), [(-1.0, ["certificate_expired"]), (13.0, ["certificate_expires"]), (15.0, [])]
)
def test_a_certificate_that_expires_is_reported_once(tmp_path: Path, days: float, events: list[str]) -> None:
    """Two weeks before, and when it is too late."""
    expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
    certificate = Certificate(*issued(of_authority(tmp_path)[0], tmp_path / "served", expires=expires))
    with capture_logs() as logs:
        certificate.tell_expiry()
        certificate.tell_expiry()
    assert [entry["event"] for entry in logs] == events
    assert certificate.expires_ns == int(expires.timestamp()) * 10**9
    assert f"expire{'d' if days < 0 else 's'} {expires:%Y-%m-%d %H:%M} UTC" in str(certificate)


@pytest.mark.parametrize("year", [2030, 2060], ids=["UTCTime", "GeneralizedTime"])
def test_the_time_is_that_of_the_first_certificate(tmp_path: Path, year: int) -> None:
    """As a library for certificates reads it, whichever of the two forms the time has."""
    authority, ca = of_authority(tmp_path)
    chain, _ = issued(authority, tmp_path / "c", expires=datetime.datetime(year, 2, 3, 4, 5, 6, tzinfo=datetime.UTC))
    whole = chain.read_bytes() + ca.read_bytes()
    assert expires_at(whole) == x509.load_pem_x509_certificate(chain.read_bytes()).not_valid_after_utc.timestamp()
    with pytest.raises(ValueError, match="no certificate"):
        expires_at(b"")


def test_a_key_of_another_certificate_is_refused_at_the_start(tmp_path: Path) -> None:
    """The files are named."""
    authority, _ = of_authority(tmp_path)
    chain, _ = issued(authority, tmp_path / "one")
    _, key = issued(authority, tmp_path / "two")
    with pytest.raises(StartError, match=r"one/cert.pem cannot be used with the key .*two/key.pem"):
        Certificate(chain, key)


async def code_of(channel: grpc.aio.Channel, token: str) -> grpc.StatusCode:
    """How a call with a token ends."""
    try:
        await worker_pb2_grpc.WorkerServiceStub(channel).GetInfo(
            worker_pb2.GetInfoRequest(), metadata=(("authorization", f"Bearer {token}"),)
        )
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def written(path: Path, text: str) -> Path:
    """A file with tokens, put in its place at once."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.chmod(0o600)
    os.replace(draft, path)
    return path


async def test_a_token_that_was_just_added_is_accepted_in_every_call(tmp_path: Path) -> None:
    """Several at once, and after a wrong one."""
    path = written(tmp_path / "token", "old\n")
    async with serving(settings_for(tmp_path, token_file=path)) as rig:
        assert await code_of(rig.channel, "wrong") is grpc.StatusCode.UNAUTHENTICATED
        written(path, "old\nnew\n")
        codes = await asyncio.gather(*(code_of(rig.channel, token) for token in ["new", "old"] * 10))
    assert set(codes) == {grpc.StatusCode.OK}


async def test_tokens_are_rotated_without_a_failed_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new one is valid at once beside the old one; the old one is not once it is removed."""
    monkeypatch.setattr(credentials, "LOOK_SECONDS", 0.05)
    path = written(tmp_path / "token", "old\n")
    accepted, refused = grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED
    async with serving(settings_for(tmp_path, token_file=path)) as rig:
        assert [await code_of(rig.channel, token) for token in ("old", "older")] == [accepted, refused]
        written(path, "old\nnew\n")
        assert await code_of(rig.channel, "new") is accepted
        assert await code_of(rig.channel, "old") is accepted

        with capture_logs() as logs:
            written(path, "two words\n")
            await until(lambda: any(entry["event"] == "tokens_refused" for entry in logs))
        assert [await code_of(rig.channel, token) for token in ("old", "new")] == [accepted, accepted]

        written(path, "new\n")
        await until(lambda: _is(rig.channel, "old", refused))
        assert await code_of(rig.channel, "new") is accepted


async def _is(channel: grpc.aio.Channel, token: str, code: grpc.StatusCode) -> bool:
    return await code_of(channel, token) is code
