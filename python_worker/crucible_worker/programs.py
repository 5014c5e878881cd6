"""Programs of the worker's own that read foreign input: each answers once, and is killed at its limits."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sys

from crucible_worker.lifetime import die_with

__all__ = ["Unanswered", "ask_program", "command_of", "limit_program"]

_VARIABLES = ("PYTHONPATH", "LD_LIBRARY_PATH")


class Unanswered(Exception):
    """A program ended without an answer, or was killed: it took too much time or memory."""


def command_of(module: str) -> tuple[str, ...]:
    """The command that runs a module of this package; the process id of its parent is added."""
    return (sys.executable, "-P", "-m", module)


async def ask_program(command: tuple[str, ...], order: bytes, *, seconds: float) -> bytes:
    """Start a program, write an order to its standard input, and return its standard output.

    The program is gone afterwards, also if this is cancelled.

    Raises:
        TimeoutError: it took longer.
        Unanswered: it ended otherwise than with status 0.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        str(os.getpid()),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: os.environ[name] for name in _VARIABLES if name in os.environ},
    )
    try:
        async with asyncio.timeout(seconds):
            said, _ = await process.communicate(order)
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        raise Unanswered
    return said


def limit_program(parent: int, *, seconds: int, memory_bytes: int) -> None:
    """Bound this process: its life by that of its parent, its processor time and its memory."""
    die_with(parent)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
