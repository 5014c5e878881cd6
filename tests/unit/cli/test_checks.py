"""Doctor's checks: what is looked at, and what is said of it."""

import asyncio
import contextlib
import socket
import sqlite3
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from crucible_worker.cli import checks
from crucible_worker.cli.checks import DoctorCheck, run_checks
from crucible_worker.cli.probe import ProbeReply
from crucible_worker.config import Settings
from crucible_worker.journal.schema import JOURNAL_FILE, prepare
from crucible_worker.testing import run_worker


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A worker that could start."""
    return Settings(port=0, state_dir=tmp_path / "state")


def _checks(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> dict[str, DoctorCheck]:
    monkeypatch.setattr("crucible_worker.backends.local.backend._torch_device", lambda: "CPU")
    # A second of each test's time; it has tests of its own.
    monkeypatch.setattr(checks, "_grading", lambda settings: "as it should be")
    return {check.name: check for check in run_checks(settings)}


def test_a_worker_that_can_serve_passes_all_that_is_required(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """On a machine where tests run, nothing that is required is missing."""
    found = _checks(settings, monkeypatch)

    assert [check.detail for check in found.values() if check.required and not check.ok] == []
    assert found["state directory"].detail == f"{settings.state_dir}, to be created"
    assert "WAL" in found["sqlite"].detail


def test_a_port_that_is_taken_is_told(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """Where somebody listens already, serving would be refused."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = Settings(port=taken.getsockname()[1], state_dir=settings.state_dir)

        address = _checks(busy, monkeypatch)["address"]

    assert (address.ok, address.required) == (False, True)
    assert "in use" in address.detail


