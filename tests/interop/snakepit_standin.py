"""Snakepit's Elixir side in Python: starts a worker, shakes hands and calls as Snakepit 0.13 does."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import grpc.aio

from crucible_worker.snakepit import SCRIPT_PATH
from crucible_worker.snakepit.wire import snakepit_bridge_pb2 as pb

__all__ = [
    "SESSION_ID",
    "Binary",
    "Launched",
    "Pool",
    "PythonError",
    "connected",
    "launched",
    "pool_worker",
    "raw",
    "raw_response",
]

READY_SECONDS = 60.0
"""For a worker to be ready on a loaded machine; Snakepit itself waits for 30."""
TEST_SECONDS = 60.0
"""For what is done with a worker: a test that hangs fails."""
EXIT_SECONDS = 6.0
"""From SIGTERM to SIGKILL."""
POLL_SECONDS = 0.005
"""How often a condition outside of this process is looked at."""
RPC_SECONDS = 30.0
"""For a call that has no timeout of its own."""
SESSION_ID = "session_2_1795216070433965"
_SERVICE = "/snakepit.bridge.BridgeService/"
_TYPE_URL = "type.googleapis.com/google.protobuf.StringValue"

_ENVIRONMENT = {
    "GRPC_VERBOSITY": "ERROR",
    "GRPC_POLL_STRATEGY": "poll",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTHONUNBUFFERED": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "SNAKEPIT_HEARTBEAT_CONFIG": '{"dependent":true,"enabled":true,"initial_delay_ms":0,"interval_ms":2000,'
    '"max_missed_heartbeats":3,"timeout_ms":10000}',
    "SNAKEPIT_PROCESS_GROUP": "1",
    "SNAKEPIT_LOG_LEVEL": "warning",
    "VECLIB_MAXIMUM_THREADS": "1",
}


class PythonError(Exception):
    """What Elixir makes of a response without success: a struct where it knows the type."""

    def __init__(self, payload: Mapping[str, Any]) -> None:
        super().__init__(payload["message"])
        self.type: str = payload["type"]
        """Such as "ValueError"."""
        self.message: str = payload["message"]
        """For people."""
        self.context: Mapping[str, Any] = payload["context"]
        """For programs."""
        self.payload = payload
        """All of it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Binary:
    """`{:binary, bytes}`, or `{:binary, bytes, described}`."""

    content: bytes
    described: Any


class Launched:
    """A worker's process, as a pool holds it. Made by `launched`."""

    def __init__(self, process: subprocess.Popen[bytes], ready_file: Path, log_file: Path) -> None:
        self.process = process
        """The process; its standard input is a pipe of ours."""
        self.ready_file = ready_file
        """Where it writes its port."""
        self.log_file = log_file
        """What it writes to stdout and stderr."""
        self._seen: set[tuple[int, str]] = set()

    @property
    def pid(self) -> int:
        """Its process id, and its group's."""
        return self.process.pid

    def log(self) -> str:
        """What it has written."""
        return self.log_file.read_text(errors="replace")

    async def port(self) -> int:
        """Wait for the ready file, read it and remove it."""
        async with asyncio.timeout(READY_SECONDS):
            while not self.ready_file.exists():
                assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.log()}"
                await asyncio.sleep(POLL_SECONDS)
        port = int(self.ready_file.read_text())
        self.ready_file.unlink()
        return port

    def terminate(self) -> None:
        """SIGTERM for the group."""
        os.killpg(self.pid, signal.SIGTERM)

    async def exit_code(self, seconds: float = EXIT_SECONDS) -> int:
        """Wait for its end."""
        async with asyncio.timeout(seconds):
            while self.process.poll() is None:
                await asyncio.sleep(POLL_SECONDS)
        return self.process.returncode

    def family(self) -> list[int]:
        """Every process that lives of its session and below it, itself included; also those whose parent has died.

        Of the latter it knows those that an earlier call saw.
        """
        stats: dict[int, list[str]] = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                    if fields[0] != "Z":
                        stats[int(entry.name)] = fields
        found = {pid for pid, fields in stats.items() if int(fields[3]) == self.pid or (pid, fields[19]) in self._seen}
        while further := {pid for pid, fields in stats.items() if int(fields[1]) in found} - found:
            found |= further
        self._seen = {(pid, stats[pid][19]) for pid in found}
        return sorted(found)


