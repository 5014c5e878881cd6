"""Workers and their hosts as processes of the operating system."""

import contextlib
import time

from crucible_worker.__main__ import main
from crucible_worker.util.limits import WorkerLimits
from tests.forks import Fork
from tests.processes import children_of

WAIT_SECONDS = 120
DRAIN_SECONDS = WorkerLimits().drain_seconds + 0.5
"""From SIGTERM to the end of a worker, whatever runs; the half second is the process's own end."""


def hosts_of(parent, kind="local"):
    """Process ids of a backend's hosts that are children of a process."""
    return children_of(parent, f"backends.{kind}.host".encode())


def wait_until(condition, what):
    """Wait for a condition of the operating system, which has nothing to await."""
    until = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < until, f"waited in vain until {what}"
        time.sleep(0.01)


@contextlib.contextmanager
def serving(folder, *options):
    """A worker in a process of its own, and its address."""
    ready, log = folder / "ready", folder / "log"
    command = ["crucible-worker", "serve", "--port=0", "--log-level=error", "--device=cpu"]
    command += [*map(str, options), f"--state-dir={folder / 'state'}", f"--ready-file={ready}"]
    worker = Fork(main, argv=command, out=log, err=log)
    try:
        wait_until(lambda: ready.exists() or worker.poll() is not None, "the worker serves")
        assert worker.poll() is None, log.read_text()
        yield worker, ready.read_text()
    finally:
        worker.kill()
        worker.wait()
