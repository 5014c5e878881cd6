"""What the forkserver of the grading pools loads: the bounds that it is kept in, and the mathematics.

The worker never imports this: importing it ties a process to the life of its parent.
"""

from __future__ import annotations

import os

# Threads of OpenBLAS would make every fork a fork of several threads.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import contextlib
import importlib
import json
import multiprocessing
import multiprocessing.spawn
import socket
import sys
from types import TracebackType
from typing import Any

from crucible_worker.grading.children import FORKSERVER_VARIABLE
from crucible_worker.lifetime import ask_for_death

__all__ = ["CHILD_NAME", "FORKSERVER_PID"]

CHILD_NAME = "pebble_pool_worker"
"""What pebble calls its processes."""
FORKSERVER_PID = os.getpid()
"""Who loaded this."""


def _leave_main_alone(name: str) -> None:
    """Children need nothing from the program that the worker was started by, which multiprocessing would run again."""
    original = getattr(multiprocessing.spawn, name)

    def prepared(main: Any) -> None:
        if multiprocessing.current_process().name != CHILD_NAME:
            original(main)

    setattr(multiprocessing.spawn, name, prepared)


def _say(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Say what ended a process, but not that the pool that it was forked for has closed, and its semaphores with it."""
    if not isinstance(error, FileNotFoundError | EOFError):
        sys.__excepthook__(kind, error, trace)


def _load(parent: int, modules: list[str], ready: str) -> None:
    """Load what children need before they are forked, and say so."""
    if os.getppid() != parent:
        os._exit(0)  # it ended before the kernel was asked
    for module in modules:
        # A child tries again, and tells what is wrong; a forkserver that ended here would tell nobody.
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as news, contextlib.suppress(OSError):
        news.sendto(b"ready", ready.encode("latin-1"))


ask_for_death()
sys.excepthook = _say
for _name in ("_fixup_main_from_name", "_fixup_main_from_path"):
    _leave_main_alone(_name)
if _told := os.environ.pop(FORKSERVER_VARIABLE, ""):
    _load(**json.loads(_told))
