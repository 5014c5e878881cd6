"""One replica of a managed server, vLLM or SGLang: its process, port and log, and the requests that control it."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import dataclasses
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import aiohttp

from crucible_bridge.errors import BackendError
from crucible_bridge.reasons import Reason
from crucible_worker.backends.managed.guard import GRACE_SECONDS
from crucible_worker.backends.managed.settings import ProgramName
from crucible_worker.backends.managed.target import Target
from crucible_worker.backends.openai.connection import closed
from crucible_worker.children.process import Process, ending_of
from crucible_worker.util.files import make_private_folder

__all__ = [
    "PROGRAMS",
    "SERVED_NAME",
    "ControlClient",
    "ControlReply",
    "NoReply",
    "NotLoaded",
    "Program",
    "Replica",
    "refuse_report",
]

# Requests to a server that are none for its models: whether it is healthy, which weights it has, that it load others.
#
# The server listens on 127.0.0.1 and is the worker's own, so its answers are believed, within bounds.

MAX_ANSWER_BYTES = 1 << 20
"""Most bytes of an answer that are read."""
QUICK_SECONDS = 10.0
"""How long a server may take for an answer that it has at hand."""


class NoReply(Exception):
    """Raised when there is no answer; the text says why."""


@dataclasses.dataclass(frozen=True, slots=True)
class ControlReply:
    """An answer."""

    status: int
    """Of HTTP."""
    text: str
    """The body."""

    @property
    def ok(self) -> bool:
        """Whether the server did what it was asked."""
        return self.status == 200

    @property
    def document(self) -> dict[str, Any]:
        """The body as a JSON object; empty if it is none."""
        try:
            value = json.loads(self.text)
        except (ValueError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}


class ControlClient:
    """Requests to one server.

    Args:
        root: its address without a path: "http://127.0.0.1:8000".
        slow_seconds: how long it may take to load weights.
    """

    def __init__(self, root: str, slow_seconds: float) -> None:
        self._root = root
        self.slow_seconds = slow_seconds

    async def get(self, path: str) -> ControlReply:
        """What the server returns at a path.

        Raises:
            NoAnswer: nothing.
        """
        return await self._send("GET", path, None, QUICK_SECONDS)

    async def post(self, path: str, body: dict[str, Any], seconds: float = QUICK_SECONDS) -> ControlReply:
        """What the server returns to a JSON object.

        Raises:
            NoAnswer: nothing.
        """
        return await self._send("POST", path, body, seconds)

    async def _send(
        self, method: Literal["GET", "POST"], path: str, body: dict[str, Any] | None, seconds: float
    ) -> ControlReply:
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            # A connection of its own: these requests are rare, and a server that dies leaves no connection behind.
            async with (
                aiohttp.ClientSession(timeout=timeout, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as session,
                session.request(method, f"{self._root}{path}", json=body, allow_redirects=False) as response,
            ):
                content = await response.content.read(MAX_ANSWER_BYTES)
                while len(content) < MAX_ANSWER_BYTES and (more := await response.content.read(MAX_ANSWER_BYTES)):
                    content += more
                return ControlReply(response.status, content[:MAX_ANSWER_BYTES].decode(errors="replace"))
        except TimeoutError:
            raise NoReply(f"{path} did not answer within {seconds:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise NoReply(f"{path} cannot be reached: {type(error).__name__}") from None


# What vLLM and SGLang differ in: their command lines, how weights are loaded in place, and what they report of them.
#
# | | vLLM | SGLang |
# |---|---|---|
# | a checkpoint | POST /collective_rpc `reload_weights`, /reset_prefix_cache | POST /update_weights_from_disk |
# | an adapter | POST /v1/load_lora_adapter, /v1/unload_lora_adapter | POST /load_lora_adapter, /unload_lora_adapter |
# | it reports | GET /v1/models: adapters with their paths | GET /model_info: weight_version, model_path |
#
# Sources: vllm/entrypoints/serve (lora, dev/rpc, dev/cache) and vllm/v1/worker/gpu_worker.py; SGLang's
# sglang/srt/entrypoints/http_server.py and managers/io_struct.py.

SERVED_NAME = "crucible"
"""Name of the model at its server: it stays when other weights are loaded."""
_MAX_CHARS = 300
"""Most characters of a server's answer in an error."""


class NotLoaded(Exception):
    """Raised when a server did not load what it was to load; the text says why. What it has now is not known."""


