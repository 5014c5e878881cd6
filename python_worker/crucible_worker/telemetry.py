"""Structured logs on stderr: one line per event, written by a thread, so that a full pipe never stops the event loop.

Every line has an ISO time, a level, an event, its writer (pid, worker_id), and the fields that are bound to the current
call (method, peer, evaluation_id, run_id, correlation_id). Tokens and model output are never logged.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import sys
import threading
import time
from collections.abc import Collection, Mapping
from io import RawIOBase
from typing import TYPE_CHECKING, Any, TextIO

from crucible_worker.config import LogFormat

if TYPE_CHECKING:
    import structlog
elif "structlog" not in sys.modules and "rich" not in sys.modules:
    # structlog imports rich if it is installed: 34 ms and 5.5 MB, for tracebacks that this worker never prints.
    sys.modules["rich"] = None
    import structlog

    del sys.modules["rich"]
else:
    import structlog

__all__ = ["MAX_TEXT_CHARS", "BackgroundWriter", "bind_contextvars", "bound", "configure_logging"]

QUEUE_LINES = 10_000
"""Lines that wait for a slow stderr; further lines are counted and dropped."""
MAX_TEXT_CHARS = 1_000
"""Longest text of a line, except its traceback: a caller's ids are logged before their length is checked."""

_QUIET = {"asyncio": logging.WARNING, "grpc": logging.WARNING, "urllib3": logging.WARNING}

bind_contextvars = structlog.contextvars.bind_contextvars


def bound(key: str) -> str:
    """The value that is bound to the current call under a key, or an empty string."""
    return structlog.contextvars.get_contextvars().get(key, "")


class BackgroundWriter:
    """A text stream that accepts lines without ever waiting for its reader."""

    def __init__(self, stream: TextIO, *, capacity: int = QUEUE_LINES) -> None:
        self._stream = stream
        # Past its buffers: they would keep what a full disk refuses, and no count of lost lines would be right.
        self._raw: RawIOBase | None = getattr(getattr(stream, "buffer", None), "raw", None)
        self._cut = False
        self._lines: queue.Queue[str | None] = queue.Queue(capacity)
        self._dropped = 0
        self._counting = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Lines that the queue or the stream had no room for, and that are not yet reported in the log."""
        return self._dropped

    def write(self, text: str) -> int:
        """Queue a line; a full queue drops it."""
        try:
            self._lines.put_nowait(text)
        except queue.Full:
            self._count(1)
        return len(text)

    def flush(self) -> None:
        """Nothing to do: the thread flushes after each line."""

    def close(self, timeout: float) -> None:
        """Write the queued lines, for at most `timeout` seconds."""
        deadline = time.monotonic() + timeout
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=timeout)
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            if not self._put(line):
                self._count(1)
            if self._dropped and self._lines.empty():
                self._account()
        if self._dropped:
            self._account()

    def _account(self) -> None:
        dropped = self._dropped
        if self._put(_dumps({"event": "log_lines_dropped", "level": "warning", "count": dropped}) + "\n"):
            self._count(-dropped)

    def _count(self, lines: int) -> None:
        # Other threads drop lines while this one waits for a slow reader.
        with self._counting:
            self._dropped += lines

    def _put(self, line: str) -> bool:
        """Write a line; whether there was room for all of it."""
        # The thread must not stop when the reader is gone: the queue would then stay full.
        try:
            if self._raw is None:
                self._stream.write(line)
                self._stream.flush()
                return True
            left = memoryview(("\n" * self._cut + line).encode(self._stream.encoding or "utf-8", "backslashreplace"))
            while left:
                written = self._raw.write(left)
                if written is None:  # another process made the stream one that does not wait
                    return False
                left, self._cut = left[written:], True
        except (OSError, ValueError):
            return False
        self._cut = False
        return True


def configure_logging(
    log_format: LogFormat,
    level: str,
    stream: TextIO | None = None,
    *,
    facts: Mapping[str, Any] | None = None,
    left_out: Collection[str] = (),
) -> BackgroundWriter:
    """Route structlog and the standard library's logging to one stream.

    Args:
        log_format: "json" for machines, "console" for people.
        level: "debug", "info", "warning" or "error".
        stream: where to; stderr if None.
        facts: added to every line without such a key; facts that are added later are on later lines.
        left_out: events without a line, as something else shows them.

    Returns:
        The writer, to be closed last.
    """
    target = sys.stderr if stream is None else stream
    writer = BackgroundWriter(target)
    threshold = logging.getLevelNamesMapping()[level.upper()]
    shared: list[structlog.typing.Processor] = [
        _without(left_out),
        structlog.contextvars.merge_contextvars,
        _with(facts or {}),
        _short,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    rendering = _rendering(log_format, colors=target.isatty())
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=structlog.WriteLoggerFactory(file=writer),  # pyright: ignore[reportArgumentType] - write and flush are all it needs
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(writer)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    logging.basicConfig(level=threshold, handlers=[handler], force=True)
    for name, floor in _QUIET.items():
        logging.getLogger(name).setLevel(max(floor, threshold))
    return writer


def _without(left_out: Collection[str]) -> structlog.typing.Processor:
    def drop(logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        if event.get("event") in left_out:
            raise structlog.DropEvent
        return event

    return drop


def _with(facts: Mapping[str, Any]) -> structlog.typing.Processor:
    def add(logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
        for key, value in facts.items():
            event.setdefault(key, value)
        return event

    return add


def _short(logger: Any, method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Truncate long texts. Tracebacks are not texts yet."""
    for key, value in event.items():
        if isinstance(value, str) and len(value) > MAX_TEXT_CHARS:
            event[key] = f"{value[:MAX_TEXT_CHARS]}\N{HORIZONTAL ELLIPSIS}"
    return event


def _rendering(log_format: LogFormat, *, colors: bool) -> list[structlog.typing.Processor]:
    if log_format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_dumps)]
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain)]


def _dumps(event: Any, **options: Any) -> str:
    """JSON in ASCII without a bare NaN: such a number is written as its name."""
    try:
        return json.dumps(event, allow_nan=False, **options)
    except ValueError:
        return json.dumps({key: repr(value) for key, value in event.items()})
