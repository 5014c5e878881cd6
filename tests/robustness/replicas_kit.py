"""Replicas of a model server, as processes that tests start, kill and start again."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from tests.robustness.harness import count_lines, until

WAIT_SECONDS = 60.0
"""For anything to happen, on a loaded machine."""


class Replica:
    """A replica that can be killed, and started again at its address."""

    def __init__(self, folder: Path, seconds: float) -> None:
        folder.mkdir()
        self._ready, self.record, self._seconds = folder / "ready", folder / "record", seconds
        self._process: subprocess.Popen[bytes] | None = None
        # Reserved before it listens: a killed replica has to come back at the same address.
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self._port = found.getsockname()[1]

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self._port}/v1"

    @property
    def answered(self) -> int:
        """Requests that it has answered, in all its lives."""
        return count_lines(self.record)

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        self._ready.unlink(missing_ok=True)
        arguments = [self._port, self._ready, self.record, self._seconds]
        command = [sys.executable, "-m", "tests.robustness.model_replica", *map(str, arguments)]
        self._process = subprocess.Popen(command)
        await until(self._ready.exists, WAIT_SECONDS)

    def refusing(self) -> contextlib.AbstractContextManager[None]:
        """It answers 503 meanwhile."""
        return self._with_file(".refusing")

    def closing(self) -> contextlib.AbstractContextManager[None]:
        """It closes each connection after an answer meanwhile."""
        return self._with_file(".closing")

    @contextlib.contextmanager
    def _with_file(self, suffix: str) -> Iterator[None]:
        file = self._ready.with_suffix(suffix)
        file.touch()
        try:
            yield
        finally:
            file.unlink()

    def kill(self) -> None:
        """Kill it, as a machine that loses its power."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@contextlib.asynccontextmanager
async def replicas(folder: Path, *seconds: float) -> AsyncIterator[list[Replica]]:
    """Replicas that take so long for an answer."""
    made = [Replica(folder / f"replica-{number}", each) for number, each in enumerate(seconds)]
    try:
        for replica in made:
            await replica.start()
        yield made
    finally:
        for replica in made:
            replica.kill()
