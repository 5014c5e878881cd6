"""The actor of a node: it has one `crucible-worker serve` as a child.

Ray restarts the actor when it dies, with its child. When the child ends by itself, the actor dies, so that there is one
way to restart: Ray's.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

__all__ = ["NodeWorker", "WorkerEndpoint"]

POLL_SECONDS = 0.1
"""Between two looks for the ready file."""
STOP_SECONDS = 30.0
"""Time for a worker to drain, which `drain_seconds` bounds; then it is killed."""
PAUSE_SECONDS = 1.0
"""Before an actor whose worker ended dies: a worker that cannot start is not started again and again at once."""
MAX_LINE_CHARS = 300
"""Of what a worker printed last."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WorkerEndpoint:
    """How the worker of a node is served."""

    journal: str = dataclasses.field(repr=False)
    """URL of the journal of all workers. It may have a password, so it travels as a variable."""
    options: Sequence[str]
    """Further options of `serve`."""


class NodeWorker:
    """A worker on the node of this actor.

    Args:
        served: how.
        node_address: the node's address, by which others reach a worker that listens at all of them.
        report: called with how the worker ended, before this actor dies.
    """

    def __init__(self, served: WorkerEndpoint, node_address: str, report: Callable[[str], object]) -> None:
        self._node_address = node_address
        self._report = report
        self._folder = tempfile.TemporaryDirectory(prefix="crucible-node-")
        self._ready = Path(self._folder.name) / "ready"
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None
        self._started = threading.Event()
        # The kernel ends the worker with the thread that started it: this one ends with the actor alone.
        threading.Thread(target=self._watch, args=(served,), name="worker", daemon=True).start()

    def address(self, seconds: float) -> str:
        """Where the worker listens; empty if it is not ready within so many seconds.

        The wait is bounded: an actor has few threads, and `stop` needs one.
        """
        until = time.monotonic() + seconds
        while not self._ready.exists():
            if time.monotonic() >= until:
                return ""
            time.sleep(POLL_SECONDS)
        host, colon, port = self._ready.read_text().rpartition(":")
        return f"{self._node_address if host in ('0.0.0.0', '[::]') else host}{colon}{port}"

    def pid(self) -> int:
        """Process id of the worker."""
        self._started.wait()
        assert self._process is not None
        return self._process.pid

    def stop(self) -> int:
        """Drain the worker and wait for its end; its exit status."""
        self._stopping = True
        self._started.wait()
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _watch(self, served: WorkerEndpoint) -> None:
        self._process = subprocess.Popen(
            _command(served, self._ready),
            env=_environment(served),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._started.set()
        assert self._process.stderr is not None
        told = _passed_on(self._process.stderr)
        code = self._process.wait()
        if not self._stopping:
            why = f"ended with {code}: {told}" if told else f"ended with {code}"
            print(f"crucible-worker {why}", file=sys.stderr, flush=True)
            self._report(why)
            time.sleep(PAUSE_SECONDS)
            os._exit(1)


def _passed_on(stream: IO[bytes]) -> str:
    """Write what a worker prints into the log of its actor, until it has ended; its last line."""
    lines: collections.deque[str] = collections.deque(maxlen=1)
    for line in stream:
        text = line.decode(errors="replace")
        sys.stderr.write(text)
        sys.stderr.flush()
        if text.strip():
            lines.append(text)
    return _in_words(lines[0])[:MAX_LINE_CHARS] if lines else ""


def _in_words(line: str) -> str:
    """What a line of a log says: the reason in a record, or its event."""
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if isinstance(record, dict):
        line = str(record.get("reason") or record.get("event") or line)
    return " ".join(line.split())


def _command(served: WorkerEndpoint, ready: Path) -> Sequence[str]:
    bound = (sys.executable, "-P", "-m", "crucible_worker.children.lifetime", str(os.getpid()))
    return (*bound, sys.executable, "-P", "-m", "crucible_worker", "serve", f"--ready-file={ready}", *served.options)


def _environment(served: WorkerEndpoint) -> Mapping[str, str]:
    return {**os.environ, "CRUCIBLE_JOURNAL": served.journal, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