class Program(abc.ABC):
    """A program that serves models."""

    command: ClassVar[tuple[str, ...]]
    """Its command line, with placeholders."""
    sampling_option: ClassVar[tuple[str, str]]
    """The option, and its value, by which it takes no sampling parameters from the model's generation_config.json."""
    adapter_arguments: ClassVar[tuple[str, ...]]
    """Further arguments if it is to load adapters."""
    environment: ClassVar[Mapping[str, str]] = {}
    """Variables that its endpoints need."""

    @abc.abstractmethod
    def name_of(self, adapter: str | None) -> str:
        """The model that requests name, given the adapter's name."""

    @abc.abstractmethod
    async def started(self, control: ControlClient, target: Target) -> None:
        """Let a server that has started with a checkpoint report its version, if it can.

        Raises:
            NotLoaded: it refuses.
            NoAnswer: nothing answers.
        """

    @abc.abstractmethod
    async def load(self, control: ControlClient, target: Target) -> None:
        """Load the weights of another checkpoint of the same form. No request is under way.

        Raises:
            NotLoaded: it refuses or fails.
            NoAnswer: nothing answers.
        """

    @abc.abstractmethod
    async def load_adapter(self, control: ControlClient, name: str, path: str) -> None:
        """Load an adapter under a new name; raises as `load`."""

    @abc.abstractmethod
    async def unload_adapter(self, control: ControlClient, name: str) -> None:
        """Unload an adapter; raises as `load`."""

    @abc.abstractmethod
    def disagrees(self, reported: Mapping[str, Any], target: Target) -> str:
        """How a report differs from that of a server with this checkpoint; empty if it does not, or says nothing."""

    @abc.abstractmethod
    async def reported(self, control: ControlClient) -> Mapping[str, Any]:
        """What the server reports of its weights and adapters, for a comparison.

        Raises:
            NoAnswer: nothing answers.
        """


class _Vllm(Program):
    command = (
        "vllm",
        "serve",
        "{model}",
        "--host=127.0.0.1",
        "--port={port}",
        "--served-model-name={name}",
        "--tensor-parallel-size={gpus}",
        "--disable-uvicorn-access-log",
    )
    # The tokens that end a text are still those of the file.
    sampling_option = ("--generation-config", "vllm")
    adapter_arguments = ("--enable-lora", "--max-lora-rank=64")
    environment: ClassVar[Mapping[str, str]] = {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True",
        "VLLM_SERVER_DEV_MODE": "1",  # has /collective_rpc and /reset_prefix_cache
    }

    def name_of(self, adapter: str | None) -> str:
        return adapter or SERVED_NAME

    async def started(self, control: ControlClient, target: Target) -> None:
        """It reports no version of its weights."""

    async def load(self, control: ControlClient, target: Target) -> None:
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(target.checkpoint.directory)}}
        _done(await control.post("/collective_rpc", body, control.slow_seconds), "reload_weights")
        # Keys and values of prompts were computed with the former weights.
        _done(await control.post("/reset_prefix_cache", {}), "reset_prefix_cache")

    async def load_adapter(self, control: ControlClient, name: str, path: str) -> None:
        body = {"lora_name": name, "lora_path": path}
        _done(await control.post("/v1/load_lora_adapter", body, control.slow_seconds), "load_lora_adapter")

    async def unload_adapter(self, control: ControlClient, name: str) -> None:
        _done(await control.post("/v1/unload_lora_adapter", {"lora_name": name}), "unload_lora_adapter")

    def disagrees(self, reported: Mapping[str, Any], target: Target) -> str:
        name, adapters = target.adapter_name, reported["adapters"]
        if name is None or any(adapter.startswith(f"{name} of ") for adapter in adapters):
            return ""
        return f"lists no adapter {name}"

    async def reported(self, control: ControlClient) -> Mapping[str, Any]:
        listed = (await control.get("/v1/models")).document.get("data")
        entries = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
        # The root of the model itself is what it was started with, whatever was loaded since.
        return {
            "adapters": sorted(
                f"{entry.get('id')} of {entry.get('root')}" for entry in entries if entry.get("parent") is not None
            )
        }


