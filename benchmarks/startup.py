"""The cost of starting a worker: time until it is ready, CPU time, memory; medians of several starts.

The baseline is an interpreter that imports grpc and numpy and exits, alternating with the worker.

A worker is `crucible-worker serve` in a separate process with an empty state directory. It is ready when its ready
file exists; CPU time and resident memory of only that process are read at that moment. Its watchdog is printed
separately: the time of its start, and its share of memory (PSS).
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _report import Claim, arguments, report

TIMEOUT_SECONDS = 60.0

MOST_READY, MOST_CPU, MOST_RSS, MOST_WATCHDOG = 5.0, 5.0, 2.0, 0.12
"""Bounds, as multiples of the baseline; for the watchdog, its memory relative to the whole baseline."""
BARE = "import grpc.aio, numpy\nprint(open('/proc/self/status').read())"

# An installed worker has its bytecode; if none may be written, each start would compile all of it again.
_COMPILING = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def measure() -> dict[str, float]:
    """Start one worker, read its time and memory, and end it."""
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
                taken = {"ready": time.perf_counter() - started, **_usage(worker.pid), **_watchdog(worker.pid)}
                worker.send_signal(signal.SIGTERM)
                if worker.wait(TIMEOUT_SECONDS) != 0:
                    raise SystemExit(f"the worker ended with {worker.returncode}")
            finally:
                # Leaving the block waits for its end, even after an error.
                worker.kill()
    return taken


def measure_bare() -> dict[str, float]:
    """Start the baseline, and wait for its end."""
    started, before = time.perf_counter(), os.times()
    command = [sys.executable, "-c", BARE]
    told = subprocess.run(command, env=_COMPILING, stdout=subprocess.PIPE, text=True, check=True).stdout
    after = os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    rss = _rss(told)
    return {"ready": time.perf_counter() - started, "cpu": cpu, "rss": rss, "watchdog_pss": rss}


def _watchdog(worker: int) -> dict[str, float]:
    """Memory of the worker's watchdog, and how long it takes to start one."""
    children = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
    (child,) = (child for child in children if b"watchdog" in Path(f"/proc/{child}/cmdline").read_bytes())
    fields = Path(f"/proc/{child}/smaps_rollup").read_text().splitlines()[1:]
    kilobytes = {name: int(value.split()[0]) for name, value in (field.split(":", 1) for field in fields)}
    return {"watchdog_pss": kilobytes["Pss"] / 1024, "watchdog_start": _watchdog_start()}


def _watchdog_start() -> float:
    program = (
        "import os, time\n"
        "from crucible_worker.server.exit_guard import start_watchdog\n"
        "reader, writer = os.pipe()\n"
        "began = time.perf_counter()\n"
        "assert start_watchdog(reader, 60.0) is not None\n"
        "print(time.perf_counter() - began)\n"
    )
    return 1000 * float(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)


def _usage(pid: int) -> dict[str, float]:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])  # utime and stime, the 14th and 15th of all
    return {"cpu": ticks / os.sysconf("SC_CLK_TCK"), "rss": _rss(Path(f"/proc/{pid}/status").read_text())}


def _rss(status: str) -> float:
    """Resident megabytes of a process, from its /proc entry."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if line)
    return int(fields["VmRSS"].split()[0]) / 1024


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    measure()  # compiles bytecode, warms the disk's cache
    measure_bare()
    runs = [(measure(), measure_bare()) for _ in range(options.runs)]
    bounded = [
        Claim(
            name=name,
            ours=[run[name] for run, _ in runs],
            baseline=[bare[name] for _, bare in runs],
            unit=unit,
            ratio=statistics.median(run[name] / bare[name] for run, bare in runs),
            at_most=most,
            claim=f"at most {most:g} times an interpreter that imports grpc and numpy",
        )
        for name, unit, most in (
            ("ready", "s", MOST_READY),
            ("cpu", "s", MOST_CPU),
            ("rss", "MB", MOST_RSS),
            ("watchdog_pss", "MB", MOST_WATCHDOG),
        )
    ]
    started = [run["watchdog_start"] for run, _ in runs]
    report(
        [*bounded, Claim(name="watchdog_start", ours=started, unit="ms", claim="printed only")],
        as_json=options.json,
    )


if __name__ == "__main__":
    main()
