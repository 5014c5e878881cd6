"""The forkserver of this process, from which the children of every pool here are forked.

It is multiprocessing's own, of which a process has one. It is told what to load by its environment, and says by a
datagram when it has: to fork a child before would be to wait for that in a thread that nothing can cut short.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence

from crucible_worker.grading.children import FORKSERVER_VARIABLE
from crucible_worker.grading.pool_folder import keep_sockets_in_own_folder

__all__ = ["LOAD_SECONDS", "forkserver_loaded"]

LOAD_SECONDS = 20.0
"""To wait for its word; one that somebody else has started does not give it."""

# Not imported here: it ties the process that does to the life of its parent.
_PRELOAD = "crucible_worker.grading.pool_preload"
_news: socket.socket | None = None
# The forkserver and its variable are the process's, and its event loops may start pools at the same time.
_starting = threading.Lock()


async def forkserver_loaded(modules: Sequence[str]) -> None:
    """Start the forkserver where none runs, and wait until it has loaded its modules. Can be cancelled.

    To be called in a thread that lives as long as the children: it is a thread's end that they hear of and die.
    """
    with _starting:
        news = _start(modules)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LOAD_SECONDS):
            await _readable(news)


def _start(modules: Sequence[str]) -> socket.socket:
    """Start it where none runs; where it says that it has loaded its modules."""
    global _news
    if _news is None:
        _news = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        atexit.register(_news.close)
        _news.bind("")  # the kernel finds an abstract name
    name = _news.getsockname().decode("latin-1")
    told = {"parent": os.getpid(), "modules": list(modules), "ready": name}
    os.environ[FORKSERVER_VARIABLE] = json.dumps(told)
    keep_sockets_in_own_folder()
    try:
        multiprocessing.get_context("forkserver").set_forkserver_preload([_PRELOAD])
        multiprocessing.resource_tracker.ensure_running()  # it unblocks Ctrl-C once it runs
        with _interrupts_blocked():
            multiprocessing.forkserver.ensure_running()
    finally:
        del os.environ[FORKSERVER_VARIABLE]
    return _news


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """What this thread starts meanwhile never hears Ctrl-C, which reaches every process of a terminal.

    multiprocessing has its forkserver ignore it, but only once all is loaded: until then it would end with a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


async def _readable(news: socket.socket) -> None:
    """Wait for a datagram, and leave it there: whoever starts the next pool looks for it as well."""
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    with news.dup() as ours:  # a loop has one reader for each descriptor
        loop.add_reader(ours, heard.set)
        try:
            await heard.wait()
        finally:
            loop.remove_reader(ours)
