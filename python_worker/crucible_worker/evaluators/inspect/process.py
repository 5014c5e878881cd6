"""A task's process as the evaluator sees it: started for one task, gone with it.

It leads a process group of its own, which is killed whatever ends the task: its last word, a cancel, a time-out. It
dies with the worker. It has a folder for what it writes, and of the worker's environment what `children` names alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from crucible_bridge.errors import BackendError
from crucible_bridge.reasons import Reason
from crucible_worker.evaluators.inspect.folders import hold, remove_abandoned
from crucible_worker.evaluators.inspect.frames import HEADER, MAX_FRAME_BYTES, pack, unpack
from crucible_worker.evaluators.variables import passed_variables

__all__ = ["MAX_QUESTIONS", "run_in_process"]

MAX_QUESTIONS = 1_000_000_000
"""Of a task, as its process counts them."""

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
    """Run a task in a process of its own, which is gone afterwards, and with it what it wrote.

    Args:
        order: what to run, without the place of its logs.
        answer: answers a question; any number is asked at once.
        network: whether data sets may be fetched.
        stop: set when the task has to stop; its process then ends with what was scored by then.
        count: called with how many questions are done, of how many.
        keep: called on a thread once the process has ended, whatever ended it, with the folder of its logs.

    Returns:
        The message that the process ends with.

    Raises:
        BackendError: it could not be started, ended too early (both retryable), or said what makes no sense.
    """
    await asyncio.to_thread(remove_abandoned)
    with hold() as folder:
        process: subprocess.Popen[bytes] | None = None
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = _start(theirs, folder, network=network)
            order = {**order, "log_dir": str(folder / "logs")}
            return await _conversation(process, ours, order, answer, stop, count)
        finally:
            # At once, whoever is waited for: a cancelled evaluation ends within 50 ms.
            if process is not None:
                _kill(process)
            ours.close()
            await asyncio.to_thread(_clear, process, folder, keep)


async def _conversation(
    process: subprocess.Popen[bytes],
    end: socket.socket,
    order: Mapping[str, Any],
    answer: Answer,
    stop: asyncio.Event | None,
    count: Count,
) -> dict[str, Any]:
    end.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=end)
    loop, pidfd = asyncio.get_running_loop(), os.pidfd_open(process.pid)
    answering: set[asyncio.Task[None]] = set()

    def ended() -> None:
        # Whatever the process has started may hold the other end open, and speak.
        loop.remove_reader(pidfd)
        writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue]: asyncio's own, for both ways
        reader.feed_eof()

    def answered(task: asyncio.Task[None]) -> None:
        answering.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            reader.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    loop.add_reader(pidfd, ended)
    stopping = None if stop is None else asyncio.create_task(_stop(writer, stop))
    try:
        writer.write(pack(order))
        while (message := await _next(reader))["op"] in ("ask", "count"):
            if message["op"] == "count":
                count(*_counts(message))
                continue
            task = asyncio.create_task(_reply(writer, message, answer))
            answering.add(task)
            task.add_done_callback(answered)
        return message
    except (asyncio.IncompleteReadError, ConnectionError):
        _kill(process)
        code = await asyncio.to_thread(process.wait)
        ending = f"signal {-code}" if code < 0 else f"exit status {code}"
        raise BackendError(
            f"the task's process ended ({ending})", reason=Reason.INSPECT_ENDED, retryable=True
        ) from None
    finally:
        for task in (*answering, *filter(None, [stopping])):
            task.cancel()
        loop.remove_reader(pidfd)
        os.close(pidfd)
        writer.transport.abort()


async def _next(reader: asyncio.StreamReader) -> dict[str, Any]:
    (length,) = HEADER.unpack(await reader.readexactly(HEADER.size))
    if length > MAX_FRAME_BYTES:
        raise _nonsense(f"a message of {length:,} bytes")
    try:
        message = unpack(await reader.readexactly(length))
    except ValueError as error:
        raise _nonsense("what is no message") from error
    if message.get("op") not in ("ask", "count", "found", "failed"):
        raise _nonsense("a message of no known kind")
    return message


def _counts(message: Mapping[str, Any]) -> tuple[int, int]:
    done, total = message.get("done"), message.get("total")
    # Neither a bool nor anything else that compares like a number.
    if type(done) is not int or type(total) is not int or not 0 <= done <= total <= MAX_QUESTIONS:
        raise _nonsense("a count that is none")
    return done, total


async def _reply(writer: asyncio.StreamWriter, question: Mapping[str, Any], answer: Answer) -> None:
    frame = pack({"id": question["id"], **await answer(question)})
    with contextlib.suppress(ConnectionError):  # the process is gone, which its reader is told
        writer.write(frame)
        await writer.drain()


async def _stop(writer: asyncio.StreamWriter, stop: asyncio.Event) -> None:
    await stop.wait()
    writer.write(pack({"op": "stop"}))


def _start(end: socket.socket, folder: Path, *, network: bool) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", _HOST, f"--parent={os.getpid()}", f"--socket={end.fileno()}"],
            stdin=subprocess.DEVNULL,
            # What a task prints may be anything, and is nothing that the worker's log asks for.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=_furnished(folder),
            env=_environment(folder, network=network),
            pass_fds=(end.fileno(),),
            start_new_session=True,
        )
    except OSError as error:
        message = f"the task's process cannot be started: {error.strerror}"
        raise BackendError(message, reason=Reason.INSPECT_NOT_STARTED, retryable=True) from error


def _furnished(folder: Path) -> Path:
    """The folder with an empty `.env`: Inspect reads the first that it finds from there upwards."""
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
        # Of answers: in one that outlasts the task, those of every model of every worker would be one model's.
        "INSPECT_CACHE_DIR": str(folder / "cache"),
        "INSPECT_DISPLAY": "none",
        "INSPECT_LOG_DIR": str(folder / "logs"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(folder / "tmp"),
        "XDG_DATA_HOME": str(folder / "data"),
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "XDG_STATE_HOME": str(folder / "state"),
    }


def _kill(process: subprocess.Popen[bytes]) -> None:
    # Not yet waited for, its id is nobody else's: the group is its own.
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _clear(process: subprocess.Popen[bytes] | None, folder: Path, keep: Keep) -> None:
    if process is not None:
        process.wait()
        keep(folder / "logs")
    shutil.rmtree(folder, ignore_errors=True)


def _nonsense(what: str) -> BackendError:
    return BackendError(f"the task's process said {what}", reason=Reason.INSPECT_PROTOCOL, retryable=False)
