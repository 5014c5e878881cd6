"""What the tests of the pool have its children do; sent by name, so it stands in a module of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from crucible_worker.children.frames import frame

__all__ = [
    "UNLUCKY",
    "die_at",
    "die_once",
    "double",
    "fail",
    "hang_in_c",
    "hog",
    "length",
    "limits",
    "main_file",
    "pid",
    "pid_after_work",
    "sleep",
    "speak_for_itself",
    "spin",
    "spin_and_tell",
    "write_line",
]

UNLUCKY = 13
"""The number that `die_at` dies at."""


def double(number: int) -> int:
    """Work that is done at once."""
    return 2 * number


def pid(item: object) -> int:
    """Who works."""
    return os.getpid()


def pid_after_work(item: object) -> int:
    """Who works, slowly enough for others to get their share."""
    time.sleep(0.002)
    return os.getpid()


def length(text: str) -> int:
    """Work on something large."""
    return len(text)


def write_line(path: str) -> None:
    """Work that leaves a trace, a millisecond later."""
    time.sleep(0.001)
    with open(path, "a") as log:
        log.write("begun\n")


def sleep(seconds: float) -> float:
    """Work that takes some time, and no processor."""
    time.sleep(seconds)
    return seconds


def spin(seconds: float) -> float:
    """Work that takes so much processor time."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return seconds


def spin_and_tell(work: tuple[float, str]) -> float:
    """Work that takes so much processor time, after it has said in a file which process does it."""
    seconds, path = work
    Path(path).write_text(str(os.getpid()))
    return spin(seconds)


def hang_in_c(item: object) -> int:
    """Work inside one call that hears no signal handler of Python's for a quarter of a minute."""
    return len(str(7 ** (3 * 10**6) * 3 ** (10**6) * 11 ** (10**6) % 10**100000 * (10**7)))


def die_at(number: int) -> int:
    """Work that the kernel ends where the number is unlucky."""
    if number == UNLUCKY:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die_once(marker: str) -> bool:
    """Work that the kernel ends the first time; a file tells which it is."""
    if Path(marker).exists():
        return True
    Path(marker).touch()
    os.kill(os.getpid(), signal.SIGKILL)
    return False


def speak_for_itself(body: bytes) -> None:
    """Work that writes into the channel to the worker itself, as foreign code that took over a child could."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # what lists the folder is closed by now
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
                os.write(descriptor, frame(body))


def fail(item: object) -> None:
    """Work with a bug in it."""
    raise LookupError(f"no {item}")


def hog(megabytes: int) -> int:
    """Work that takes memory."""
    return len(bytearray(megabytes << 20))


def limits(item: object) -> dict[str, str]:
    """The bounds of the child, as the kernel tells them."""
    lines = Path("/proc/self/limits").read_text().splitlines()[1:]
    limits = {line[:26].strip(): line[26:].split()[0] for line in lines}
    return {
        "core": limits["Max core file size"],
        "address_space": limits["Max address space"],
        "oom": Path("/proc/self/oom_score_adj").read_text().strip(),
        "sigint": str(signal.getsignal(signal.SIGINT)),
        "sigterm": str(signal.getsignal(signal.SIGTERM)),
    }


def main_file(item: object) -> str:
    """The file of the program that this process takes itself for; empty where there is none."""
    return getattr(sys.modules["__main__"], "__file__", "")
