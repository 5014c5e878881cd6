"""Processes that are forked from one that has imported the worker: a start of Python without it takes half a second."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

__all__ = ["Fork", "may_have"]

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["crucible_worker.__main__", "crucible_worker.cli.reading", "crucible_worker.testing"])
_READ_BY_PYTHON = {name: os.environ.get(name) for name in ("PYTHONPATH", "PYTHONUTF8", "PYTHONIOENCODING")}


def may_have(environment: Mapping[str, str]) -> bool:
    """Whether a fork can have an environment: Python starts with what it reads there of that of the tests."""
    return all(environment.get(name) == value for name, value in _READ_BY_PYTHON.items())


class Fork:
    """A process with the methods of `subprocess.Popen`, without anything on its input.

    Args:
        main: what it runs; a function of a module.
        arguments: of the function.
        argv: its `sys.argv`.
        out: the file for its stdout; it may be that of its stderr.
        err: the file for its stderr.
        cwd: its working directory; that of the tests if None.
        env: its environment, which `may_have` allows; that of the tests if None.
    """

    stdin = None

    def __init__(
        self,
        main: Callable[..., int | None],
        *arguments: object,
        argv: Sequence[str],
        out: Path,
        err: Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        environment = dict(os.environ if env is None else env)
        if not may_have(environment):
            raise ValueError(f"Python reads {', '.join(_READ_BY_PYTHON)} when it starts: run a process of its own")
        become = (list(argv), cwd or Path.cwd(), environment, out, err)
        for path in (out, err):
            path.touch()  # it may be ended before it opens them
        self._process = _CONTEXT.Process(target=_run, args=(become, main, arguments))
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self._code: int | None = None
        self._lock = threading.Lock()

    @property
    def returncode(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        with self._lock:
            return self._process.exitcode if self._code is None else self._code

    def poll(self) -> int | None:
        """See `returncode`."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; returns its exit code, or raises TimeoutExpired."""
        if self._code is None:
            self._process.join(timeout)
        with self._lock:
            if self._code is None:
                if self._process.exitcode is None:
                    assert timeout is not None
                    raise subprocess.TimeoutExpired([], timeout)
                self._code = self._process.exitcode
                self._process.close()  # its descriptors would stay open until it is collected
            return self._code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _run(
    become: tuple[Sequence[str], Path, Mapping[str, str], Path, Path],
    main: Callable[..., int | None],
    arguments: Sequence[object],
) -> None:
    """In the fork: become what a shell would have started."""
    argv, cwd, environment, out, err = become
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    appends = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    for descriptor, path, flags in ((0, os.devnull, os.O_RDONLY), (1, out, appends), (2, err, appends)):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.argv[:] = argv
    try:
        sys.exit(main(*arguments))
    finally:
        atexit._run_exitfuncs()
