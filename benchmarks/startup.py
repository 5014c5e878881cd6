"""What starting a worker costs: time until it is ready, CPU time, memory; medians of several starts.

A worker is `crucible-worker serve` in a process of its own with an empty state directory. It is ready when its ready
file is there; CPU time and resident memory are read at that moment, of that process alone (it has no children yet).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _report import Claim, arguments, report

TIMEOUT_SECONDS = 60.0

# A worker that is installed has its bytecode; where none may be written, each start would compile all of it anew.
_COMPILING = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def measure() -> dict[str, float]:
    """Start one worker, read what it took, and end it."""
    with tempfile.TemporaryDirectory(prefix="crucible-startup-") as folder:
        ready = Path(folder, "ready")
        command = [sys.executable, "-m", "crucible_worker", "serve", "--port", "0"]
        command += ["--state-dir", str(Path(folder, "state")), "--ready-file", str(ready), "--log-level", "warning"]
        started = time.perf_counter()
        with subprocess.Popen(command, env=_COMPILING) as worker:
            try:
                while not ready.exists():
                    if worker.poll() is not None or time.perf_counter() - started > TIMEOUT_SECONDS:
                        raise SystemExit("the worker did not start")
                    time.sleep(0.001)
                taken = {"ready": time.perf_counter() - started, **_usage(worker.pid)}
                worker.send_signal(signal.SIGTERM)
                if worker.wait(TIMEOUT_SECONDS) != 0:
                    raise SystemExit(f"the worker ended with {worker.returncode}")
            finally:
                # Leaving the block waits for its end, whatever went wrong in it.
                worker.kill()
    return taken


def _usage(pid: int) -> dict[str, float]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])  # utime and stime, the 14th and 15th of all
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {"cpu": ticks / os.sysconf("SC_CLK_TCK"), "rss": int(status["VmRSS"].split()[0]) / 1024}


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    measure()  # compiles bytecode, warms the disk's cache
    runs = [measure() for _ in range(options.runs)]
    report(
        [
            Claim(
                name=name, ours=[run[name] for run in runs], unit=unit, at_most=most, claim=f"at most {most:g} {unit}"
            )
            for name, unit, most in (("ready", "s", 1.0), ("cpu", "s", 0.5), ("rss", "MB", 80.0))
        ],
        as_json=options.json,
    )


if __name__ == "__main__":
    main()
