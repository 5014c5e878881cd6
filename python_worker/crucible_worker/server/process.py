"""A worker in a separate process: from its settings to its exit code."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
import resource
import socket
import stat
import sys
import threading
from collections.abc import AsyncIterator, Callable, MutableMapping
from pathlib import Path
from typing import Any

import structlog

from crucible_bridge.errors import BridgeError
from crucible_worker.backends.endpoints import withdraw
from crucible_worker.config import Settings
from crucible_worker.server.credentials import StartError
from crucible_worker.server.endpoint import Endpoint
from crucible_worker.server.exit_guard import ExitGuard
from crucible_worker.server.parts import Build, Parts, build
from crucible_worker.server.worker import Worker
from crucible_worker.telemetry import configure_logging
from crucible_worker.util.limits import WorkerLimits
from crucible_worker.util.memory import collect_rarely, give_back_when_idle, tune_malloc

__all__ = ["serve"]

# Notifications to systemd about this process, for units with `Type=notify`: see sd_notify(3).

ALIVE = "WATCHDOG=1"
SEND_SECONDS = 0.5
"""For systemd to take what it must not miss."""
_SOCKET, _WATCHDOG_USEC, _WATCHDOG_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
_log = structlog.get_logger(__name__)


class Systemd:
    """The manager of this process, if it has one."""

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        """Take its variables out of the environment: they are not for children."""
        self._address = environment.pop(_SOCKET, "")
        microseconds = environment.pop(_WATCHDOG_USEC, "")
        mine = environment.pop(_WATCHDOG_PID, str(os.getpid())) == str(os.getpid())
        self.watchdog_seconds = int(microseconds) / 1e6 if mine and microseconds.isdecimal() else None
        """It ends a process from which it hears nothing for so long; None if it does not."""

    def tell(self, state: str) -> None:
        """Send a state, as "READY=1"; without a manager, nothing happens."""
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as end:
                end.settimeout(0.0 if state == ALIVE else SEND_SECONDS)
                end.sendto(state.encode(), address)
        except OSError as error:  # its queue is full, or it is gone: the worker works without it
            _log.warning("systemd_not_told", state=state, reason=error.strerror)

    async def keep_alive(self) -> None:
        """Tell it from the event loop that the loop runs; ends at once where it does not watch."""
        while self._address and self.watchdog_seconds:
            self.tell(ALIVE)
            await asyncio.sleep(self.watchdog_seconds / 2)


# How many files and connections the process may have open at once: more than the system gives a process at first.

RESERVE = 256
"""Descriptors for all else: the journal, data sets, models and processes; without them nothing can be written."""

MOST = 2**20
"""Most descriptors that the process asks for: some libraries look through all that there may be."""


def with_descriptors(limits: WorkerLimits) -> WorkerLimits:
    """Raise the soft limit of open files to the hard one, and keep `RESERVE` of them from connections.

    Only for a process that is a worker and nothing else. Its children inherit the limit.

    Returns:
        The limits, with fewer `max_connections` if the system does not allow as many; the log says so.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # the kernel allows fewer than the hard limit says
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    found, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if found == resource.RLIM_INFINITY or found >= limits.max_connections + RESERVE:
        return limits
    left = max(1, found - RESERVE)
    structlog.get_logger("crucible_worker.server").warning(
        "few_descriptors",
        open_files=found,
        max_connections=left,
        cure=f"a limit of open files of at least {limits.max_connections + RESERVE:,}: ulimit -n, or LimitNOFILE",
    )
    return dataclasses.replace(limits, max_connections=left)


# Detects the end of the parent process by the end of standard input: its pipe closes with the parent.

ORPHAN_SECONDS = 1.5
"""Seconds from the parent's end to that of this process; no caller waits any longer."""

_CHUNK_BYTES = 4096


def end_with_parent(guard: ExitGuard) -> bool:
    """End the process when standard input ends; returns whether it is a pipe or socket, as only these show it."""
    try:
        mode = os.fstat(0).st_mode
    except OSError:
        return False
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return False
    # A thread, as the event loop may be busy; a daemon, as nothing ends its reading but the parent.
    threading.Thread(target=_watch, args=(guard,), name="parent-watch", daemon=True).start()
    return True


def _watch(guard: ExitGuard) -> None:
    while _read():
        pass
    guard.arm(ORPHAN_SECONDS)


def _read() -> bool:
    """Read what there is; False at the end, or after an error, as no more can come then."""
    try:
        return bool(os.read(0, _CHUNK_BYTES))
    except OSError:
        return False


# The ready file: the worker's address. It exists only while the worker listens, and is never half written.


def write_ready_file(path: Path, address: str) -> None:
    """Write the address atomically: a reader finds the whole text or no file. It is readable as the umask says.

    Raises:
        OSError: the folder does not exist, or is not writable.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        made = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with os.fdopen(made, "w", encoding="ascii", errors="surrogateescape") as file:
            file.write(address)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def remove_ready_file(path: Path, address: str) -> None:
    """Remove the file, unless another worker has written its own in its place."""
    with contextlib.suppress(FileNotFoundError):
        if path.read_text(encoding="ascii", errors="surrogateescape") == address:
            path.unlink()


EXIT_OK, EXIT_FAILED = 0, 1

SWITCH_SECONDS = 0.001
"""Switch interval: how long a computing thread may delay the event loop, which needs several turns for a probe.

