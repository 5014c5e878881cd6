"""A worker as users start it: `crucible-worker serve` in a process of its own, with settings in a file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType

SECONDS = 60.0
"""For a process to get where it should be, on a loaded machine."""


class Serving:
    """The worker. Made by `serving`."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes]) -> None:
        self.log = folder / "log"
        """What it writes to stdout and stderr."""
        self.state_dir = folder / "state"
        """Where its journal lies, unless it was told otherwise."""
        self.process = process
        """The process."""
        self._ready = folder / "ready"

    @property
    def address(self) -> str:
        """Where it listens."""
        return self._ready.read_text()

    async def ready(self) -> None:
        """Wait until it serves."""
        async with asyncio.timeout(SECONDS):
            while not self._ready.exists():
                assert self.process.poll() is None, self.log.read_text()
                await asyncio.sleep(0.01)

    async def drained(self) -> int:
        """Have it drain; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.process.wait, SECONDS)


@contextlib.asynccontextmanager
async def serving(
    folder: Path,
    settings: str,
    *,
    state_dir: Path | None = None,
    log_level: str = "info",
    environment: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[Serving]:
    """Run a worker, and kill it if it is still there at the end.

    Args:
        folder: where its files lie; made where it is not there.
        settings: TOML.
        state_dir: where its journal lies; in the folder if None.
        log_level: how much it logs.
        environment: variables beside those of this process.
    """
    folder.mkdir(exist_ok=True)
    (folder / "worker.toml").write_text(settings)
    places = {"config": "worker.toml", "state-dir": "state", "ready-file": "ready"}
    options = {name: folder / place for name, place in places.items()}
    if state_dir is not None:
        options["state-dir"] = state_dir
    command = [sys.executable, "-m", "crucible_worker", "serve", "--port=0", f"--log-level={log_level}"]
    command += [f"--{name}={path}" for name, path in options.items()]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CRUCIBLE_")}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**kept, **environment})
    try:
        worker = Serving(folder, process)
        await worker.ready()
        yield worker
    finally:
        process.kill()
        process.wait()
