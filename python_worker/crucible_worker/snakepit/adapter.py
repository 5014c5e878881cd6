"""The adapter class for Snakepit's own Python server: the same tools, in that server's process.

Snakepit makes an adapter for every request, on a separate event loop. The adapters share one worker per process. It
starts at the first tool that is called, in a thread with its own event loop that no adapter can block, and lives as
long as the process. It listens on a Unix socket that only its own user can open, and nowhere else. Settings are read
from CRUCIBLE_ variables, as for `serve`.

Snakepit may end the process at any moment: a worker that is killed has lost nothing that was durable, and the next one
resumes its evaluations.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import dataclasses
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

import structlog

from crucible_bridge.errors import FailedPrecondition, InvalidField, Unimplemented, clipped
from crucible_bridge.reasons import Reason
from crucible_worker.config import SettingsError, load_settings
from crucible_worker.server import Worker
from crucible_worker.server.credentials import StartError
from crucible_worker.snakepit.arguments import RESULT_FORMAT, RESULT_FORMATS
from crucible_worker.snakepit.tools import ToolCall, Tools, python_error
from crucible_worker.telemetry import BackgroundWriter

__all__ = ["CrucibleAdapter"]

STOP_SECONDS = 1.0
"""Seconds for the worker's loop to end with the process."""

_NOT_HERE = frozenset({"drain"})

T = TypeVar("T")


class CrucibleAdapter:
    """The class for Snakepit's `--adapter crucible_worker.snakepit.adapter.CrucibleAdapter`.

    Results are plain values; errors are Python's own exceptions, whose text begins with our reason. There are no
    binary results: Snakepit's server does not support them.
    """

    __thread_safe__ = True  # Snakepit's threaded server requires it

    def __init__(self) -> None:
        self._context: Any = None

    def set_session_context(self, context: Any) -> None:
        """Set Snakepit's context of the request: its session, and the metadata with the correlation id."""
        self._context = context

    async def execute_tool(self, *, tool_name: str, arguments: Mapping[str, Any] | None, context: Any = None) -> Any:
        """Run a tool.

        Args:
            tool_name: which one; `list_tools` names all.
            arguments: JSON values by name, and bytes for binary parameters.
            context: Snakepit's context, if it is not the one that was set.

        Returns:
            The result of the tool, or an asynchronous iterator of results if it streams.

        Raises:
            Exception: one of those in `failures`.
        """
        try:
            if tool_name in _NOT_HERE:
                raise Unimplemented(f"{tool_name} is not for this endpoint: the process is Snakepit's")
            worker = _shared()
            tools = await worker.tools()
            call = _call(self._context if context is None else context)
            parameters, binary = _parted(arguments or {})
            if tools.streaming(tool_name):
                return _plainly_failing(worker.iterate(tools.stream(tool_name, parameters, binary, call)))
            result = await worker.run(tools.execute(tool_name, parameters, binary, call))
            if result.binary is not None:  # requested in msgpack
                raise _no_bytes(result.metadata[RESULT_FORMAT])
        except Exception as error:
            raise python_error(error) from None
        return result.value


def _call(context: Any) -> ToolCall:
    metadata = getattr(context, "request_metadata", None) or {}
    # The size of the arguments is not known, so a thread always reads them.
    return ToolCall(
        correlation_id=metadata.get("correlation_id"), session_id=getattr(context, "session_id", ""), large=True
    )


def _parted(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Separate JSON values and bytes, which Snakepit's server mixes."""
    binary = {name: value for name, value in arguments.items() if isinstance(value, bytes)}
    parameters = {name: value for name, value in arguments.items() if name not in binary}
    if (asked := parameters.get(RESULT_FORMAT)) is not None and asked != RESULT_FORMATS[0]:
        raise _no_bytes(asked)
    return parameters, binary


def _no_bytes(asked: Any) -> InvalidField:
    return InvalidField(RESULT_FORMAT, f"is {clipped(str(asked))}, but Snakepit's own server carries no bytes back")


async def _plainly_failing(values: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
    try:
        async with contextlib.aclosing(values):
            async for value in values:
                yield value
    except Exception as error:
        raise python_error(error) from None


class _ProcessWorker:
    """A worker in a thread, for all adapters of the process."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._starting: asyncio.Task[Tools] | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="crucible-"))
        # A daemon, so that the process does not wait for it.
        self._thread = threading.Thread(target=self._loop.run_forever, name="crucible-worker", daemon=True)
        self._thread.start()
        atexit.register(self._end)

    async def tools(self) -> Tools:
        """Its tools, once it has started; the next call retries a failed start."""
        return await self.run(self._started())

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the worker's loop, from any other; cancelling the wait cancels it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def iterate(self, values: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """Iterate on the worker's loop, from any other; closing the generator closes what it iterates over."""
        end, turn = object(), asyncio.Lock()
        try:
            while (value := await self.run(_next_or(values, end, turn))) is not end:
                yield value
        finally:
            await self.run(_close(values, turn))

    async def _started(self) -> Tools:
        if self._starting is None or (self._starting.done() and self._starting.exception() is not None):
            self._starting = asyncio.create_task(self._start())
        # One caller may stop waiting; the start continues for all.
        return await asyncio.shield(self._starting)

    async def _start(self) -> Tools:
        try:
            settings = await asyncio.to_thread(load_settings, {}, os.environ)
            own = {"unix_socket": self._folder / "worker", "tls_cert": None, "tls_key": None, "token_file": None}
            settings = dataclasses.replace(settings, **own, ready_file=None).validate()
            if not structlog.is_configured():
                _log_to_stderr()
            worker = Worker(settings)
            await worker.start()
        except (SettingsError, StartError) as error:
            raise FailedPrecondition(f"the worker cannot start: {error}", reason=Reason.NOT_STARTED) from None
        worker.warm_grading()
        return worker.tools

    def _end(self) -> None:
        """End the loop before the interpreter unloads its modules."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)


async def _next_or(values: AsyncGenerator[Any, None], end: object, turn: asyncio.Lock) -> Any:
    # A future cannot raise StopAsyncIteration, so the end is a value.
    async with turn:
        return await anext(values, end)


async def _close(values: AsyncGenerator[Any, None], turn: asyncio.Lock) -> None:
    # If the reader was cancelled, its wait ends on this loop a moment later than on the reader's.
    async with turn:
        await values.aclose()


def _log_to_stderr() -> None:
    """Send our log lines, from warnings on, to the log of Snakepit's server; its own logging is unchanged.

    A thread writes them, so that a full pipe does not stop the worker.
    """
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.WriteLoggerFactory(file=BackgroundWriter(sys.stderr)),  # pyright: ignore[reportArgumentType] - write and flush are all it needs
    )


_lock = threading.Lock()
_worker: _ProcessWorker | None = None


def _shared() -> _ProcessWorker:
    """The worker of the process; made if there is none."""
    global _worker
    with _lock:
        if _worker is None:
            _worker = _ProcessWorker()
        return _worker
