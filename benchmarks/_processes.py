"""Servers in separate processes, while they are measured."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["server_process"]

TIMEOUT_SECONDS = 60.0


@contextlib.contextmanager
def server_process(command: Sequence[str], ready: Path, environment: Mapping[str, str] | None = None) -> Iterator[str]:
    """Run Python with these arguments until the block is left; yields the content of its ready file."""
    # A pipe to standard input: a Snakepit worker ends when it closes.
    with subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, env={**os.environ, **(environment or {})}
    ) as child:
        try:
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while not ready.exists():
                if child.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"{command[0]} did not start")
                time.sleep(0.01)
            yield ready.read_text()
        finally:
            child.terminate()
