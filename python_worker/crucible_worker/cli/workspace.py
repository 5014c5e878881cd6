"""A worker inside of a command: where it keeps what it evaluates, what it may read, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import signal
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crucible_worker.config import Settings
    from crucible_worker.server.parts import CustomFiles, Parts

__all__ = ["LOGGERS_SECONDS", "Termination", "opened", "state_folder", "with_roots"]

LOGGERS_SECONDS = 30.0
"""How long a command waits at its end for its loggers; a worker of the same journal feeds those that are behind."""


@contextlib.contextmanager
def state_folder(given: Path | None) -> Iterator[Path]:
    """The folder of the journal: the one that is given, or one that goes with the command."""
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="crucible-evaluate-") as folder:
        yield Path(folder)


def with_roots(settings: Settings) -> Settings:
    """Whoever types a command here may name what lies here."""
    here = (Path.cwd(),)
    return dataclasses.replace(
        settings, model_roots=settings.model_roots or here, data_roots=settings.data_roots or here
    )


class Termination:
    """Cancels the task of a command at SIGTERM, and distinguishes that from Ctrl-C, which cancels it as well."""

    def __init__(self) -> None:
        """Heed it from now on; used in the task that it cancels."""
        self.arrived = False
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        if threading.current_thread() is threading.main_thread():  # no other one can handle signals
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._arrive)

    def _arrive(self) -> None:
        self.arrived = True
        self._task.cancel()


@contextlib.asynccontextmanager
async def opened(
    settings: Settings, custom: CustomFiles | None = None, termination: Termination | None = None
) -> AsyncIterator[Parts]:
    """The parts of a worker, with a user's own evaluators and graders; its children end with the block.

    Args:
        settings: of the worker.
        custom: the user's evaluators and graders.
        termination: of the command. If its task is cancelled without it, by Ctrl-C, no worker resumes without a call
            what is interrupted then.

    Raises:
        FailedPrecondition: the state directory cannot be used.
    """
    from crucible_worker.server.parts import build

    # A command evaluates; it removes nothing that others left in the journal.
    limits = settings.limits.without_retention()
    settings = dataclasses.replace(settings, limits=limits, resume_interrupted=False)
    parts = await build(settings, custom, feed_all=False)
    try:
        yield parts
    except asyncio.CancelledError:
        if termination is not None and not termination.arrived:
            parts.evaluations.hold()
        raise
    finally:
        await parts.evaluations.drain()
        await parts.evaluations.flush_logs()
        await parts.evaluations.experiments.flush(LOGGERS_SECONDS)
        await parts.aclose_children()
        await parts.evaluations.aclose()
