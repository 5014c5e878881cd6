"""Workers and their hosts as processes of the operating system."""

import contextlib
import os
import time
from pathlib import Path

from crucible_worker.__main__ import main
from crucible_worker.util.limits import WorkerLimits
from tests.forks import Fork

WAIT_SECONDS = 120
DRAIN_SECONDS = WorkerLimits().drain_seconds + 0.5
"""From SIGTERM to the end of a worker, whatever runs; the half second is the process's own end."""


def hosts_of(parent, kind="local"):
    """Process ids of a backend's hosts that are children of a process."""
    module = f"backends.{kind}.host".encode()
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [int(child) for child in children if module in Path(f"/proc/{child}/cmdline").read_bytes()]


def status(pid, field):
    """A number of /proc/PID/status, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def seconds_of(pid):
    """CPU time of a process so far."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def children(pid):
    """Process ids of the children of all threads of a process; it has none once it has ended."""
    found: list[int] = []
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return found
    for task in tasks:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            found += map(int, (task / "children").read_text().split())
    return found


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


def runs(pid):
    """Whether a process has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
