"""The cluster that grades for a worker: answers go there in chunks, and each comes back with one grade.

Ray places the chunks, and begins one again when its node dies. The worker only bounds how many are on their way, and
talks to Ray through a process of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import structlog

from crucible_bridge.errors import BridgeError, InternalError, Unavailable
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Grade, GradeItem, MathPolicy
from crucible_worker.children.messages import error_from_map, pack, unpack
from crucible_worker.children.process import Channel, Process, Questions, ending_of
from crucible_worker.grading.fanout.address import ray_variables
from crucible_worker.grading.fanout.chunk import ChunkOrder, Item, Kind, Rules, grades_of, release, sent
from crucible_worker.grading.pool import TaskSet, grading_closed

__all__ = [
    "CHUNK_BYTES",
    "CHUNK_LEAST",
    "CHUNK_MOST",
    "PROGRAMS_LEAST",
    "START_SECONDS",
    "ClusterConnection",
    "ClusterLost",
    "Fanout",
]

# The worker's side of the process that talks to Ray.
#
# Ray has a process of its own because a client of Ray ends its process when the cluster is lost, and because it handles
# signals, logs and threads as if the process were its own.

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


CHUNK_LEAST, CHUNK_MOST = 256, 1_024
"""Answers of a chunk, if there are that many: a chunk costs some milliseconds, an answer 0.05."""
PROGRAMS_LEAST = 16
"""Programs of a chunk, if there are that many: each takes as long as hundreds of answers."""
CHUNK_BYTES = 4 * 1024 * 1024
"""Bytes of a chunk on its way; a larger one is halved, unless it is one answer."""
GATHER_SECONDS = 0.002
"""How long a few answers wait for others to share their chunk."""
BEGIN_SECONDS = 60.0
"""How long the first answer of a connection may take: until a processor is free, and a node has loaded mathematics."""

_ATTEMPTS = 3  # at an order whose connection was lost
_INLINE_ITEMS = 32  # more are packed and unpacked by a thread

_T = TypeVar("_T")


@dataclasses.dataclass(slots=True)
class _Gathering:
    """Answers of several callers that share a chunk."""

    items: list[Item] = dataclasses.field(default_factory=list)
    callers: int = 0
    task: asyncio.Task[Sequence[Grade]] | None = None


class Fanout:
    """Grades on a Ray cluster. Belongs to the event loop that uses it first.

    Args:
        address: ray://HOST:PORT, "auto" or "local".
        max_chunks: chunks on their way at once; more wait.
    """

    def __init__(self, address: str, max_chunks: int) -> None:
        self.address = address
        """Of the cluster."""
        self.on_warm_change: Callable[[bool], object] = lambda warm: None
        """Called with `warm` whenever it changes."""
        self._room = asyncio.Semaphore(max_chunks)
        self._gatherings: dict[tuple[Kind, Rules], _Gathering] = {}
        self._connection: ClusterConnection | None = None
        self._opening: asyncio.Task[ClusterConnection] | None = None
        self._tasks = TaskSet()
        self._closed = False
        self._log = structlog.get_logger("crucible_worker.grading")

    @property
    def warm(self) -> bool:
        """Whether a node has graded, and the connection has not been lost since."""
        return self._connection is not None and not self._connection.lost.done()

    @property
    def cores(self) -> int:
        """Processors of the cluster, as it last said; 0 while there is no connection."""
        return 0 if self._connection is None else self._connection.cores

    async def start(self) -> None:
        """Connect, and wait until a node has graded.

        Raises:
            Unavailable: the cluster does not answer, or has no free processor (reason FANOUT_UNREACHABLE), or this is
                closed (GRADING_CLOSED).
            FailedPrecondition: its nodes cannot grade (reason FANOUT_NODE).
        """
        await self._connected()

    async def grades(self, kind: Kind, items: Sequence[Item], rules: Rules) -> list[Grade]:
        """Grade items, in their order; those of a cancelled call are cancelled in the cluster.

        Few answers share a chunk with those of other callers. A program does not: it takes long enough.

        Raises:
            BridgeError: as `start`; or a node cannot grade these.
        """
        if not items:
            return []
        if kind != "code" and len(items) < CHUNK_LEAST:
            return await self._gathered(kind, items, rules)
        least = PROGRAMS_LEAST if kind == "code" else CHUNK_LEAST
        size = min(max(-(-len(items) // max(1, self.cores)), least), CHUNK_MOST)
        chunks = [ChunkOrder(kind=kind, items=items[at : at + size], rules=rules) for at in range(0, len(items), size)]
        return [grade for grades in await self._all(chunks) for grade in grades]

    async def aclose(self) -> None:
        """Disconnect; a cluster that the worker has started ends. Calls in flight raise Unavailable. Idempotent."""
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()  # of no effect once it is done
            await asyncio.wait((self._opening,))
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()
        await self._tasks.ended()

    async def _all(self, chunks: Sequence[ChunkOrder]) -> list[Sequence[Grade]]:
        tasks = [asyncio.create_task(self._in_turn(chunk)) for chunk in chunks]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _in_turn(self, order: ChunkOrder) -> Sequence[Grade]:
        async with self._room:
            return await self._graded(order)

    async def _gathered(self, kind: Kind, items: Sequence[Item], rules: Rules) -> list[Grade]:
        key = kind, rules
        gathering = self._gatherings.get(key)
        if gathering is None or len(gathering.items) + len(items) > CHUNK_MOST:
            gathering = self._gatherings[key] = _Gathering()
            gathering.task = self._tasks.start(self._shared(key, gathering))
        assert gathering.task is not None
        start = len(gathering.items)
        gathering.items += items
        gathering.callers += 1
        try:
            grades = await asyncio.shield(gathering.task)
        finally:
            gathering.callers -= 1
            if not gathering.callers:
                self._leave(key, gathering)
                gathering.task.cancel()  # of no effect once it is done
        return list(grades[start : start + len(items)])

    async def _shared(self, key: tuple[Kind, Rules], gathering: _Gathering) -> Sequence[Grade]:
        try:
            async with self._room:
                await asyncio.sleep(GATHER_SECONDS)
                self._leave(key, gathering)
                return await self._graded(ChunkOrder(kind=key[0], items=tuple(gathering.items), rules=key[1]))
        finally:
            self._leave(key, gathering)

    def _leave(self, key: tuple[Kind, Rules], gathering: _Gathering) -> None:
        """Let nothing more join."""
        if self._gatherings.get(key) is gathering:
            del self._gatherings[key]

    async def _graded(self, order: ChunkOrder) -> Sequence[Grade]:
        inline = len(order.items) <= _INLINE_ITEMS
        body = sent(order) if inline else await asyncio.to_thread(sent, order)
        if len(body) > CHUNK_BYTES and (half := len(order.items) // 2):
            halves = order.items[:half], order.items[half:]
            return [grade for items in halves for grade in await self._graded(dataclasses.replace(order, items=items))]
        answer = await self._answered(body)
        try:
            return grades_of(order, answer) if inline else await asyncio.to_thread(grades_of, order, answer)
        except ValueError as error:
            raise InternalError(f"a node of --fanout gave no grades: {error}", reason=Reason.FANOUT_NODE) from error

    async def _answered(self, body: bytes) -> bytes:
        for _ in range(_ATTEMPTS):
            connection = await self._connected()
            try:
                return await connection.ask(release(), body)
            except ClusterLost:
                if self._closed:
                    break
        if self._closed:
            raise grading_closed()
        message = f"--fanout {self.address}: the connection to the cluster was lost {_ATTEMPTS} times"
        raise Unavailable(message, reason=Reason.FANOUT_UNREACHABLE)

    async def _connected(self) -> ClusterConnection:
        """The connection; callers that need one at the same time share an attempt to make it, and its error."""
        if self._closed:
            raise grading_closed()
        if self._connection is not None and not self._connection.lost.done():
            return self._connection
        opening = self._opening
        if opening is None or opening.done():
            opening = self._opening = self._tasks.start(self._open())
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():  # by `aclose`
                raise grading_closed() from None
            raise

    async def _open(self) -> ClusterConnection:
        self._connection = None
        self._connection = connection = await self._opened()
        self._tasks.start(self._watched(connection))
        self.on_warm_change(True)
        return connection

    async def _opened(self) -> ClusterConnection:
        connection = await ClusterConnection.open(self.address)
        try:
            order = ChunkOrder(kind="math", items=(GradeItem(answer="x(x+1)", targets=("x^2+x",)),), rules=MathPolicy())
            async with asyncio.timeout(BEGIN_SECONDS):
                grades_of(order, await connection.ask(release(), sent(order)))
        except ClusterLost as error:
            message = f"--fanout {self.address}: the connection was lost at once ({error})"
            raise Unavailable(message, reason=Reason.FANOUT_UNREACHABLE) from error
        except BaseException as error:
            await connection.aclose()
            if isinstance(error, TimeoutError):
                raise self._not_begun(connection.cores) from None
            raise
        return connection

    def _not_begun(self, cores: int) -> Unavailable:
        have = f"none of the cluster's {cores} processors was free" if cores else "the cluster has no processor"
        return Unavailable(
            f"--fanout {self.address}: no node has graded within {BEGIN_SECONDS:g} s: {have} (ray status shows what "
            "uses them; each worker of crucible-worker ray up takes --num-cpus of its node)",
            reason=Reason.FANOUT_UNREACHABLE,
        )

    async def _watched(self, connection: ClusterConnection) -> None:
        await asyncio.wait((connection.lost,))
        if not self._closed:
            self._log.warning("fanout_lost", address=self.address)
            self.on_warm_change(False)
