"""A process that makes groups of rollouts, one at a time, and the fork server that it comes from.

It requests the model's answers from the worker.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from crucible_bridge.errors import BridgeError, InvalidField
from crucible_bridge.reasons import Reason
from crucible_worker.children.fork_server import ForkServer, refuse
from crucible_worker.children.frames import TooLong
from crucible_worker.children.lifetime import lower_priority, outlive, set_oom_score
from crucible_worker.children.messages import error_from_map, error_to_map
from crucible_worker.children.process import Channel, Questions
from crucible_worker.evaluators.answering import Answer
from crucible_worker.evaluators.environments import entry_points, group, wire
from crucible_worker.evaluators.environments.base import EnvironmentType, GroupBuilder
from crucible_worker.evaluators.environments.episode import SentObservation
from crucible_worker.evaluators.environments.records import outcome_of
from crucible_worker.evaluators.environments.threaded_loop import ForeignFailure, ThreadedLoop
from crucible_worker.util.entry_points import error_text

__all__ = ["describe", "keep", "play", "play_by_name"]

# The process that has loaded an environment, and is forked for each running group.
#
# It runs nothing of the environment except its import, so it always reads the worker's orders at once.

_HOST = "crucible_worker.evaluators.environments.host"


def describe(end: socket.socket, name: str) -> NoReturn:
    """Send an environment's description, or why it cannot be used."""
    try:
        told: dict[str, Any] = {"options_schema": entry_points.load(name).options_schema}
    except BridgeError as error:
        told = {"error": error_to_map(error)}
    end.sendall(wire.pack(told))
    # Threads that the environment has started are not waited for.
    os._exit(0)


def keep(control: socket.socket, name: str) -> NoReturn:
    """Load an environment, and serve orders until the socket is closed."""
    try:
        environment = entry_points.load(name)
    except BridgeError as error:
        refuse(control, error)
    lower_priority()
    # If memory runs out, a group of environments should be killed first.
    set_oom_score()
    # Garbage collections would write to every page that is shared with forks.
    gc.collect()
    gc.freeze()
    # If it were killed with the worker, it could not kill processes of groups; from here on, its socket ends it.
    outlive()
    ForkServer(control, lambda end, _: play(end, environment), spawn=lambda end: _spawned(name, end)).serve()


def _spawned(name: str, end: int) -> int:
    """A process that loads the environment itself: forking a process with threads might copy locked locks."""
    command = [sys.executable, "-P", "-m", _HOST, f"--parent={os.getpid()}", f"--socket={end}", "play", name]
    process = subprocess.Popen(command, pass_fds=(end,), process_group=0)
    process.returncode = 0  # the server waits for it, by its id
    return process.pid


def play_by_name(end: socket.socket, name: str) -> NoReturn:
    """Load an environment, and play as `play` does."""
    play(end, entry_points.load(name))


def play(end: socket.socket, environment: EnvironmentType) -> NoReturn:
    """Make the groups that are ordered over a socket, until it is closed."""
    # A fork already reseeds Python's own random number generator.
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
    asyncio.run(_serve(end, environment))
    os._exit(0)


async def _serve(end: socket.socket, environment: EnvironmentType) -> None:
    line = await _Line.over(end)
    while True:
        order = await line.orders.get()
        if order["op"] == "order":
            await _group(order, environment, line)


async def _group(order: dict[str, Any], environment: EnvironmentType, line: _Line) -> None:
    own = ThreadedLoop(
        lambda event, fields: line.tell({"op": "warn", "event": event, "fields": fields}),
        cleanup_seconds=order["cleanup_seconds"],
        settle_seconds=order["settle_seconds"],
    )
    made: list[Any] = []

    def make() -> GroupBuilder:
        made.append(environment.group(order["sample"], order["options"], order["size"]))
        return made[0]

    playing = asyncio.create_task(_played(order, make, own, _ModelProxy(line, order["max_tokens"])))
    ending = asyncio.create_task(line.orders.get())  # an order that interrupts a group
    await asyncio.wait({playing, ending}, return_when=asyncio.FIRST_COMPLETED)
    if playing.done():
        line.send(playing.result())
    playing.cancel()
    own.close(lambda: _cleaned_up(made))
    if not await own.wait_closed():
        # Only the end of the process ends that thread.
        await line.drained()
        os._exit(1)
    if not ending.done():
        ending.cancel()
    line.tell({"op": "over"})