Under calls at the message limit the slowest probe took 49 to 111 ms at Python's 5 ms, 25 to 35 ms at this.
"""

LOG_CLOSE_SECONDS = 0.2
"""Seconds for the last log lines, if stderr is read slowly."""


def serve(
    settings: Settings,
    *,
    build: Build = build,
    endpoint: Endpoint | None = None,
    ready_text: Callable[[str], str] = str,
    with_parent: bool = False,
) -> int:
    """Run a worker until SIGTERM, SIGINT or `WorkerService.Drain` ends it.

    Call it once, in the main thread, as the last thing a process does: after the first signal the process ends within
    the limit `drain_seconds`, by force if necessary.

    Args:
        settings: validated.
        build: builds the parts of the worker; tests pass their own function.
        endpoint: a further service.
        ready_text: turns the address into the content of the ready file.
        with_parent: end when standard input ends, if it is a pipe: then the parent process has ended.

    Returns:
        The exit code: 0, or 1 if the worker could not start; the log says why.
    """
    guard = ExitGuard(settings.limits.drain_seconds)
    guard.install()
    tune_malloc()
    # Children inherit the environment.
    settings = dataclasses.replace(settings, environment=withdraw(settings.key_variables))
    sys.setswitchinterval(SWITCH_SECONDS)
    # It distinguishes log lines of several workers on one journal, at the same time or one after the other.
    facts: dict[str, Any] = {"pid": os.getpid()}
    log_writer = configure_logging(settings.log_format, settings.log_level, facts=facts)

    settings = dataclasses.replace(settings, limits=with_descriptors(settings.limits))

    async def build_identified(given: Settings) -> Parts:
        parts = await build(given)
        facts["worker_id"] = parts.evaluations.worker_id
        return parts

    if not guard.watched:
        structlog.get_logger("crucible_worker.server").warning(
            "no_watchdog", reason="/bin/sh cannot be started: a call that holds the GIL delays the end of the process"
        )
    if settings.share_work:
        structlog.get_logger("crucible_worker.server").warning(
            "share_work_has_no_effect", cure="remove --share-work, CRUCIBLE_SHARE_WORK or share_work"
        )
    try:
        if with_parent:
            end_with_parent(guard)
        return asyncio.run(_serve(settings, guard, build_identified, endpoint, ready_text))
    finally:
        log_writer.close(LOG_CLOSE_SECONDS)


async def _serve(
    settings: Settings, guard: ExitGuard, build: Build, endpoint: Endpoint | None, ready_text: Callable[[str], str]
) -> int:
    loop, end, systemd = asyncio.get_running_loop(), asyncio.Event(), Systemd(os.environ)

    def begin() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the worker ended before the guard called
            loop.call_soon_threadsafe(end.set)

    guard.tell(begin)
    worker = Worker(settings, build=build, on_drain=guard.arm, endpoint=endpoint)
    log = structlog.get_logger("crucible_worker.server")
    try:
        if settings.ready_file is not None:
            # A file that a killed worker left there would send its readers to a closed port.
            settings.ready_file.unlink(missing_ok=True)
        await _start(worker, end)
        if end.is_set():
            return EXIT_OK
        await _announce(settings.ready_file, ready_text(worker.address), guard)
        systemd.tell("READY=1")
        worker.background.keep("systemd", systemd.keep_alive)
        collect_rarely()
        worker.warm_grading()
        async with _giving_memory_back(worker, settings.limits.memory_idle_seconds):
            await end.wait()
    except StartError as error:
        log.error("start_failed", message=str(error))
        return EXIT_FAILED
    except BridgeError as error:
        log.error("start_failed", reason=error.reason, message=str(error))
        return EXIT_FAILED
    except Exception:  # a bug: it is logged, and the exit status shows that no worker serves
        log.exception("start_failed")
        return EXIT_FAILED
    finally:
        systemd.tell("STOPPING=1")
        await worker.stop()
        if settings.ready_file is not None:
            await asyncio.to_thread(remove_ready_file, settings.ready_file, ready_text(worker.address))
    return EXIT_OK


@contextlib.asynccontextmanager
async def _giving_memory_back(worker: Worker, idle_seconds: float) -> AsyncIterator[None]:
    """Inside the block, give memory back whenever the worker is idle."""
    give_back = functools.partial(give_back_when_idle, worker.quiet_seconds, idle_seconds)
    giving = worker.background.keep("memory", give_back)
    try:
        yield
    finally:
        giving.cancel()


async def _start(worker: Worker, end: asyncio.Event) -> None:
    """Start, unless the end begins first."""
    start, ended = asyncio.create_task(worker.start()), asyncio.create_task(end.wait())
    await asyncio.wait((start, ended), return_when=asyncio.FIRST_COMPLETED)
    if not start.done():
        # A failed start ends the worker by itself, and its error must be reported.
        if not worker.ending:
            start.cancel()
        await asyncio.wait((start,))
        if start.cancelled():
            return
    ended.cancel()
    await start


async def _announce(path: Path | None, text: str, guard: ExitGuard) -> None:
    if path is None:
        return
    guard.remove_at_exit(path)
    try:
        await asyncio.to_thread(write_ready_file, path, text)
    except OSError as error:
        raise StartError(f"cannot write the ready file {path}: {error.strerror}") from error
