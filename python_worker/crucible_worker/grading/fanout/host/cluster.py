"""The connection of this process to a Ray cluster, and the orders of the worker, each a task that grades there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import Any

import ray
from ray.exceptions import RayTaskError

from crucible_bridge.errors import BridgeError, FailedPrecondition, Unavailable
from crucible_bridge.reasons import Reason
from crucible_worker.children.messages import error_to_map, pack, unpack
from crucible_worker.children.process import Channel
from crucible_worker.grading.fanout.address import AUTO, LOCAL, endpoint_of
from crucible_worker.grading.fanout.task import grade_chunk

__all__ = [
    "CHUNK_CPUS",
    "CHUNK_RETRIES",
    "STORE_BYTES",
    "WATCH_SECONDS",
    "Orders",
    "connect",
    "cores",
    "leave",
    "remote_grading",
]


CHUNK_CPUS = 1
"""Processors of a task."""
CHUNK_RETRIES = 5
"""How often Ray begins a chunk again when its node or its process dies. Grades do not depend on it."""
STORE_BYTES = 256 * 1024 * 1024
"""Shared memory of a cluster that the worker starts."""
CONNECT_SECONDS = 5.0
"""Time for a server of Ray clients to accept a connection."""

_NAMESPACE = "crucible-worker"


def connect(address: str) -> None:
    """Connect to a cluster, or start one; blocks for seconds.

    Raises:
        Unavailable: there is none (reason FANOUT_UNREACHABLE).
    """
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False, "namespace": _NAMESPACE}
    if address == LOCAL:
        options |= {"include_dashboard": False, "object_store_memory": STORE_BYTES}
    try:
        if (endpoint := endpoint_of(address)) is not None:
            # Ray itself tries a port without a listener for half a minute.
            socket.create_connection(endpoint, CONNECT_SECONDS).close()
        ray.init(address=address, **options)
    except Exception as error:  # of many kinds, with no common base
        raise Unavailable(
            f"--fanout {address}: {_cure(address)} ({error})", reason=Reason.FANOUT_UNREACHABLE
        ) from error


def _cure(address: str) -> str:
    if address == LOCAL:
        return "Ray does not start here"
    if address == AUTO:
        return "this machine is no node of a Ray cluster: ray start --address=HEAD:6379, or --fanout local"
    return "no Ray cluster answers there, or it wants a token (RAY_AUTH_TOKEN); ray start --head opens port 10001"


def cores() -> int:
    """Processors of all nodes that live."""
    return int(sum(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]))


def remote_grading() -> Any:
    """The task of Ray that grades a chunk; `remote` begins one."""
    return ray.remote(num_cpus=CHUNK_CPUS, max_retries=CHUNK_RETRIES)(grade_chunk)


def leave() -> None:
    """Disconnect; a cluster that this process has started ends."""
    with contextlib.suppress(Exception):  # of a cluster that is gone
        ray.shutdown()


# Orders of the worker, each a task of Ray. Awaiting a task blocks no thread; what does block runs in one.

WATCH_SECONDS = 2.0
"""How often the cluster is queried for its nodes."""
SILENCE_SECONDS = 10.0
"""After so long without an answer the cluster is gone."""


class Orders:
    """The orders of one worker.

    Args:
        channel: to the worker.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._grade = remote_grading()
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._cores = 0

    async def serve(self) -> None:
        """Do what the worker orders, until it closes the socket or the cluster is gone."""
        self._cores = await asyncio.to_thread(cores)
        self._channel.send(pack({"id": 0, "result": b"", "cores": self._cores}))
        reading = asyncio.create_task(self._read())
        watching = asyncio.create_task(self._watch())
        await asyncio.wait((reading, watching), return_when=asyncio.FIRST_COMPLETED)
        for task in (reading, watching, *self._tasks.values()):
            task.cancel()
        await self._channel.drained()

    async def _read(self) -> None:
        while (body := await self._channel.receive()) is not None:
            message = unpack(body)
            identity = message["id"]
            if message["op"] == "abort":
                if (task := self._tasks.get(identity)) is not None:
                    task.cancel()
                continue
            task = self._tasks[identity] = asyncio.create_task(self._answer(message))
            task.add_done_callback(lambda _, identity=identity: self._tasks.pop(identity, None))

    async def _watch(self) -> None:
        """Return when the cluster is gone."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            try:
                async with asyncio.timeout(SILENCE_SECONDS):
                    self._cores = await asyncio.to_thread(cores)
            except Exception as error:  # whatever a client of a lost cluster raises
                for identity in list(self._tasks):
                    self._send(identity, error=_gone(error))
                return

    async def _answer(self, message: dict[str, Any]) -> None:
        identity = message["id"]
        try:
            body = await self._graded(message["release"], message["body"])
        except BridgeError as error:
            self._send(identity, error=error)
        else:
            self._channel.send(pack({"id": identity, "result": body, "cores": self._cores}))

    async def _graded(self, release: str, body: bytes) -> bytes:
        try:
            task = await asyncio.to_thread(self._grade.remote, release, body)
            try:
                return await task
            except asyncio.CancelledError:
                await asyncio.to_thread(ray.cancel, task, force=False)
                raise
        except RayTaskError as error:
            message = f"a node of --fanout cannot grade, see the log of its Ray: {_last_line(error)}"
            raise FailedPrecondition(message, reason=Reason.FANOUT_NODE) from error
        except Exception as error:  # Ray's own kinds, and those of a connection that ends
            raise _gone(error) from error

    def _send(self, identity: int, *, error: BridgeError) -> None:
        self._channel.send(pack({"id": identity, "error": error_to_map(error)}))


def _gone(error: BaseException) -> Unavailable:
    message = f"the Ray cluster of --fanout lost what was graded there: {_last_line(error)}"
    return Unavailable(message, reason=Reason.FANOUT_UNREACHABLE)


def _last_line(error: BaseException) -> str:
    """The end of a text that may hold a whole traceback."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return (lines[-1].strip() if lines else type(error).__name__)[:300]