async def _played(order: dict[str, Any], make: Any, own: ThreadedLoop, asking: _ModelProxy) -> bytes:
    """The frame with the result of a group."""
    try:
        found = await group.run(
            make,
            own.call,
            asking,
            order["tolerance"],
            seed=order["seed"],
            max_turns=order["max_turns"],
            course=order["course"],
            tell=asking.tell,
        )
        outcome = outcome_of(found, intermediates=order["intermediates"], transcript=order["transcript"])
        return wire.pack({"op": "found", "outcome": wire.outcome_to_map(outcome), "fallen": found.failure is not None})
    except TooLong as error:
        message = f"is too large to be sent: {str(error).removeprefix('a message of ')}"
        return wire.pack(
            {"op": "failed", "error": error_to_map(InvalidField("group", message, reason=Reason.GROUP_TOO_LARGE))}
        )
    except BridgeError as error:
        return wire.pack({"op": "failed", "error": error_to_map(error)})
    except Exception as error:  # our bug; the worker reports it
        return wire.pack({"op": "bug", "message": error_text(error)})


async def _cleaned_up(made: Sequence[Any]) -> None:
    for builder in made:
        cleanup = getattr(builder, "cleanup", None)
        if cleanup is not None:
            await cleanup()


@dataclasses.dataclass(frozen=True, slots=True)
class _ModelProxy:
    """Queries the model through the worker."""

    line: _Line
    max_tokens: int

    async def ask(
        self, observation: SentObservation, stop: Sequence[str | int], *, seed: int, max_tokens: int
    ) -> Answer:
        try:
            shown = wire.observation_to_map(observation)
            question = {"shown": shown, "stop": wire.stops_of(stop), "seed": seed, "max_tokens": int(max_tokens)}
            return await self.line.ask(question)
        except (TypeError, ValueError, OverflowError, AttributeError) as error:
            kind = type(observation).__name__
            raise ForeignFailure(
                Reason.BAD_ENVIRONMENT, f"observed a {kind} that cannot be sent to a model: {error_text(error)}"
            ) from error

    def tell(self, course: group.GroupState) -> None:
        self.line.tell({"op": "round", "course": wire.course_to_map(course)})


class _Line:
    """The connection to the worker."""

    def __init__(self, channel: Channel) -> None:
        self._channel, self._questions = channel, Questions(channel)
        self.orders: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        """Messages of the worker that are not answers."""
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def over(cls, end: socket.socket) -> _Line:
        return cls(await Channel.over(end))

    def tell(self, message: dict[str, Any]) -> None:
        self.send(wire.pack(message))

    def send(self, frame: bytes) -> None:
        self._channel.send(frame)

    async def drained(self) -> None:
        await self._channel.drained()

    async def ask(self, question: dict[str, Any]) -> Answer:
        return await self._questions.ask(lambda identity: wire.pack({"op": "ask", "id": identity, **question}))

    async def _listen(self) -> None:
        while (body := await self._channel.receive()) is not None:
            self._heard(wire.received(body))
        # The worker does not need this process any more.
        os._exit(0)

    def _heard(self, message: dict[str, Any]) -> None:
        if message["op"] != "answer":
            self.orders.put_nowait(message)
        elif message["error"] is not None:
            self._questions.fail(message["id"], error_from_map(message["error"]))
        else:
            self._questions.answer(message["id"], message["answer"])
