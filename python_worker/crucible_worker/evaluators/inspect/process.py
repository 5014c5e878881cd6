"""The evaluator's side of a task's process, which is started for one task and ends with it.

It leads a separate process group, which is killed however the task ends: by its last message, a cancellation, or a
time-out. It dies with the worker. It has a folder for its files, and only those variables that `children` names.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from crucible_bridge.errors import BackendError
from crucible_bridge.reasons import Reason
from crucible_worker.children.frames import TooLong
from crucible_worker.children.process import Channel, Process, ending_of, passed_variables
from crucible_worker.evaluators.inspect.files import hold, remove_abandoned
from crucible_worker.evaluators.inspect.frames import MAX_FRAME_BYTES, pack, unpack

__all__ = ["MAX_QUESTIONS", "run_in_process"]

MAX_QUESTIONS = 1_000_000_000
"""The largest count of questions that a process may send."""

_HOST = "crucible_worker.evaluators.inspect.host"

Answer = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


Count = Callable[[int, int], object]
Keep = Callable[[Path], object]


async def run_in_process(
    order: Mapping[str, Any],
    answer: Answer,
    *,
    network: bool,
    stop: asyncio.Event | None = None,
    count: Count = lambda done, total: None,
    keep: Keep = lambda logs: None,
) -> dict[str, Any]:
    """Run a task in a separate process; afterwards the process and its files are gone.

    Args:
        order: what to run, without the folder of its logs.
        answer: answers a question; any number may be open at once.
        network: whether data sets may be fetched.
        stop: set when the task has to stop; its process then ends with what was scored by then.
        count: called with the number of finished questions, and of all.
        keep: called on a thread with the folder of its logs, once the process has ended, whatever the reason.

    Returns:
        The last message of the process.

    Raises:
        BackendError: it could not be started, ended too early (both retryable), or sent an invalid message.
    """
    await asyncio.to_thread(remove_abandoned)
    with hold() as folder:
        process: Process | None = None
        try:
            process, end = _start(folder, network=network)
            channel = await Channel.over(end)
            try:
                return await _conversation(
                    process, channel, {**order, "log_dir": str(folder / "logs")}, answer, stop, count
                )
            finally:
                channel.abort()
        finally:
            # At once, without waiting for open questions: a cancelled evaluation ends within 50 ms.
            if process is not None:
                process.kill()
            await asyncio.to_thread(_clear, process, folder, keep)


async def _conversation(
    process: Process,
    channel: Channel,
    order: Mapping[str, Any],
    answer: Answer,
    stop: asyncio.Event | None,
    count: Count,
) -> dict[str, Any]:
    tasks: set[asyncio.Task[None]] = set()

    def spawn(work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(done)

    def done(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            channel.fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    async def end_input() -> None:
        await process.ended()
        # A process that it has started may keep the other end open, and write to it.
        channel.end_input()

    async def tell_to_stop(wanted: asyncio.Event) -> None:
        await wanted.wait()
        channel.send(pack({"op": "stop"}))

    async def reply(question: Mapping[str, Any]) -> None:
        channel.send(pack({"id": question["id"], **await answer(question)}))
        await channel.drained()

    spawn(end_input())
    if stop is not None:
        spawn(tell_to_stop(stop))
    try:
        channel.send(pack(order))
        while (message := await _next(channel)) is not None:
            if message["op"] == "count":
                count(*_counts(message))
            elif message["op"] == "ask":
                spawn(reply(message))
            else:
                return message
        ending = ending_of(await process.end())
        raise BackendError(f"the task's process ended ({ending})", reason=Reason.INSPECT_ENDED, retryable=True)
    finally:
        for task in tasks:
            task.cancel()


async def _next(channel: Channel) -> dict[str, Any] | None:
    try:
        body = await channel.receive(MAX_FRAME_BYTES)
    except TooLong as error:
        raise _nonsense(str(error)) from None
    if body is None:
        return None
    try:
        message = unpack(body)
    except ValueError as error:
        raise _nonsense("something that is not a message") from error
    if message.get("op") not in ("ask", "count", "found", "failed"):
        raise _nonsense("a message of an unknown kind")
    return message


def _counts(message: Mapping[str, Any]) -> tuple[int, int]:
    done, total = message.get("done"), message.get("total")
    # Neither a bool nor anything else that compares like a number.
    if type(done) is not int or type(total) is not int or not 0 <= done <= total <= MAX_QUESTIONS:
        raise _nonsense("an invalid count")
    return done, total


def _start(folder: Path, *, network: bool) -> tuple[Process, socket.socket]:
    try:
        # Output of a task may be anything, and does not belong in the worker's log.
        return Process.start(_HOST, environment=_environment(folder, network=network), cwd=_furnished(folder))
    except OSError as error:
        message = f"the task's process cannot be started: {error.strerror}"
        raise BackendError(message, reason=Reason.INSPECT_NOT_STARTED, retryable=True) from error


def _furnished(folder: Path) -> Path:
    """The folder, with an empty `.env`: Inspect reads the first one that it finds from there upwards."""
    (folder / ".env").touch()
    for name in ("data", "run", "state", "tmp"):
        (folder / name).mkdir(mode=0o700)
    return folder


def _environment(folder: Path, *, network: bool) -> dict[str, str]:
    offline = {} if network else {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    return {
        **passed_variables(),
        **offline,
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        # Inspect's cache of answers: one that outlasts the task would mix answers of all models of all workers.
        "INSPECT_CACHE_DIR": str(folder / "cache"),
        "INSPECT_DISPLAY": "none",
        "INSPECT_LOG_DIR": str(folder / "logs"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(folder / "tmp"),
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "XDG_STATE_HOME": str(folder / "state"),
    }


def _clear(process: Process | None, folder: Path, keep: Keep) -> None:
    if process is not None:
        process.reap()
        keep(folder / "logs")
    shutil.rmtree(folder, ignore_errors=True)


def _nonsense(what: str) -> BackendError:
    return BackendError(f"the task's process sent {what}", reason=Reason.INSPECT_PROTOCOL, retryable=False)
