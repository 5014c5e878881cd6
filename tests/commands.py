"""Commands of crucible-worker, each in a process of its own."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from crucible_worker.__main__ import main
from tests.forks import Fork

__all__ = ["run"]


def run(
    *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None, seconds: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with nothing on its input; its exit code, and what it wrote.

    Args:
        words: what is typed after `crucible-worker`.
        cwd: its working directory; that of the tests if None.
        env: its environment; see `Fork`.
        seconds: after which it is killed, and this raises TimeoutExpired.
    """
    typed = ["crucible-worker", *map(str, words)]
    with tempfile.TemporaryDirectory(prefix="command-") as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process = Fork(main, argv=typed, out=out, err=err, cwd=cwd, env=env)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise subprocess.TimeoutExpired(typed, seconds, out.read_bytes(), err.read_bytes()) from None
        return subprocess.CompletedProcess(typed, code, out.read_text(), err.read_text())
