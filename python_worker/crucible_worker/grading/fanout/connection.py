"""The worker's side of the process that talks to Ray.

Ray has a process of its own because a client of Ray ends its process when the cluster is lost, and because it handles
signals, logs and threads as if the process were its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

from crucible_bridge.errors import BridgeError, Unavailable
from crucible_bridge.reasons import Reason
from crucible_worker.children.messages import error_from_map, pack, unpack
from crucible_worker.children.process import Channel, Process, Questions, ending_of
from crucible_worker.grading.fanout.address import ray_variables

__all__ = ["START_SECONDS", "ClusterConnection", "ClusterLost"]

START_SECONDS = 60.0
"""Time for Ray to be imported, and for the cluster to answer."""
LEAVE_SECONDS = 0.5
"""Time to disconnect; then the process is killed."""

_HOST = "crucible_worker.grading.fanout.host"
_ENVIRONMENT = {
    "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
    # Of a server of clients: it forgets a client that is gone for so long.
    "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "5",
    "PYTHONUNBUFFERED": "1",
}


class ClusterLost(Exception):
    """The process ended before it answered."""


class ClusterConnection:
    """One connection to a cluster. Made by `open`."""

    def __init__(self, process: Process, channel: Channel) -> None:
        self.cores = 0
        """Processors of the cluster, as it last said."""
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once it is lost or closed."""
        self._process, self._channel = process, channel
        self._questions = Questions(channel)
        self._reader = asyncio.create_task(self._read(), name="fanout host")

    @classmethod
    async def open(cls, address: str) -> ClusterConnection:
        """Start the process, and wait until it is connected.

        Raises:
            Unavailable: the cluster does not answer (reason FANOUT_UNREACHABLE).
        """
        try:
            environment = {**os.environ, **_ENVIRONMENT, **ray_variables(address, os.environ)}
            process, end = Process.start(_HOST, f"--address={address}", environment=environment, logs=True)
        except OSError as error:
            raise _unreachable(address, f"its process cannot be started: {error}") from error
        channel = await Channel.over(end)
        try:
            async with asyncio.timeout(START_SECONDS):
                body = await channel.receive()
            if body is None:
                raise _unreachable(address, "its process ended while it connected, see the log")
            message = unpack(body)
            if (error := message.get("error")) is not None:
                raise error_from_map(error)
        except BaseException as error:
            channel.abort()
            await process.end()
            if isinstance(error, TimeoutError):
                raise _unreachable(address, f"the cluster did not answer for {START_SECONDS:g} s") from None
            raise
        connection = cls(process, channel)
        connection.cores = message["cores"]
        return connection

    async def ask(self, release: str, body: bytes) -> bytes:
        """Have an order done; a cancelled one is cancelled in the cluster.

        Raises:
            Lost: the process ended meanwhile.
            BridgeError: no node did it.
        """
        asked: list[int] = []

        def frame_of(identity: int) -> bytes:
            asked.append(identity)
            return pack({"id": identity, "op": "grade", "release": release, "body": body})

        if self.lost.done():
            raise ClusterLost
        try:
            return await self._questions.ask(frame_of)
        except asyncio.CancelledError:
            if not self.lost.done():
                self._channel.send(pack({"id": asked[0], "op": "abort"}))
            raise

    async def aclose(self) -> None:
        """Disconnect, and end the process with everything that it has started. Idempotent."""
        self._channel.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_SECONDS):
                await self._process.ended()
        self._process.kill()
        await asyncio.wait((self._reader,))

    async def _read(self) -> None:
        try:
            while (body := await self._channel.receive()) is not None:
                self._answer(unpack(body))
        finally:
            # Whatever ended the reading: no process stays, and no order waits for ever.
            if not self.lost.done():
                self.lost.set_result(None)
            self._channel.abort()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self._process.ended()  # it ends by itself when the cluster is gone
            ending = ending_of(await self._process.end())
            self._questions.fail_all(lambda: ClusterLost(ending))

    def _answer(self, message: dict[str, Any]) -> None:
        if (error := message.get("error")) is not None:
            self._questions.fail(message["id"], error_from_map(error))
            return
        self.cores = message["cores"]
        self._questions.answer(message["id"], message["result"])


def _unreachable(address: str, why: str) -> BridgeError:
    return Unavailable(f"--fanout {address}: {why}", reason=Reason.FANOUT_UNREACHABLE)
