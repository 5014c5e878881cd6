"""Commands of crucible-worker in processes of their own, forked from one that has imported the half second of it."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["run"]

_SECONDS = 120.0
_READ_BY_PYTHON = {
    name: os.environ.get(name) for name in ("PYTHONPATH", "PYTHONUTF8", "PYTHONIOENCODING", "PYTHONWARNINGS")
}
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["crucible_worker.__main__", "crucible_worker.cli.results", "crucible_worker.testing"])


def run(
    *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, seconds: float = _SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with nothing on its input; its exit code, and what it wrote.

    Args:
        words: what is typed after `crucible-worker`.
        cwd: its working directory; that of the tests if None.
        env: its environment; that of the tests if None. What Python reads when it starts is that of the tests.
        seconds: after which it is killed, and this raises TimeoutExpired.
    """
    environment = dict(os.environ if env is None else env)
    if changed := [name for name in _READ_BY_PYTHON if environment.get(name) != _READ_BY_PYTHON[name]]:
        raise ValueError(f"{changed} are read when Python starts: run a process of its own")
    typed = ["crucible-worker", *map(str, words)]
    with tempfile.TemporaryDirectory(prefix="command-") as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = _FORKS.Process(target=_main, args=(typed, cwd or Path.cwd(), environment, out, err))
        process.start()
        process.join(seconds)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(typed, seconds, out.read_bytes(), err.read_bytes())
        return subprocess.CompletedProcess(typed, process.exitcode, out.read_text(), err.read_text())


def _main(typed: list[str], cwd: Path, environment: Mapping[str, str], out: Path, err: Path) -> None:
    """In the fork: become what a shell would have started."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, out, os.O_WRONLY | os.O_CREAT),
        (2, err, os.O_WRONLY | os.O_CREAT),
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.argv[:] = typed
    from crucible_worker.__main__ import main

    try:
        main()
    finally:
        atexit._run_exitfuncs()
