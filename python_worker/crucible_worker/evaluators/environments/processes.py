"""Processes of users' environments, from the worker's side: for one attempt at an evaluation, or one description.

The fork server has loaded the environment. It is forked for each group of rollouts, so that no group delays or ends
another one, and what was loaded is shared. Processes whose group is done take further groups. A group that was given up
has time to clean up; then its process is killed, with what it has started. All of them die with the
worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

import structlog

from crucible_bridge.errors import BackendError, BridgeError, FailedPrecondition
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Sample
from crucible_worker.children.forks import Fork, Forks, NotForked
from crucible_worker.children.frames import receive
from crucible_worker.children.messages import check_containers, error_from_map, error_to_map, unpack, unpack_foreign
from crucible_worker.children.process import Channel, Process, ending_of, passed_variables
from crucible_worker.evaluators.answering import Answer
from crucible_worker.evaluators.base import Outcome
from crucible_worker.evaluators.environments import entry_points, wire
from crucible_worker.evaluators.environments.episode import EpisodeCalls
from crucible_worker.evaluators.environments.group import Failure, FailurePolicy, Group, GroupState
from crucible_worker.evaluators.environments.records import outcome_of
from crucible_worker.evaluators.environments.threaded_loop import CLEANUP_SECONDS, SETTLE_SECONDS

__all__ = [
    "DESCRIBE_SECONDS",
    "LOAD_SECONDS",
    "EnvironmentChild",
    "EnvironmentProcesses",
    "Environments",
    "GroupLost",
    "GroupOrder",
    "GroupReply",
    "ended",
    "start",
]


# The worker's side of a process that makes groups of rollouts; the process itself is `host.child`.

_END_SECONDS = 5.0  # to wait for the exit status
_MAX_SHOWN = 300  # characters of what is wrong with a message

_log = structlog.get_logger(__name__)


def ended(status: int | None) -> str:
    """The end of a process, in words."""
    return "ended" if status is None else f"ended ({ending_of(status)})"


class GroupLost(Exception):
    """The process of a group ended before it sent the group's result."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupOrder:
    """An order for a group of rollouts."""

    sample: Sample
    """The sample."""
    options: Mapping[str, Any]
    """Options of the environment."""
    size: int
    """Rollouts that the request wants."""
    tolerance: FailurePolicy
    """How failed rollouts are handled."""
    seed: int
    """Seed of the whole group."""
    max_turns: int
    """Turns of one rollout, at most."""
    intermediates: bool
    """Whether tokens are recorded."""
    transcript: bool = False
    """Whether turns are recorded."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupReply:
    """The result of a group."""

    outcome: Outcome
    """The outcome of its sample."""
    fallen: bool
    """Whether the group has failed."""


class EnvironmentChild:
    """A process that makes groups, one after the other."""

    def __init__(self, channel: Channel, fork: Fork) -> None:
        self.alive = True
        """Whether it can make another group."""
        self.used = False
        """Whether it made another group before the current one."""
        self.course: GroupState | None = None
        """The last progress that it sent of its group; None before the group begins."""
        self._channel, self._fork = channel, fork
        # Its messages so far are still read; other processes with its end of the socket are not waited for.
        fork.ended.add_done_callback(lambda _: channel.end_input())
        self._result: asyncio.Future[GroupReply] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._asker: EpisodeCalls
        self._answering: set[asyncio.Task[None]] = set()
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def at(cls, fork: Fork) -> EnvironmentChild:
        """The process at the other end of a fork's socket."""
        return cls(await Channel.over(fork.end), fork)

    def begin(self, order: GroupOrder, course: GroupState | None, asker: EpisodeCalls) -> asyncio.Future[GroupReply]:
        """Let it make a group."""
        self.course, self._asker = None, asker
        self._result = asyncio.get_running_loop().create_future()
        self._over.clear()
        self._send(
            {
                "op": "order",
                **{field.name: getattr(order, field.name) for field in dataclasses.fields(order)},
                "max_tokens": asker.max_tokens,
                "course": course,
                "cleanup_seconds": CLEANUP_SECONDS,
                "settle_seconds": SETTLE_SECONDS,
            }
        )
        if not self.alive:
            self._fail(self._lost())
        return self._result

    async def over(self) -> bool:
        """Wait until the group has cleaned up, up to its time limit; returns whether it has."""
        self._stop_answering()
        if not self.alive:
            return False
        self._send({"op": "end"})
        waiting = asyncio.create_task(self._over.wait())
        seconds = CLEANUP_SECONDS + 4 * SETTLE_SECONDS
        await asyncio.wait({waiting, self._listening}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        return self.alive and self._over.is_set()

    def kill(self) -> None:
        """End it, and every process that it has started."""
        self.alive = False
        self._fork.kill()
        self._listening.cancel()

    async def _listen(self) -> None:
        why: Exception = GroupLost("the process of its environments was ended by the worker")
        try:
            while (body := await self._channel.receive(wire.MAX_FRAME_BYTES)) is not None:
                self._heard(await unpack_foreign(body))
            self.alive = False
            self._fork.kill()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._fork.ended), _END_SECONDS)
            why = self._lost()
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            self._fork.kill()
            _log.warning("environment_protocol", error=f"{type(error).__name__}: {error}"[:_MAX_SHOWN])
            message = "the process of its environments sent an invalid message"
            why = BackendError(message, reason=Reason.ENVIRONMENT_PROTOCOL, retryable=False)
        finally:
            self.alive = False
            self._stop_answering()
            self._channel.abort()
            self._fail(why)

    def _heard(self, message: dict[str, Any]) -> None:
        match message["op"]:
            case "ask":
                self._answer(message)
            case "round":
                self.course = wire.course_from_map(message["course"])
            case "found":
                found = GroupReply(outcome=wire.outcome_from_map(message["outcome"]), fallen=bool(message["fallen"]))
                if not self._result.done():
                    self._result.set_result(found)
            case "failed":
                self._fail(wire.error_from_foreign_map(message["error"]))
            case "bug":
                self._fail(RuntimeError(f"in the process of its environments: {message['message']}"))
            case "warn":
                _warn(message["event"], message["fields"])
            case "over":
                self._over.set()
            case _:
                raise ValueError("a message of an unknown kind")

    def _answer(self, question: dict[str, Any]) -> None:
        if self._result.done():
            return
        shown = wire.observation_from_map(question["shown"])
        asking = self._asker.ask(
            shown, wire.stops_from(question["stop"]), seed=question["seed"], max_tokens=question["max_tokens"]
        )
        task = asyncio.create_task(self._reply(question["id"], asking))
        self._answering.add(task)
        task.add_done_callback(self._answered)

    async def _reply(self, identity: int, asking: Coroutine[Any, Any, Answer]) -> None:
        answer, error = None, None
        try:
            answer = await asking
        except BridgeError as refused:
            error = error_to_map(refused)
        self._send({"op": "answer", "id": identity, "answer": answer, "error": error})

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def _stop_answering(self) -> None:
        for task in self._answering:
            task.cancel()

    def _send(self, message: Mapping[str, Any]) -> None:
        self._channel.send(wire.order(message))

    def _lost(self) -> GroupLost:
        how = ended(self._fork.ended.result()) if self._fork.ended.done() else "does not answer any more"
        return GroupLost(f"the process of its environments {how}")

    def _fail(self, error: Exception) -> None:
        if not self._result.done():
            self._result.set_exception(error)
            self._result.exception()  # if no task waits, the error is ignored


