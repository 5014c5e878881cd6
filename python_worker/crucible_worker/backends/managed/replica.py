"""One replica of a managed server: its process, its port, its log, and whether it serves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from crucible_bridge.errors import BackendError
from crucible_bridge.reasons import Reason
from crucible_worker.backends.managed.control import ControlClient, NoReply
from crucible_worker.backends.managed.guard import GRACE_SECONDS
from crucible_worker.backends.openai.connection import closed
from crucible_worker.children.process import Process, ending_of
from crucible_worker.util.private_files import make_private_folder

__all__ = ["Replica"]

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
