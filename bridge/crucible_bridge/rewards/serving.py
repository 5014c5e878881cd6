"""The process that grades for a trainer's: it reads requests from its socket, and answers each when it is done."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from crucible_bridge.errors import BridgeError, InternalError
from crucible_bridge.reasons import Reason
from crucible_bridge.rewards.process import HEADER, MAX_BODY_BYTES, exactly

__all__ = ["GradeItems", "Graded", "Item", "serve"]

Item = tuple[str, Sequence[Any], Sequence[str]]
"""Response, targets and choices."""
Graded = tuple[str, float | None, str, str, str]
"""Verdict, score, method, reason and extracted answer."""
GradeItems = Callable[[str, Mapping[str, Any], Sequence[Item]], Awaitable[Sequence[Graded]]]
"""Grades items by the grader of a name, with its options."""


def serve(grading: Callable[[Mapping[str, Any]], contextlib.AbstractAsyncContextManager[GradeItems]]) -> None:
    """Grade until the trainer's process ends or closes its end of the socket.

    The command line has the descriptor of the socket, and the id of the trainer's process.

    Args:
        grading: from the settings to a context that grades.
    """
    descriptor, parent = map(int, sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer
    os.set_inheritable(descriptor, False)
    _end_with(parent)
    end = socket.socket(fileno=descriptor)
    header = exactly(end, HEADER.size)
    settings = None if header is None else exactly(end, HEADER.unpack(header)[0])
    if settings is not None:
        asyncio.run(_serve(end, grading(json.loads(settings))))


def _end_with(parent: int) -> None:
    """End at once when a process ends, in any way: what it has forked may still have its end of the socket open.

    The kernel's own means, PR_SET_PDEATHSIG, would end this process with the thread that has started it.
    """
    try:
        watched = os.pidfd_open(parent)
    except ProcessLookupError:
        os._exit(0)
    if os.getppid() != parent:
        os._exit(0)

    def watch() -> None:
        poll = select.poll()
        poll.register(watched, select.POLLIN)
        poll.poll()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


async def _serve(end: socket.socket, opened: contextlib.AbstractAsyncContextManager[GradeItems]) -> None:
    end.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=end)
    tasks: set[asyncio.Task[None]] = set()
    async with contextlib.AsyncExitStack() as stack:
        try:
            grade = await stack.enter_async_context(opened)
        except BridgeError as error:
            grade = _refusing(error)
        async for number, body in _frames(reader):
            task = asyncio.create_task(_answer(writer, grade, number, body))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        for task in tasks:
            task.cancel()


def _refusing(error: BridgeError) -> GradeItems:
    """What answers every request where the settings cannot be used."""

    async def grade(name: str, options: Mapping[str, Any], items: Sequence[Item]) -> Sequence[Graded]:
        raise error

    return grade


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int, bytes]]:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            length, number = HEADER.unpack(await reader.readexactly(HEADER.size))
            if length > MAX_BODY_BYTES:
                return
            yield number, await reader.readexactly(length)


async def _answer(writer: asyncio.StreamWriter, grade: GradeItems, number: int, body: bytes) -> None:
    request = json.loads(body)
    answer: dict[str, Any]
    try:
        answer = {"grades": await grade(request["grader"], request["options"], request["items"])}
    except BridgeError as error:
        answer = {"error": _fields(error)}
    except Exception as error:
        answer = {"error": _fields(InternalError(f"{type(error).__name__}: {error}", reason=Reason.INTERNAL))}
    data = json.dumps(answer).encode("ascii")
    writer.write(HEADER.pack(len(data), number) + data)
    with contextlib.suppress(ConnectionError):
        await writer.drain()


def _fields(error: BridgeError) -> dict[str, Any]:
    return {
        "kind": type(error).__name__,
        "message": error.message,
        "field": error.field,
        "reason": error.reason,
        "retryable": error.retryable,
    }
