"""What a process does about its log, put back after a test that configures it."""

import contextlib
import logging
from collections.abc import Iterator

import structlog


@contextlib.contextmanager
def restored_logging() -> Iterator[None]:
    """Within, logging may be configured; the logging of other tests is restored afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        structlog.reset_defaults()
        structlog.contextvars.clear_contextvars()
        root.handlers, root.level = handlers, level
