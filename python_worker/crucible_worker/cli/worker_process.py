"""A worker as a child process, as an orchestrator would start one: a file shows that it is ready, SIGTERM ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from crucible_worker.config import ENVIRONMENT_PREFIX

__all__ = ["WorkerFailed", "worker_process"]

READY_SECONDS = 30.0
"""Time limit from the start of the process to its ready file."""

EXIT_SECONDS = 10.0
"""Time limit from SIGTERM to its end; a worker promises 5.5."""

POLL_SECONDS = 0.02
"""Seconds between two checks for the ready file."""

LOG_LINES = 20
"""Lines of a failed worker's log that are shown."""


class WorkerFailed(Exception):
    """The worker did not start, or did not end as it should; the text has the end of its log."""


@contextlib.asynccontextmanager
async def worker_process(log_file: Path) -> AsyncIterator[str]:
    """Run a worker on a temporary state directory; yields its address.

    Leaving the block sends SIGTERM and waits for the end.

    Args:
        log_file: for the worker's log.

    Raises:
        WorkerFailed: it does not get ready, or does not exit with 0.
    """
    with tempfile.TemporaryDirectory(prefix="crucible-demo-") as name:
        folder = Path(name)
        with log_file.open("wb") as log:
            process = await _start(folder, log.fileno())
        try:
            yield await _address(process, folder / "ready", log_file)
        except BaseException:
            await _end(process, log_file, must_be_clean=False)
            raise
        await _end(process, log_file, must_be_clean=True)


async def _start(folder: Path, log: int) -> asyncio.subprocess.Process:
    # The address and token of this machine's own worker must not affect this one.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(ENVIRONMENT_PREFIX)}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        # Nothing is imported from the folder in which the demo is started.
        "-P",
        "-m",
        "crucible_worker",
        "serve",
        "--port=0",
        f"--ready-file={folder / 'ready'}",
        f"--state-dir={folder / 'state'}",
        # The demo's answers are numbers.
        "--grading-processes=0",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        env=environment,
        # A Ctrl-C in the terminal is for the demo, which then ends its worker in order.
        start_new_session=True,
    )


async def _address(process: asyncio.subprocess.Process, ready_file: Path, log_file: Path) -> str:
    try:
        async with asyncio.timeout(READY_SECONDS):
            while (address := await asyncio.to_thread(_read_if_there, ready_file)) is None:
                if process.returncode is not None:
                    raise WorkerFailed(f"the worker ended with {process.returncode} at its start{_tail(log_file)}")
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        raise WorkerFailed(f"the worker was not ready within {READY_SECONDS:g} s{_tail(log_file)}") from None
    return address


async def _end(process: asyncio.subprocess.Process, log_file: Path, *, must_be_clean: bool) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(EXIT_SECONDS):
            code = await process.wait()
    except TimeoutError:
        process.kill()
        code = await process.wait()
    if must_be_clean and code != 0:
        raise WorkerFailed(f"the worker ended with {code}{_tail(log_file)}")


def _read_if_there(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None


def _tail(log_file: Path) -> str:
    lines = log_file.read_text(errors="replace").splitlines()
    return "".join(f"\n  {line}" for line in lines[-LOG_LINES:])
