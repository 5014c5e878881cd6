"""A failure that the worker did not foresee: the log has its traceback under an id, and the caller receives that id.

If the machine lacks descriptors, memory or processes, that is no bug, and passes: `shortage` recognizes it.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import traceback
from collections.abc import Iterator
from typing import Any

from crucible_bridge.errors import ResourceExhausted

__all__ = ["MAX_FAILURES", "SHORTAGES", "ErrorReporter", "logged", "shortage", "shortages", "with_id"]

SHORTAGES = frozenset({errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC})
"""Numbers of the system's errors if it has no room for processes, threads, files, memory or buffers, or on a disk."""
RETRY_SECONDS = 1.0
"""Seconds after which a caller may retry after a shortage."""

MAX_FAILURES = 100
"""Different failures that `ErrorReporter` keeps apart; further ones count as one."""


def shortage(error: BaseException) -> ResourceExhausted | None:
    """What a caller receives if the system had no room for something; None if the error is another one.

    Any code that opens a file may raise one, an import among them. The same call may succeed later.
    """
    if not isinstance(error, OSError) or error.errno not in SHORTAGES:
        return None
    return ResourceExhausted(f"the worker's machine has no room: {error.strerror}", retry_after=RETRY_SECONDS)


@contextlib.contextmanager
def shortages() -> Iterator[None]:
    """Raise `shortage` inside the block in place of the system's error."""
    try:
        yield
    except OSError as error:
        if (found := shortage(error)) is None:
            raise
        raise found from error


def logged(log: Any, event: str, error: BaseException | None = None, **facts: Any) -> str:
    """Write a failure to the log, with its traceback if there is one and the cause is no shortage.

    The text of an error may contain model output or a path, so a caller receives the id alone.

    Args:
        log: a logger of structlog.
        event: what failed: "sample_failed".
        error: what was raised, if anything was.
        facts: more for the line.

    Returns:
        The error id: 16 hexadecimal digits.
    """
    error_id = secrets.token_hex(8)
    if error is not None and (lacking := shortage(error)) is not None:
        log.error(event, error_id=error_id, problem=lacking.message, **facts)
    else:
        log.error(event, error_id=error_id, exc_info=error, **facts)
    return error_id


class ErrorReporter:
    """Failures of one evaluator or grader. The log has the traceback of the first; equal ones are counted.

    Two failures are equal if exceptions of one class come from one line of code, or if nothing was raised and the facts
    are equal. They share an error id. At the 10th, the 100th and so on, a line without a traceback has their number.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], tuple[str, int]] = {}

    def logged(self, log: Any, event: str, error: BaseException | None, **facts: Any) -> str:
        """Write a failure to the log, unless an equal one is there; see `logged`."""
        failure = (event, *(sorted(facts.items()) if error is None else (type(error), _line_of(error))))
        if failure not in self._found and len(self._found) >= MAX_FAILURES:
            failure = ()
        error_id, times = self._found.get(failure, ("", 0))
        times += 1
        if times == 1:
            error_id = logged(log, event, error, **facts)
        elif str(times).strip("0") == "1":
            log.error(event, error_id=error_id, times=times, **facts)
        self._found[failure] = error_id, times
        return error_id


def _line_of(error: BaseException) -> tuple[str, int]:
    """Where an exception was raised."""
    name, line = "", 0
    for frame, line in traceback.walk_tb(error.__traceback__):  # noqa: B007 - the last one counts
        name = frame.f_code.co_filename
    return name, line


def with_id(what: str, error_id: str) -> str:
    """What a caller reads: "ValueError in the evaluator; error id 0123456789abcdef in the worker's log"."""
    return f"{what}; error id {error_id} in the worker's log"