class _Sglang(Program):
    command = (
        "python",
        "-m",
        "sglang.launch_server",
        "--model-path={model}",
        "--host=127.0.0.1",
        "--port={port}",
        "--served-model-name={name}",
        "--tp-size={gpus}",
        "--log-level-http=warning",
    )
    sampling_option = ("--sampling-defaults", "openai")
    adapter_arguments = ("--enable-lora", "--max-lora-rank=64", "--lora-target-modules", "all")

    def name_of(self, adapter: str | None) -> str:
        return SERVED_NAME if adapter is None else f"{SERVED_NAME}:{adapter}"

    async def started(self, control: ControlClient, target: Target) -> None:
        body = {"new_version": target.version, "abort_all_requests": False}
        _succeeded(await control.post("/update_weight_version", body), "update_weight_version")

    async def load(self, control: ControlClient, target: Target) -> None:
        body = {
            "model_path": str(target.checkpoint.directory),
            "weight_version": target.version,
            "abort_all_requests": False,
        }
        answer = await control.post("/update_weights_from_disk", body, control.slow_seconds)
        _succeeded(answer, "update_weights_from_disk")

    async def load_adapter(self, control: ControlClient, name: str, path: str) -> None:
        body = {"lora_name": name, "lora_path": path}
        _succeeded(await control.post("/load_lora_adapter", body, control.slow_seconds), "load_lora_adapter")

    async def unload_adapter(self, control: ControlClient, name: str) -> None:
        answer = await control.post("/unload_lora_adapter", {"lora_name": name}, control.slow_seconds)
        _succeeded(answer, "unload_lora_adapter")

    def disagrees(self, reported: Mapping[str, Any], target: Target) -> str:
        version = reported.get("weight_version", target.version)
        return "" if version == target.version else f"has weight_version {version!r}, not {target.version!r}"

    async def reported(self, control: ControlClient) -> Mapping[str, Any]:
        told: dict[str, Any] = {}
        # Each has been deprecated in favor of another one: versions have the first, the second, or both.
        for path in ("/model_info", "/get_model_info"):
            answer = await control.get(path)
            if answer.ok:
                told = answer.document
                break
        return {key: told[key] for key in ("weight_version", "model_path") if key in told}


def refuse_report(program: Program, reported: Mapping[str, Any], target: Target) -> None:
    """Refuse a server that reports something else than what it has just loaded.

    Raises:
        NotLoaded: it does.
    """
    if why := program.disagrees(reported, target):
        raise NotLoaded(f"reports success, and {why}")


PROGRAMS: Mapping[ProgramName, Program] = {"vllm": _Vllm(), "sglang": _Sglang()}


def _done(answer: ControlReply, what: str) -> None:
    if not answer.ok:
        raise NotLoaded(f"{what} was answered with {answer.status}: {_shown(answer)}")


def _succeeded(answer: ControlReply, what: str) -> None:
    """SGLang reports a failure in the body, with status 400."""
    _done(answer, what)
    if answer.document.get("success") is not True:
        raise NotLoaded(f"{what} failed: {_shown(answer)}")


def _shown(answer: ControlReply) -> str:
    document = answer.document
    error = document.get("error")
    message = error.get("message") if isinstance(error, dict) else document.get("message")
    message = message or document.get("error_message") or answer.text
    return " ".join(str(message if isinstance(message, str) else json.dumps(message)).split())[:_MAX_CHARS]


GUARD = "crucible_worker.backends.managed.guard"
POLL_SECONDS = 0.2
"""Between two requests for a server's health while it starts."""
STOP_SECONDS = GRACE_SECONDS + 1.0
"""How long the end of a server is awaited before another one takes its place."""
CLOSE_SECONDS = 0.5
"""How long it is awaited when the worker ends."""
LOG_SECONDS = 7 * 86_400.0
"""A log without a new line for so long is removed when a server starts."""
MAX_LOG_LINES = 20
MAX_LINE_CHARS = 300
"""Of the log in an error."""
_TAIL_BYTES = MAX_LOG_LINES * MAX_LINE_CHARS


