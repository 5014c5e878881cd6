"""`crucible-worker serve` as a process: its start, its end, and what it refuses."""

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import crucible_bridge

SECONDS = 20.0
"""For a process to get where it should be, on a loaded machine."""

Serve = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts workers, each with a state directory of its own; kills those that are left."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, python: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        command = [sys.executable, *python, "-m", "crucible_worker", "serve", f"--state-dir={tmp_path / 'state'}"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("CRUCIBLE_")}
        process = subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def _until_there(path: Path, process: subprocess.Popen[str]) -> str:
    deadline = time.monotonic() + SECONDS
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, f"{path} is not there after {SECONDS} s"
        os.sched_yield()
    return path.read_text()


async def test_ready_file_tells_where_it_serves(serve: Serve, tmp_path: Path):
    """Once the file is there, a client can call the address in it; SIGTERM then ends the worker with 0."""
    process = serve("--port=0", f"--ready-file={tmp_path / 'ready'}")
    address = _until_there(tmp_path / "ready", process)

    async with crucible_bridge.connect(address) as bridge:
        serving = await bridge.worker.health()
    process.send_signal(signal.SIGTERM)

    assert serving
    assert re.fullmatch(r"127\.0\.0\.1:\d+", address)
    assert process.wait(SECONDS) == 0
    assert not (tmp_path / "ready").exists()


async def test_a_unix_socket_is_for_its_owner_alone(serve: Serve, tmp_path: Path):
    """The socket has mode 0600, and answers."""
    path = tmp_path / "socket"
    process = serve(f"--unix-socket={path}", f"--ready-file={tmp_path / 'ready'}")
    address = _until_there(tmp_path / "ready", process)

    async with crucible_bridge.connect(address) as bridge:
        serving = await bridge.worker.health()

    assert serving
    assert address == f"unix:{path}"
    assert path.stat().st_mode & 0o777 == 0o600


def test_nothing_heavy_is_imported_until_it_serves(serve: Serve, tmp_path: Path):
    """A worker that waits for work has loaded no machine-learning library, and nothing that draws on a terminal."""
    # Without the processes that grade, which tell their imports in the same place.
    options = ("--port=0", "--grading-processes=0", f"--ready-file={tmp_path / 'ready'}")
    process = serve(*options, python=("-X", "importtime"))
    assert process.stderr is not None
    # What it says of its imports is read once it serves.
    fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 1 << 20)
    _until_there(tmp_path / "ready", process)
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=SECONDS)

    # By their submodules: an import that is tried and refused is listed as well.
    imported = set(re.findall(r"^import time: .*\| +(\w+)\.", log, re.MULTILINE))
    assert {"crucible_worker", "grpc", "sqlite3"} <= imported
    assert imported.isdisjoint({"torch", "transformers", "sympy", "tinker", "rich"})


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--host=0.0.0.0"], "--token-file is needed"),
        (["--port=65536"], "0 to 65535"),
        (["--token-file=/nonexistent/token"], "--token-file /nonexistent/token cannot be read"),
        (["--config=/nonexistent/worker.toml"], "--config /nonexistent/worker.toml cannot be read"),
        (["--limit=max_streams"], "NAME=VALUE"),
        (["--limit=max_streams=0"], "--limit max_streams is 0"),
    ],
)
def test_what_is_refused_exits_with_2(arguments: list[str], why: str, serve: Serve):
    """One line says why, and there is no traceback."""
    process = serve(*arguments)
    _, log = process.communicate(timeout=SECONDS)

    assert process.returncode == 2
    assert why in log
    assert len(log.splitlines()) == 1


def test_a_taken_port_exits_with_1(serve: Serve, tmp_path: Path):
    """Two workers never share a port; the second says that it is taken."""
    first = serve("--port=0", f"--ready-file={tmp_path / 'ready'}")
    port = _until_there(tmp_path / "ready", first).rpartition(":")[2]

    second = serve(f"--port={port}")
    _, log = second.communicate(timeout=SECONDS)

    assert second.returncode == 1
    assert "in use" in log
    assert "Traceback" not in log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_start_leaves_no_traceback(number: signal.Signals, serve: Serve, tmp_path: Path):
    """Told to go while it still imports, a worker is gone at once, with 0 and without a word."""
    process = serve("--port=0", f"--ready-file={tmp_path / 'ready'}", python=("-v",))
    assert process.stderr is not None
    # `-v` tells every import: the moment is between the command's beginning and the server's first line.
    while "import 'crucible_worker.rpc" not in (line := process.stderr.readline()):
        assert line, "the worker ended by itself"
    process.send_signal(number)
    _, log = process.communicate(timeout=SECONDS)

    assert process.returncode == 0
    assert "Traceback" not in log
    assert not (tmp_path / "ready").exists()