def _warn(event: str, fields: Mapping[str, Any]) -> None:
    """Log what the process reports about the end of its group; a report of another kind is ignored."""
    match event:
        case "environment_cleanup_timeout":
            _log.warning("environment_cleanup_timeout", seconds=str(fields["seconds"]))
        case "environment_cleanup_failed":
            _log.warning("environment_cleanup_failed", kind=str(fields["kind"]), message=str(fields["message"]))
        case "environment_stuck":
            _log.warning("environment_stuck")
        case _:
            pass


# Starts processes of environments.

LOAD_SECONDS = 120.0
"""Time limit for the import of an environment."""
DESCRIBE_SECONDS = LOAD_SECONDS
"""Time limit for its description, which imports it too."""

_HOST = "crucible_worker.evaluators.environments.host"


def start(
    what: str, environment: str, variables: Sequence[str], kind: socket.SocketKind = socket.SOCK_STREAM
) -> tuple[Process, socket.socket]:
    """Start a process of an environment; returns it and this end of its socket.

    Args:
        what: its task: "describe" or "keep".
        environment: the environment's name.
        variables: names of variables of the worker's that it gets, in addition to those that every process gets.
        kind: of the socket.

    Raises:
        BackendError: it cannot be started (reason ENVIRONMENT_NOT_STARTED).
    """
    # Threads of OpenBLAS would make forking unsafe.
    passed = {"OPENBLAS_NUM_THREADS": "1", **passed_variables("TMPDIR", *variables)}
    try:
        # Output of an environment may be anything, and does not belong in the worker's log.
        return Process.start(_HOST, what, environment, environment=passed, kind=kind)
    except OSError as error:
        message = f"the process of the environment {environment!r} cannot be started: {error.strerror}"
        raise BackendError(message, reason=Reason.ENVIRONMENT_NOT_STARTED, retryable=True) from error


