"""The worker's side of a process that makes groups of rollouts; the process itself is `host.child`."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import Coroutine, Mapping
from typing import Any

import structlog

from crucible_bridge.errors import BackendError, BridgeError
from crucible_bridge.reasons import Reason
from crucible_bridge.types import Sample
from crucible_worker.children.forks import Fork
from crucible_worker.children.messages import error_to_map, unpack_foreign
from crucible_worker.children.process import Channel, ending_of
from crucible_worker.evaluators.answering import Answer
from crucible_worker.evaluators.base import Outcome
from crucible_worker.evaluators.environments import wire
from crucible_worker.evaluators.environments.episode import EpisodeCalls
from crucible_worker.evaluators.environments.group import FailurePolicy, GroupState
from crucible_worker.evaluators.environments.threaded_loop import CLEANUP_SECONDS, SETTLE_SECONDS

__all__ = ["EnvironmentChild", "GroupLost", "GroupOrder", "GroupReply", "ended"]


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
        shown = wire.shown_from_map(question["shown"])
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
