"""Fuzz a worker: hostile texts to every call that takes some, health probes meanwhile, SIGTERM at a random moment.

    python -m tests.fuzz --seconds 3600

It is no test of the suite: it runs for `--seconds`. Exit code 1, with a line for each, if a probe took over a second
more than at a bare server at the same moment, an answer was INTERNAL, a worker did not end within 5.5 s, or a process
of it was left behind.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import multiprocessing
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from tests.fuzz.calling import call_for_ever, write_checkpoints
from tests.fuzz.probing import Probe, probe_for_ever, serve_bare

CALLERS = 3
EXIT_SECONDS = 5.5
"""The contract's: from SIGTERM to the end of the process, whatever runs."""
READY_SECONDS = 60.0
ROUND_SECONDS = (1.0, 90.0)
"""How long a worker serves, drawn with equal chance for each order of magnitude."""
ORPHAN_SECONDS = 2.0
"""For the kernel to end what a worker has started."""
_PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    """Run rounds until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long")
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(2**32), help="of all that is random"
    )
    parser.add_argument("--only", default="", help="names of calls, separated by commas; all if empty")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    # Whatever a worker leaves behind becomes a child of this process, and is seen.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    rng, ends = random.Random(options.seed), time.monotonic() + options.seconds
    found, probes, calls, rounds = [], [], Counter(), 0
    with tempfile.TemporaryDirectory(prefix="crucible-fuzz-") as folder, _bare_server() as bare:
        write_checkpoints(Path(folder, "models"), random.Random(options.seed))
        while time.monotonic() < ends:
            rounds += 1
            low, high = ROUND_SECONDS
            seconds = min(low * (high / low) ** rng.random(), max(1.0, ends - time.monotonic()))
            new = _round(Path(folder), bare, seconds, rng.randrange(2**32), options.only, probes, calls)
            for line in new:
                print(f"round {rounds}: {line}", flush=True)
            found += new
    _print_summary(rounds, probes, calls)
    print(*(found or ["nothing found"]), sep="\n")
    return 1 if found else 0


def _print_summary(rounds: int, probes: list[Probe], calls: Counter[str]) -> None:
    print(f"{rounds} rounds, {len(probes)} probes")
    for name, took in (
        ("worker", [probe.seconds for probe in probes]),
        ("bare server", [probe.bare_seconds for probe in probes]),
    ):
        if len(took) > 1:
            p99 = statistics.quantiles(took, n=100, method="inclusive")[98]
            print(f"{name}, seconds: median {statistics.median(took):.4f}, p99 {p99:.4f}, most {max(took):.4f}")
    print(*(f"{name}: {count}" for name, count in sorted(calls.items())), sep="\n")


def _round(
    folder: Path, bare: str, seconds: float, seed: int, only: str, probes: list[Probe], calls: Counter[str]
) -> list[str]:
    """Serve for some time; what was found."""
    log = folder / "worker.log"
    with log.open("wb") as sink, _worker(folder, sink) as (worker, address):
        context = multiprocessing.get_context("spawn")
        ours, theirs = zip(*(context.Pipe() for _ in range(CALLERS + 1)))
        processes = [
            context.Process(target=call_for_ever, args=(theirs[at], address, seed + at, str(folder), only), daemon=True)
            for at in range(CALLERS)
        ]
        processes.append(context.Process(target=probe_for_ever, args=(theirs[-1], address, bare), daemon=True))
        for process in processes:
            process.start()
        found = _serve(worker, time.monotonic() + seconds, ours, probes, calls)
        if worker.poll() is None:
            found += _end(worker)
        else:
            found.append(
                f"the worker died with {worker.returncode}: {log.read_bytes()[-2000:].decode(errors='replace')}"
            )
        for process in processes:
            process.kill()
            process.join()
        found += _left_behind()
    said = log.read_text(errors="replace")
    at = said.find("Traceback")
    return found if at < 0 else [*found, f"the worker's log has: {said[max(0, at - 500) : at + 3000]}"]


def _serve(
    worker: subprocess.Popen[bytes],
    ends: float,
    pipes: tuple[Connection, ...],
    probes: list[Probe],
    calls: Counter[str],
) -> list[str]:
    found, asked = [], dict.fromkeys(range(CALLERS), "nothing")
    while time.monotonic() < ends and worker.poll() is None:
        for at, pipe in enumerate(pipes):
            while pipe.poll():
                match pipe.recv():
                    case Probe() as probe:
                        probes.append(probe)
                        if probe.late or probe.problem:
                            found.append(f"{probe.describe()}, while {asked}")
                    case ("asks", str(name), str(what)):
                        asked[at] = what
                        calls[name] += 1
                    case ("found", str(what)):
                        found.append(what)
        time.sleep(0.01)
    return found


@contextlib.contextmanager
def _bare_server() -> Iterator[str]:
    """The address of a server in a process of its own that answers probes and does nothing else."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve_bare, args=(theirs,), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


@contextlib.contextmanager
def _worker(folder: Path, sink: object) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    ready = folder / "ready"
    (folder / "data").mkdir(exist_ok=True)
    command = [sys.executable, "-m", "crucible_worker", "serve", "--port", "0", "--ready-file", str(ready)]
    command += ["--state-dir", str(folder / "state"), "--model-root", str(folder / "models")]
    command += ["--data-root", str(folder / "data"), "--log-level", "warning"]
    worker = subprocess.Popen(command, stdout=sink, stderr=sink)  # pyright: ignore[reportArgumentType, reportCallIssue]
    try:
        ends = time.monotonic() + READY_SECONDS
        while not ready.exists():
            if worker.poll() is not None or time.monotonic() > ends:
                raise SystemExit(f"the worker did not start: {(folder / 'worker.log').read_text(errors='replace')}")
            time.sleep(0.01)
        yield worker, ready.read_text()
    finally:
        worker.kill()
        worker.wait()
        ready.unlink(missing_ok=True)


def _end(worker: subprocess.Popen[bytes]) -> list[str]:
    began = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    try:
        worker.wait(EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()
        return [f"the worker had not ended {time.monotonic() - began:.2f} s after SIGTERM"]
    return [] if worker.returncode in (0, -signal.SIGKILL) else [f"the worker ended with {worker.returncode}"]


def _left_behind() -> list[str]:
    """Children of this process that it did not start: orphans of the worker."""
    ends = time.monotonic() + ORPHAN_SECONDS
    tracker = multiprocessing.resource_tracker._resource_tracker  # pyright: ignore[reportAttributeAccessIssue]
    own = {tracker._pid, *(process.pid for process in multiprocessing.active_children())}
    while True:
        left = []
        for child in map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()):
            if child in own:
                continue
            with contextlib.suppress(ChildProcessError, FileNotFoundError):
                if os.waitpid(child, os.WNOHANG) == (0, 0):
                    left.append(
                        Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    )
        if not left:
            return []
        if time.monotonic() > ends:
            return [f"left behind: {command}" for command in left]
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