class EnvironmentProcesses:
    """The processes of an environment; belongs to one event loop.

    Args:
        environment: its name.
        variables: names of variables of the worker that they get.
    """

    def __init__(self, environment: str, variables: Sequence[str] = ()) -> None:
        self._environment, self._variables = environment, variables
        self._forks: Forks | None = None
        self._refused: FailedPrecondition | None = None
        self._starting = asyncio.Lock()
        self._idle: list[EnvironmentChild] = []
        self._busy: set[EnvironmentChild] = set()
        self._finishing: set[asyncio.Task[None]] = set()
        self._closed = False

    async def make(self, order: GroupOrder, asker: EpisodeCalls) -> GroupReply:
        """Let a process make a group of rollouts; if it ends meanwhile, another one, as far as the tolerance allows.

        Raises:
            BridgeError: the evaluation has ended; no process can be started; or one sends an invalid message.
        """
        course: GroupState | None = None
        while True:
            child = await self._child()
            try:
                return await self._made(child, order, course, asker)
            except GroupLost as lost:
                why = Failure(kind=Reason.ENVIRONMENT_ENDED, message=str(lost), retryable=True)
            if child.used and child.course is None:
                # It may have ended before it received this group.
                continue
            begun = GroupState(retries=order.tolerance.max_retries) if course is None else course
            following = begun.of(why) if child.course is None else child.course.lost(why, order.tolerance)
            if isinstance(following, Group):
                return GroupReply(outcome=outcome_of(following, intermediates=False), fallen=True)
            course = following

    async def get_ready(self) -> None:
        """Load the environment, so that loading is not part of a sample's time."""
        async with self._starting:
            # If it fails, every request for a group reports why.
            with contextlib.suppress(BridgeError):
                await self._ready()

    def close(self) -> None:
        """End them all, except those of abandoned groups that have time to clean up; does not wait."""
        self._closed = True
        for child in self._idle:
            child.kill()
        self._idle.clear()
        self._close_forks()

    async def _made(
        self, child: EnvironmentChild, order: GroupOrder, course: GroupState | None, asker: EpisodeCalls
    ) -> GroupReply:
        self._busy.add(child)
        result = child.begin(order, course, asker)
        try:
            found = await result
        finally:
            # No task waits for a cancelled group; it cleans up all the same.
            finishing = asyncio.create_task(self._finish(child))
            self._finishing.add(finishing)
            finishing.add_done_callback(self._finishing.discard)
        await asyncio.shield(finishing)
        return found

    async def _finish(self, child: EnvironmentChild) -> None:
        clean = False
        try:
            clean = await child.over()
        finally:
            self._busy.discard(child)
            if clean and not self._closed:
                child.used = True
                self._idle.append(child)
            else:
                child.kill()
                self._close_forks()

    def _close_forks(self) -> None:
        if self._closed and not self._busy and self._forks is not None:
            self._forks.close()
            self._forks = None

    async def _child(self) -> EnvironmentChild:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
        # One after the other: the fork server's socket has room for few orders.
        async with self._starting:
            forks = await self._ready()
            try:
                return await EnvironmentChild.at(await forks.start())
            except NotForked as error:
                message = f"a process of the environment {self._environment!r} cannot be started: {error}"
                raise BackendError(message, reason=Reason.ENVIRONMENT_NOT_STARTED, retryable=True) from None

    async def _ready(self) -> Forks:
        """A fork server that has loaded the environment; after a failure, loading is not repeated for every sample."""
        if self._refused is not None:
            raise self._refused
        forks = self._fork_server()
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                await forks.ready()
        except TimeoutError:
            forks.kill()
            self._refused = entry_points.bad(self._environment, f"did not load within {LOAD_SECONDS:.0f} s")
            raise self._refused from None
        except FailedPrecondition as error:
            self._refused = error
            raise
        return forks

    def _fork_server(self) -> Forks:
        if self._closed:
            raise BackendError("the evaluation has ended", reason=Reason.ENVIRONMENTS_CLOSED)
        if self._forks is None or not self._forks.alive:
            process, control = start("keep", self._environment, self._variables, socket.SOCK_SEQPACKET)
            self._forks = Forks(control, self._died, process)
        return self._forks

    def _died(self, status: int | None) -> BackendError:
        message = f"the process of the environment {self._environment!r} {ended(status)}"
        return BackendError(message, reason=Reason.ENVIRONMENT_ENDED, retryable=True)


