"""A worker as a process: its ready file, its signals, its exit code."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from crucible_bridge.v1 import (
    evaluation_pb2,
    evaluation_pb2_grpc,
    events_pb2,
    events_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)
from crucible_worker.server.process import Systemd
from tests.service.server_kit import error_of, evaluate_request

ROOT = Path(__file__).parents[2]

EXIT_WITHIN_SECONDS = 5.5
"""From a signal to the end of the process: the limit `drain_seconds`, and what it takes the system."""

START_WITHIN_SECONDS = 30
"""No claim: how long a test waits on a loaded machine."""


@contextlib.contextmanager
def process(*command: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed if the test leaves it."""
    with subprocess.Popen([sys.executable, *command], cwd=ROOT, stderr=subprocess.PIPE, text=True, **options) as child:
        try:
            yield child
        finally:
            child.kill()


@contextlib.contextmanager
def scripted(folder: Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A worker with scripted evaluations."""
    settings = {"state_dir": str(folder), "ready_file": str(folder / "ready"), **options}
    with process("-m", "tests.service.scripted_worker", json.dumps(settings)) as child:
        yield child


def appeared(path: Path, child: subprocess.Popen[str]) -> str:
    """Wait for a file; its text."""
    deadline = time.monotonic() + START_WITHIN_SECONDS
    while not path.exists():
        assert child.poll() is None, child.stderr and child.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return path.read_text()


def ends(child: subprocess.Popen[str]) -> int:
    """Wait for the end of a process that was told to go; its exit code."""
    return child.wait(EXIT_WITHIN_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_an_idle_worker(tmp_path, number):
    """SIGTERM and SIGINT end a worker with 0, and its ready file goes with it."""
    with scripted(tmp_path) as child:
        address = appeared(tmp_path / "ready", child)
        child.send_signal(number)

        assert ends(child) == 0
        assert address.startswith("127.0.0.1:")
        assert not (tmp_path / "ready").exists()


async def test_open_streams_hold_no_worker(tmp_path):
    """With streams open and calls waiting, the process ends in time, with 0, and callers are told why."""
    with scripted(tmp_path) as child:
        address = await asyncio.to_thread(appeared, tmp_path / "ready", child)
        async with grpc.aio.insecure_channel(address) as channel:
            evaluations: Any = evaluation_pb2_grpc.EvaluationServiceStub(channel)
            telemetry: Any = events_pb2_grpc.TelemetryServiceStub(channel)
            streams = [aiter(telemetry.Subscribe(events_pb2.SubscribeRequest())) for _ in range(20)]
            streams.append(
                aiter(evaluations.WatchEvaluation(evaluation_pb2.WatchEvaluationRequest(evaluation_id="e1")))
            )
            for stream in streams:
                await anext(stream)
            waiting = evaluations.Evaluate(evaluate_request())
            about: Any = worker_pb2_grpc.WorkerServiceStub(channel)
            while (await about.GetInfo(worker_pb2.GetInfoRequest())).worker.calls <= len(streams):
                assert child.poll() is None

            child.send_signal(signal.SIGTERM)
            code = await asyncio.to_thread(ends, child)

            errors = [await error_of(anext(stream)) for stream in streams] + [await error_of(waiting)]
            assert code == 0
            assert {error.reason for error in errors} == {"DRAINING"}


async def test_a_drain_call_ends_the_process(tmp_path):
    """WorkerService.Drain answers, and the process ends as by SIGTERM."""
    with scripted(tmp_path) as child:
        address = await asyncio.to_thread(appeared, tmp_path / "ready", child)
        async with grpc.aio.insecure_channel(address) as channel:
            stub: Any = worker_pb2_grpc.WorkerServiceStub(channel)
            answer = await stub.Drain(worker_pb2.DrainRequest())

        assert await asyncio.to_thread(ends, child) == 0
        assert list(answer.interrupted) == ["interrupted-1"]


def test_a_blocked_event_loop_holds_no_worker(tmp_path):
    """A main thread that hears nothing, not even signals, is ended with 0 when the time is over."""
    with scripted(tmp_path, blocks=True, drain_seconds=1.0) as child:
        appeared(tmp_path / "ready", child)
        appeared(tmp_path / "blocked", child)
        child.send_signal(signal.SIGTERM)

        assert ends(child) == 0
        assert not (tmp_path / "ready").exists()


def test_a_second_signal_ends_it_at_once(tmp_path):
    """Who asks twice is not made to wait."""
    with scripted(tmp_path, blocks=True, drain_seconds=60.0) as child:
        appeared(tmp_path / "ready", child)
        child.send_signal(signal.SIGTERM)
        child.send_signal(signal.SIGINT)

        assert ends(child) == 0


def test_a_signal_during_the_start_ends_it_cleanly(tmp_path):
    """A worker that is told to go before it serves ends with 0 and no traceback; a stale ready file is gone, too."""
    (tmp_path / "ready").write_text("127.0.0.1:1")
    with scripted(tmp_path, starts_slowly=True) as child:
        appeared(tmp_path / "starting", child)
        child.send_signal(signal.SIGTERM)

        assert ends(child) == 0
        assert child.stderr is not None
        assert "Traceback" not in child.stderr.read()
        assert not (tmp_path / "ready").exists()


def serve_command(folder: Path, *options: str) -> list[str]:
    """The worker's own command, with its state below a folder."""
    return ["-m", "crucible_worker", "serve", "--state-dir", str(folder / "state"), *options]


def test_the_real_worker_starts_and_ends(tmp_path):
    """The command itself: ready, then gone with 0 at SIGTERM, with nothing but log lines on stderr."""
    ready = tmp_path / "ready"
    with process(*serve_command(tmp_path, "--port", "0", "--ready-file", str(ready))) as child:
        appeared(ready, child)
        child.send_signal(signal.SIGTERM)

        assert ends(child) == 0
        assert child.stderr is not None
        lines = [json.loads(line) for line in child.stderr]
        assert (lines[0]["event"], lines[-1]["event"]) == ("serving", "drained")
        # Of several workers that log to one place, whose line it is.
        assert {(line["pid"], line["worker_id"]) for line in lines} == {(child.pid, lines[0]["worker_id"])}
        assert lines[0]["worker_id"]
        told = {name: lines[0][name] for name in ("journal", "tls", "token", "model_roots", "data_roots", "servers")}
        assert told == {
            "journal": str(tmp_path / "state"),
            "tls": None,
            "token": False,
            "model_roots": [],
            "data_roots": [],
            "servers": [],
        }
        assert lines[0]["version"]


def test_systemd_is_told(tmp_path):
    """That the worker is ready, that its event loop runs, and that it stops; children get none of its variables."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(START_WITHIN_SECONDS)
        variables = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2000000"}
        command = serve_command(tmp_path, "--port", "0", "--ready-file", str(tmp_path / "ready"))
        with process(*command, env={**os.environ, **variables}) as child:
            assert [manager.recv(64) for _ in range(3)] == [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"]
            assert (tmp_path / "ready").exists()
            child.send_signal(signal.SIGTERM)
            while (told := manager.recv(64)) == b"WATCHDOG=1":
                pass
            assert told == b"STOPPING=1"
            assert ends(child) == 0
    environment = {**variables, "WATCHDOG_PID": "1", "PATH": "/bin"}
    other = Systemd(environment)
    assert environment == {"PATH": "/bin"}
    assert other.watchdog_seconds is None, "it watches another process"


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ((), "--token-file"),
        (("--token-file", "TOKEN"), "--tls-cert"),
        (("--insecure-no-tls",), "--token-file"),
    ],
)
def test_other_machines_are_not_served_by_accident(tmp_path, options, missing):
    """Any address but loopback is refused without a token and TLS, and the refusal says what is missing."""
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("s3cret")
    options = [str(token) if option == "TOKEN" else option for option in options]
    with process(*serve_command(tmp_path, "--host", "0.0.0.0", "--port", "0", *options)) as child:
        assert child.wait(START_WITHIN_SECONDS) != 0
        assert child.stderr is not None
        assert missing in child.stderr.read()


def test_a_taken_port_is_exit_code_one(tmp_path):
    """The log's last line names the address and what is wrong with it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with process(*serve_command(tmp_path, "--port", str(port))) as child:
            assert child.wait(START_WITHIN_SECONDS) == 1
            assert child.stderr is not None
            lines = [json.loads(line) for line in child.stderr]

    failed = next(line for line in lines if line["event"] == "start_failed")
    why = "Address already in use by another process; --port selects another port, 0 any free one"
    assert failed["message"] == f"cannot listen on 127.0.0.1:{port}: {why}"


def test_starting_loads_nothing_heavy(tmp_path):
    """A worker that serves has neither loaded torch and its kind nor what only the command line needs."""
    program = """
import asyncio, sys
from pathlib import Path
from crucible_worker.config import Settings
from crucible_worker.server import Worker

async def main():
    async with Worker(Settings(port=0, state_dir=Path(sys.argv[1]))) as worker:
        await worker.info()
        Path(sys.argv[1], "loaded").write_text("\\n".join({name.partition(".")[0] for name in sys.modules}))

asyncio.run(main())
"""
    with process("-c", program, str(tmp_path), stdout=subprocess.DEVNULL) as child:
        assert child.wait(START_WITHIN_SECONDS) == 0

    names = set((tmp_path / "loaded").read_text().split())
    assert "grpc" in names
    assert names.isdisjoint({"torch", "transformers", "sympy", "tinker", "rich", "jsonschema"})