def command(state_dir: Path | None, *adapter_args: str) -> list[str]:
    """The command line that Snakepit makes."""
    ours = [*([] if state_dir is None else [f"--state-dir={state_dir}"]), *adapter_args]
    theirs = ["--port", "0", "--elixir-address", "127.0.0.1:37835", "--snakepit-run-id", "4f2a91c"]
    theirs += ["--snakepit-instance-name", "tests", "--snakepit-instance-token", "not-asked-for"]
    return [sys.executable, str(SCRIPT_PATH), *ours, *theirs]


def environment(ready_file: Path, variables: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """The environment that Snakepit makes, with further variables of the pool's configuration."""
    return {**os.environ, **_ENVIRONMENT, "SNAKEPIT_READY_FILE": str(ready_file), **variables}


@contextlib.contextmanager
def launched(
    folder: Path,
    *adapter_args: str,
    name: str = "worker",
    state_dir: Path | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    appended: Sequence[str] = (),
) -> Iterator[Launched]:
    """Start a worker without waiting for it; whatever still lives at the end is killed.

    Args:
        folder: where its files lie.
        adapter_args: of the pool's configuration.
        name: of its files.
        state_dir: where its journal lies; in the folder if None.
        variables: of the pool's configuration.
        appended: further arguments of Snakepit's.
    """
    ready_file, log_file = folder / f"{name}.ready", folder / f"{name}.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            [*command(state_dir or folder / "state", *adapter_args), *appended],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment(ready_file, variables),
            cwd=SCRIPT_PATH.parent,
        )
    worker = Launched(process, ready_file, log_file)
    try:
        yield worker
    finally:
        for pid in (process.pid, *worker.family()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


class Pool:
    """What a pool does with one worker, over a connection of its own. Made by `pool_worker`."""

    def __init__(self, channel: grpc.aio.Channel, port: int, worker: Launched | None = None) -> None:
        self._channel = channel
        self.port = port
        """Where the worker listens."""
        self._worker = worker
        self.events: list[pb.TelemetryEvent] = []
        """What came by StreamTelemetry, in order."""
        self.streams = 0
        """Telemetry streams that were opened."""
        self.beats: list[float] = []
        """How long each heartbeat took, in seconds."""

    @property
    def worker(self) -> Launched:
        """The process."""
        assert self._worker is not None
        return self._worker

    async def call(self, rpc: str, request: Any, response: Any, *, seconds: float | None = RPC_SECONDS) -> Any:
        """Make a call that answers once."""
        method = self._channel.unary_unary(
            _SERVICE + rpc, request_serializer=_to_bytes, response_deserializer=response.FromString
        )
        return await method(request, timeout=seconds)

    async def shake_hands(self) -> pb.InitializeSessionResponse:
        """Ping, InitializeSession."""
        await self.call("Ping", pb.PingRequest(message="connection_test"), pb.PingResponse)
        request = pb.InitializeSessionRequest(
            session_id=SESSION_ID,
            metadata={"elixir_node": "nonode@nohost", "initialized_at": "2026-11-20T23:07:50.610564Z"},
            config=pb.SessionConfig(enable_caching=True, cache_ttl_seconds=60),
        )
        return await self.call("InitializeSession", request, pb.InitializeSessionResponse)

    async def heartbeat(self) -> pb.HeartbeatResponse:
        """One heartbeat."""
        started = time.monotonic()
        response = await self.call("Heartbeat", pb.HeartbeatRequest(session_id=SESSION_ID), pb.HeartbeatResponse)
        self.beats.append(time.monotonic() - started)
        return response

    async def execute(
        self,
        tool: str,
        parameters: Mapping[str, Any] | None = None,
        binary: Mapping[str, bytes] | None = None,
        *,
        seconds: float | None = RPC_SECONDS,
        correlation_id: str = "sp-84e867c0e46473bd8447a8fd",
        session_id: str = SESSION_ID,
    ) -> Any:
        """`Snakepit.execute`: the decoded result, or Binary.

        Raises:
            PythonError: the response has no success.
        """
        request = _request(tool, parameters or {}, binary or {}, correlation_id, session_id)
        return decoded(await self.call("ExecuteTool", request, pb.ExecuteToolResponse, seconds=seconds))

    async def execute_stream(
        self,
        tool: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        seconds: float | None = RPC_SECONDS,
        correlation_id: str = "sp-0381e7d30ca48c16795d8bdc",
    ) -> AsyncIterator[dict[str, Any]]:
        """`Snakepit.execute_stream`: what the callback is given, chunk by chunk.

        Raises:
            grpc.aio.AioRpcError: the stream ends with a status.
        """
        request = _request(tool, parameters or {}, {}, correlation_id, SESSION_ID)
        request.stream = True
        async for chunk in self.send_stream(request, seconds=seconds):
            payload = json.loads(chunk.data) if chunk.data else {}
            assert isinstance(payload, dict), f"Elixir would make base64 of {chunk.data[:80]!r}"
            yield {**payload, "is_final": chunk.is_final}

    def send_stream(self, request: Any, *, seconds: float | None = RPC_SECONDS) -> Any:
        """Send a request, or its bytes, to ExecuteStreamingTool; the call, which gives chunks."""
        method = self._channel.unary_stream(
            _SERVICE + "ExecuteStreamingTool",
            request_serializer=_to_bytes,
            response_deserializer=pb.ToolChunk.FromString,
        )
        return method(request, timeout=seconds)

    async def listen(
        self, *, seconds: float | None = 5.0, controls: Sequence[pb.TelemetryControl] = ()
    ) -> grpc.StatusCode:
        """Open a telemetry stream and take its events until it ends; the status that it ends with."""
        method: Any = self._channel.stream_stream(
            _SERVICE + "StreamTelemetry",
            request_serializer=_to_bytes,
            response_deserializer=pb.TelemetryEvent.FromString,
        )
        call = method(timeout=seconds)
        self.streams += 1
        await call.initial_metadata()
        for control in (pb.TelemetryControl(toggle=pb.TelemetryToggle(enabled=True)), *controls):
            await call.write(control)
        async for event in call:
            self.events.append(event)
        return await call.code()

    @contextlib.asynccontextmanager
    async def beating(self, interval: float) -> AsyncIterator[None]:
        """Send heartbeats meanwhile."""

        async def beat() -> None:
            while True:
                await self.heartbeat()
                await asyncio.sleep(interval)

        beats = asyncio.create_task(beat())
        try:
            yield
        finally:
            # One that failed is this block's failure.
            if beats.done():
                beats.result()
            beats.cancel()


@contextlib.asynccontextmanager
async def pool_worker(folder: Path, *adapter_args: str, name: str = "worker", **fields: Any) -> AsyncIterator[Pool]:
    """Start a worker, connect and shake hands; see `launched` for what else is taken."""
    with launched(folder, *adapter_args, name=name, **fields) as worker:
        async with asyncio.timeout(TEST_SECONDS), connected(await worker.port(), worker) as pool:
            await pool.shake_hands()
            yield pool


@contextlib.asynccontextmanager
async def connected(port: int, worker: Launched | None = None) -> AsyncIterator[Pool]:
    """Connect to a worker that is ready."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        yield Pool(channel, port, worker)


def raw(line: Mapping[str, Any]) -> bytes:
    """The bytes of a recorded request."""
    return base64.b64decode(line["request_base64"])


def decoded(response: pb.ExecuteToolResponse) -> Any:
    """What Elixir makes of a response.

    Raises:
        PythonError: it has no success.
    """
    if not response.success:
        raise PythonError(json.loads(response.error_message))
    value = json.loads(response.result.value)
    return Binary(response.binary_result, value) if response.binary_result else value


def _request(
    tool: str, parameters: Mapping[str, Any], binary: Mapping[str, bytes], correlation_id: str, session_id: str
) -> pb.ExecuteToolRequest:
    request = pb.ExecuteToolRequest(
        session_id=session_id,
        tool_name=tool,
        metadata={"correlation_id": correlation_id, "python_platform": "x86_64-pc-linux-gnu"},
        binary_parameters=dict(binary),
    )
    for name, value in parameters.items():
        given = request.parameters[name]
        given.type_url = _TYPE_URL
        given.value = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return request


def _to_bytes(request: Any) -> bytes:
    return request if isinstance(request, bytes) else request.SerializeToString()


def raw_response() -> Any:
    """In place of a message: the bytes of a response as they are."""
    return _Raw


class _Raw:
    @staticmethod
    def FromString(content: bytes) -> bytes:
        return content