class Replica:
    """A place for one server process. Making one reserves its port on 127.0.0.1, and starts nothing.

    Args:
        server: the server's name, for errors.
        devices: GPUs, joined by "+"; empty for those that the program chooses.
        folder: of its log.
        slow_seconds: how long it may take to start, or to load weights.
    """

    def __init__(self, server: str, devices: str, folder: Path, slow_seconds: float) -> None:
        self.devices = devices
        self._server = server
        self._slow_seconds = slow_seconds
        # Bound and never listening: no other program gets the port, and the server may listen on it all the same.
        self._port = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._port.bind(("127.0.0.1", 0))
        self.port: int = self._port.getsockname()[1]
        self.control = ControlClient(f"http://127.0.0.1:{self.port}", slow_seconds)
        self.log = folder / f"{server}-{self.port}.log"
        self.ready = False
        """Whether it serves what it is to serve."""
        self._closed = False
        self._process: Process | None = None
        self._line: socket.socket | None = None

    @property
    def url(self) -> str:
        """The base URL of its OpenAI-compatible endpoints."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def pid(self) -> int:
        """Process id of the guard, which leads the server's process group; 0 if none runs."""
        return 0 if self._process is None else self._process.pid

    async def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the server, and wait until it is healthy.

        Args:
            command: its command line.
            environment: of its processes, in addition to the worker's.

        Raises:
            BackendError: it cannot be started, ends, or is not healthy in time (SERVER_NOT_STARTED).
            Unavailable: the backend is closed.
        """
        await self.stop()
        if self._closed:
            raise closed()
        # Programs next to this Python are found first: they are installed in its environment.
        path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])
        variables = {**os.environ, "PATH": path, **environment}
        if self.devices:
            variables["CUDA_VISIBLE_DEVICES"] = self.devices.replace("+", ",")
        if shutil.which(command[0], path=variables["PATH"]) is None:
            raise self._not_started(
                f"cannot be started: there is no program {command[0]!r}; install it next to this worker, or name it by "
                f"the setting command of managed_servers.{self._server}"
            )
        try:
            self._begin_log()
            self._process, self._line = Process.start(GUARD, f"--log={self.log}", "--", *command, environment=variables)
        except OSError as error:
            raise self._not_started(f"cannot be started: {error.strerror}") from error
        try:
            await self._until_healthy(self._process)
        except BaseException:
            await self.stop()
            raise

    async def ended(self) -> str:
        """Wait until the server has ended by itself; how it ended, with the last lines of its log."""
        assert self._process is not None, "it was started"
        await self._process.ended()
        return f"ended ({ending_of(self._reap())}){self.tail()}"

    async def stop(self) -> None:
        """End the server, if there is one, and wait until its memory is free. Idempotent."""
        if (process := self._let_go()) is None:
            return
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await process.ended()
        finally:
            await process.end()

    async def aclose(self) -> None:
        """End the server, and free the port; if the end takes longer, its guard waits for it. Idempotent."""
        self._closed = True
        process = self._let_go()
        self._port.close()
        if process is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_SECONDS):
                    await process.ended()
                process.reap()

    def _let_go(self) -> Process | None:
        """Tell the guard to end the server; the guard."""
        self.ready = False
        process, line = self._process, self._line
        self._process = self._line = None
        if line is not None:
            line.close()
        return process

    def tail(self) -> str:
        """The last lines of the log, as the end of an error; empty if there are none."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
                text = file.read(_TAIL_BYTES).decode(errors="replace")
        except OSError:
            return ""
        lines = [line.rstrip()[:MAX_LINE_CHARS] for line in text.splitlines() if line.strip()][-MAX_LOG_LINES:]
        return f"; last lines of {self.log}:\n" + "\n".join(lines) if lines else ""

    def _begin_log(self) -> None:
        """Keep the log of the process before this one, and no old ones of other processes."""
        folder = self.log.parent
        make_private_folder(folder)
        oldest = time.time() - LOG_SECONDS
        for file in folder.glob("*.log*"):
            with contextlib.suppress(FileNotFoundError):  # another worker was first
                if file.stat().st_mtime < oldest:
                    file.unlink()
        if self.log.exists():
            self.log.replace(self.log.with_suffix(".log.before"))

    async def _until_healthy(self, process: Process) -> None:
        ended = asyncio.create_task(process.ended())
        try:
            async with asyncio.timeout(self._slow_seconds):
                while not ended.done():
                    if await self._is_healthy():
                        return
                    await asyncio.wait({ended}, timeout=POLL_SECONDS)
        except TimeoutError:
            what = f"was not healthy within {self._slow_seconds:g} s (start_seconds)"
            raise self._not_started(f"{what}{self.tail()}") from None
        finally:
            ended.cancel()
        raise self._not_started(f"ended ({ending_of(self._reap())}) at its start{self.tail()}")

    async def _is_healthy(self) -> bool:
        try:
            return (await self.control.get("/health")).ok
        except NoReply:
            return False

    def _reap(self) -> int:
        process, line = self._process, self._line
        self._process = self._line = None
        self.ready = False
        if line is not None:
            line.close()
        return 0 if process is None else process.reap()

    def _not_started(self, why: str) -> BackendError:
        where = f" on device {self.devices}" if self.devices else ""
        return BackendError(
            f"the server {self._server!r}{where} {why}", reason=Reason.SERVER_NOT_STARTED, retryable=False
        )