def test_a_socket_that_is_there_is_told(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """A Unix socket is not to be taken from another worker."""
    (tmp_path / "socket").write_text("")
    busy = Settings(unix_socket=tmp_path / "socket", state_dir=settings.state_dir)

    address = _checks(busy, monkeypatch)["address"]

    assert not address.ok
    assert "no healthy worker answers" in address.detail


async def test_a_healthy_worker_at_the_address_is_no_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Doctor beside a worker that serves says so: nothing is to be mended."""
    async with run_worker({}) as worker:
        port = int(worker.address.rpartition(":")[2])
        monkeypatch.setattr(checks, "HEALTH_SECONDS", 60.0)
        await _serving(worker.address)

        found = await asyncio.to_thread(_checks, Settings(port=port, state_dir=tmp_path), monkeypatch)

    assert found["address"].ok
    assert "a healthy worker serves there already" in found["address"].detail


async def _serving(address: str) -> None:
    """Wait until the worker can evaluate, of which doctor asks: grading starts after the port is open."""
    request = health_pb2.HealthCheckRequest(service="crucible_bridge.v1.EvaluationService")
    async with grpc.aio.insecure_channel(address) as channel:
        async for answer in health_pb2_grpc.HealthStub(channel).Watch(request):
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return


async def test_a_worker_that_is_not_ready_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Who finds the address taken learns that it is a worker that has it, and that it cannot evaluate yet."""
    monkeypatch.setattr(checks, "probe", lambda *_, **__: ProbeReply(ready=False))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        found = await asyncio.to_thread(_checks, Settings(port=taken.getsockname()[1], state_dir=tmp_path), monkeypatch)

    assert not found["address"].ok
    assert "a worker uses the address, and reports that it cannot evaluate" in found["address"].detail


def test_a_journal_that_cannot_be_opened_is_told(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """What lies there and is no journal of ours is refused, and the other checks are made all the same."""
    settings.state_dir.mkdir()
    (settings.state_dir / JOURNAL_FILE).write_bytes(b"not a database" * 1000)

    found = _checks(settings, monkeypatch)

    assert (found["journal"].ok, found["journal"].required) == (False, True)
    assert found["address"].ok


def test_a_journal_of_another_version_is_told(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """A worker would refuse it."""
    with contextlib.closing(sqlite3.connect(prepare(settings.state_dir))) as connection:
        connection.execute("PRAGMA user_version = 99")

    journal = _checks(settings, monkeypatch)["journal"]

    assert not journal.ok
    assert "is of version 99" in journal.detail


def test_an_older_journal_is_no_failure(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """A worker brings it up to date; doctor says so, and leaves it as it is."""
    path = prepare(settings.state_dir)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 1")

    journal = _checks(settings, monkeypatch)["journal"]

    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert journal.ok
    assert "of version 1, brought to 2" in journal.detail


def test_without_a_journal_nothing_is_left_behind(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """The state directory is not even made, and what was tried out is gone."""
    _checks(settings, monkeypatch)

    assert list(settings.state_dir.parent.iterdir()) == []


@pytest.mark.parametrize("open_elsewhere", [False, True], ids=["no worker", "a worker"])
def test_a_journal_is_only_read(open_elsewhere: bool, settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """With a worker at it or without, no byte of the journal changes and no file appears."""
    with contextlib.closing(sqlite3.connect(prepare(settings.state_dir))) as connection:
        if open_elsewhere:
            connection.execute("INSERT INTO probe VALUES (1, x'00')")
            connection.commit()
        else:
            connection.close()
        before = _contents(settings.state_dir)

        found = _checks(settings, monkeypatch)

        assert (found["journal"].ok, found["sqlite"].ok) == (True, True)
        assert found["journal"].detail.endswith("evaluations: 0")
        assert _contents(settings.state_dir) == before
    assert ("journal.sqlite3-wal" in before) == open_elsewhere


def _contents(folder: Path) -> dict[str, bytes]:
    # The -shm file is memory that readers share, and mark.
    return {path.name: b"" if path.name.endswith("-shm") else path.read_bytes() for path in folder.iterdir()}


def test_a_state_directory_that_cannot_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Below a file there can be no folder."""
    (tmp_path / "file").write_text("")

    found = _checks(Settings(port=0, state_dir=tmp_path / "file" / "state"), monkeypatch)["state directory"]

    assert (found.ok, found.required) == (False, True)
    assert f"cannot be created in {tmp_path / 'file'}" in found.detail


def test_an_extra_that_is_missing_is_optional(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """Without the local extra a worker serves; doctor says what to install for more."""
    present = checks.importlib.metadata.version

    def version(package: str) -> str:
        if package == "torch":
            raise checks.importlib.metadata.PackageNotFoundError(package)
        return present(package)

    monkeypatch.setattr(checks.importlib.metadata, "version", version)

    torch = _checks(settings, monkeypatch)["torch"]

    assert (torch.ok, torch.required) == (False, False)
    assert "crucible-bridge[local]" in torch.detail


def test_a_tool_that_is_missing_says_what_it_is_for(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """System tools are optional, and each has its purpose."""
    monkeypatch.setattr(checks.shutil, "which", lambda name, path: None)

    found = _checks(settings, monkeypatch)

    assert (found["buf"].ok, found["buf"].required) == (False, False)
    assert "protos" in found["buf"].purpose


def test_a_file_system_without_wal_is_told(settings: Settings, monkeypatch: pytest.MonkeyPatch):
    """Several workers can share a journal in WAL mode alone."""

    class WithoutWal(sqlite3.Connection):
        def execute(self, sql: str, /, *arguments: object) -> sqlite3.Cursor:
            return super().execute(sql.replace("=WAL", "=DELETE"))

    connect = sqlite3.connect

    def without_wal(path: Path, **options: Any) -> sqlite3.Connection:
        # The journal asks for a connection with options of its own, and is left alone.
        return connect(path, **options) if options else connect(path, factory=WithoutWal)

    monkeypatch.setattr(checks.sqlite3, "connect", without_wal)

    assert "has no WAL" in _checks(settings, monkeypatch)["sqlite"].detail
