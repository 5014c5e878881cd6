"""The first process of a sandbox: it has loaded common imports of programs, and forks one child for each run.

It never reads a program. An order on its control socket brings limits, a role, and the file descriptors of the run. The
child gives up what it must not have, and receives its work over the run's own channel. When the child has ended, the
answer reports how, and whether it has written files. The worker ends the sandbox by closing the control socket.
"""

from __future__ import annotations

import array
import builtins
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from crucible_worker.grading.code.inside import confinement, examiner, program
from crucible_worker.grading.code.inside.frames import MAX_ORDER_BYTES, READY, SCRATCH

__all__ = ["main"]

_MAX_FDS = 3  # the channel, and standard input and output of a program that has them
_PRELOADED = (
    *("abc", "bisect", "calendar", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal", "enum"),
    *("fractions", "functools", "hashlib", "heapq", "io", "itertools", "json", "math", "operator", "queue", "random"),
    *("re", "statistics", "string", "textwrap", "threading", "time", "traceback", "typing", "unicodedata"),
)
_PACKAGES = ("numpy", "numpy.random", "pytest", "sortedcontainers")  # a third of a second that runs need not spend
_ROLES: dict[str, Callable[[socket.socket], None]] = {
    "program": program.serve_calls,
    "script": program.run_script,
    "tests": examiner.examine,
}


def main(control_fd: int, user: int | None, packages: str | None = None) -> NoReturn:
    """Serve orders until the control socket is closed.

    Args:
        control_fd: the socket.
        user: the user to become, if the sandbox was built by root.
        packages: folder of packages that programs can import in addition to Python's own modules.
    """
    if user is not None:
        os.setgroups(())
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    # As init of the namespace: signals without a handler here cannot reach it from inside.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for module in _PRELOADED:
        importlib.import_module(module)
    _add_exits()
    loaded_bytes = 0 if packages is None else _load_packages(packages)
    # On the descriptors, whatever a child does to them: this saves each child a third of a millisecond.
    sys.stdin, sys.stdout, sys.stderr = _streams()
    confinement.prepare()
    # Garbage collections would write to every page that is shared with the children.
    gc.collect()
    gc.freeze()
    control = socket.socket(fileno=control_fd)
    _prove_confinement()
    since = os.stat(SCRATCH).st_ctime_ns
    control.send(READY)
    while True:
        order, fds = _received(control)
        if not order:
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            _run(control, {**order, "memory_bytes": order["memory_bytes"] + loaded_bytes}, fds)
        for fd in fds:
            os.close(fd)
        code = _ended(pid, control)
        # Its change time records every change of the folder: new or removed entries, its mode.
        touched = os.stat(SCRATCH).st_ctime_ns != since
        control.send(json.dumps({"code": code, "touched": touched}).encode())


def _load_packages(folder: str) -> int:
    """Add packages to the path, and load slow ones; returns the address space that they take."""
    sys.path.append(folder)  # after Python's own modules
    before = confinement.address_space()
    for name in _PACKAGES:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            continue
        try:
            importlib.import_module(name)
        except Exception as error:
            told = " ".join(str(error).split())[:200]
            os.write(2, f"{name} of the image cannot be imported: {type(error).__name__}: {told}".encode())
            os._exit(1)
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed(0)  # the same program, the same grade
    return confinement.address_space() - before


def _prove_confinement() -> None:
    """Exit with an error if the kernel cannot confine: later the programs would seem to fail."""
    pid = os.fork()
    if pid == 0:
        try:
            confinement.confine(1 << 30, 1)
        except OSError as error:
            os.write(2, f"programs cannot be confined: {error}".encode())
            os._exit(1)
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        os._exit(1)


def _ended(pid: int, control: socket.socket) -> int:
    """Wait for a child; if the control socket closes before, end with everything that runs here."""
    child = os.pidfd_open(pid)
    watched = select.poll()
    watched.register(child, select.POLLIN)
    watched.register(control, select.POLLIN)
    # The kernel's signal at a parent's death does not reach another user's process; the socket's end does.
    if any(fd == control.fileno() for fd, _ in watched.poll()):
        os._exit(0)
    os.close(child)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _received(control: socket.socket) -> tuple[dict[str, Any], Sequence[int]]:
    data, ancillary, _, _ = control.recvmsg(MAX_ORDER_BYTES, socket.CMSG_SPACE(_MAX_FDS * array.array("i").itemsize))
    fds = array.array("i")
    for _, _, passed in ancillary:
        fds.frombytes(passed)
    return (json.loads(data) if data else {}), fds


def _run(control: socket.socket, order: dict[str, Any], fds: Sequence[int]) -> NoReturn:
    """Be the child: never returns, whatever happens."""
    try:
        # Not before it is out of reach: the control socket is the zygote's alone.
        control.close()
        quiet = os.open(os.devnull, os.O_RDWR)
        os.dup2(fds[1] if len(fds) > 1 else quiet, 0)
        os.dup2(fds[2] if len(fds) > 2 else quiet, 1)
        os.dup2(quiet, 2)
        for fd in (quiet, *fds[1:]):
            os.close(fd)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        confinement.confine(order["memory_bytes"], order["cpu_seconds"])
        _ROLES[order["role"]](socket.socket(fileno=fds[0]))
    except BaseException:  # the worker sees that the channel ends too early
        os._exit(1)
    os._exit(0)


def _streams() -> tuple[Any, Any, Any]:
    return (
        open(0, encoding="utf-8", errors="surrogateescape", closefd=False),
        open(1, "w", encoding="utf-8", errors="surrogateescape", closefd=False),
        open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False),
    )


def _add_exits() -> None:
    """The names that Python's site module would add, which is not loaded here."""
    import _sitebuiltins  # part of CPython, used only by site

    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "end-of-file"))
