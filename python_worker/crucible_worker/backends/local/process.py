"""The worker's side of a host: a child process, started when it is first needed, that has models or tokenizers.

It dies with the worker. If it dies alone, every call in flight fails with a retryable BackendError, and the next call
starts another one. A host that does not answer while calls wait for it is killed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any

from crucible_bridge.errors import BackendError, InvalidField, Unavailable
from crucible_bridge.reasons import Reason
from crucible_worker.backends.local.protocol import HostBounds
from crucible_worker.children.messages import error_from_map, pack, unpack
from crucible_worker.children.process import Channel, Process, Questions, ending_of
from crucible_worker.util.limits import WorkerLimits

__all__ = ["HostProcess"]


START_SECONDS = 300.0
"""How long a host may take until its first answer: with a cold disk cache the import of torch takes a minute."""
_LOOKS = 10
"""Number of checks of the host before it counts as silent."""
# No progress bars in the worker's log.
_ENVIRONMENT = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class _HostLife:
    """One life of the host: its process, its channel, the calls that wait for it."""

    def __init__(self, process: Process, channel: Channel, silence_seconds: float) -> None:
        self.process = process
        self._channel = channel
        self._questions = Questions(channel)
        self.dead = False
        self._silence_seconds = silence_seconds
        self._silent = False
        self._frames = 0
        self._reader = asyncio.create_task(self._read(), name="local model host")
        self._watcher = asyncio.create_task(self._watch(), name="watch over the local model host")

    async def call(self, op: str, fields: dict[str, Any]) -> Any:
        asked: list[int] = []

        def frame_of(identity: int) -> bytes:
            asked.append(identity)
            try:
                return pack({"id": identity, "op": op, **fields})
            except UnicodeEncodeError as error:  # JSON can contain half a surrogate pair
                raise InvalidField("text", f"is not valid Unicode at character {error.start}") from error

        try:
            return await self._questions.ask(frame_of)
        except asyncio.CancelledError:
            if not self.dead:
                self._channel.send(pack({"id": asked[0], "op": "abort"}))
            raise

    async def _read(self) -> None:
        try:
            while (body := await self._channel.receive()) is not None:
                self._answer(unpack(body))
                self._frames += 1
        finally:
            # Whatever ended the reading, even a cancelled loop: no process stays, and no call waits for ever.
            self._watcher.cancel()
            self.dead = True
            self._channel.abort()
            self._fail_all(await self.process.end())

    async def _watch(self) -> None:
        """Kill the host if it sends nothing, not even a sign of life, while calls wait for it.

        The number of checks counts, not the clock: this loop itself may have been delayed.
        """
        asked = looks = 0
        pause = self._silence_seconds / _LOOKS
        while True:
            await asyncio.sleep(pause)
            if not self._questions:
                looks = 0
            elif self._frames != asked or not looks:
                asked, looks = self._frames, 1
                self._channel.send(pack({"id": 0, "op": "ping"}))
            elif looks < (_LOOKS if self._frames else max(_LOOKS, START_SECONDS / pause)):
                looks += 1
            else:
                self._silent = self.dead = True
                self.process.kill()
                return

    def _answer(self, message: dict[str, Any]) -> None:
        if (error := message.get("error")) is not None:
            self._questions.fail(message["id"], error_from_map(error))
        else:
            self._questions.answer(message["id"], message["result"])

    def _fail_all(self, code: int) -> None:
        ending = ending_of(code)
        if self._silent:
            ending = f"it did not answer for {self._silence_seconds:g} s (max_host_silence_seconds), and was killed"
        self._questions.fail_all(
            lambda: BackendError(f"the model host ended ({ending})", reason=Reason.HOST_DIED, retryable=True)
        )

    async def close(self) -> None:
        self.dead = True
        self.process.kill()
        await self._reader


class HostProcess:
    """The child process, and calls to it.

    Args:
        module: that it runs.
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
        self._connection: _HostLife | None = None
        self._starting = asyncio.Lock()
        self._closed = False

    @property
    def life(self) -> int:
        """Process id of the running host, 0 if there is none: if it changes, the state in the host is lost."""
        connection = self._connection
        return 0 if connection is None or connection.dead else connection.process.pid

    async def call(self, op: str, **fields: Any) -> Any:
        """Call the host, and start it first if it does not run. A cancelled call is aborted in the host.

        Raises:
            BridgeError: the host's error, or BackendError (retryable, reason HOST_DIED) if it ended.
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

    async def _connected(self) -> _HostLife:
        async with self._starting:
            if self._closed:
                raise Unavailable("the local backend is closed", reason=Reason.BACKEND_CLOSED, retryable=False)
            if self._connection is None or self._connection.dead:
                self._connection = await self._start()
            return self._connection

    async def _start(self) -> _HostLife:
        try:
            process, end = Process.start(
                self._module,
                f"--bounds={HostBounds.of(self._limits).to_json()}",
                *self._arguments,
                environment={**os.environ, **self._environment},
                logs=True,
            )
        except OSError as error:
            raise BackendError(f"the model host cannot be started: {error}", reason=Reason.HOST_NOT_STARTED) from error
        try:
            return _HostLife(process, await Channel.over(end), self._limits.max_host_silence_seconds)
        except BaseException:
            process.reap()
            raise
