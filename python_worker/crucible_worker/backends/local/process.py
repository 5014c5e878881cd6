"""A host as the worker sees it: a child process, started when it is first needed, that holds models or tokenizers.

It dies with the worker. When it dies alone, every call in flight fails with a retryable BackendError, and the next call
starts another one. A host that does not answer while calls wait for it is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.errors import BackendError, InvalidField, Unavailable
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.bounds import HostBounds
from crucible_worker.backends.local.frames import HEADER, MAX_FRAME_BYTES, error_from_map, pack, unpack
from crucible_worker.limits import WorkerLimits

__all__ = ["HostProcess"]


START_SECONDS = 300.0
"""How long a host may take to its first answer: on a cold disk the import of torch takes a minute."""
_LOOKS = 10
"""How often the host is looked at before it counts as silent."""
_EXIT_SECONDS = 0.5
"""How long the host may take to end at the end of its input, before it is killed."""
# Nothing may draw a progress bar into the worker's log.
_ENVIRONMENT = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class _Connection:
    """One life of the host: its process, its pipes, the calls that wait for it."""

    def __init__(self, process: asyncio.subprocess.Process, silence_seconds: float) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        # Popen's own kill looks whether the process has ended, and so takes its status away from asyncio, which waits.
        self._pidfd = os.pidfd_open(process.pid)
        self._stdin, self._stdout = process.stdin, process.stdout
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0
        self.dead = False
        self._silence_seconds = silence_seconds
        self._silent = False
        self._frames = 0
        self._reader = asyncio.create_task(self._read(), name="local model host")
        self._watcher = asyncio.create_task(self._watch(), name="watch over the local model host")

    async def call(self, op: str, fields: dict[str, Any]) -> Any:
        self._last_id += 1
        identity = self._last_id
        try:
            frame = pack({"id": identity, "op": op, **fields})
        except UnicodeEncodeError as error:  # JSON can smuggle in half a surrogate pair
            raise InvalidField("text", f"is not valid Unicode at character {error.start}") from error
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[identity] = future
        try:
            self._stdin.write(frame)
            with contextlib.suppress(ConnectionError):  # the host is gone: the reader fails the future, with the reason
                await self._stdin.drain()
            return await future
        except asyncio.CancelledError:
            if not self.dead:
                self._stdin.write(pack({"id": identity, "op": "abort"}))
            raise
        finally:
            self._waiting.pop(identity, None)

    async def _read(self) -> None:
        try:
            while True:
                (length,) = HEADER.unpack(await self._stdout.readexactly(HEADER.size))
                if length > MAX_FRAME_BYTES:
                    raise ConnectionError(f"the host sent a frame of {length} bytes")
                self._answer(unpack(await self._stdout.readexactly(length)))
                self._frames += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            # Whatever ended the reading, a cancelled loop included: no process stays, and nobody waits for ever.
            self._watcher.cancel()
            self.kill()
            self._stdin.close()
            await self.process.wait()
            os.close(self._pidfd)
            self._fail_all()

    async def _watch(self) -> None:
        """Kill the host if it answers nothing, not even that it is there, for as long as calls wait for it.

        What counts is how often it was looked at, not the clock: this loop may have been held up itself.
        """
        asked = looks = 0
        pause = self._silence_seconds / _LOOKS
        while True:
            await asyncio.sleep(pause)
            if not self._waiting:
                looks = 0
            elif self._frames != asked or not looks:
                asked, looks = self._frames, 1
                self._stdin.write(pack({"id": 0, "op": "ping"}))
            elif looks < (_LOOKS if self._frames else max(_LOOKS, START_SECONDS / pause)):
                looks += 1
            else:
                self._silent = True
                self.kill()
                return

    def _answer(self, message: dict[str, Any]) -> None:
        future = self._waiting.get(message["id"])
        if future is None or future.done():  # its caller is gone
            return
        if (error := message.get("error")) is not None:
            future.set_exception(error_from_map(error))
        else:
            future.set_result(message["result"])

    def _fail_all(self) -> None:
        code = self.process.returncode
        ending = f"signal {-code}" if code is not None and code < 0 else f"exit status {code}"
        if self._silent:
            ending = f"it did not answer for {self._silence_seconds:g} s (max_host_silence_seconds), and was killed"
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(
                    BackendError(f"the model host ended ({ending})", reason=Reason.HOST_DIED, retryable=True)
                )

    def kill(self) -> None:
        self.dead = True
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    async def close(self) -> None:
        self.dead = True
        self._stdin.close()
        try:
            await asyncio.wait_for(asyncio.shield(self._reader), _EXIT_SECONDS)
        except TimeoutError:
            if not self._reader.done():
                self.kill()
            await self._reader


class HostProcess:
    """The child process, and calls to it.

    Args:
        module: which it runs.
        arguments: of the module, besides its parent and its bounds.
        environment: of the process, besides the worker's.
        limits: of the worker.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        limits: WorkerLimits | None = None,
    ) -> None:
        self._module = module
        self._arguments = tuple(arguments)
        self._environment = {**_ENVIRONMENT, **(environment or {})}
        self._limits = limits or WorkerLimits()
        self._connection: _Connection | None = None
        self._starting = asyncio.Lock()
        self._closed = False

    @property
    def life(self) -> int:
        """Process id of the living host, 0 where there is none: whoever keeps state there compares it."""
        connection = self._connection
        return 0 if connection is None or connection.dead else connection.process.pid

    async def call(self, op: str, **fields: Any) -> Any:
        """Ask the host, and start it first where it does not run. A cancelled call is taken back from the host.

        Raises:
            BridgeError: what the host answered, or BackendError (retryable, reason HOST_DIED) if it ended.
        """
        connection = await self._connected()
        return await connection.call(op, fields)

    async def aclose(self) -> None:
        """End the host, within a second. Calls in flight fail, later ones are refused. Idempotent."""
        self._closed = True
        async with self._starting:
            connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _connected(self) -> _Connection:
        async with self._starting:
            if self._closed:
                raise Unavailable("the local backend is closed", reason=Reason.BACKEND_CLOSED, retryable=False)
            if self._connection is None or self._connection.dead:
                self._connection = await self._start()
            return self._connection

    async def _start(self) -> _Connection:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                # The directory that the worker happens to stand in is no place to import from.
                "-P",
                "-m",
                self._module,
                f"--parent={os.getpid()}",
                f"--bounds={HostBounds.of(self._limits).to_json()}",
                *self._arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, **self._environment},
                # Ctrl-C in a terminal is for the worker, which then ends the host in order.
                start_new_session=True,
            )
            return _Connection(process, self._limits.max_host_silence_seconds)
        except OSError as error:
            raise BackendError(f"the model host cannot be started: {error}", reason=Reason.HOST_NOT_STARTED) from error
