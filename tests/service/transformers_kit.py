"""`transformers serve`, the program itself, on the processor and without the hub."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

SECONDS = 120.0
"""For a server to start, on a loaded machine."""


def _free_port() -> int:
    """A free port below those that systems give for port 0, as a rule: a server that is away must get its own again."""
    while True:
        with socket.socket() as free, contextlib.suppress(OSError):
            port = random.randrange(20_000, 30_000)
            free.bind(("127.0.0.1", port))
            return port


class TransformersServe:
    """The server, at a port that it has again after it was killed.

    Args:
        folder: for its log; without a cache of the hub, it cannot list its models.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None
        self._port = _free_port()

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self._port}/v1"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = [sys.executable, "-m", "transformers.cli.transformers", "serve", "--device=cpu"]
        command += ["--host=127.0.0.1", f"--port={self._port}"]
        home = str(self._folder)
        offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": home, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        log = self._folder / f"log-{self._port}"
        with log.open("ab") as file:
            self._child = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **offline})
        _until_healthy(f"http://127.0.0.1:{self._port}/health", self._child, log)

    def kill(self) -> None:
        """Kill it, if it was started."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()


def _until_healthy(health: str, child: subprocess.Popen[bytes], log: Path) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + SECONDS
    while True:
        assert child.poll() is None, log.read_text()
        assert time.monotonic() < deadline, f"no answer after {SECONDS} s:\n{log.read_text()}"
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            direct.open(health, timeout=5).close()
            return
        time.sleep(0.1)
