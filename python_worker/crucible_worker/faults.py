"""A failure that the worker did not foresee: the log has its traceback under an id, and the caller receives that id."""

from __future__ import annotations

import secrets
from typing import Any

__all__ = ["logged", "with_id"]


def logged(log: Any, event: str, error: BaseException | None = None, **facts: Any) -> str:
    """Write a failure to the log, with its traceback if there is one.

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
    log.error(event, error_id=error_id, exc_info=error, **facts)
    return error_id


def with_id(what: str, error_id: str) -> str:
    """What a caller reads: "ValueError in the evaluator; error id 0123456789abcdef in the worker's log"."""
    return f"{what}; error id {error_id} in the worker's log"