# Descriptions of users' environments: read in processes that import them, so that the worker does not.


class Environments:
    """Users' environments in one worker.

    Args:
        variables: names of variables of the worker that their processes get.
    """

    def __init__(self, variables: Sequence[str] = ()) -> None:
        self._variables = tuple(variables)
        self._known: dict[str, Mapping[str, Any]] = {}

    def look(self, name: str) -> None:
        """Read and cache the description of an environment; blocks while a process imports it.

        Raises:
            FailedPrecondition: it cannot be used, see `entry_points.load`; its import does not end, or ends its
                process.
        """
        self._known.pop(name, None)
        if name in entry_points.names():
            self._known[name] = _asked(name, self._variables)

    def find(self, name: str) -> Mapping[str, Any] | None:
        """The schema of an environment's options; None if none is announced under that name.

        Raises:
            FailedPrecondition: as for `look`, which is called if it was not before.
        """
        if name not in entry_points.names():
            return None
        if name not in self._known:
            self.look(name)
        return self._known[name]

    def processes(self, name: str) -> EnvironmentProcesses:
        """Processes for an environment's groups of rollouts; none is started yet."""
        return EnvironmentProcesses(name, self._variables)


def _asked(name: str, variables: Sequence[str]) -> Mapping[str, Any]:
    process, end = start("describe", name, variables)
    until, told, ended = time.monotonic() + DESCRIBE_SECONDS, None, False
    try:
        with end:
            told = _received(end, until)
            ended = told is None and process.ends(until)
    finally:
        code = process.reap()
    if told is None:
        why = f"ended ({ending_of(code)})" if ended else f"did not end within {DESCRIBE_SECONDS:.0f} s"
        raise entry_points.bad(name, f"cannot be loaded: its import {why}")
    if "error" in told:
        raise error_from_map(told["error"])
    return told["options_schema"]


def _received(end: socket.socket, until: float) -> dict[str, Any] | None:
    """An environment's description from a process; None if the process gives none."""
    try:
        body = receive(end, wire.MAX_FRAME_BYTES, until=until) or b""
        check_containers(body)
        told = unpack(body)
    except (OSError, ValueError):
        return None
    return told if told.keys() & {"options_schema", "error"} else None
